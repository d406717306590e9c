// links: agent/link.c agent/pump.c agent/pack.c agent/hello.c agent/pbwrite.c agent/fd.c agent/segment.c agent/ring_writer.c agent/env.c agent/cost.c agent/clock.c
/* The control connection against a listener in the test: what is sent, with which descriptors, and what happens when either side
 * lets go. The session and the launch of a private collector are stand-ins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/link.h"
#include "agent/py.h"
#include "agent/segment.h"
#include "agent/session.h"
#include "proto/cirron.pb-c.h"
#include "proto/link_abi.h"

#define MS 1000000ull
#define MAX_RINGS 400

/* Stand-ins. */

struct env session_env;
struct py_api py;
static struct session session = {
    .prefix = 0x0123456789abcdefu, .start_ns = 5, .anchor_monotonic_ns = 6, .anchor_realtime_ns = 7};
static bool has_session;
static struct ring rings[MAX_RINGS];
static unsigned rings_there;
static char folder[64], socket_path[100], private_path[100];
static unsigned launches;
static int launch_result;
static void (*launch_does)(void);

const struct session *session_get(void) {
  return has_session ? &session : NULL;
}

void session_go_by_messages(void) {
  fail(); /* descriptors can be passed here */
}

bool session_is_worker(void) {
  return false;
}

struct ring *session_rings(void) {
  return rings_there ? &rings[0] : NULL;
}

int launch_socket_path(char *out, size_t size) {
  return snprintf(out, size, "%s", private_path) < (int)size ? 0 : -ENAMETOOLONG;
}

int launch_collector(const char *path) {
  assert_string_equal(path, private_path);
  launches++;
  if (launch_result == 0 && launch_does)
    launch_does();
  return launch_result;
}

static const char *version(void) {
  return "3.11.7 (main, Jan  1 2024) [GCC]";
}

static void add_ring(void) {
  struct ring *ring = &rings[rings_there];
  assert_int_equal(ring_open(session.prefix, rings_there + 1, RING_MIN_CELLS, ring), 0);
  if (rings_there > 0)
    rings[rings_there - 1].next = ring;
  rings_there++;
}

/* The listener. */

static int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path);
  unlink(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
  assert_int_equal(listen(fd, 8), 0);
  return fd;
}

static int accept_one(int listener) {
  return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* One message and its descriptor (-1: none). NULL when there is nothing to read. */
static Cirron__Envelope *receive(int conn, int *passed) {
  static uint8_t buf[LINK_MAX_MESSAGE];
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
  } control;
  uint8_t prefix[4];
  struct iovec part = {.iov_base = prefix, .iov_len = sizeof(prefix)};
  struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
  ssize_t n = recvmsg(conn, &msg, MSG_CMSG_CLOEXEC);
  *passed = -1;
  if (n <= 0)
    return NULL;
  assert_int_equal(n, 4);
  struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
  if (cmsg) {
    assert_int_equal(cmsg->cmsg_len, CMSG_LEN(sizeof(int)));
    memcpy(passed, CMSG_DATA(cmsg), sizeof(int));
  }
  uint32_t len = prefix[0] | prefix[1] << 8 | prefix[2] << 16 | (uint32_t)prefix[3] << 24;
  assert_true(len <= LINK_MAX_MESSAGE);
  assert_int_equal(recv(conn, buf, len, 0), len);
  Cirron__Envelope *envelope = cirron__envelope__unpack(NULL, len, buf);
  assert_non_null(envelope);
  return envelope;
}

static bool hung_up(int conn) {
  char byte;
  return recv(conn, &byte, 1, 0) == 0;
}

/* The Hello, whose segment must be the one we write to. */
static void expect_hello(int conn) {
  int fd;
  Cirron__Envelope *envelope = receive(conn, &fd);
  assert_non_null(envelope);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_HELLO);
  assert_true(envelope->hello->session == session.prefix);
  cirron__envelope__free_unpacked(envelope, NULL);
  struct ring_segment *shm = mmap(NULL, SEGMENT_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(shm, MAP_FAILED);
  assert_true(shm->magic == SEGMENT_MAGIC);
  uint64_t before = shm->refused_marks;
  segment_get()->refused_marks++;
  assert_int_equal(shm->refused_marks, before + 1);
  munmap(shm, SEGMENT_BYTES);
  close(fd);
}

static void expect_ring(int conn, const struct ring *ring) {
  int fd;
  Cirron__Envelope *envelope = receive(conn, &fd);
  assert_non_null(envelope);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_RING_ATTACH);
  assert_int_equal(envelope->ring_attach->ring_no, ring->ring_no);
  assert_int_equal(envelope->ring_attach->cells, ring->mask + 1);
  cirron__envelope__free_unpacked(envelope, NULL);
  struct ring_header *shm = mmap(NULL, RING_BYTES(RING_MIN_CELLS), PROT_READ, MAP_SHARED, fd, 0);
  assert_ptr_not_equal(shm, MAP_FAILED);
  assert_true(shm->magic == RING_MAGIC && shm->head == ring->head);
  munmap(shm, RING_BYTES(RING_MIN_CELLS));
  close(fd);
}

static void expect_goodbye(int conn) {
  int fd;
  Cirron__Envelope *envelope = receive(conn, &fd);
  assert_non_null(envelope);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_GOODBYE);
  assert_int_equal(fd, -1);
  cirron__envelope__free_unpacked(envelope, NULL);
  assert_true(hung_up(conn));
}

static void expect_nothing(int conn) {
  char byte;
  assert_int_equal(recv(conn, &byte, 1, MSG_PEEK), -1);
  assert_int_equal(errno, EAGAIN);
}

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int set_up(void **state) {
  (void)state;
  link_forget();
  strcpy(folder, "/tmp/test_link_XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  snprintf(socket_path, sizeof(socket_path), "%s/c.sock", folder);
  snprintf(private_path, sizeof(private_path), "%s/private.sock", folder);
  setenv("XDG_RUNTIME_DIR", folder, 1);
  memset(&session_env, 0, sizeof(session_env));
  strcpy(session_env.socket, socket_path);
  has_session = true;
  launches = 0;
  launch_result = 0;
  launch_does = NULL;
  py.Py_GetVersion = version;
  if (segment_open(session.prefix) != 0)
    return -1;
  add_ring();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[100];
  for (unsigned i = 0; i < rings_there; i++)
    if (rings[i].ring_no == i + 1)
      ring_unmap(&rings[i]);
  memset(rings, 0, sizeof(rings));
  rings_there = 0;
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

/* Connected, everything said so far read. */
static int connected_at(int listener, uint64_t now) {
  link_tick(now);
  assert_true(link_connected());
  int conn = accept_one(listener);
  assert_true(conn >= 0);
  expect_hello(conn);
  for (unsigned i = 0; i < rings_there; i++)
    expect_ring(conn, &rings[i]);
  expect_nothing(conn);
  return conn;
}

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

#define LINK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

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
      LINK(chatter_is_ignored),
      LINK(writes_to_no_descriptor_of_the_script),
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
      LINK(slow_reader_gets_the_rest_later),
      LINK(child_of_a_fork_leaves_the_parents_connection),
      LINK(strangers_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
