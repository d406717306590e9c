// links: agent/pack.c collectord/batch.c collectord/unpack.c collectord/ring_reader.c collectord/mapping.c
/* Records as bytes of a message and back: what an agent packs comes out as it was, and what nobody should send changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pack.h"
#include "collectord/batch.h"
#include "collectord/unpack.h"
#include "proto/cirron.pb-c.h"
#include "proto/span_batch.h"
#include "tests/support/batch_session.h"
#include "tests/support/ring_maker.h"

#define SESSION 0x1122334455667788ull
#define CELLS RING_MIN_CELLS

/* Stand-ins for the session and the store. */

static uint64_t stored_tail;

int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail) {
  (void)store;
  (void)sid;
  (void)ring_no;
  *tail = stored_tail;
  return 0;
}

struct fixture {
  struct ring_maker maker;
  struct ring ring; /* as the agent sees it */
  struct ring_reader *places[1];
  struct session session;
  uint8_t records[1 << 20], open[BATCH_OPEN_MAX];
  Cirron__SpanBatch batch;
};

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  f->maker = maker_ring(SESSION, 1, CELLS);
  f->ring = (struct ring){
      .shm = f->maker.header, .open = f->maker.open, .cells = f->maker.cells, .mask = CELLS - 1, .ring_no = 1, .fd = -1};
  f->session = (struct session){.prefix = SESSION, .by_messages = true, .rings = f->places};
  if (mapping_own(SEGMENT_BYTES, &f->session.segment) != 0)
    abort();
  ((struct ring_segment *)f->session.segment.memory)->names_used = 4;
  cirron__span_batch__init(&f->batch);
  f->batch.ring_no = 1;
  f->batch.cells = CELLS;
  stored_tail = 0;
  *state = f;
  return 0;
}

static void drop_ring(struct fixture *f) {
  if (f->session.ring_count) {
    ring_reader_close(f->places[0]);
    free(f->places[0]);
  }
  f->session.ring_count = 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  drop_ring(f);
  mapping_close(&f->session.segment);
  maker_ring_free(&f->maker);
  free(f);
  return 0;
}

/* Packs what lies between the two and gives it to the session. */
static int pass(struct fixture *f, uint64_t from, uint64_t to) {
  struct ring_progress at = {.cells = from};
  f->batch.records.data = f->records;
  f->batch.records.len = pack_records(&f->ring, to, f->records, sizeof f->records, &at);
  f->batch.position = from;
  f->batch.count = (uint32_t)(at.cells - from);
  assert_int_equal(at.cells, to);
  return batch_records(&f->session, &f->batch, 1, NULL);
}

static const uint8_t *arrived(struct fixture *f, uint64_t position) {
  return (const uint8_t *)f->places[0]->mapping.memory + RING_CELLS_OFFSET + (position & (CELLS - 1)) * RING_CELL;
}

static void assert_same_cells(struct fixture *f, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; at++)
    assert_memory_equal(arrived(f, at), f->maker.cells + (at & (CELLS - 1)) * RING_CELL, RING_CELL);
}

static uint64_t random_number(void) {
  static uint64_t x = 88172645463325252ull;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x >> (x % 64); /* of all lengths */
}

static void put_random(struct fixture *f, int kind) {
  static const char *const texts[] = {NULL, "{}", "{\"a\":1}",
                                      "0123456789012345678901234567890123456789012345678901234567890123456789"};
  const char *a = texts[random_number() % 4], *b = texts[random_number() % 4];
  struct ring_span span = {.type = RING_SPAN,
                           .kind = (uint8_t)random_number(),
                           .flags = (uint8_t)random_number(),
                           .name = (uint32_t)random_number(),
                           .id = random_number(),
                           .parent = random_number(),
                           .start_ns = random_number(),
                           .end_ns = random_number(),
                           .index = random_number() % 2 ? SPAN_NO_INDEX : (int64_t)random_number(),
                           .cpu_ns = random_number() % 2 ? SPAN_NO_TIME : (int64_t)random_number(),
                           .module = (uint32_t)random_number(),
                           .exception = (uint32_t)random_number()};
  struct ring_mark mark = {.type = RING_MARK,
                           .value_type = (uint8_t)(1 + random_number() % 4),
                           .flags = (uint8_t)random_number(),
                           .name = (uint32_t)random_number(),
                           .id = random_number(),
                           .span = random_number(),
                           .ts_ns = random_number(),
                           .value.i = (int64_t)random_number()};
  struct ring_move move = {.type = RING_MOVE, .span = random_number(), .parent = random_number(), .since_ns = random_number()};
  struct ring_thread thread = {.type = RING_THREAD, .tid = (uint32_t)random_number(), .ts_ns = random_number()};
  struct ring_after after = {.type = RING_AFTER, .ring_no = (uint32_t)random_number(), .position = random_number()};
  const void *cells[] = {&span, &mark, &move, &thread, &after};
  maker_put(&f->maker, cells[kind], kind < 2 ? a : NULL, kind == 1 ? b : NULL);
}

static void records_come_out_as_they_were(void **state) {
  struct fixture *f = *state;
  for (int round = 0; round < 200; round++) {
    uint64_t from = f->maker.header->head;
    while (f->maker.header->head < from + CELLS / 2)
      put_random(f, (int)(random_number() % 5));
    assert_int_equal(pass(f, from, f->maker.header->head), 0);
    assert_same_cells(f, from, f->maker.header->head);
    assert_int_equal(((struct ring_header *)f->places[0]->mapping.memory)->head, f->maker.header->head);
    ring_reader_release(f->places[0], f->maker.header->head);
  }
}

static void extremes(void **state) {
  struct fixture *f = *state;
  struct ring_span span = {.type = RING_SPAN,
                           .kind = 255,
                           .flags = 255,
                           .name = UINT32_MAX,
                           .id = UINT64_MAX,
                           .start_ns = UINT64_MAX,
                           .index = INT64_MAX,
                           .cpu_ns = INT64_MIN,
                           .module = UINT32_MAX,
                           .exception = UINT32_MAX};
  struct ring_mark mark = {.type = RING_MARK, .value_type = MARK_FLOAT, .value.f = -0.0, .span = UINT64_MAX};
  char *longest = malloc(RING_TEXT_MAX_CELLS * RING_TEXT_BYTES + 1);
  memset(longest, 'x', RING_TEXT_MAX_CELLS * RING_TEXT_BYTES);
  longest[RING_TEXT_MAX_CELLS * RING_TEXT_BYTES] = '\0';
  maker_put(&f->maker, &span, NULL, NULL);
  maker_put(&f->maker, &mark, NULL, NULL);
  maker_put(&f->maker, &span, longest, NULL);
  mark.value_type = MARK_STRING;
  maker_put(&f->maker, &mark, longest, NULL);
  free(longest);
  uint64_t head = f->maker.header->head;
  assert_int_equal(pass(f, 0, head), 0);
  assert_same_cells(f, 0, head);
  struct ring_progress at = {.cells = 2};
  size_t n = pack_records(&f->ring, head, f->records, PACK_ROOM, &at);
  assert_int_equal(at.cells, 2 + 256); /* the longest record fits where one has to */
  assert_true(n <= PACK_ROOM);
  assert_int_equal(at.spans, 1);
}

/* Cells that no agent writes: they arrive as they are, for the reader to count them. */
static void damaged_cells_are_passed_on(void **state) {
  struct fixture *f = *state;
  for (unsigned i = 0; i < 300; i++) {
    uint8_t cell[RING_CELL];
    for (unsigned k = 0; k < RING_CELL; k++)
      cell[k] = (uint8_t)random_number();
    cell[0] = (uint8_t)(7 + random_number() % 200); /* of no type that is known */
    if (i % 3 == 0) {
      cell[0] = RING_SPAN;
      cell[offsetof(struct ring_span, text_cells)] = 255; /* no text follows */
    }
    maker_cell(&f->maker, i, cell);
  }
  assert_int_equal(pass(f, 0, 300), 0);
  assert_same_cells(f, 0, 300);
}

/* The usual records of a training, in their usual order. */
static void a_span_takes_few_bytes(void **state) {
  struct fixture *f = *state;
  uint64_t now = 1000000000000ull, id = 5000;
  struct ring_progress at = {0};
  for (int step = 0; step < 100; step++) {
    uint64_t parent = id++;
    for (uint32_t i = 0; i < 5; i++) {
      struct ring_span span = {.type = RING_SPAN,
                               .kind = (uint8_t)(5 + i),
                               .name = 10 + 2 * i,
                               .id = i < 4 ? id++ : parent,
                               .parent = i < 4 ? parent : 4000,
                               .start_ns = now += 1500,
                               .end_ns = now += 250000,
                               .index = i < 4 ? SPAN_NO_INDEX : step,
                               .cpu_ns = SPAN_NO_TIME,
                               .module = i == 1 ? 40 : 0};
      maker_put(&f->maker, &span, NULL, NULL);
    }
  }
  size_t n = pack_records(&f->ring, 500, f->records, sizeof f->records, &at);
  assert_int_equal(at.spans, 500);
  if (n > 500 * 17)
    fail_msg("%zu bytes a span", n / 500);
  printf("%.1f bytes a span\n", (double)n / 500);
}

static void open_spans_come_out_as_they_were(void **state) {
  struct fixture *f = *state;
  for (unsigned slot = 0; slot < RING_OPEN_SLOTS; slot++)
    if (slot % 7 != 3)
      f->maker.open[slot] = (struct ring_open){.id = UINT64_MAX - slot,
                                               .parent = random_number(),
                                               .start_ns = random_number(),
                                               .index = slot % 2 ? SPAN_NO_INDEX : INT64_MAX,
                                               .name = UINT32_MAX,
                                               .module = slot % 3 ? UINT32_MAX : 0,
                                               .kind = 255,
                                               .flags = 255,
                                               .depth = UINT16_MAX,
                                               .tid = UINT32_MAX};
  f->batch.shows_open = true;
  f->batch.open.data = f->open;
  f->batch.open.len = pack_open(&f->ring, f->open);
  assert_true(f->batch.open.len <= BATCH_OPEN_MAX);
  assert_int_equal(pass(f, 0, 0), 0);
  assert_memory_equal((uint8_t *)f->places[0]->mapping.memory + RING_OPEN_OFFSET, f->maker.open, RING_OPEN_SLOTS * RING_CELL);
  f->batch.shows_open = false;
  f->batch.open.len = 0;
  assert_int_equal(pass(f, 0, 0), 0); /* it says nothing about them */
  assert_memory_equal((uint8_t *)f->places[0]->mapping.memory + RING_OPEN_OFFSET, f->maker.open, RING_OPEN_SLOTS * RING_CELL);
}

static void put_spans(struct fixture *f, unsigned n) {
  for (unsigned i = 0; i < n; i++)
    put_random(f, 2);
}

static void what_came_before_is_passed_by(void **state) {
  struct fixture *f = *state;
  struct ring_thread thread = {.type = RING_THREAD, .tid = 99};
  put_spans(f, 10);
  maker_put(&f->maker, &thread, NULL, NULL);
  put_spans(f, 10);
  f->session.added = true;
  stored_tail = 15; /* of a collector that died */
  f->batch.tid = 7;
  assert_int_equal(pass(f, 4, 12), 0);
  assert_int_equal(f->places[0]->next, 15);
  assert_int_equal(f->places[0]->head, 15);
  assert_int_equal(f->places[0]->tid, 99); /* said in what was committed by then */
  assert_int_equal(pass(f, 12, 20), 0);
  assert_int_equal(pass(f, 12, 21), 0); /* once more after a broken connection */
  assert_int_equal(ring_reader_look(f->places[0]), 0);
  assert_int_equal(f->places[0]->head, 21);
  assert_same_cells(f, 15, 21);
}

static void counters_never_go_back(void **state) {
  struct fixture *f = *state;
  f->batch.emitted_spans = 10, f->batch.dropped_spans = 3, f->batch.dropped_moves = 1;
  assert_int_equal(pass(f, 0, 0), 0);
  f->batch.emitted_spans = 5, f->batch.dropped_spans = 4, f->batch.dropped_moves = 0;
  assert_int_equal(pass(f, 0, 0), 0);
  struct ring_counters c = ring_reader_counters(f->places[0]);
  assert_int_equal(c.emitted_spans, 10);
  assert_int_equal(c.dropped_spans, 4);
  assert_int_equal(c.dropped_moves, 1);
}

/* Nothing of it may be seen in the ring. */
static void assert_bad(struct fixture *f, int err) {
  uint64_t head = ((struct ring_header *)f->places[0]->mapping.memory)->head, damaged = f->session.ingest.damaged;
  assert_int_equal(batch_records(&f->session, &f->batch, 1, NULL), err);
  assert_int_equal(((struct ring_header *)f->places[0]->mapping.memory)->head, head);
  assert_int_equal(f->session.ingest.damaged, damaged + 1);
}

static void positions_that_cannot_be(void **state) {
  struct fixture *f = *state;
  put_spans(f, 20);
  assert_int_equal(pass(f, 0, 10), 0);
  f->batch.position = 11; /* one is missing */
  assert_bad(f, -EPROTO);
  f->batch.position = UINT64_MAX - 3;
  assert_bad(f, -EPROTO);
  f->batch.position = 10;
  f->batch.count = CELLS; /* over what nobody has committed */
  assert_bad(f, -EPROTO);
  f->batch.count = UINT32_MAX;
  assert_bad(f, -EPROTO);
  f->batch.count = 10;
  f->batch.cells = 2 * CELLS;
  assert_bad(f, -EPROTO);
  f->batch.cells = CELLS;
  f->batch.count = 9; /* there are bytes left */
  assert_bad(f, -EBADMSG);
  f->batch.count = 11; /* and too few */
  assert_bad(f, -EBADMSG);
}

static void rings_that_cannot_be(void **state) {
  struct fixture *f = *state;
  const uint32_t cells[] = {0, 1, CELLS - 1, CELLS + 1, RING_MAX_CELLS * 2, UINT32_MAX};
  for (unsigned i = 0; i < sizeof cells / sizeof *cells; i++) {
    f->batch.cells = cells[i];
    assert_int_not_equal(batch_records(&f->session, &f->batch, 1, NULL), 0);
    assert_int_equal(f->session.ring_count, 0);
  }
  f->batch.cells = CELLS;
  f->batch.ring_no = 0;
  assert_int_equal(batch_records(&f->session, &f->batch, 1, NULL), -EPROTO);
  f->batch.ring_no = 1;
  f->batch.position = UINT64_MAX;
  assert_int_equal(batch_records(&f->session, &f->batch, 1, NULL), -EPROTO);
  f->batch.position = 0;
  assert_int_equal(batch_records(&f->session, &f->batch, 0, NULL), -EMFILE);
  f->session.by_messages = false; /* it shares its memory */
  assert_int_equal(batch_records(&f->session, &f->batch, 1, NULL), -EPROTO);
  assert_int_equal(f->session.ring_count, 0);
}

/* Cut anywhere, and with any byte another one: no crash, and either it is refused or it was whole. */
static void damaged_messages(void **state) {
  struct fixture *f = *state;
  for (int i = 0; i < 30; i++)
    put_random(f, i % 5);
  uint64_t head = f->maker.header->head;
  assert_int_equal(pass(f, 0, head), 0);
  size_t len = f->batch.records.len;
  uint8_t *exact = malloc(len), whole[RING_CELL];
  for (size_t cut = 0; cut < len; cut++) {
    struct unpack u = unpack_begin(memcpy(exact, f->records, cut), cut);
    uint64_t n = 0;
    while (unpack_cell(&u, whole) == 0)
      n++;
    assert_true(n < head);
  }
  for (int i = 0; i < 20000; i++) {
    memcpy(exact, f->records, len);
    exact[random_number() % len] = (uint8_t)random_number();
    exact[random_number() % len] ^= (uint8_t)(1u << random_number() % 8);
    drop_ring(f);
    f->batch.records.data = exact;
    int err = batch_records(&f->session, &f->batch, 1, NULL);
    assert_true(err == 0 || err == -EBADMSG);
  }
  free(exact);
}

static void open_spans_that_cannot_be(void **state) {
  struct fixture *f = *state;
  assert_int_equal(pass(f, 0, 0), 0);
  f->batch.shows_open = true;
  f->batch.open.data = f->open;
  const uint8_t entry[] = {0, 9, 1, 0, 0, 1, 1, 2, 0, 0}; /* slot 9, id 1 */
  struct {
    unsigned at;
    uint8_t value;
  } wrong[] = {{0, 8}, {7, 0}, {10 + 1, 9}, {10 + 1, 8}};
  for (unsigned i = 0; i < 4; i++) {
    memcpy(f->open, entry, sizeof entry);
    memcpy(f->open + sizeof entry, entry, sizeof entry);
    f->open[sizeof entry + 1] = 10;
    f->open[wrong[i].at] = wrong[i].value;
    f->batch.open.len = 2 * sizeof entry;
    assert_bad(f, -EBADMSG);
  }
  for (size_t cut = 1; cut < sizeof entry; cut++) {
    memcpy(f->open, entry, sizeof entry);
    f->batch.open.len = cut;
    assert_bad(f, -EBADMSG);
  }
}

static void names_join_those_before(void **state) {
  struct fixture *f = *state;
  struct ring_segment *segment = f->session.segment.memory;
  const uint8_t *area = (uint8_t *)segment + SEGMENT_NAMES_OFFSET;
  Cirron__Intern names = CIRRON__INTERN__INIT;
  names.names.data = (uint8_t *)"\0\0\0\0abcdefgh";
  names.names.len = 8;
  assert_int_equal(batch_names(&f->session, &names), 0);
  names.names.len = 12;
  assert_int_equal(batch_names(&f->session, &names), 0); /* once more, and further */
  assert_int_equal(segment->names_used, 12);
  assert_memory_equal(area + 4, "abcdefgh", 8);
  names.names.data = (uint8_t *)"XXXXXXXX";
  names.names.len = 8;
  names.offset = 4;
  assert_int_equal(batch_names(&f->session, &names), 0); /* what was said stays */
  assert_memory_equal(area + 4, "abcdefgh", 8);
  names.offset = 13;
  assert_int_equal(batch_names(&f->session, &names), -EPROTO);
  names.offset = 12;
  names.names.data = calloc(1, SEGMENT_NAMES_BYTES);
  names.names.len = SEGMENT_NAMES_BYTES - 11;
  assert_int_equal(batch_names(&f->session, &names), -EPROTO);
  names.names.len--;
  assert_int_equal(batch_names(&f->session, &names), 0);
  assert_int_equal(segment->names_used, SEGMENT_NAMES_BYTES);
  free(names.names.data);
  f->session.by_messages = false;
  assert_int_equal(batch_names(&f->session, &names), -EPROTO);
}

static void tells_what_is_committed(void **state) {
  struct fixture *f = *state;
  uint32_t ring_no;
  uint64_t position;
  put_spans(f, 5);
  assert_int_equal(pass(f, 0, 5), 0);
  assert_true(f->session.owes);
  assert_false(batch_next_told(&f->session, &ring_no, &position)); /* nothing is, and the process knows that */
  assert_false(f->session.owes);
  ring_reader_release(f->places[0], 3);
  assert_true(batch_next_told(&f->session, &ring_no, &position));
  assert_int_equal(ring_no, 1);
  assert_int_equal(position, 3);
  assert_false(batch_next_told(&f->session, &ring_no, &position));
  batch_tell_all(&f->session);
  assert_true(batch_next_told(&f->session, &ring_no, &position));
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(records_come_out_as_they_were),
      T(extremes),
      T(damaged_cells_are_passed_on),
      T(a_span_takes_few_bytes),
      T(open_spans_come_out_as_they_were),
      T(what_came_before_is_passed_by),
      T(counters_never_go_back),
      T(positions_that_cannot_be),
      T(rings_that_cannot_be),
      T(damaged_messages),
      T(open_spans_that_cannot_be),
      T(names_join_those_before),
      T(tells_what_is_committed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
