// links: collectord/ring_reader.c
/* One ring and whoever writes it, in turns with the reader: each byte of the input says what is done next, and the bytes behind it with
 * what. The ring is shared memory, or (first byte odd) one of our own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/ring_reader.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_mapping.h"
#include "tests/support/ring_maker.h"

#define PREFIX 0x1122334455667788ull
#define MAX_STEPS 40 /* some look at all open slots: longer inputs say little more, and take long */
#define RINGS 2      /* what is in the first may be handed over in the second */

enum step { CELLS, HEAD, HEAD_TO, LOOK, TAKE, RELEASE, OPEN, SEEK, MOVE, TAIL, HEADER, STEPS };

struct input {
  const uint8_t *data;
  size_t len;
};

static struct ring_maker rings[RINGS];

static void prepare(void) {
  for (int i = 0; i < RINGS && !rings[i].header; i++) {
    rings[i] = maker_ring(PREFIX, 1, RING_MIN_CELLS);
    no_mapping_add(rings[i].fd, rings[i].header);
  }
}

/* The next n bytes; what the input lacks is 0. */
static void get(struct input *in, void *out, size_t n) {
  size_t there = in->len < n ? in->len : n;
  memset(out, 0, n);
  memcpy(out, in->data, there);
  in->data += there;
  in->len -= there;
}

static uint8_t get_byte(struct input *in) {
  uint8_t byte;
  get(in, &byte, 1);
  return byte;
}

static struct ring_maker ours(const struct ring_reader *r) {
  uint8_t *memory = r->mapping.memory;
  return (struct ring_maker){.header = (void *)memory,
                             .open = (void *)(memory + RING_OPEN_OFFSET),
                             .cells = memory + RING_CELLS_OFFSET,
                             .count = r->cells};
}

static void write_cells(struct input *in, struct ring_maker *m, uint64_t at, unsigned n) {
  for (unsigned i = 0; i < n && in->len; i++) {
    uint8_t cell[RING_CELL];
    get(in, cell, sizeof cell);
    maker_cell(m, at + i, cell);
  }
}

static void check_record(const struct ring_reader *r, const struct ring_record *record, uint64_t limit) {
  bool text = record->type == RING_SPAN || record->type == RING_MARK;
  if (record->text_len > sizeof record->text || record->value_len > record->text_len || !record->cells ||
      record->cells > limit - r->next)
    abort();
  if (!text && (record->text_len || record->type < RING_SPAN || record->type > RING_AFTER))
    abort();
}

/* At most as many records as there are cells, and none behind the head. */
static void take(struct ring_reader *r, unsigned cap) {
  static struct ring_record record;
  uint64_t limit = r->head;
  for (; cap && ring_reader_peek(r, limit, &record); cap--) {
    uint64_t before = r->next;
    check_record(r, &record, limit);
    ring_reader_consume(r, &record);
    if (r->next <= before)
      abort();
  }
  if (r->next > limit && limit - r->released <= r->cells)
    abort();
}

static void look_at_open(const struct ring_reader *r) {
  static struct ring_open open[RING_OPEN_SLOTS];
  size_t n = ring_reader_open_spans(r, open);
  if (n > RING_OPEN_SLOTS)
    abort();
  for (size_t i = 0; i < n; i++)
    if (!open[i].id)
      abort();
  (void)ring_reader_counters(r);
}

/* The next thing that either side does. False: the reader gives up. */
static bool step(struct input *in, struct ring_reader *r, struct ring_maker *m) {
  uint8_t what = get_byte(in), n = what / STEPS;
  uint64_t wide = 0;
  struct ring_open slot;
  switch (what % STEPS) {
  case CELLS:
    write_cells(in, m, m->header->head, n + 1u);
    m->header->head += n + 1u;
    break;
  case HEAD:
    m->header->head += n * 2u;
    break;
  case HEAD_TO:
    get(in, &m->header->head, 1u << n % 4);
    break;
  case LOOK:
    return ring_reader_look(r) == 0;
  case TAKE:
    take(r, n ? n : 200);
    break;
  case RELEASE:
    ring_reader_release(r, r->next);
    break;
  case OPEN:
    get(in, &slot, sizeof slot);
    m->open[n * 11u % RING_OPEN_SLOTS] = slot;
    look_at_open(r);
    break;
  case SEEK:
    get(in, &wide, 1u << n % 4);
    ring_reader_seek(r, wide);
    break;
  case MOVE:
    if (!r->own && ring_reader_move(r, rings[n % RINGS].fd, n < 20 ? RING_MIN_CELLS : 2 * RING_MIN_CELLS, PREFIX) == 0)
      *m = rings[n % RINGS];
    break;
  case TAIL:
    get(in, &m->header->tail, 1u << n % 4);
    break;
  case HEADER: /* seen when it is opened or moved */
    get(in, (uint8_t *)m->header + n, 1);
    break;
  default:
    break;
  }
  return true;
}

static void clear(struct ring_maker *m, uint64_t position) {
  *m->header = (struct ring_header){.magic = RING_MAGIC,
                                    .abi_major = RING_ABI_MAJOR,
                                    .cells = RING_MIN_CELLS,
                                    .open_slots = RING_OPEN_SLOTS,
                                    .ring_no = 1,
                                    .session = PREFIX,
                                    .head = position,
                                    .tail = position};
  memset(m->open, 0, RING_OPEN_SLOTS * sizeof *m->open);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct input in = {data, len};
  struct ring_reader r;
  prepare();
  uint8_t first = get_byte(&in);
  uint64_t position = first & 2 ? 0 : (uint64_t)first << (first & 4 ? 53 : 8);
  for (int i = 0; i < RINGS; i++)
    clear(&rings[i], position);
  bool own = first & 1;
  struct ring_maker m = rings[0];
  if (own ? ring_reader_make(1, RING_MIN_CELLS, PREFIX, position, &r) : ring_reader_open(m.fd, 1, RING_MIN_CELLS, PREFIX, &r))
    abort();
  if (own)
    m = ours(&r);
  for (int n = 0; n < MAX_STEPS && in.len && step(&in, &r, &m); n++)
    ;
  ring_reader_close(&r);
  return 0;
}
