#include "command.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "place.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include "proto/cirron.pb-c.h"
#pragma GCC diagnostic pop

/* --- the connection ------------------------------------------------------------------------------------------------------ */

/* What keeps us out of a socket that is there. */
static void explain(const char *path, enum place_answer answer, uid_t owner, struct buf *why) {
  buf_printf(why, "%s%s: ", why->len ? "; " : "", path);
  switch (answer) {
  case PLACE_NONE:
    buf_puts(why, "no such socket");
    break;
  case PLACE_STALE:
    buf_puts(why, "nobody answers, its collector ended without tidying up");
    break;
  case PLACE_CLOSED:
    buf_puts(why, "this user may not connect");
    break;
  case PLACE_STRANGER:
    buf_printf(why, "user %d answers, who does not own its folder", (int)owner);
    break;
  default:
    buf_puts(why, strerror(errno));
  }
}

/* Nothing is said of sockets that are not there, or left over: others come after them. */
static int try(const char *path, struct buf *why) {
  uid_t owner = 0;
  int fd;
  enum place_answer answer = place_connect(path, &fd, &owner);
  if (answer != PLACE_ANSWERS && answer != PLACE_NONE && answer != PLACE_STALE)
    explain(path, answer, owner, why);
  return fd;
}

static int try_private(const char *directory, struct buf *why) {
  char path[PATH_MAX];
  int fd = -1;
  for (int in_tmp = 0; in_tmp < 2 && fd < 0; in_tmp++)
    if (place_private_socket(directory, in_tmp, path))
      fd = try(path, why);
  return fd;
}

/* The job's directory is that above .cirron, by its real name, as the agent had it. */
static int try_of_store(const char *store, struct buf *why) {
  static const char end[] = "/" LINK_PRIVATE_STORE;
  char *real = store ? realpath(store, NULL) : NULL;
  size_t len = real ? strlen(real) : 0, tail = sizeof end - 1;
  int fd = -1;
  if (len > tail && strcmp(real + len - tail, end) == 0) {
    real[len - tail] = '\0';
    fd = try_private(real, why);
  }
  free(real);
  return fd;
}

int command_connect(const char *store, const char *const *directories, size_t count, struct buf *why) {
  const char *set = getenv("CIRRON_SOCKET");
  char path[PATH_MAX];
  if (set && *set) {
    uid_t owner = 0;
    int fd;
    enum place_answer answer = place_connect(set, &fd, &owner);
    if (answer != PLACE_ANSWERS)
      explain(set, answer, owner, why);
    return fd;
  }
  int fd = try_of_store(store, why);
  for (size_t i = 0; i < count && fd < 0; i++)
    fd = try_private(directories[i], why);
  if (fd < 0 && place_user_socket(path))
    fd = try(path, why);
  if (fd < 0)
    fd = try(LINK_SYSTEM_SOCKET, why);
  if (fd < 0 && !why->len)
    buf_puts(why, "no collector runs that writes this store (cirron-query doctor says more)");
  return fd;
}

/* --- the messages -------------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static size_t pack(uint64_t session, uint8_t out[64]) {
  Cirron__Envelope envelope = CIRRON__ENVELOPE__INIT;
  Cirron__Command command = CIRRON__COMMAND__INIT;
  command.kind = CIRRON__COMMAND__KIND__SNAPSHOT;
  command.session = session;
  envelope.body_case = CIRRON__ENVELOPE__BODY_COMMAND;
  envelope.command = &command;
  size_t len = cirron__envelope__pack(&envelope, out + LINK_PREFIX_BYTES);
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    out[i] = (uint8_t)(len >> 8 * i);
  return LINK_PREFIX_BYTES + len;
}

/* Reads exactly `len` bytes until the deadline: 0, or a negative errno; -ECONNRESET: it hung up. */
static int read_all(int fd, uint8_t *to, size_t len, int64_t deadline_ms) {
  while (len) {
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    int64_t left = deadline_ms - now_ms();
    if (left <= 0)
      return -ETIMEDOUT;
    int ready = poll(&readable, 1, (int)left);
    if (ready < 0 && errno != EINTR)
      return -errno;
    if (ready <= 0)
      continue;
    ssize_t n = recv(fd, to, len, MSG_DONTWAIT);
    if (n == 0)
      return -ECONNRESET;
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return -errno;
    if (n > 0) {
      to += n;
      len -= (size_t)n;
    }
  }
  return 0;
}

static int read_reply(int fd, int64_t deadline_ms, struct command_reply *out) {
  uint8_t prefix[LINK_PREFIX_BYTES], message[LINK_MAX_MESSAGE];
  uint32_t len = 0;
  int err = read_all(fd, prefix, sizeof prefix, deadline_ms);
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    len |= err ? 0 : (uint32_t)prefix[i] << 8 * i;
  if (!err && len > LINK_MAX_MESSAGE)
    err = -EBADMSG;
  if (!err)
    err = read_all(fd, message, len, deadline_ms);
  if (err)
    return err;
  Cirron__Envelope *envelope = cirron__envelope__unpack(NULL, len, message);
  if (!envelope || envelope->body_case != CIRRON__ENVELOPE__BODY_COMMAND_REPLY) {
    if (envelope)
      cirron__envelope__free_unpacked(envelope, NULL);
    return -EBADMSG;
  }
  *out = (struct command_reply){envelope->command_reply->sessions, envelope->command_reply->error};
  cirron__envelope__free_unpacked(envelope, NULL);
  return 0;
}

int command_snapshot(int fd, uint64_t session, int wait_ms, struct command_reply *out, struct buf *why) {
  uint8_t message[64];
  size_t len = pack(session, message);
  int err = send(fd, message, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -errno;
  if (!err)
    err = read_reply(fd, now_ms() + wait_ms, out);
  close(fd);
  if (err == -ECONNRESET || err == -EPIPE)
    buf_puts(why,
             "the collector hung up: it is of an older version, full, or not for this user (cirron-query doctor says more)");
  else if (err == -ETIMEDOUT)
    buf_printf(why, "the collector does not answer within %d s", wait_ms / 1000);
  else if (err == -EBADMSG)
    buf_puts(why, "the collector answers with something else: it is of another version");
  else if (err)
    buf_printf(why, "asking the collector failed: %s", strerror(-err));
  return err ? -1 : 0;
}
