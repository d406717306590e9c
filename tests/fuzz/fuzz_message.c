// links: ALL
/* Bytes that come over a connection, with descriptors: the segment, a ring, both, or none, as the first byte says. The second byte
 * says after how many bytes the first write ends. */
#include <event2/event.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectord/conn.h"
#include "collectord/roster.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/stage.h"
#include "tests/support/ring_maker.h"

#define PREFIX 0x1122334455667788ull

static struct event_base *base;
static int segment_fd, ring_fd;

static void wake(void *arg, bool urgent) {
  (void)arg;
  (void)urgent;
}

static void prepare(void) {
  if (base)
    return;
  signal(SIGPIPE, SIG_IGN);
  base = event_base_new();
  (void)maker_segment(PREFIX, &segment_fd);
  ring_fd = maker_ring(PREFIX, 1, RING_MIN_CELLS).fd;
}

static void send_part(int to, const uint8_t *data, size_t len, uint8_t which) {
  int fds[2], n = 0;
  if (which & 1)
    fds[n++] = segment_fd;
  if (which & 2)
    fds[n++] = ring_fd;
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
  } control = {0};
  struct iovec part = {.iov_base = (void *)data, .iov_len = len};
  struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
  if (n) {
    control.header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((unsigned)n * sizeof(int))};
    memcpy(CMSG_DATA(&control.header), fds, (unsigned)n * sizeof(int));
    msg.msg_control = &control;
    msg.msg_controllen = CMSG_SPACE((unsigned)n * sizeof(int));
  }
  (void)sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len < 3)
    return 0;
  prepare();
  struct roster roster = {
      .base = base,
      .store = stage_store(),
      .max_sessions = 4,
      .max_user_sessions = 4,
      .max_rings = 2,
      .notify = wake,
      .flush = conn_flush,
      .acknowledge = conn_acknowledge,
  };
  struct conns conns = {.base = base, .roster = &roster, .group = (gid_t)-1, .max = 4, .max_user = 4};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return 0;
  size_t first = data[1] < len - 2 ? data[1] : len - 2;
  conn_accept(&conns, ends[1]);
  send_part(ends[0], data + 2, first, data[0] & 3);
  (void)event_base_loop(base, EVLOOP_NONBLOCK);
  if (first < len - 2)
    send_part(ends[0], data + 2 + first, len - 2 - first, data[0] >> 2 & 3);
  (void)event_base_loop(base, EVLOOP_NONBLOCK);
  for (struct session *s = roster.first; s; s = s->next) { /* what came as messages is read as what lies in shared memory is */
    if (session_collect(s, roster.store) == 0 && s->by_messages)
      session_committed(s);
    if (s->owes && s->connection)
      conn_acknowledge(s);
  }
  close(ends[0]);
  (void)event_base_loop(base, EVLOOP_NONBLOCK);
  conns_fini(&conns);
  roster_fini(&roster);
  store_rollback(roster.store);
  return 0;
}
