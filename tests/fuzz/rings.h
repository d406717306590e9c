/* What a process may leave in its segment and rings, read by a whole session: visits, commits (rolled back, then written once
 * more), the end. The input: u8 commits | u8 heads, one for each ring | 256 bytes of names | 2 open slots a ring |
 * the cells of both rings, in turns. Header only; the target says into which store it goes. */
#ifndef CIRRON_FUZZ_RINGS_H
#define CIRRON_FUZZ_RINGS_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cirron_gen.h"
#include "collectord/session.h"
#include "tests/support/ring_maker.h"

#define RINGS_PREFIX 0x1122334455667788ull
#define RINGS_NAMES 256
#define RINGS_SLOTS 2

static struct ring_segment *rings_segment;
static struct ring_maker rings[2];
static int rings_segment_fd;

/* Makes them, once; `made` may be NULL. */
static void rings_prepare(void (*made)(int fd, void *memory)) {
  if (rings_segment)
    return;
  rings_segment = maker_segment(RINGS_PREFIX, &rings_segment_fd);
  for (uint32_t i = 0; i < 2; i++)
    rings[i] = maker_ring(RINGS_PREFIX, i + 1, RING_MIN_CELLS);
  if (!made)
    return;
  made(rings_segment_fd, rings_segment);
  for (int i = 0; i < 2; i++)
    made(rings[i].fd, rings[i].header);
}

static const uint8_t *rings_next_bytes(const uint8_t **data, size_t *len, size_t n) {
  static uint8_t zero[RINGS_NAMES + RINGS_SLOTS * RING_CELL];
  const uint8_t *at = *data;
  if (*len < n) {
    *len = 0;
    return zero;
  }
  *data += n;
  *len -= n;
  return at;
}

static void rings_fill(const uint8_t *data, size_t len) {
  memcpy((uint8_t *)rings_segment + SEGMENT_NAMES_OFFSET, rings_next_bytes(&data, &len, RINGS_NAMES), RINGS_NAMES);
  rings_segment->names_used = RINGS_NAMES;
  for (int i = 0; i < 2; i++) {
    rings[i].header->head = rings[i].header->tail = 0;
    memset(rings[i].cells, 0, (UINT8_MAX + 1) * RING_CELL);
    memcpy(rings[i].open, rings_next_bytes(&data, &len, sizeof(struct ring_open) * RINGS_SLOTS),
           sizeof(struct ring_open) * RINGS_SLOTS);
  }
  for (uint64_t k = 0; len >= RING_CELL; k++)
    maker_cell(&rings[k % 2], k / 2, rings_next_bytes(&data, &len, RING_CELL));
}

/* The store's commit; the target may have reasons to leave it out. */
static int (*rings_store_commit)(struct store *store);

static bool rings_commit(struct session *s, struct store *store, bool through) {
  int err = session_collect(s, store);
  if (!err)
    err = session_write(s, store);
  if (err == -EINVAL || err == -EPROTO || err == -ERANGE || err == -EOVERFLOW || err == -EEXIST)
    abort(); /* a session must not be able to bring about what only we can do wrong */
  if (through && !err && rings_store_commit)
    err = rings_store_commit(store);
  if (through && !err)
    session_committed(s);
  if (!through || err) {
    store_rollback(store);
    session_undone(s);
  }
  return through && !err;
}

static bool rings_live(struct session *s, struct store *store, uint8_t commits, const uint8_t heads[2]) {
  for (int i = 0; i < 2; i++)
    (void)session_attach(s, rings[i].fd, (uint32_t)i + 1, RING_MIN_CELLS, 16, store);
  for (int visit = 0; visit < 4; visit++) {
    enum session_fill full = SESSION_CALM;
    for (int i = 0; i < 2; i++)
      rings[i].header->head = (uint64_t)heads[i] * (unsigned)(visit + 1) / 4;
    (void)session_drain(s, store, 100, &full);
    if (commits & 1 << visit)
      (void)rings_commit(s, store, commits & 16 << visit);
    rings[visit % 2].open[0].id += commits & 3;
  }
  session_end(s, commits & 4);
  (void)rings_commit(s, store, false);
  return rings_commit(s, store, true);
}

/* One life of a session. What was taken of it is in *spans, if all is committed. False: its end could not be committed. */
static bool rings_session(const uint8_t *data, size_t len, struct store *store, int64_t *spans) {
  rings_prepare(NULL);
  Cirron__Hello hello = CIRRON__HELLO__INIT;
  hello.abi_major = RING_ABI_MAJOR;
  hello.session = RINGS_PREFIX;
  hello.anchor_realtime_ns = 1700000000000000000ull;
  struct session_peer peer = {.pid = 1, .uid = 0};
  struct session *s = NULL;
  rings_fill(data + 3, len - 3);
  if (session_new(&hello, &peer, rings_segment_fd, store, &s) != 0)
    abort();
  bool through = rings_live(s, store, data[0], data + 1);
  *spans = s->ingest.spans;
  session_free(s);
  return through;
}

#endif
