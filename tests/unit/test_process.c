// links: collectord/process.c collectord/clock.c
/* How a process ended and what it maps, from outside. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectord/clock.h"
#include "collectord/process.h"

static void wait_for_end(int pidfd) {
  struct pollfd p = {.fd = pidfd, .events = POLLIN};
  assert_int_equal(poll(&p, 1, 10000), 1);
}

static pid_t child(int signal_or_0, int status) {
  pid_t pid = fork();
  if (pid == 0) {
    if (signal_or_0)
      raise(signal_or_0);
    _exit(status);
  }
  assert_true(pid > 0);
  return pid;
}

static void assert_ended(bool reaped, int number, int status) {
  pid_t pid = child(number, status);
  int fd = process_open(pid);
  assert_true(fd >= 0);
  wait_for_end(fd);
  assert_true(process_ended(fd));
  if (reaped)
    assert_int_equal(waitpid(pid, NULL, 0), pid);
  struct process_exit e = process_exit_status(fd, pid);
  if (reaped && !e.known) /* a kernel before 6.15 has forgotten */
    skip();
  assert_true(e.known);
  assert_int_equal(e.signal, number);
  assert_int_equal(e.code, number ? -1 : status);
  close(fd);
  if (!reaped)
    waitpid(pid, NULL, 0);
}

static void status_of_a_zombie(void **state) {
  (void)state;
  assert_ended(false, 0, 0);
  assert_ended(false, 0, 7);
  assert_ended(false, SIGKILL, 0);
}

static void status_of_one_that_was_waited_for(void **state) {
  (void)state;
  assert_ended(true, 0, 3);
  assert_ended(true, SIGTERM, 0);
}

static void a_living_process_has_not_ended(void **state) {
  (void)state;
  int fd = process_open(getpid());
  assert_true(fd >= 0);
  assert_false(process_ended(fd));
  assert_false(process_exit_status(fd, getpid()).known);
  close(fd);
  assert_int_equal(process_open(0), -ESRCH);
}

static void sees_our_memory_in_a_process(void **state) {
  (void)state;
  int fd = memfd_create("cirron-test", MFD_CLOEXEC);
  struct stat st;
  assert_true(fd >= 0 && ftruncate(fd, 4096) == 0 && fstat(fd, &st) == 0);
  assert_int_equal(process_mapping(getpid(), st.st_ino), PROCESS_MAPS_NOT);
  void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  assert_true(memory != MAP_FAILED);
  close(fd);
  assert_int_equal(process_mapping(getpid(), st.st_ino), PROCESS_MAPS);
  assert_int_equal(process_mapping(getpid(), 0), PROCESS_MAPS);
  munmap(memory, 4096);
  assert_int_equal(process_mapping(getpid(), 0), PROCESS_MAPS_NOT);
}

static void a_zombie_has_no_memory(void **state) {
  (void)state;
  pid_t pid = child(0, 0);
  int fd = process_open(pid);
  wait_for_end(fd);
  assert_int_equal(process_mapping(pid, 1), PROCESS_GONE);
  int64_t start;
  assert_int_equal(process_start_wall(pid, &start), -ESRCH);
  waitpid(pid, NULL, 0);
  assert_int_equal(process_mapping(pid, 1), PROCESS_GONE);
  close(fd);
}

static void knows_when_a_process_began(void **state) {
  (void)state;
  int64_t start, now = clock_wall_ns();
  pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  assert_int_equal(process_start_wall(pid, &start), 0);
  assert_true(llabs(start - now) < 5000000000ll);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(status_of_a_zombie),
      cmocka_unit_test(status_of_one_that_was_waited_for),
      cmocka_unit_test(a_living_process_has_not_ended),
      cmocka_unit_test(sees_our_memory_in_a_process),
      cmocka_unit_test(a_zombie_has_no_memory),
      cmocka_unit_test(knows_when_a_process_began),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
