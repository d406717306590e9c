// links: collectord/ring_reader.c collectord/mapping.c
/* Reading a ring: what an agent writes comes out as it was, and what nobody should write does no harm. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "collectord/ring_reader.h"
#include "tests/support/ring_maker.h"

#define SESSION 0x1122334455667788ull
#define CELLS RING_MIN_CELLS

struct fixture {
  struct ring_maker maker;
  struct ring_reader reader;
  struct ring_record record;
};

static int set_up(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  f->maker = maker_ring(SESSION, 1, CELLS);
  assert_int_equal(ring_reader_open(f->maker.fd, 1, CELLS, SESSION, &f->reader), 0);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  struct fixture *f = *state;
  ring_reader_close(&f->reader);
  maker_ring_free(&f->maker);
  free(f);
  return 0;
}

static bool next(struct fixture *f) {
  assert_int_equal(ring_reader_look(&f->reader), 0);
  if (!ring_reader_peek(&f->reader, f->reader.head, &f->record))
    return false;
  ring_reader_consume(&f->reader, &f->record);
  return true;
}

static void put_span(struct fixture *f, uint64_t id, const char *attrs) {
  struct ring_span span = {.type = RING_SPAN, .id = id, .parent = SPAN_ROOT, .start_ns = 10 * id, .end_ns = 10 * id + 5};
  maker_put(&f->maker, &span, attrs, NULL);
}

static void reads_what_was_written(void **state) {
  struct fixture *f = *state;
  struct ring_thread thread = {.type = RING_THREAD, .tid = 4711};
  struct ring_mark mark = {.type = RING_MARK, .value_type = MARK_STRING, .id = 9, .span = 8};
  char text[200];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  maker_put(&f->maker, &thread, NULL, NULL);
  put_span(f, 7, "{\"a\":1}");
  maker_put(&f->maker, &mark, text, "{}");
  assert_true(next(f));
  assert_int_equal(f->reader.tid, 4711);
  assert_int_equal(f->record.span.id, 7);
  assert_int_equal(f->record.text_len, 7);
  assert_memory_equal(f->record.text, "{\"a\":1}", 7);
  assert_true(next(f));
  assert_int_equal(f->record.mark.id, 9);
  assert_int_equal(f->record.value_len, 199);
  assert_int_equal(f->record.text_len, 201);
  assert_memory_equal(f->record.text + 199, "{}", 2);
  assert_false(next(f));
  assert_int_equal(f->reader.bad, 0);
}

static void peek_gives_the_same_until_it_is_consumed(void **state) {
  struct fixture *f = *state;
  put_span(f, 3, NULL);
  assert_int_equal(ring_reader_look(&f->reader), 0);
  assert_true(ring_reader_peek(&f->reader, f->reader.head, &f->record));
  assert_true(ring_reader_peek(&f->reader, f->reader.head, &f->record));
  assert_int_equal(f->record.span.id, 3);
  ring_reader_consume(&f->reader, &f->record);
  assert_false(ring_reader_peek(&f->reader, f->reader.head, &f->record));
}

static void tail_moves_on_release_only(void **state) {
  struct fixture *f = *state;
  put_span(f, 3, NULL);
  assert_true(next(f));
  assert_int_equal(f->maker.header->tail, 0);
  ring_reader_release(&f->reader, f->reader.next);
  assert_int_equal(f->maker.header->tail, 1);
}

static void goes_round_and_round(void **state) {
  struct fixture *f = *state;
  uint64_t got = 0;
  for (uint64_t id = 1; id <= 10 * CELLS; id++) {
    put_span(f, id, id % 3 ? NULL : "{\"long\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}");
    assert_true(next(f));
    assert_int_equal(f->record.span.id, ++got);
    assert_int_equal(f->record.text_len, id % 3 ? 0 : 81);
    ring_reader_release(&f->reader, f->reader.next);
  }
  assert_int_equal(f->reader.bad, 0);
}

static void refuses_what_is_not_sealed_or_of_another_size(void **state) {
  (void)state;
  void *memory;
  struct ring_reader reader = {0};
  int fd = maker_memfd(RING_BYTES(CELLS), F_SEAL_GROW, &memory);
  assert_int_equal(ring_reader_open(fd, 1, CELLS, SESSION, &reader), -EPERM);
  close(fd);
  munmap(memory, RING_BYTES(CELLS));
  struct ring_maker m = maker_ring(SESSION, 1, CELLS);
  assert_int_equal(ring_reader_open(m.fd, 1, CELLS * 2, SESSION, &reader), -EMSGSIZE);
  assert_int_equal(ring_reader_open(m.fd, 1, CELLS + 1, SESSION, &reader), -EPROTO);
  assert_int_equal(ring_reader_open(m.fd, 1, RING_MAX_CELLS * 2, SESSION, &reader), -EPROTO);
  assert_int_equal(ring_reader_open(m.fd, 2, CELLS, SESSION, &reader), -EPROTO);
  assert_int_equal(ring_reader_open(m.fd, 1, CELLS, SESSION + 1, &reader), -EPROTO);
  m.header->magic++;
  assert_int_equal(ring_reader_open(m.fd, 1, CELLS, SESSION, &reader), -EPROTO);
  maker_ring_free(&m);
  int pipe_ends[2];
  assert_int_equal(pipe(pipe_ends), 0);
  assert_int_equal(ring_reader_open(pipe_ends[0], 1, CELLS, SESSION, &reader), -EPERM);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

static void text_that_runs_past_the_head_is_skipped(void **state) {
  struct fixture *f = *state;
  struct ring_span span = {.type = RING_SPAN, .id = 5, .text_cells = 200};
  maker_cell(&f->maker, 0, &span);
  f->maker.header->head = 1;
  assert_false(next(f));
  assert_int_equal(f->reader.bad, 1);
  put_span(f, 6, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 6);
}

static void unknown_records_are_skipped_with_their_text(void **state) {
  struct fixture *f = *state;
  struct ring_span strange = {.type = 99, .id = 5};
  maker_put(&f->maker, &strange, "of a newer agent, and longer than what goes into one single cell of text, so two", NULL);
  put_span(f, 6, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 6);
  assert_int_equal(f->reader.bad, 1);
}

static void damaged_text_costs_the_text_only(void **state) {
  struct fixture *f = *state;
  put_span(f, 5, "{}");
  struct ring_text text = {.type = RING_TEXT, .used = RING_TEXT_BYTES + 1};
  maker_cell(&f->maker, 1, &text);
  put_span(f, 6, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 5);
  assert_true(f->record.text_bad);
  assert_int_equal(f->record.text_len, 0);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 6);
}

static void a_head_that_jumps_is_followed_a_few_times(void **state) {
  struct fixture *f = *state;
  put_span(f, 5, NULL);
  assert_true(next(f));
  f->maker.header->head = 100000000;
  assert_false(next(f));
  f->maker.header->head = 3;
  assert_false(next(f));
  assert_int_equal(f->reader.bad, 2);
  put_span(f, 6, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 6);
  int err = 0;
  for (unsigned i = 0; !err && i < 100; i++) {
    f->maker.header->head = i % 2 ? UINT64_MAX - i : i;
    err = ring_reader_look(&f->reader);
  }
  assert_int_equal(err, -EPROTO);
}

/* What was read but not released is the reader's: a writer that goes round over it has left the rules. */
static void a_writer_that_does_not_wait_for_the_tail(void **state) {
  struct fixture *f = *state;
  for (uint64_t id = 1; id <= CELLS; id++)
    put_span(f, id, NULL);
  for (unsigned i = 0; i < CELLS; i++)
    assert_true(next(f));
  put_span(f, CELLS + 1, NULL);
  assert_false(next(f));
  assert_int_equal(f->reader.bad, 1);
  put_span(f, CELLS + 2, NULL); /* followed from there on */
  assert_true(next(f));
  ring_reader_release(&f->reader, f->reader.next);
  for (unsigned i = 0; i < CELLS; i++) {
    put_span(f, i + 1, NULL);
    assert_true(next(f));
  }
  assert_int_equal(f->reader.bad, 1);
}

static void seek_takes_the_further_tail(void **state) {
  struct fixture *f = *state;
  for (uint64_t id = 1; id <= 10; id++)
    put_span(f, id, NULL);
  f->maker.header->tail = 4;
  ring_reader_seek(&f->reader, 6);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 7);
  ring_reader_seek(&f->reader, 2);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 5);
}

static void thread_is_known_after_seek(void **state) {
  struct fixture *f = *state;
  struct ring_thread thread = {.type = RING_THREAD, .tid = 11};
  maker_put(&f->maker, &thread, NULL, NULL);
  put_span(f, 5, NULL);
  ring_reader_seek(&f->reader, 1);
  assert_int_equal(f->reader.tid, 11);
  f->maker.open[3] = (struct ring_open){.start_ns = 100, .tid = 12}; /* ended, but the last of this thread */
  f->maker.open[4] = (struct ring_open){.start_ns = 50, .tid = 13};
  ring_reader_seek(&f->reader, 1);
  assert_int_equal(f->reader.tid, 12);
}

static void goes_on_in_other_memory(void **state) {
  struct fixture *f = *state;
  put_span(f, 5, NULL);
  put_span(f, 6, NULL);
  assert_true(next(f));
  ring_reader_release(&f->reader, f->reader.next);
  assert_true(next(f)); /* read, not committed */
  struct ring_maker moved = maker_ring(SESSION, 1, CELLS);
  memcpy(moved.header, f->maker.header, RING_BYTES(CELLS));
  maker_ring_free(&f->maker);
  f->maker = moved;
  assert_int_equal(ring_reader_move(&f->reader, moved.fd, CELLS, SESSION), 0);
  assert_false(next(f));
  put_span(f, 7, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 7);
  ring_reader_release(&f->reader, f->reader.next);
  assert_int_equal(moved.header->tail, 3);
  assert_int_equal(ring_reader_move(&f->reader, moved.fd, CELLS, SESSION + 1), -EPROTO);
}

/* Its positions come from a stranger, again: all that is between them and ours was never written, and is not looked for. */
static void other_memory_cannot_be_far_ahead(void **state) {
  struct fixture *f = *state;
  put_span(f, 5, NULL);
  assert_true(next(f));
  f->maker.header->tail = 1ull << 60;
  f->maker.header->head = (1ull << 60) + 3;
  assert_int_equal(ring_reader_move(&f->reader, f->maker.fd, CELLS, SESSION), 0);
  assert_int_equal(ring_reader_look(&f->reader), 0);
  assert_true(f->reader.head - f->reader.next <= CELLS);
  assert_int_equal(f->reader.jumps, 1);
  put_span(f, 6, NULL);
  assert_true(next(f));
  assert_int_equal(f->record.span.id, 6);
}

static void open_spans_are_copied(void **state) {
  struct fixture *f = *state;
  struct ring_open out[RING_OPEN_SLOTS];
  assert_int_equal(ring_reader_open_spans(&f->reader, out), 0);
  f->maker.open[0] = (struct ring_open){.id = 4, .name = 1};
  f->maker.open[RING_OPEN_SLOTS - 1] = (struct ring_open){.id = 9, .name = 2};
  assert_int_equal(ring_reader_open_spans(&f->reader, out), 2);
  assert_int_equal(out[1].id, 9);
  assert_int_equal(out[1].name, 2);
}

/* Any bytes whatever: no crash, no endless loop, nothing longer than the buffer. */
static void noise(void **state) {
  struct fixture *f = *state;
  srandom(1);
  for (int round = 0; round < 200; round++) {
    for (size_t i = 0; i < (size_t)CELLS * RING_CELL; i++)
      f->maker.cells[i] = (uint8_t)(i % RING_CELL ? random() : random() % 7);
    f->maker.header->head += (uint64_t)random() % CELLS;
    unsigned n = 0;
    while (next(f)) {
      assert_true(f->record.value_len <= f->record.text_len && f->record.text_len <= sizeof f->record.text);
      assert_true(++n <= CELLS);
    }
    assert_int_equal(f->reader.next, f->reader.head);
    ring_reader_release(&f->reader, f->reader.next);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(reads_what_was_written),
      T(peek_gives_the_same_until_it_is_consumed),
      T(tail_moves_on_release_only),
      T(goes_round_and_round),
      cmocka_unit_test(refuses_what_is_not_sealed_or_of_another_size),
      T(text_that_runs_past_the_head_is_skipped),
      T(unknown_records_are_skipped_with_their_text),
      T(damaged_text_costs_the_text_only),
      T(a_head_that_jumps_is_followed_a_few_times),
      T(a_writer_that_does_not_wait_for_the_tail),
      T(seek_takes_the_further_tail),
      T(thread_is_known_after_seek),
      T(goes_on_in_other_memory),
      T(other_memory_cannot_be_far_ahead),
      T(open_spans_are_copied),
      T(noise),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
