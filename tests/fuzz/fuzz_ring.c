// links: ALL
/* What a process may leave in its segment and rings, read by a whole session: visits, commits (rolled back, then written once
 * more), the end. The input: u8 commits | u8 heads, in cells / 4, one for each ring | 256 bytes of names | 2 open slots a ring |
 * the cells of both rings, in turns. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cirron_gen.h"
#include "collectord/session.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/stage.h"
#include "tests/support/ring_maker.h"

#define PREFIX 0x1122334455667788ull
#define NAMES 256
#define SLOTS 2

static struct ring_segment *segment;
static struct ring_maker rings[2];
static int segment_fd;

static void prepare(void) {
  if (segment)
    return;
  segment = maker_segment(PREFIX, &segment_fd);
  for (uint32_t i = 0; i < 2; i++)
    rings[i] = maker_ring(PREFIX, i + 1, RING_MIN_CELLS);
}

static const uint8_t *next_bytes(const uint8_t **data, size_t *len, size_t n) {
  static uint8_t zero[NAMES + SLOTS * RING_CELL];
  const uint8_t *at = *data;
  if (*len < n) {
    *len = 0;
    return zero;
  }
  *data += n;
  *len -= n;
  return at;
}

static void fill(const uint8_t *data, size_t len) {
  memcpy((uint8_t *)segment + SEGMENT_NAMES_OFFSET, next_bytes(&data, &len, NAMES), NAMES);
  segment->names_used = NAMES;
  for (int i = 0; i < 2; i++) {
    rings[i].header->head = rings[i].header->tail = 0;
    memset(rings[i].cells, 0, (size_t)RING_MIN_CELLS * RING_CELL);
    memcpy(rings[i].open, next_bytes(&data, &len, sizeof(struct ring_open) * SLOTS), sizeof(struct ring_open) * SLOTS);
  }
  for (uint64_t k = 0; len >= RING_CELL; k++)
    maker_cell(&rings[k % 2], k / 2, next_bytes(&data, &len, RING_CELL));
}

static void commit(struct session *s, struct store *store, bool through) {
  int err = session_collect(s, store);
  if (!err)
    err = session_write(s, store);
  if (err == -EINVAL || err == -EPROTO || err == -ERANGE || err == -EOVERFLOW || err == -EEXIST)
    abort(); /* a session must not be able to bring about what only we can do wrong */
  if (through && !err)
    session_committed(s);
  if (!through || err) {
    store_rollback(store);
    session_undone(s);
  }
}

static void live(struct session *s, struct store *store, uint8_t commits, const uint8_t heads[2]) {
  for (int i = 0; i < 2; i++)
    (void)session_attach(s, rings[i].fd, (uint32_t)i + 1, RING_MIN_CELLS, 16, store);
  for (int visit = 0; visit < 4; visit++) {
    enum session_fill full = SESSION_QUIET;
    for (int i = 0; i < 2; i++)
      rings[i].header->head = (uint64_t)heads[i] * 4 * (unsigned)(visit + 1) / 4;
    (void)session_drain(s, store, 100, &full);
    if (commits & 1 << visit)
      commit(s, store, commits & 16 << visit);
    rings[visit % 2].open[0].id += commits & 3;
  }
  session_end(s, commits & 4);
  commit(s, store, false);
  commit(s, store, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len < 3)
    return 0;
  prepare();
  struct store *store = stage_store();
  Cirron__Hello hello = CIRRON__HELLO__INIT;
  hello.abi_major = RING_ABI_MAJOR;
  hello.session = PREFIX;
  hello.anchor_realtime_ns = 1700000000000000000ull;
  struct session_peer peer = {.pid = 1, .uid = 0};
  struct session *s = NULL;
  fill(data + 3, len - 3);
  if (session_new(&hello, &peer, segment_fd, store, &s) != 0)
    abort();
  live(s, store, data[0], data + 1);
  session_free(s);
  store_rollback(store);
  return 0;
}
