#include "conn.h"

#include <errno.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "../proto/ring_abi.h"
#include "batch.h"
#include "cirron_gen.h"
#include "command.h"
#include "log.h"
#include "roster.h"

#define HELLO_WITHIN_S 5
/* Reads of one connection in a row, before others have their turn. */
#define READS_A_TURN 16

struct conn {
  struct conns *all;
  struct conn *next;
  int fd;
  struct event *readable, *deadline;
  struct session_peer peer;
  struct session *session; /* after Hello; NULL again when it is freed or speaks on another connection */
  bool said_hello;
  int fds[LINK_MAX_FDS]; /* received, not yet claimed by a message; oldest first */
  size_t fd_count;
  const char *message; /* which the present one is */
  bool waits;          /* it is not read: too much of it is not committed */
  size_t answer_at, answer_len;
  uint8_t answer[64]; /* what the socket did not take whole: answer_at to answer_len */
  size_t used;
  uint8_t buffer[LINK_PREFIX_BYTES + LINK_MAX_MESSAGE];
};

static void conn_close(struct conn *c) {
  struct conn **link = &c->all->first;
  while (*link != c)
    link = &(*link)->next;
  *link = c->next;
  c->all->count--;
  if (c->session)
    c->session->connection = NULL;
  if (c->readable)
    event_free(c->readable);
  if (c->deadline)
    event_free(c->deadline);
  for (size_t i = 0; i < c->fd_count; i++)
    close(c->fds[i]);
  close(c->fd);
  free(c);
}

/* The connection ends, its session does not. */
static void conn_lose(struct conn *c) {
  struct session *s = c->session;
  struct roster *roster = c->all->roster;
  conn_close(c);
  if (s)
    roster_connection_lost(roster, s);
}

static int take_fd(struct conn *c) {
  if (!c->fd_count)
    return -1;
  int fd = c->fds[0];
  memmove(c->fds, c->fds + 1, --c->fd_count * sizeof *c->fds);
  return fd;
}

static int on_hello(struct conn *c, const Cirron__Hello *hello) {
  int fd = take_fd(c);
  if (c->said_hello || (fd < 0) != hello->by_messages || hello->abi_major != RING_ABI_MAJOR) {
    if (fd >= 0)
      close(fd);
    return -EPROTO;
  }
  struct session *s = NULL;
  int err = roster_hello(c->all->roster, hello, &c->peer, c->fd, fd, &s);
  if (fd >= 0)
    close(fd);
  if (err)
    return err;
  if (s->connection) { /* it gave up the earlier one, we have not noticed yet */
    struct conn *old = s->connection;
    old->session = NULL;
    conn_close(old);
  }
  s->connection = c;
  c->session = s;
  c->said_hello = true;
  batch_tell_all(s);
  event_del(c->deadline);
  return 0;
}

/* One ring too many ends no connection. */
static int ring_err(const struct conn *c, int err) {
  if (err != -EMFILE)
    return err;
  log_limited(LOG_LIMIT, "session", 0,
              "pid %d has more than %zu rings or 2 GiB of them; further ones are not read (--max-rings)", (int)c->peer.pid,
              c->all->roster->max_rings);
  return 0;
}

static int on_ring(struct conn *c, const Cirron__RingAttach *ring) {
  int fd = take_fd(c);
  if (fd < 0 || !c->session || c->session->phase != SESSION_LIVE || c->session->by_messages) {
    if (fd >= 0)
      close(fd);
    return -EPROTO;
  }
  struct roster *roster = c->all->roster;
  int err = session_attach(c->session, fd, ring->ring_no, ring->cells, roster->max_rings, roster->store);
  close(fd);
  return ring_err(c, err);
}

static int on_batch(struct conn *c, const Cirron__SpanBatch *batch) {
  struct roster *roster = c->all->roster;
  int err = batch_records(c->session, batch, roster->max_rings, roster->store);
  return ring_err(c, err);
}

static int on_area(struct conn *c, const Cirron__SnapshotArea *area) {
  int fd = take_fd(c);
  bool may = fd >= 0 && c->session && c->session->phase == SESSION_LIVE && !c->session->by_messages;
  int err = may ? snapshots_area(c->session, fd, area->bytes) : -EPROTO;
  if (fd >= 0)
    close(fd);
  return err;
}

static int on_request(struct conn *c, const Cirron__SnapshotRequest *request) {
  if (!c->session || c->session->phase != SESSION_LIVE || c->session->by_messages)
    return -EPROTO;
  int err = snapshots_request(c->session, request->number, request->folder ? take_fd(c) : -1);
  c->all->roster->notify(c->all->roster->notify_arg, false);
  return err;
}

/* Has it sent more than we keep in memory that is ours? */
static bool too_much(const struct conn *c) {
  uint64_t held = c->session ? batch_held(c->session) : 0;
  return held > BATCH_SESSION_BYTES || (held > BATCH_FEW_BYTES && roster_held(c->all->roster) > BATCH_ALL_BYTES);
}

/* What only a process sends that shares no memory. */
static int on_sent(struct conn *c, const Cirron__Envelope *e) {
  if (!c->session || c->session->phase != SESSION_LIVE)
    return -EPROTO;
  if (e->body_case == CIRRON__ENVELOPE__BODY_SPAN_BATCH)
    return on_batch(c, e->span_batch);
  if (e->body_case == CIRRON__ENVELOPE__BODY_SNAPSHOT_SENT)
    return c->session->by_messages ? snapshots_sent(c->session, e->snapshot_sent) : -EPROTO;
  return e->body_case == CIRRON__ENVELOPE__BODY_INTERN ? batch_names(c->session, e->intern)
                                                       : batch_counters(c->session, e->counters);
}

/* One envelope, with its length before it. Returns the bytes of both. */
static size_t pack(const Cirron__Envelope *e, uint8_t *to) {
  size_t len = cirron__envelope__pack(e, to + LINK_PREFIX_BYTES);
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    to[i] = (uint8_t)(len >> 8 * i);
  return LINK_PREFIX_BYTES + len;
}

/* Such a connection is not a session's, and ends with the answer. */
static int on_command(struct conn *c, const Cirron__Command *command) {
  Cirron__CommandReply reply = CIRRON__COMMAND_REPLY__INIT;
  Cirron__Envelope e = CIRRON__ENVELOPE__INIT;
  if (c->said_hello)
    return -EPROTO;
  command_pass_on(c->all->roster, command, c->peer.uid, &reply);
  e.body_case = CIRRON__ENVELOPE__BODY_COMMAND_REPLY;
  e.command_reply = &reply;
  size_t len = pack(&e, c->answer);                               /* 24 bytes at most */
  (void)send(c->fd, c->answer, len, MSG_DONTWAIT | MSG_NOSIGNAL); /* there is room for the first; or nobody waits for it */
  return -ECONNRESET;
}

/* For the log. */
static const char *name_of(const Cirron__Envelope *e) {
  const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(e->base.descriptor, (unsigned)e->body_case);
  return field ? field->name : "message of another version";
}

static int on_message(struct conn *c, const uint8_t *data, size_t len) {
  c->message = "message";
  Cirron__Envelope *e = cirron__envelope__unpack(NULL, len, data);
  if (!e)
    return -EBADMSG;
  c->message = name_of(e);
  int err;
  switch (e->body_case) {
  case CIRRON__ENVELOPE__BODY_HELLO:
    err = on_hello(c, e->hello);
    break;
  case CIRRON__ENVELOPE__BODY_RING_ATTACH:
    err = on_ring(c, e->ring_attach);
    break;
  case CIRRON__ENVELOPE__BODY_GOODBYE:
    err = c->session ? 0 : -EPROTO;
    if (c->session)
      c->session->goodbye = true;
    break;
  case CIRRON__ENVELOPE__BODY_INTERN:
  case CIRRON__ENVELOPE__BODY_SPAN_BATCH:
  case CIRRON__ENVELOPE__BODY_COUNTERS:
  case CIRRON__ENVELOPE__BODY_SNAPSHOT_SENT:
    err = on_sent(c, e);
    break;
  case CIRRON__ENVELOPE__BODY_SNAPSHOT_AREA:
    err = on_area(c, e->snapshot_area);
    break;
  case CIRRON__ENVELOPE__BODY_SNAPSHOT_REQUEST:
    err = on_request(c, e->snapshot_request);
    break;
  case CIRRON__ENVELOPE__BODY_COMMAND:
    err = on_command(c, e->command);
    break;
  default: /* of a newer agent */
    err = c->said_hello ? 0 : -EPROTO;
  }
  cirron__envelope__free_unpacked(e, NULL);
  return err;
}

/* All whole messages in the buffer. */
static int on_bytes(struct conn *c) {
  size_t at = 0;
  int err = 0;
  while (!err && c->used - at >= LINK_PREFIX_BYTES) {
    const uint8_t *p = c->buffer + at;
    uint32_t len = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    c->message = "message";
    if (len == 0 || len > LINK_MAX_MESSAGE)
      return -EMSGSIZE;
    if (c->used - at < LINK_PREFIX_BYTES + len)
      break;
    err = on_message(c, p + LINK_PREFIX_BYTES, len);
    at += LINK_PREFIX_BYTES + len;
  }
  memmove(c->buffer, c->buffer + at, c->used - at);
  c->used -= at;
  return err;
}

static int keep_fds(struct conn *c, struct msghdr *msg) {
  int err = msg->msg_flags & MSG_CTRUNC ? -EMFILE : 0;
  for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
      continue;
    size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
      if (c->fd_count < LINK_MAX_FDS) {
        c->fds[c->fd_count++] = fd;
      } else {
        close(fd);
        err = -EMFILE;
      }
    }
  }
  return err;
}

/* 1: got something; 0: nothing there now; -ECONNRESET: it ended; other errors: it has to end. */
static int read_once(struct conn *c) {
  union {
    struct cmsghdr align;
    char space[CMSG_SPACE(LINK_MAX_FDS * sizeof(int))];
  } control;
  struct iovec iov = {c->buffer + c->used, sizeof c->buffer - c->used};
  struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0)
    return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
  int err = keep_fds(c, &msg);
  if (err || n == 0)
    return err ? err : -ECONNRESET;
  c->used += (size_t)n;
  err = on_bytes(c);
  return err ? err : 1;
}

/* Reads at most `turns` times. False: the connection is gone. */
static bool conn_read(struct conn *c, unsigned turns) {
  int got = 1;
  while (turns-- && got == 1)
    got = read_once(c);
  if (got >= 0)
    return true;
  if (got == -EBUSY)
    log_limited(LOG_LIMIT, "session", 0, "pid %d is refused: %zu sessions are alive (--max-sessions)", (int)c->peer.pid,
                c->all->roster->max_sessions);
  else if (got == -EDQUOT)
    log_limited(LOG_LIMIT, "session", 0, "pid %d is refused: user %d has %zu sessions (--max-user-sessions)", (int)c->peer.pid,
                (int)c->peer.uid, c->all->roster->max_user_sessions);
  else if (got != -ECONNRESET)
    log_limited(LOG_BAD_MESSAGE, "connection", got, "of pid %d is closed: its %s cannot be accepted", (int)c->peer.pid,
                c->message ? c->message : "descriptors");
  conn_lose(c);
  return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  struct conn *c = arg;
  c->waits = too_much(c) && event_del(c->readable) == 0; /* until the next commit */
  if (!c->waits)
    (void)conn_read(c, READS_A_TURN);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  conn_lose(arg); /* who connects and says nothing: a probe, or trouble of its own */
}

void conn_flush(struct session *session) {
  /* The peer is dead, so this ends; the bound is for a stranger that holds the other end too. */
  if (session->connection)
    (void)conn_read(session->connection, 4096);
}

/* A snapshot is wanted, or how far a ring is committed. False: it was told all. */
static bool answer_next(struct conn *c, struct session *session) {
  Cirron__Committed committed = CIRRON__COMMITTED__INIT;
  Cirron__Command command = CIRRON__COMMAND__INIT;
  Cirron__Envelope e = CIRRON__ENVELOPE__INIT;
  if (session->commands_told != session->commands) {
    session->commands_told = session->commands;
    command.kind = CIRRON__COMMAND__KIND__SNAPSHOT;
    command.number = session->commands;
    e.body_case = CIRRON__ENVELOPE__BODY_COMMAND;
    e.command = &command;
  } else if (batch_next_told(session, &committed.ring_no, &committed.position) ||
             snapshots_next_told(session, &committed.position)) { /* of ring 0: of snapshots */
    e.body_case = CIRRON__ENVELOPE__BODY_COMMITTED;
    e.committed = &committed;
  } else {
    return false;
  }
  c->answer_at = 0;
  c->answer_len = pack(&e, c->answer); /* 32 bytes at most */
  return true;
}

void conn_acknowledge(struct session *session) {
  struct conn *c = session->connection;
  if (c->waits && !too_much(c))
    c->waits = event_add(c->readable, NULL) != 0;
  for (;;) {
    if (c->answer_at == c->answer_len && !answer_next(c, session))
      return;
    ssize_t n = send(c->fd, c->answer + c->answer_at, c->answer_len - c->answer_at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
      return; /* it takes no more now; or it is gone, of which we hear elsewhere */
    c->answer_at += (size_t)n;
  }
}

void conn_forget(void *unused, struct session *session) {
  (void)unused;
  struct conn *c = session->connection;
  c->session = NULL;
  session->connection = NULL;
  conn_close(c);
}

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

/* Is the process at the other end in this group? Its own group, or one of the others it had when it connected. */
static bool in_group(int fd, const struct ucred *who, gid_t group) {
  gid_t few[64], *groups = few, *more = NULL;
  socklen_t len = sizeof few;
  if (who->gid == group)
    return true;
  int failed = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
  if (failed && errno == ERANGE && (groups = more = malloc(len)))
    failed = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len);
  bool found = false;
  for (size_t i = 0; !failed && !found && i < len / sizeof *groups; i++)
    found = groups[i] == group;
  free(more);
  return found;
}

static bool may_come(const struct conns *conns, int fd, const struct ucred *who) {
  return conns->any_user || who->uid == 0 || who->uid == geteuid() ||
         (conns->group != (gid_t)-1 && in_group(fd, who, conns->group));
}

/* The oldest of the user's connections that has not said who it is. It had its chance: what it sent is read once more. */
static bool drop_silent(struct conns *conns, uid_t uid) {
  struct conn *oldest = NULL;
  for (struct conn *c = conns->first; c; c = c->next)
    if (!c->said_hello && c->peer.uid == uid)
      oldest = c; /* they are kept newest first */
  if (!oldest || !conn_read(oldest, READS_A_TURN))
    return oldest != NULL;
  if (oldest->said_hello)
    return false;
  conn_lose(oldest);
  return true;
}

static bool has_room(const struct conns *conns, uid_t uid) {
  size_t of_user = 0;
  for (const struct conn *c = conns->first; c; c = c->next)
    of_user += c->peer.uid == uid;
  return conns->count < conns->max && of_user < conns->max_user;
}

static int start(struct conn *c) {
  c->readable = event_new(c->all->base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
  c->deadline = evtimer_new(c->all->base, on_deadline, c);
  struct timeval within = {.tv_sec = HELLO_WITHIN_S};
  bool ok = c->readable && c->deadline && event_add(c->readable, NULL) == 0 && event_add(c->deadline, &within) == 0;
  return ok ? 0 : -ENOMEM;
}

void conn_accept(struct conns *conns, int fd) {
  struct ucred who = {0};
  socklen_t len = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || !may_come(conns, fd, &who)) {
    log_limited(LOG_REFUSED_PEER, "listener", 0, "a process of user %d is refused (--group or --any-user would accept it)",
                (int)who.uid);
    close(fd);
    return;
  }
  bool room = has_room(conns, who.uid) || (drop_silent(conns, who.uid) && has_room(conns, who.uid));
  struct conn *c = room ? calloc(1, sizeof *c) : NULL;
  if (!c) {
    log_limited(LOG_LIMIT, "listener", 0, "a connection of user %d is refused: there are %zu", (int)who.uid, conns->count);
    close(fd);
    return;
  }
  c->all = conns;
  c->fd = fd;
  c->peer = (struct session_peer){.pid = who.pid, .uid = who.uid};
  c->next = conns->first;
  conns->first = c;
  conns->count++;
  if (start(c) != 0) {
    log_limited(LOG_LIMIT, "listener", -ENOMEM, "a connection is refused");
    conn_close(c);
  }
}

void conns_fini(struct conns *conns) {
  for (struct conn *c = conns->first, *next; c; c = next) {
    next = c->next;
    conn_close(c);
  }
}
