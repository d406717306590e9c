/* A listener at the other end of the control connection; the session and the launch of a private collector are stand-ins. For the tests
 * of agent/link.c. */
#ifndef CIRRON_TEST_LINK_LISTENER_H
#define CIRRON_TEST_LINK_LISTENER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
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

/* --- stand-ins --- */

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

static inline const char *version(void) {
  return "3.11.7 (main, Jan  1 2024) [GCC]";
}

static inline void add_ring(void) {
  struct ring *ring = &rings[rings_there];
  assert_int_equal(ring_open(session.prefix, rings_there + 1, RING_MIN_CELLS, ring), 0);
  if (rings_there > 0)
    rings[rings_there - 1].next = ring;
  rings_there++;
}

/* --- the listener --- */

static inline int listen_at(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path);
  unlink(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
  assert_int_equal(listen(fd, 8), 0);
  return fd;
}

static inline int accept_one(int listener) {
  return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* One message and its descriptor (-1: none). NULL when there is nothing to read. */
static inline Cirron__Envelope *receive(int conn, int *passed) {
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

static inline bool hung_up(int conn) {
  char byte;
  return recv(conn, &byte, 1, 0) == 0;
}

/* The Hello, whose segment must be the one we write to. */
static inline void expect_hello(int conn) {
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

static inline void expect_ring(int conn, const struct ring *ring) {
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

static inline void expect_goodbye(int conn) {
  int fd;
  Cirron__Envelope *envelope = receive(conn, &fd);
  assert_non_null(envelope);
  assert_int_equal(envelope->body_case, CIRRON__ENVELOPE__BODY_GOODBYE);
  assert_int_equal(fd, -1);
  cirron__envelope__free_unpacked(envelope, NULL);
  assert_true(hung_up(conn));
}

static inline void expect_nothing(int conn) {
  char byte;
  assert_int_equal(recv(conn, &byte, 1, MSG_PEEK), -1);
  assert_int_equal(errno, EAGAIN);
}

static inline uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int set_up(void **state) {
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

static inline int tear_down(void **state) {
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
static inline int connected_at(int listener, uint64_t now) {
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

#define LINK(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
