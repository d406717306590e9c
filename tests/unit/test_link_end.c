// links: agent/link.c agent/link_say.c agent/link_socket.c agent/pump.c agent/pump_snapshot.c agent/snapshot_area.c agent/pack.c agent/hello.c agent/pbwrite.c agent/fd.c agent/segment.c agent/ring_writer.c agent/env.c agent/cost.c agent/clock.c
/* Where the control connection begins and ends: which collector is looked for, which one is started, and the last word. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/link_listener.h"

/* The same just before the end: nobody writes any more, so the ring is moved by goodbye. */
static void goodbye_after_all_was_closed(void **state) {
  (void)state;
  int listener = listen_at(socket_path), conn = connected_at(listener, clock_ns());
  struct ring_span span = {.type = RING_SPAN};
  for (int fd = 200; fd < 264; fd++)
    if (fd != conn && fd != listener)
      close(fd);
  assert_true(ring_put(&rings[0], &span, NULL, 0, NULL, 0, false));
  close(conn);
  link_goodbye(1000 * MS);
  conn = accept_one(listener);
  expect_hello(conn);
  expect_ring(conn, &rings[0]);
  expect_goodbye(conn);
  close(conn);
  close(listener);
}

static void goodbye_is_the_last_word(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  int listener = listen_at(socket_path), conn = connected_at(listener, now);
  add_ring(); /* not handed over yet */
  link_goodbye(0);
  expect_ring(conn, &rings[1]);
  expect_goodbye(conn);
  assert_false(link_connected());
  assert_true(atomic_load(&link_due_ns) == UINT64_MAX);
  link_tick(now + 5000 * MS);
  assert_int_equal(accept_one(listener), -1);
  close(conn);
  close(listener);
}

static void goodbye_says_all_in_a_short_program(void **state) {
  (void)state;
  int listener = listen_at(socket_path);
  link_goodbye(0);
  int conn = accept_one(listener);
  expect_hello(conn);
  expect_ring(conn, &rings[0]);
  expect_goodbye(conn);
  close(conn);
  close(listener);
}

static void goodbye_does_not_wait_for_a_refused_socket(void **state) {
  (void)state;
  close(listen_at(socket_path)); /* stale */
  uint64_t before = clock_ns();
  errno = 4321;
  link_goodbye(60000 * MS);
  assert_int_equal(errno, 4321);
  assert_true(clock_ns() - before < 10000 * MS);
}

static void bad_socket_setting_means_none(void **state) {
  (void)state;
  session_env = (struct env){.autostart = true, .offline = true};
  link_tick(1000 * MS);
  link_goodbye(60000 * MS);
  assert_int_equal(launches, 0);
}

static int collector_listener = -1;
static pthread_t collector_thread;

static void *collector_comes_up(void *arg) {
  (void)arg;
  usleep(30000); /* not to wait for anything: so that the first attempts find nobody */
  collector_listener = listen_at(private_path);
  return NULL;
}

static void collector_starts(void) {
  assert_int_equal(pthread_create(&collector_thread, NULL, collector_comes_up, NULL), 0);
}

static bool system_collector(void) {
  return access(LINK_SYSTEM_SOCKET, F_OK) == 0;
}

static void goodbye_waits_for_a_starting_collector(void **state) {
  (void)state;
  if (system_collector())
    skip();
  session_env = (struct env){.autostart = true};
  launch_does = collector_starts;
  link_goodbye(20000 * MS);
  assert_int_equal(launches, 1);
  pthread_join(collector_thread, NULL);
  int conn = accept_one(collector_listener);
  assert_true(conn >= 0);
  expect_hello(conn);
  expect_ring(conn, &rings[0]);
  expect_goodbye(conn);
  close(conn);
  close(collector_listener);
}

static void goodbye_has_a_bound(void **state) {
  (void)state;
  if (system_collector())
    skip();
  session_env = (struct env){.autostart = true};
  uint64_t before = clock_ns();
  link_goodbye(40 * MS); /* the collector that was started never listens */
  uint64_t took = clock_ns() - before;
  assert_true(took >= 40 * MS && took < 10000 * MS);
  assert_int_equal(launches, 1);
}

static void private_collector_is_asked_often_then_seldom(void **state) {
  (void)state;
  if (system_collector())
    skip();
  session_env = (struct env){.autostart = true};
  uint64_t now = 1000000 * MS;
  link_tick(now);
  assert_int_equal(launches, 1);
  assert_int_equal(atomic_load(&link_due_ns), now + 20 * MS);
  int listener = listen_at(private_path);
  close(connected_at(listener, now + 20 * MS));
  close(listener);
  unlink(private_path);
  for (now += 2000 * MS; now < 1000000 * MS + 3600000 * MS; now = atomic_load(&link_due_ns))
    link_tick(now);
  assert_int_equal(launches, 3); /* in an hour, of collectors that never listen */
}

static void autostart_can_be_forbidden_or_impossible(void **state) {
  (void)state;
  if (system_collector())
    skip();
  session_env = (struct env){.autostart = false};
  link_tick(1000000 * MS);
  link_goodbye(60000 * MS);
  assert_int_equal(launches, 0);
  link_forget();
  session_env.autostart = true;
  launch_result = -EACCES;
  for (uint64_t now = 2000000 * MS; now < 2100000 * MS; now = atomic_load(&link_due_ns))
    link_tick(now);
  link_goodbye(60000 * MS);
  assert_int_equal(launches, 1);
}

static void user_collector_comes_before_a_private_one(void **state) {
  (void)state;
  char path[200];
  snprintf(path, sizeof(path), "%s/cirron", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  snprintf(path, sizeof(path), "%s/" LINK_USER_SOCKET, folder);
  session_env = (struct env){.autostart = true};
  int listener = listen_at(path);
  close(connected_at(listener, clock_ns()));
  assert_int_equal(launches, 0);
  close(listener);
}

int main(void) {
  static const char *const launcher[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"};
  for (size_t i = 0; i < sizeof(launcher) / sizeof(launcher[0]); i++)
    unsetenv(launcher[i]);
  const struct CMUnitTest tests[] = {
      LINK(goodbye_after_all_was_closed),
      LINK(goodbye_is_the_last_word),
      LINK(goodbye_says_all_in_a_short_program),
      LINK(goodbye_does_not_wait_for_a_refused_socket),
      LINK(bad_socket_setting_means_none),
      LINK(goodbye_waits_for_a_starting_collector),
      LINK(goodbye_has_a_bound),
      LINK(private_collector_is_asked_often_then_seldom),
      LINK(autostart_can_be_forbidden_or_impossible),
      LINK(user_collector_comes_before_a_private_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
