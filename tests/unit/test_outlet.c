// links: agent/outlet.c agent/ring_writer.c agent/fd.c
/* A thread whose ring is full: it goes on in a spare one, comes home, and every record can be read in the order of writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "agent/outlet.h"
#include "agent/session.h"

#define CELLS RING_MIN_CELLS
#define SPARE_CELLS (4 * RING_MIN_CELLS)
#define ROOM (CELLS - RING_RESERVED)
#define SPARE_ROOM (SPARE_CELLS - RING_RESERVED - 2) /* RING_THREAD, RING_AFTER */

static struct ring home, spare;
static struct outlet outlet;
static bool spares, given;
static uint64_t now, next_id, asked;

struct ring *session_ring_spare(void) {
  asked++;
  if (!spares || spare.in_use)
    return NULL;
  spare.in_use = true;
  return &spare;
}

void session_ring_give(struct ring *ring) {
  assert_ptr_equal(ring, &spare);
  given = true;
  ring->in_use = false;
}

uint64_t clock_system(void) {
  return ++now;
}

static int setup(void **state) {
  (void)state;
  if (ring_open(7, 1, CELLS, &home) != 0 || ring_open_spare(7, 2, SPARE_CELLS, &spare) != 0)
    return -1;
  spares = true, given = false;
  now = next_id = asked = 0;
  outlet_init(&outlet, &home, 99);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  ring_unmap(&home);
  ring_unmap(&spare);
  return 0;
}

/* One span that began just now: was it kept? */
static bool put(void) {
  struct ring_span *cell = outlet_claim(&outlet, false, clock_system());
  if (!cell)
    return false;
  *cell = (struct ring_span){.type = RING_SPAN, .id = ++next_id};
  ring_commit(outlet.ring);
  return true;
}

static unsigned put_many(unsigned n) {
  unsigned kept = 0;
  while (n--)
    kept += put();
  return kept;
}

static uint64_t sum(size_t field) {
  return *(uint64_t *)((char *)home.shm + field) + *(uint64_t *)((char *)spare.shm + field);
}

static uint64_t emitted(void) {
  return sum(offsetof(struct ring_header, emitted_spans));
}

static uint64_t dropped(void) {
  return sum(offsetof(struct ring_header, dropped_spans));
}

/* Reads both rings as collectord does: stops at a RING_AFTER until the other ring was read so far. Spans must come in order. */
static uint64_t last_read, next_of[2];

static bool read_one(struct ring *ring, uint64_t *next, uint64_t other_next) {
  const struct ring_span *cell = (const void *)(ring->cells + (*next & ring->mask) * RING_CELL);
  if (cell->type == RING_AFTER && ((const struct ring_after *)cell)->position > other_next)
    return false;
  if (cell->type == RING_SPAN) {
    assert_int_equal(cell->id, last_read + 1);
    last_read = cell->id;
  }
  ++*next;
  return true;
}

static void read_all(void) {
  bool more = true;
  while (more) {
    more = false;
    while (next_of[0] < home.shm->head && read_one(&home, &next_of[0], next_of[1]))
      more = true;
    while (next_of[1] < spare.shm->head && read_one(&spare, &next_of[1], next_of[0]))
      more = true;
  }
  assert_int_equal(next_of[0], home.shm->head);
  assert_int_equal(next_of[1], spare.shm->head);
  home.shm->tail = next_of[0];
  spare.shm->tail = next_of[1];
}

static void begin_reading(void) {
  last_read = next_of[0] = next_of[1] = 0;
}

static void a_burst_goes_into_the_spare_ring(void **state) {
  (void)state;
  begin_reading();
  assert_int_equal(put_many(ROOM), ROOM);
  assert_int_equal(asked, 0);
  assert_int_equal(put_many(SPARE_ROOM), SPARE_ROOM);
  assert_ptr_equal(outlet.ring, &spare);
  assert_int_equal(emitted(), ROOM + SPARE_ROOM);
  assert_int_equal(dropped(), 0);
  read_all();
  assert_int_equal(last_read, ROOM + SPARE_ROOM);
}

static void it_comes_home_and_gives_the_spare_back(void **state) {
  (void)state;
  begin_reading();
  put_many(ROOM + 10);
  outlet_tend(&outlet);
  assert_ptr_equal(outlet.ring, &spare); /* home is not read yet */
  read_all();
  outlet_tend(&outlet);
  assert_ptr_equal(outlet.ring, &home);
  assert_true(given);
  assert_null(outlet.spare);
  assert_int_equal(put_many(ROOM + 10), ROOM + 10); /* and once more */
  assert_ptr_equal(outlet.ring, &spare);
  read_all();
  assert_int_equal(last_read, 2 * (ROOM + 10));
  assert_int_equal(dropped(), 0);
}

static void home_before_the_spare_was_read(void **state) {
  (void)state;
  begin_reading();
  put_many(ROOM + 10);
  home.shm->tail = home.shm->head; /* the reader got that far */
  next_of[0] = home.shm->head, last_read = ROOM;
  outlet_tend(&outlet);
  assert_ptr_equal(outlet.ring, &home);
  assert_ptr_equal(outlet.spare, &spare);
  assert_false(given);
  put_many(5); /* must not be read before the ten in the spare ring: read_all checks */
  read_all();
  assert_int_equal(last_read, ROOM + 15);
}

static void long_bursts_change_to_and_fro(void **state) {
  (void)state;
  begin_reading();
  for (int i = 0; i < 200; i++) {
    unsigned n = (unsigned)(i * 7919 % (ROOM + SPARE_ROOM / 2));
    put_many(n);
    outlet_tend(&outlet);
    if (i % 3)
      read_all();
    outlet_tend(&outlet);
  }
  read_all();
  assert_int_equal(last_read, next_id);
  assert_int_equal(emitted(), next_id + dropped());
}

static void both_full_drops_exactly(void **state) {
  (void)state;
  begin_reading();
  unsigned kept = put_many(ROOM + SPARE_ROOM + 500);
  assert_int_equal(emitted(), ROOM + SPARE_ROOM + 500);
  assert_int_equal(kept + dropped(), emitted());
  assert_true(dropped() >= 499); /* one may have had a reserved cell */
  read_all();
  assert_int_equal(last_read, kept);
}

/* Whatever was read, there is room at once. */
static void full_ones_notice_what_was_read(void **state) {
  (void)state;
  put_many(ROOM + SPARE_ROOM + 500);
  assert_ptr_equal(outlet.ring, &spare);
  assert_int_equal(put_many(100), 0);
  spare.shm->tail += 10;
  assert_int_equal(put_many(100), 10);
  home.shm->tail = home.shm->head; /* all of it: back home */
  assert_true(put());
  assert_ptr_equal(outlet.ring, &home);
  uint64_t kept = put_many(CELLS);
  assert_true(kept < CELLS);
  assert_int_equal(put_many(50), 0);
  home.shm->tail++;
  assert_int_equal(put_many(50), 1);
  assert_int_equal(next_id + dropped(), emitted());
}

/* A ring whose descriptor the script closed is made anew also where nothing fits into it. */
static void a_full_one_is_renewed(void **state) {
  (void)state;
  put_many(ROOM + SPARE_ROOM + 500);
  assert_false(put());
  spare.renew = true;
  assert_false(put());
  assert_false(spare.renew);
}

static void what_was_open_before_may_use_reserved_cells(void **state) {
  (void)state;
  spares = false;
  uint64_t outer = clock_system();
  put_many(CELLS);
  uint64_t lost = dropped();
  assert_true(lost > 0);
  struct ring_span *cell = outlet_claim(&outlet, false, outer);
  assert_non_null(cell);
  *cell = (struct ring_span){.type = RING_SPAN, .id = ++next_id};
  ring_commit(outlet.ring);
  assert_int_equal(dropped(), lost);
  assert_false(put()); /* one that began since may not */
}

static void without_a_spare_it_does_not_ask_again_and_again(void **state) {
  (void)state;
  spares = false;
  put_many(CELLS + 1000);
  assert_true(asked <= 2);
  home.shm->tail = 100; /* read a little: then it may */
  put_many(200);
  assert_true(asked <= 4);
  assert_int_equal(emitted(), CELLS + 1200);
  assert_int_equal(next_id + dropped(), emitted());
}

static void marks_with_text_go_the_same_way(void **state) {
  (void)state;
  static char text[600];
  struct ring_mark mark = {.type = RING_MARK, .value_type = MARK_STRING};
  unsigned kept = 0;
  for (int i = 0; i < 1000; i++) {
    mark.id = ++next_id;
    kept += outlet_put(&outlet, &mark, text, sizeof text, NULL, 0, false, UINT64_MAX);
  }
  uint64_t lost = sum(offsetof(struct ring_header, dropped_marks));
  assert_int_equal(sum(offsetof(struct ring_header, emitted_marks)), 1000);
  assert_int_equal(kept + lost, 1000);
  assert_int_equal(kept, ROOM / 11 + SPARE_ROOM / 11);
}

static void a_thread_that_ends_gives_back(void **state) {
  (void)state;
  begin_reading();
  put_many(ROOM + 10);
  outlet_end(&outlet);
  assert_true(given);
  assert_ptr_equal(outlet.ring, &home);
  put(); /* the root, say: comes after all others */
  read_all();
  assert_int_equal(last_read, ROOM + 11);
  struct outlet other;
  outlet_init(&other, &home, 100);
  outlet_end(&other);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(a_burst_goes_into_the_spare_ring),
      TEST(it_comes_home_and_gives_the_spare_back),
      TEST(home_before_the_spare_was_read),
      TEST(long_bursts_change_to_and_fro),
      TEST(both_full_drops_exactly),
      TEST(full_ones_notice_what_was_read),
      TEST(a_full_one_is_renewed),
      TEST(what_was_open_before_may_use_reserved_cells),
      TEST(without_a_spare_it_does_not_ask_again_and_again),
      TEST(marks_with_text_go_the_same_way),
      TEST(a_thread_that_ends_gives_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
