// links: collectord/listener.c collectord/log.c collectord/clock.c
/* The collector's socket: what it replaces, what it refuses and in which words, and what it leaves behind. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectord/listener.h"

static char folder[64], path[100], why[512];

/* Not what is tested here: takes the place of conn.c. */
void conn_accept(struct conns *conns, int fd) {
  (void)conns;
  close(fd);
}

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/cirron-test-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/s", folder);
  why[0] = '\0';
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[100];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static bool answers(const char *at) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, at);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  bool yes = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
  close(fd);
  return yes;
}

static void assert_refused(const char *at, int err, const char *word) {
  struct listener l = {.fd = -1};
  assert_int_equal(listener_open(at, 0600, &l, why, sizeof why), err);
  assert_int_equal(l.fd, -1);
  if (strncmp(why, at, strlen(at)) != 0 || !strstr(why, word) || strchr(why, '\n'))
    fail_msg("\"%s\" lacks the path or \"%s\", or is more than a line", why, word);
}

static void listens_and_cleans_up(void **state) {
  (void)state;
  struct listener l;
  assert_int_equal(listener_open(path, 0600, &l, why, sizeof why), 0);
  assert_true(answers(path));
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  assert_true(fcntl(l.fd, F_GETFD) & FD_CLOEXEC);
  assert_refused(path, -EADDRINUSE, "another collector");
  listener_close(&l);
  assert_int_equal(access(path, F_OK), -1);
}

static void makes_its_folder(void **state) {
  (void)state;
  char deeper[128];
  snprintf(deeper, sizeof deeper, "%s/cirron/s", folder);
  struct listener l;
  assert_int_equal(listener_open(deeper, 0600, &l, why, sizeof why), 0);
  listener_close(&l);
  snprintf(deeper, sizeof deeper, "%s/a/b/s", folder);
  assert_refused(deeper, -ENOENT, "--socket");
}

static void replaces_a_stale_socket(void **state) {
  (void)state;
  struct listener dead, l;
  assert_int_equal(listener_open(path, 0600, &dead, why, sizeof why), 0);
  close(dead.fd); /* as after kill -9: the file stays */
  assert_false(answers(path));
  assert_int_equal(listener_open(path, 0600, &l, why, sizeof why), 0);
  assert_true(answers(path));
  listener_close(&l);
}

static void leaves_what_is_not_its_own(void **state) {
  (void)state;
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  assert_int_equal(write(fd, "x", 1), 1);
  close(fd);
  assert_refused(path, -EEXIST, "not a socket");
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_size, 1);
  unlink(path);
  struct listener l, next;
  assert_int_equal(listener_open(path, 0600, &l, why, sizeof why), 0);
  unlink(path);
  assert_int_equal(listener_open(path, 0600, &next, why, sizeof why), 0);
  listener_close(&l); /* the name belongs to another now */
  assert_true(answers(path));
  listener_close(&next);
}

static void another_users_socket_stays(void **state) {
  (void)state;
  struct listener dead;
  assert_int_equal(listener_open(path, 0600, &dead, why, sizeof why), 0);
  close(dead.fd);
  if (geteuid() != 0 || chown(path, 65534, 65534) != 0)
    skip();
  assert_refused(path, -EPERM, "65534");
}

static void says_that_a_path_is_too_long(void **state) {
  (void)state;
  char longest[200];
  memset(longest, 'x', sizeof longest - 1);
  longest[0] = '/';
  longest[sizeof longest - 1] = '\0';
  assert_refused(longest, -ENAMETOOLONG, "107");
}

static void tells_the_service_manager(void **state) {
  (void)state;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  setenv("NOTIFY_SOCKET", path, 1);
  listener_notify("READY=1");
  unsetenv("NOTIFY_SOCKET");
  listener_notify("READY=1"); /* nobody to tell */
  char text[32] = "";
  assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), 7);
  assert_string_equal(text, "READY=1");
  assert_int_equal(recv(fd, text, sizeof text, MSG_DONTWAIT), -1);
  close(fd);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(listens_and_cleans_up),      T(makes_its_folder),           T(replaces_a_stale_socket),
      T(leaves_what_is_not_its_own), T(another_users_socket_stays), T(says_that_a_path_is_too_long),
      T(tells_the_service_manager),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
