// links: agent/link.c agent/link_say.c agent/link_socket.c agent/pump.c agent/pump_snapshot.c agent/snapshot_area.c agent/pack.c agent/hello.c agent/pbwrite.c agent/fd.c agent/segment.c agent/ring_writer.c agent/env.c agent/cost.c agent/clock.c
/* The control connection: what is sent, with which descriptors, and what happens when either side lets go. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/link_listener.h"

static void says_who_it_is(void **state) {
  (void)state;
  setenv("RANK", "2", 1);
  setenv("SLURM_JOB_ID", "991", 1);
  setenv("CIRRON_RUN_ID", "run 7", 1);
  int listener = listen_at(socket_path), fd;
  link_tick(clock_ns());
  int conn = accept_one(listener);
  Cirron__Envelope *envelope = receive(conn, &fd);
  const Cirron__Hello *h = envelope->hello;
  char cwd[4096], stat[64];
  assert_int_equal(h->abi_major, RING_ABI_MAJOR);
  assert_string_equal(CIRRON_VERSION, "0.1.0");
  assert_int_equal(h->agent_version.len, strlen(CIRRON_VERSION));
  assert_int_equal(h->pid, getpid());
  assert_int_equal(h->ppid, getppid());
  assert_true(h->host.len > 0);
  assert_int_equal(h->n_argv, 1);
  assert_non_null(memmem(h->argv[0].data, h->argv[0].len, "test_link", 9));
  assert_non_null(memmem(h->exe.data, h->exe.len, "test_link", 9));
  assert_memory_equal(h->cwd.data, getcwd(cwd, sizeof(cwd)), h->cwd.len);
  assert_int_equal(h->cwd.len, strlen(cwd));
  assert_int_equal(h->python_version.len, 6);
  assert_memory_equal(h->python_version.data, "3.11.7", 6);
  assert_int_equal(h->rank, 2);
  assert_int_equal(h->local_rank, -1);
  assert_int_equal(h->world_size, -1);
  assert_int_equal(h->run_id.len, 5);
  assert_int_equal(h->n_attributes, 1);
  assert_memory_equal(h->attributes[0]->name.data, "SLURM_JOB_ID", 12);
  assert_memory_equal(h->attributes[0]->value.data, "991", 3);
  assert_int_equal(h->start_monotonic_ns, 5);
  assert_int_equal(h->anchor_monotonic_ns, 6);
  assert_int_equal(h->anchor_realtime_ns, 7);
  snprintf(stat, sizeof(stat), "awk '{exit $22 != %llu}' /proc/%d/stat", (unsigned long long)h->process_start_ticks, getpid());
  assert_int_equal(system(stat), 0);
  cirron__envelope__free_unpacked(envelope, NULL);
  unsetenv("RANK");
  unsetenv("SLURM_JOB_ID");
  unsetenv("CIRRON_RUN_ID");
  close(fd);
  close(conn);
  close(listener);
}

static void hands_over_rings(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  add_ring();
  int listener = listen_at(socket_path);
  errno = 4321;
  int conn = connected_at(listener, now);
  assert_int_equal(atomic_load(&link_due_ns), now + 100 * MS);
  link_tick(now + 100 * MS);
  expect_nothing(conn);
  add_ring();
  link_tick(now + 101 * MS);
  expect_ring(conn, &rings[2]);
  expect_nothing(conn);
  close(conn);
  close(listener);
}

static void nobody_there_costs_little(void **state) {
  (void)state;
  uint64_t now = 1000000 * MS, last = 0;
  for (int i = 0; i < 10; i++) {
    errno = 4321;
    link_tick(now);
    assert_int_equal(errno, 4321);
    assert_false(link_connected());
    uint64_t pause = atomic_load(&link_due_ns) - now;
    assert_true(pause >= last && pause >= 100 * MS && pause <= 5000 * MS);
    last = pause;
    now += pause;
  }
  assert_int_equal(last, 5000 * MS);
  assert_int_equal(launches, 0); /* with a socket that was asked for, no other is started */
  int listener = listen_at(socket_path);
  close(connected_at(listener, now));
  close(listener);
}

static void no_session_no_connection(void **state) {
  (void)state;
  int listener = listen_at(socket_path);
  has_session = false;
  link_tick(1);
  link_goodbye(1000 * MS);
  assert_int_equal(accept_one(listener), -1);
  close(listener);
}

static void restarted_collector_gets_everything_again(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  int listener = listen_at(socket_path), conn = connected_at(listener, now);
  close(conn);
  close(listener);
  link_tick(now += 2000 * MS);
  assert_false(link_connected());
  assert_false(rings[0].attached);
  add_ring();
  listener = listen_at(socket_path);
  close(connected_at(listener, now += 100 * MS));
  /* The next is there at once when the old one goes. */
  close(connected_at(listener, now + 2000 * MS));
  close(listener);
}

static void collector_that_lets_go_at_once_is_not_pestered(void **state) {
  (void)state;
  uint64_t now = 1000000 * MS;
  int listener = listen_at(socket_path);
  unsigned connections = 0;
  for (int i = 0; i < 300; i++, now += 100 * MS) { /* 30 s */
    if (now < atomic_load(&link_due_ns))
      continue;
    link_tick(now);
    int conn = accept_one(listener);
    connections += conn >= 0;
    if (conn >= 0)
      close(conn);
  }
  assert_in_range(connections, 3, 15);
  close(listener);
}

/* One that has taken records is no collector that refuses us, however short it lived: the next one is there soon. */
static void collector_that_took_records_is_awaited(void **state) {
  (void)state;
  uint64_t now = 1000000 * MS, begin;
  for (int life = 0; life < 5; life++) {
    int listener = listen_at(socket_path), conn = connected_at(listener, now);
    rings[0].shm->tail++; /* as it does after a commit */
    close(conn);
    close(listener);
    for (int look = 0; look < 4; look++) /* it took something shortly before */
      link_tick(now += 100 * MS);
    assert_false(link_connected());
    for (begin = now; now < begin + 4000 * MS; now = atomic_load(&link_due_ns)) {
      link_tick(now);
      assert_in_range(atomic_load(&link_due_ns) - now, 1, 100 * MS);
    }
  }
  for (begin = now; now < begin + 60000 * MS; now = atomic_load(&link_due_ns)) /* but not for ever */
    link_tick(now);
  assert_int_equal(atomic_load(&link_due_ns) - now, 0);
  link_tick(now);
  assert_int_equal(atomic_load(&link_due_ns) - now, 5000 * MS);
}

/* What it took once says nothing about those that come after it. */
static void collectors_that_took_records_once_are_not_pestered(void **state) {
  (void)state;
  uint64_t now = 1000000 * MS;
  int listener = listen_at(socket_path), conn = connected_at(listener, now);
  rings[0].shm->tail++;
  close(conn);
  unsigned connections = 0;
  for (int i = 0; i < 300; i++, now += 100 * MS) { /* 30 s */
    if (now < atomic_load(&link_due_ns))
      continue;
    link_tick(now);
    conn = accept_one(listener);
    connections += conn >= 0;
    if (conn >= 0)
      close(conn);
  }
  assert_in_range(connections, 3, 16);
  close(listener);
}

/* As long as what is written is read, the connection is there: a look makes no system call then, but for one in 5 s. */
static void asks_nothing_while_records_are_read(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  int listener = listen_at(socket_path), conn = connected_at(listener, now), unheard = 0;
  for (int i = 0; i < 200; i++) {
    int waits = 0;
    assert_int_equal(ioctl(conn, SIOCOUTQ, &waits), 0);
    if (!waits)
      assert_int_equal(send(conn, "x", 1, 0), 1); /* is taken by a look that asks */
    unheard += waits != 0;
    rings[0].shm->tail += i % 3 == 0; /* 250 ms lie between two commits */
    link_tick(now += 100 * MS);
    assert_int_equal(atomic_load(&link_due_ns) - now, 100 * MS);
  }
  assert_in_range(unheard, 190, 199);
  add_ring(); /* is handed over at once, whoever reads the others */
  rings[0].shm->tail++;
  link_tick(now += 100 * MS);
  expect_ring(conn, &rings[1]);
  close(conn);
  close(listener);
  for (int look = 0; look < 4; look++)
    link_tick(now += 100 * MS);
  assert_false(link_connected());
}

static void chatter_is_ignored(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  int listener = listen_at(socket_path), conn = connected_at(listener, now);
  char noise[3000] = {0};
  assert_int_equal(send(conn, noise, sizeof(noise), 0), sizeof(noise));
  link_tick(now + 1100 * MS);
  assert_true(link_connected());
  assert_int_equal(send(conn, noise, sizeof(noise), 0), sizeof(noise));
  close(conn);
  close(listener);
  link_tick(now + 1200 * MS);
  assert_false(link_connected());
}

/* The script closes what is not its own and opens a file of its own at each of the numbers. */
static void writes_to_no_descriptor_of_the_script(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  char path[100];
  int listener = listen_at(socket_path), conn = connected_at(listener, now), files[64], n = 0;
  snprintf(path, sizeof(path), "%s/file", folder);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  for (int fd = 200; fd < 264; fd++)
    if (fcntl(fd, F_GETFD) >= 0 && fd != conn && fd != listener && fd != file)
      files[n++] = dup2(file, fd);
  assert_true(n >= 3); /* connection, segment, ring */
  assert_true(hung_up(conn));
  close(conn);

  rings[0].tail_seen = 0;
  link_tick(now + 100 * MS);
  conn = accept_one(listener);
  expect_hello(conn);
  expect_nothing(conn); /* the ring waits for its writer */
  struct ring_span span = {.type = RING_SPAN};
  assert_true(ring_put(&rings[0], &span, NULL, 0, NULL, 0, false));
  link_tick(now + 200 * MS);
  expect_ring(conn, &rings[0]);

  struct stat st;
  assert_int_equal(fstat(file, &st), 0);
  assert_int_equal(st.st_size, 0);
  for (int i = 0; i < n; i++) {
    assert_true(fcntl(files[i], F_GETFD) >= 0);
    close(files[i]);
  }
  close(file);
  close(conn);
  close(listener);
}

static void slow_reader_gets_the_rest_later(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  for (unsigned i = 1; i < MAX_RINGS; i++) { /* the same memory under many numbers */
    rings[i] = rings[0];
    rings[i].ring_no = i + 1;
    rings[i - 1].next = &rings[i];
    rings[i].next = NULL;
  }
  rings_there = MAX_RINGS;
  int listener = listen_at(socket_path);
  link_tick(now);
  assert_true(link_connected());
  assert_false(rings[MAX_RINGS - 1].attached); /* else this tests nothing */
  int conn = accept_one(listener);
  expect_hello(conn);
  unsigned read = 0;
  for (int tick = 1; tick < 100 && read < MAX_RINGS; tick++) {
    while (read < MAX_RINGS && rings[read].attached)
      expect_ring(conn, &rings[read++]);
    link_tick(now + (uint64_t)tick * 20 * MS);
  }
  assert_int_equal(read, MAX_RINGS);
  expect_nothing(conn);
  for (unsigned i = 1; i < MAX_RINGS; i++)
    rings[i].ring_no = 0; /* not to be unmapped */
  close(conn);
  close(listener);
}

static void child_of_a_fork_leaves_the_parents_connection(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  int listener = listen_at(socket_path), conn = connected_at(listener, now);
  pid_t pid = fork();
  if (pid == 0) {
    link_forget();
    if (link_connected() || atomic_load(&link_due_ns) != 0)
      _exit(1);
    session.prefix = 99;
    rings[0].attached = false;
    link_tick(now); /* a connection of its own */
    _exit(link_connected() ? 0 : 2);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  expect_nothing(conn);
  int other = accept_one(listener), fd;
  Cirron__Envelope *envelope = receive(other, &fd);
  assert_int_equal(envelope->hello->session, 99);
  assert_int_equal(envelope->hello->pid, pid);
  cirron__envelope__free_unpacked(envelope, NULL);
  close(fd);
  link_tick(now + 100 * MS);
  assert_true(link_connected());
  link_goodbye(0);
  expect_goodbye(conn);
  close(other);
  close(conn);
  close(listener);
}

/* A listener of another user: refused in a folder that all may write to, accepted in that user's own. */
static void strangers_are_refused(void **state) {
  (void)state;
  const uid_t stranger = 65534;
  if (geteuid() != 0)
    skip();
  for (int own = 0; own < 2; own++) {
    int ready[2], done[2], status;
    char byte;
    assert_true(pipe(ready) == 0 && pipe(done) == 0);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(chown(folder, own ? stranger : 0, (gid_t)-1), 0);
    pid_t pid = fork();
    if (pid == 0) {
      if (setresuid(stranger, stranger, stranger) != 0)
        _exit(1);
      listen_at(socket_path);
      (void)!write(ready[1], "", 1);
      close(done[1]);
      _exit(read(done[0], &byte, 1) != 0);
    }
    close(done[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    link_forget();
    /* as another user than the listener's and not root it is the same rule; root's own sockets are always taken */
    link_tick(clock_ns());
    assert_int_equal(link_connected(), own);
    close(done[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(ready[0]);
    close(ready[1]);
    unlink(socket_path);
  }
}

int main(void) {
  static const char *const launcher[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"};
  for (size_t i = 0; i < sizeof(launcher) / sizeof(launcher[0]); i++)
    unsetenv(launcher[i]);
  const struct CMUnitTest tests[] = {
      LINK(says_who_it_is),
      LINK(hands_over_rings),
      LINK(nobody_there_costs_little),
      LINK(no_session_no_connection),
      LINK(restarted_collector_gets_everything_again),
      LINK(collector_that_lets_go_at_once_is_not_pestered),
      LINK(collector_that_took_records_is_awaited),
      LINK(collectors_that_took_records_once_are_not_pestered),
      LINK(asks_nothing_while_records_are_read),
      LINK(chatter_is_ignored),
      LINK(writes_to_no_descriptor_of_the_script),
      LINK(slow_reader_gets_the_rest_later),
      LINK(child_of_a_fork_leaves_the_parents_connection),
      LINK(strangers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
