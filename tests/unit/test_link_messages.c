// links: agent/link.c agent/link_say.c agent/link_socket.c agent/pump.c agent/pump_snapshot.c agent/snapshot_area.c agent/pack.c agent/hello.c agent/pbwrite.c agent/fd.c agent/segment.c agent/ring_writer.c agent/env.c agent/cost.c agent/clock.c
/* The control connection where no memory is shared: what follows the Hello, what happens when the socket is full or breaks, and how
 * one comes to send messages where descriptors cannot be passed. What the messages say is test_pump.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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
#define LIMIT (10000 * MS)     /* what a call may wait */
#define WELL_BELOW (LIMIT / 2) /* it did not, on however busy a machine */

/* Stand-ins. */

struct env session_env;
struct py_api py;
static struct session session = {.prefix = 0x0123456789abcdefu, .start_ns = 5};
static struct ring ring;
static char folder[64], socket_path[100];
static int refuse; /* errno of sendmsg with a descriptor */

const struct session *session_get(void) {
  return &session;
}

bool session_is_worker(void) {
  return false;
}

struct ring *session_rings(void) {
  return &ring;
}

void session_go_by_messages(void) {
  session.by_messages = true;
  ring.hurry = link_hurry;
}

int launch_socket_path(char *out, size_t size) {
  (void)out;
  (void)size;
  return -ENOENT;
}

int launch_collector(const char *path) {
  (void)path;
  return -ENOENT;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  if (refuse && message->msg_controllen) {
    errno = refuse;
    return -1;
  }
  return syscall(SYS_sendmsg, fd, message, flags);
}

/* The collector's end. */

static int listener, conn;
static uint64_t spans, cells, messages;
static size_t used; /* bytes of a message that is not whole */
static bool said_hello, said_goodbye, by_messages, got_fd;

static void on_message(const uint8_t *data, size_t len) {
  Cirron__Envelope *e = cirron__envelope__unpack(NULL, len, data);
  assert_non_null(e);
  messages++;
  if (e->body_case == CIRRON__ENVELOPE__BODY_HELLO) {
    said_hello = true;
    by_messages = e->hello->by_messages;
    assert_true(!by_messages || e->hello->segment_address == (uintptr_t)segment_get());
  } else if (e->body_case == CIRRON__ENVELOPE__BODY_SPAN_BATCH) {
    assert_true(e->span_batch->position <= cells);
    cells = e->span_batch->position + e->span_batch->count;
    spans = e->span_batch->emitted_spans - e->span_batch->dropped_spans;
  } else if (e->body_case == CIRRON__ENVELOPE__BODY_GOODBYE) {
    said_goodbye = true;
  }
  cirron__envelope__free_unpacked(e, NULL);
}

/* All there is to read, at most `bytes`. */
static void take(size_t bytes) {
  static uint8_t buf[2 * LINK_MAX_MESSAGE];
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control;
  for (ssize_t n; bytes; bytes -= (size_t)n) {
    size_t want = sizeof buf - used < bytes ? sizeof buf - used : bytes;
    struct iovec part = {buf + used, want};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    n = recvmsg(conn, &msg, MSG_CMSG_CLOEXEC);
    if (n <= 0)
      return;
    got_fd = got_fd || msg.msg_controllen > 0;
    used += (size_t)n;
    size_t at = 0;
    for (uint32_t len; used - at >= sizeof len; at += sizeof len + len) {
      memcpy(&len, buf + at, sizeof len);
      assert_true(len > 0 && len <= LINK_MAX_MESSAGE);
      if (used - at < sizeof len + len)
        break;
      on_message(buf + at + sizeof len, len);
    }
    memmove(buf, buf + at, used - at);
    used -= at;
  }
}

/* Also in a thread that may come before the connection does: an assertion that fails there would end the program. */
static void accept_one(void) {
  struct pollfd coming = {.fd = listener, .events = POLLIN};
  poll(&coming, 1, 10000);
  said_hello = false;
  cells = spans = used = 0;
  conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  assert_true(conn >= 0);
}

static void listen_again(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, socket_path);
  unlink(socket_path);
  listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(listen(listener, 8), 0);
}

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* With as much text as a record may have: a few hundred of them fill a socket. */
static bool put_span(uint64_t id) {
  static char text[15000];
  memset(text, 'x', sizeof text);
  struct ring_span span = {.type = RING_SPAN, .id = id, .parent = 1, .index = SPAN_NO_INDEX, .cpu_ns = SPAN_NO_TIME};
  return ring_put(&ring, &span, text, id % 2 ? 0 : sizeof text, NULL, 0, false);
}

static int set_up(void **state) {
  (void)state;
  link_forget();
  strcpy(folder, "/tmp/test_link_XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  snprintf(socket_path, sizeof socket_path, "%s/c.sock", folder);
  memset(&session_env, 0, sizeof session_env);
  strcpy(session_env.socket, socket_path);
  session.by_messages = true;
  said_hello = said_goodbye = by_messages = got_fd = false;
  refuse = 0;
  conn = -1;
  listen_again();
  return segment_open_private(session.prefix) ||
         ring_open_private(session.prefix, 1, 65536, false, link_hurry, &ring); /* larger than a socket's buffer */
}

static int tear_down(void **state) {
  (void)state;
  char command[100];
  link_forget();
  ring_unmap(&ring);
  close(listener);
  if (conn >= 0)
    close(conn);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static void sends_records_and_no_descriptor(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  assert_true(put_span(1));
  errno = 4321;
  link_tick(now);
  assert_int_equal(errno, 4321);
  accept_one();
  take(SIZE_MAX);
  assert_true(said_hello && by_messages);
  assert_false(got_fd);
  assert_int_equal(spans, 1);
  assert_int_equal(atomic_load(&link_due_ns), now + 25 * MS);
  assert_true(put_span(2));
  link_tick(now + 25 * MS);
  take(SIZE_MAX);
  assert_int_equal(spans, 2);
  link_hurry();
  assert_int_equal(atomic_load(&link_due_ns), 0);
}

static void what_the_socket_does_not_take_comes_later(void **state) {
  (void)state;
  uint64_t now = clock_ns(), made = 0;
  while (put_span(made + 1))
    made++;
  link_tick(now);
  assert_int_equal(atomic_load(&link_due_ns), now + 10 * MS);
  link_hurry(); /* to no end now */
  assert_int_equal(atomic_load(&link_due_ns), now + 10 * MS);
  accept_one();
  for (unsigned i = 0; i < 10000 && spans < made; i++) {
    take(1 + i * 37 % 50000);
    link_tick(now += 10 * MS);
  }
  assert_int_equal(spans, made);
  assert_int_equal(cells, ring.head);
  assert_int_equal(ring.shm->tail, 0); /* nobody has committed it */
}

static void begins_anew_where_nothing_is_committed(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  for (uint64_t i = 1; i <= 100; i++)
    assert_true(put_span(i));
  link_tick(now);
  accept_one();
  take(100000); /* in the middle of a message */
  assert_int_equal(send(conn, "\6\0\0\0\x5a\4\x08\1\x10\1", 10, 0), 10);
  link_tick(now += 100 * MS);
  assert_int_equal(ring.shm->tail, 1);
  close(conn);
  link_tick(now += 5000 * MS);
  link_tick(now += 5000 * MS);
  accept_one();
  cells = 1; /* from there on */
  for (unsigned i = 0; i < 100; i++) {
    take(SIZE_MAX);
    link_tick(now += 10 * MS);
  }
  assert_true(said_hello);
  assert_int_equal(spans, 100);
  assert_int_equal(cells, ring.head);
}

static void nonsense_ends_the_connection(void **state) {
  (void)state;
  uint64_t now = clock_ns();
  link_tick(now);
  accept_one();
  assert_true(link_connected());
  assert_int_equal(send(conn, "HTTP/1.1 400 Bad Request\r\n", 26, 0), 26);
  link_tick(now + 25 * MS);
  assert_false(link_connected());
  assert_true(atomic_load(&link_due_ns) > now + 100 * MS); /* not again at once */
}

static void descriptors_cannot_be_passed(void **state) {
  (void)state;
  const int errors[] = {EPERM, EACCES, EINVAL, ENOSYS, EOPNOTSUPP, ETOOMANYREFS};
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
    link_forget();
    session.by_messages = false;
    assert_int_equal(segment_open(session.prefix), 0);
    refuse = errors[i];
    link_tick(clock_ns());
    accept_one();
    take(SIZE_MAX);
    assert_true(session.by_messages);
    assert_true(said_hello && by_messages && !got_fd);
    close(conn);
  }
  session.by_messages = false;
  link_forget();
  refuse = ECONNRESET; /* says nothing about descriptors */
  link_tick(clock_ns());
  assert_false(session.by_messages);
}

static void *reads_slowly(void *arg) {
  (void)arg;
  accept_one();
  for (unsigned i = 0; i < 3000 && !said_goodbye; i++) {
    take(3000);
    usleep(100);
  }
  return NULL;
}

static void the_end_waits_for_who_reads(void **state) {
  (void)state;
  uint64_t made = 0;
  while (made < 60 && put_span(made + 1))
    made++;
  link_tick(clock_ns());
  while (made < 200 && put_span(made + 1))
    made++;
  pthread_t reader;
  assert_int_equal(pthread_create(&reader, NULL, reads_slowly, NULL), 0);
  link_goodbye(LIMIT);
  pthread_join(reader, NULL);
  assert_true(said_goodbye);
  assert_int_equal(spans, made);
}

static void the_end_does_not_wait_for_others(void **state) {
  (void)state;
  for (uint64_t made = 0; put_span(made + 1); made++)
    ;
  link_tick(clock_ns());
  uint64_t began = clock_ns();
  link_goodbye(LIMIT);
  uint64_t took = clock_ns() - began;
  assert_in_range(took, 100 * MS, WELL_BELOW);
  assert_false(link_connected());
}

static void *reads_for_a_while(void *arg) {
  accept_one();
  for (unsigned i = 0; i < 3000 && !atomic_load((atomic_bool *)arg); i++) {
    take(3000);
    usleep(100);
  }
  take(SIZE_MAX);
  return NULL;
}

static void flush_waits_for_who_reads(void **state) {
  (void)state;
  uint64_t made = 0;
  atomic_bool flushed = false;
  while (made < 200 && put_span(made + 1))
    made++;
  pthread_t reader;
  assert_int_equal(pthread_create(&reader, NULL, reads_for_a_while, &flushed), 0);
  link_flush(LIMIT, NULL);
  atomic_store(&flushed, true);
  pthread_join(reader, NULL);
  assert_int_equal(spans, made);
  assert_true(link_connected() && !said_goodbye);
  link_flush(LIMIT, NULL); /* nothing new */
  take(SIZE_MAX);
  assert_int_equal(spans, made);
}

static void flush_does_not_wait_for_others(void **state) {
  (void)state;
  for (uint64_t made = 0; put_span(made + 1); made++)
    ;
  uint64_t began = clock_ns();
  link_flush(100 * MS, NULL);
  assert_in_range(clock_ns() - began, 100 * MS, WELL_BELOW);
  began = clock_ns();
  link_flush(LIMIT, NULL);
  assert_in_range(clock_ns() - began, 250 * MS, WELL_BELOW);
  began = clock_ns();
  for (unsigned i = 0; i < 100; i++)
    link_flush(LIMIT, NULL); /* was seen to take nothing */
  assert_in_range(clock_ns() - began, 0, WELL_BELOW);
  accept_one();
  take(SIZE_MAX);
  began = clock_ns();
  link_flush(LIMIT, NULL); /* it took something: that is worth a wait */
  assert_in_range(clock_ns() - began, 250 * MS, WELL_BELOW);
  assert_true(link_connected());
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(sends_records_and_no_descriptor),        T(what_the_socket_does_not_take_comes_later),
      T(begins_anew_where_nothing_is_committed), T(nonsense_ends_the_connection),
      T(descriptors_cannot_be_passed),           T(the_end_waits_for_who_reads),
      T(the_end_does_not_wait_for_others),       T(flush_waits_for_who_reads),
      T(flush_does_not_wait_for_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
