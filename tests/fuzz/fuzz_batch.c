// links: collectord/batch.c collectord/unpack.c collectord/ring_reader.c
/* What a process that shares no memory sends, as protobuf has taken it apart: names, counters, records, in any order; between them the
 * session reads and commits. What is refused changes nothing, and what was taken is whole. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/batch.h"
#include "proto/cirron.pb-c.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_mapping.h"
#include "tests/support/batch_session.h"

#define PREFIX 0x1122334455667788ull
#define MAX_RINGS 3

enum message { NAMES, COUNTERS, RECORDS, READ, COMMIT, RECONNECT, MESSAGES };

struct input {
  const uint8_t *data;
  size_t len;
};

static struct ring_reader *places[MAX_RINGS];

/* Stand-ins for the session and the store. */

int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail) {
  (void)store;
  *tail = ring_no == 2 ? (uint64_t)sid : 0;
  return 0;
}

/* At most n bytes of the input. */
static ProtobufCBinaryData part(struct input *in, size_t n) {
  ProtobufCBinaryData out = {.data = (uint8_t *)in->data, .len = n < in->len ? n : in->len};
  in->data += out.len;
  in->len -= out.len;
  if (!out.len)
    out.data = NULL; /* as protobuf says it */
  return out;
}

static uint64_t number(struct input *in, unsigned bytes) {
  uint64_t v = 0;
  ProtobufCBinaryData data = part(in, bytes);
  if (data.len)
    memcpy(&v, data.data, data.len);
  return v;
}

static void names(struct input *in, struct session *s) {
  struct ring_segment *segment = s->segment.memory;
  uint32_t before = segment->names_used;
  Cirron__Intern intern = CIRRON__INTERN__INIT;
  uint8_t how = (uint8_t)number(in, 1);
  intern.offset = how & 1 ? (uint32_t)number(in, 4) : before - (how >> 1 & 7);
  intern.names = part(in, (size_t)number(in, 1));
  int err = batch_names(s, &intern);
  if (segment->names_used < before || segment->names_used > SEGMENT_NAMES_BYTES || (err && segment->names_used != before))
    abort();
}

static void counters(struct input *in, struct session *s) {
  Cirron__Counters c = CIRRON__COUNTERS__INIT;
  c.rank = (int32_t)number(in, 4);
  c.ranks_known = (uint32_t)number(in, 1);
  c.dropped_depth = number(in, 8);
  if (batch_counters(s, &c) != 0)
    abort();
}

static uint64_t head_of(const struct session *s, uint32_t ring_no) {
  const struct ring_reader *r = session_ring(s, ring_no);
  return r ? ((const struct ring_header *)r->mapping.memory)->head : 0;
}

static void check_ring(const struct ring_reader *r) {
  const struct ring_header *h = r->mapping.memory;
  if (h->head < r->released || h->head - r->released > r->cells || r->open_top > RING_OPEN_SLOTS)
    abort();
}

static void records(struct input *in, struct session *s) {
  Cirron__SpanBatch batch = CIRRON__SPAN_BATCH__INIT;
  uint8_t how = (uint8_t)number(in, 1);
  batch.ring_no = (how & 3) + (how == 255);
  uint64_t before = head_of(s, batch.ring_no);
  batch.cells = how & 4 ? (uint32_t)number(in, 4) : RING_MIN_CELLS;
  batch.position = how & 8 ? number(in, 8) : before - (how & 16 ? number(in, 1) % (before + 1) : 0);
  batch.count = (uint32_t)number(in, how & 32 ? 2 : 1);
  batch.tid = 7;
  batch.shows_open = how & 64;
  batch.emitted_spans = number(in, 1);
  if (how & 64)
    batch.open = part(in, (size_t)number(in, 1));
  batch.records = part(in, (size_t)number(in, how & 128 ? 2 : 1));
  int err = batch_records(s, &batch, MAX_RINGS, NULL);
  uint64_t after = head_of(s, batch.ring_no);
  uint64_t end = batch.position + batch.count;
  if (err && before && after != before)
    abort();
  if (!err && after < end)
    abort();
  if (session_ring(s, batch.ring_no))
    check_ring(session_ring(s, batch.ring_no));
}

/* What was taken as a message is never too much for the ring, nor damaged where unpack.c made it: only BATCH_RAW and text without
 * its record are. */
static void read_all(struct session *s, bool commit) {
  static struct ring_record record;
  for (size_t i = 0; i < s->ring_count; i++) {
    struct ring_reader *r = s->rings[i];
    if (ring_reader_look(r) != 0 || r->jumps)
      abort();
    while (ring_reader_peek(r, r->head, &record)) {
      if (record.text_len > sizeof record.text || record.cells > r->head - r->next)
        abort();
      ring_reader_consume(r, &record);
    }
    if (r->next != r->head)
      abort();
    if (commit)
      ring_reader_release(r, r->next);
  }
  if (commit && batch_held(s))
    abort();
}

static void told(struct session *s, bool anew) {
  uint32_t ring_no;
  uint64_t position;
  if (anew)
    batch_tell_all(s);
  for (unsigned n = 0; batch_next_told(s, &ring_no, &position); n++)
    if (n == MAX_RINGS)
      abort();
}

static void message(struct input *in, struct session *s) {
  switch (number(in, 1) % MESSAGES) {
  case NAMES:
    names(in, s);
    break;
  case COUNTERS:
    counters(in, s);
    break;
  case RECORDS:
    records(in, s);
    break;
  case READ:
    read_all(s, false);
    break;
  case COMMIT:
    read_all(s, true);
    told(s, false);
    break;
  default:
    told(s, true);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static struct mapping segment;
  struct input in = {data, len};
  if (!segment.memory && mapping_own(SEGMENT_BYTES, &segment) != 0)
    abort();
  *(struct ring_segment *)segment.memory = (struct ring_segment){.names_used = 4};
  struct session s = {.prefix = PREFIX, .by_messages = true, .rings = places, .segment = segment};
  uint8_t added = (uint8_t)number(&in, 1);
  s.added = added & 1;
  s.sid = added;
  while (in.len)
    message(&in, &s);
  read_all(&s, true);
  for (size_t i = 0; i < s.ring_count; i++) {
    ring_reader_close(places[i]);
    free(places[i]);
  }
  return 0;
}
