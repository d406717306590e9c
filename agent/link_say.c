/* See link_say.h. */
#include "link_say.h"

#include <errno.h>

#include "../proto/link_abi.h"
#include "hello.h"
#include "link_socket.h"
#include "pbwrite.h"
#include "segment.h"
#include "session.h"
#include "snapshot_area.h"

enum { /* field numbers of proto/cirron.proto */
       ENVELOPE_RING_ATTACH = 2,
       ENVELOPE_GOODBYE = 3,
       ENVELOPE_SNAPSHOT_AREA = 6,
       ENVELOPE_SNAPSHOT_REQUEST = 7,
};

/* Encoded once a session, with its length in front: the environment is not read again while threads may change it. */
static uint8_t hello[LINK_PREFIX_BYTES + LINK_MAX_MESSAGE];
static size_t hello_len;

void say_forget(void) {
  hello_len = 0;
}

static size_t seal(uint8_t *message, size_t body) {
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    message[i] = (uint8_t)(body >> 8 * i);
  return LINK_PREFIX_BYTES + body;
}

int say_hello(const struct owned_fd *socket) {
  static bool by_messages; /* as it says */
  if (hello_len == 0 || by_messages != session_get()->by_messages) {
    struct pbwrite pb;
    by_messages = session_get()->by_messages;
    pbwrite_init(&pb, hello + LINK_PREFIX_BYTES, LINK_MAX_MESSAGE);
    hello_write(&pb, session_get());
    if (pbwrite_len(&pb) == 0)
      return -EMSGSIZE;
    hello_len = seal(hello, pbwrite_len(&pb));
  }
  return link_socket_send(socket, hello, hello_len, by_messages ? -1 : segment_fd());
}

/* A message of two numbers, its fields 1 and 2, where they are not 0. `fd`: of its descriptor, or -1. */
static int say(const struct owned_fd *socket, unsigned envelope, uint64_t first, uint64_t second, int fd) {
  uint8_t message[LINK_PREFIX_BYTES + 32];
  struct pbwrite pb;
  pbwrite_init(&pb, message + LINK_PREFIX_BYTES, sizeof(message) - LINK_PREFIX_BYTES);
  size_t begin = pbwrite_begin(&pb, envelope);
  pbwrite_uint(&pb, 1, first);
  pbwrite_uint(&pb, 2, second);
  pbwrite_end(&pb, begin);
  return link_socket_send(socket, message, seal(message, pbwrite_len(&pb)), fd);
}

int say_ring(const struct owned_fd *socket, const struct ring *ring) {
  return say(socket, ENVELOPE_RING_ATTACH, ring->ring_no, (uint64_t)ring->mask + 1, ring->fd);
}

int say_goodbye(const struct owned_fd *socket) {
  return say(socket, ENVELOPE_GOODBYE, 0, 0, -1); /* reason 0 */
}

bool say_snapshots_wait(const struct say_snapshots *told) {
  struct snapshot_asked asked;
  return !session_get()->by_messages && snapshot_area_asked(told->asked, &asked) && asked.fd >= 0;
}

static int say_request(const struct owned_fd *socket, struct say_snapshots *told, const struct snapshot_asked *asked) {
  int folder = asked->area->flags & SNAPSHOT_BLOBS ? asked->folder : -1;
  if (told->area != asked->generation) {
    int r = say(socket, ENVELOPE_SNAPSHOT_AREA, asked->area->bytes, 0, asked->fd);
    if (r < 0)
      return r;
    told->area = asked->generation;
  }
  return say(socket, ENVELOPE_SNAPSHOT_REQUEST, asked->area->number, folder >= 0, folder);
}

int say_snapshots(const struct owned_fd *socket, struct say_snapshots *told) {
  struct snapshot_asked asked;
  while (!session_get()->by_messages && snapshot_area_asked(told->asked, &asked)) {
    int r = asked.fd >= 0 ? say_request(socket, told, &asked) : 0;
    if (r < 0)
      return r;
    told->asked = asked.area->number;
  }
  return 0;
}
