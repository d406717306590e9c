// links: agent/keep.c agent/keep_moves.c
/* What is kept: in order, whole, bounded; and parents settled with hindsight, against the plain way to do it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/keep.h"
#include "agent/keep_moves.h"

static unsigned recalls;

void keep_recall(void) {
  recalls++;
}

static _Alignas(8) uint8_t buf[KEEP_SPANS_BYTES];

static int begin(void **state) {
  (void)state;
  keep_forget();
  return keep_start() ? 0 : -1;
}

static void put_span(uint64_t id, const char *attrs, size_t len) {
  struct ring_span s = {.type = RING_SPAN, .id = id, .parent = id / 2, .start_ns = id, .end_ns = id + 1};
  keep_put(&s, 7, attrs, len, NULL, 0);
}

static void put_mark(uint64_t id, bool summary, const char *text, const char *attrs) {
  struct ring_mark m = {.type = RING_MARK, .flags = summary ? MARK_SUMMARY : 0, .id = id, .span = 1};
  keep_put(&m, 7, text, strlen(text), attrs, strlen(attrs));
}

static void kept_as_given(void **state) {
  (void)state;
  uint64_t pos = 0;
  size_t at = 0;
  put_span(5, "{\"a\":1}", 7);
  put_span(6, NULL, 0);
  put_mark(8, false, "text", "{}");
  put_mark(9, true, "", "{\"b\":2}");
  size_t n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL);
  const struct keep_record *r = keep_next(buf, n, &at);
  assert_int_equal(r->as.span.id, 5);
  assert_int_equal(r->tid, 7);
  assert_int_equal(r->a_len, 7);
  assert_memory_equal(keep_a(r), "{\"a\":1}", 7);
  assert_int_equal(keep_next(buf, n, &at)->as.span.id, 6);
  assert_null(keep_next(buf, n, &at));
  assert_int_equal(keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL), 0);
  at = pos = 0;
  n = keep_read(KEEP_POINTS, &pos, buf, sizeof buf, NULL);
  r = keep_next(buf, n, &at);
  assert_int_equal(r->as.mark.id, 8);
  assert_memory_equal(keep_a(r), "text", 4);
  assert_memory_equal(keep_b(r), "{}", 2);
  at = pos = 0;
  n = keep_read(KEEP_SUMMARIES, &pos, buf, sizeof buf, NULL);
  r = keep_next(buf, n, &at);
  assert_int_equal(r->as.mark.id, 9);
  assert_int_equal(r->a_len, 0);
  assert_memory_equal(keep_b(r), "{\"b\":2}", 7);
}

/* Reads all spans in pieces: ids follow each other up to `last`. Returns how many there are. */
static uint64_t read_spans(uint64_t last, size_t piece) {
  uint64_t pos = 0, count = 0, before = 0;
  size_t n;
  while ((n = keep_read(KEEP_SPANS, &pos, buf, piece, NULL))) {
    const struct keep_record *r;
    for (size_t at = 0; (r = keep_next(buf, n, &at)); before = r->as.span.id, count++) {
      assert_true(!before || r->as.span.id == before + 1);
      for (size_t i = 0; i < r->a_len; i++)
        assert_int_equal((uint8_t)keep_a(r)[i], r->as.span.id % 251);
    }
  }
  assert_int_equal(before, last);
  return count;
}

static void put_filled(uint64_t id, size_t len) {
  static __thread char text[16384];
  memset(text, (int)(id % 251), len);
  put_span(id, text, len);
}

static void oldest_make_way_by_number(void **state) {
  (void)state;
  uint64_t last = 3 * KEEP_MAX_SPANS + 17;
  for (uint64_t id = 1; id <= last; id++)
    put_span(id, NULL, 0);
  assert_int_equal(read_spans(last, sizeof buf), KEEP_MAX_SPANS);
  assert_int_equal(read_spans(last, 1000), KEEP_MAX_SPANS);
  struct keep_counts c = keep_counts();
  assert_int_equal(c.spans, KEEP_MAX_SPANS);
  assert_int_equal(c.evicted_spans, last - KEEP_MAX_SPANS);
  assert_true(c.bytes <= KEEP_BYTES);
}

static uint64_t count_shown(uint64_t *first) {
  uint64_t pos = 0, count = 0;
  size_t n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL);
  const struct keep_record *r;
  *first = 0;
  for (size_t at = keep_shown(buf, n); (r = keep_next(buf, n, &at));) {
    if (r->as.type == RING_SPAN && count++ == 0)
      *first = r->as.span.id;
  }
  return count;
}

/* What trace() shows; who reads the logs has all. */
static void newest_are_shown(void **state) {
  (void)state;
  uint64_t first;
  for (uint64_t id = 1; id <= 1000; id++)
    put_span(id, NULL, 0);
  assert_int_equal(keep_limit(), KEEP_MAX_SPANS);
  assert_int_equal(count_shown(&first), 1000);
  keep_limit_set(10);
  assert_int_equal(count_shown(&first), 10);
  assert_int_equal(first, 991);
  struct ring_move m = {.type = RING_MOVE, .span = 5};
  keep_put(&m, 7, NULL, 0, NULL, 0); /* is no span */
  assert_int_equal(count_shown(&first), 10);
  struct keep_counts c = keep_counts();
  assert_int_equal(c.spans, 10);
  assert_int_equal(c.evicted_spans, 990);
  keep_limit_set(1001);
  assert_int_equal(count_shown(&first), 1000);
  assert_int_equal(keep_counts().evicted_spans, 0);
  keep_limit_set(KEEP_MAX_SPANS + 10);
  for (uint64_t id = 1001; id <= KEEP_MAX_SPANS + 500; id++)
    put_span(id, NULL, 0);
  assert_int_equal(count_shown(&first), KEEP_MAX_SPANS + 10);
  assert_int_equal(first, 491);
  keep_limit_set(UINT64_MAX); /* as many as there is room for */
  for (uint64_t id = KEEP_MAX_SPANS + 501; id <= 3 * KEEP_MAX_SPANS; id++)
    put_span(id, NULL, 0);
  c = keep_counts();
  assert_true(c.spans > 130000 && c.spans == count_shown(&first) && c.bytes <= KEEP_BYTES);
  keep_limit_set(KEEP_MAX_SPANS);
  put_span(3 * KEEP_MAX_SPANS + 1, NULL, 0);
  assert_int_equal(keep_counts().spans, KEEP_MAX_SPANS);
}

static void oldest_make_way_by_bytes(void **state) {
  (void)state;
  uint64_t last = 30000;
  for (uint64_t id = 1; id <= last; id++)
    put_filled(id, (size_t)(id * 7919 % 15001));
  uint64_t many = read_spans(last, sizeof buf);
  assert_true(many > 500 && many < 3000);
  assert_int_equal(read_spans(last, 20000), many);
  assert_int_equal(keep_counts().spans, many);
  assert_int_equal(keep_counts().evicted_spans, last - many);
}

/* Who reads behind is told what was given up. */
static void a_late_reader_is_told(void **state) {
  (void)state;
  uint64_t pos = 0, lost = 0, got = 0;
  size_t n;
  put_span(1, NULL, 0);
  assert_true(keep_read(KEEP_SPANS, &pos, buf, sizeof buf, &lost) > 0);
  uint64_t seen = pos;
  for (uint64_t id = 2; id <= 2 * KEEP_MAX_SPANS; id++)
    put_span(id, NULL, 0);
  while ((n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, &lost)))
    got += n;
  assert_true(lost > 0);
  assert_int_equal(seen + lost + got, keep_head(KEEP_SPANS));
}

static void marks_do_not_drive_out_others(void **state) {
  (void)state;
  put_span(1, NULL, 0);
  put_mark(2, true, "", "{}");
  for (uint64_t id = 3; id < 200000; id++)
    put_mark(id, false, "", "");
  uint64_t pos = 0;
  assert_int_equal(read_spans(1, sizeof buf), 1);
  assert_true(keep_read(KEEP_SUMMARIES, &pos, buf, sizeof buf, NULL) > 0);
  assert_true(keep_counts().evicted_marks > 0);
}

static _Atomic bool stop;

static void *write_on(void *number) {
  for (uint64_t id = 1; !atomic_load(&stop); id++)
    put_filled((uint64_t)(uintptr_t)number << 32 | id, (size_t)(id * 31 % 300));
  return NULL;
}

/* What is read while others write is whole, and each writer's is in order. */
static void read_while_written(void **state) {
  (void)state;
  pthread_t threads[3];
  atomic_store(&stop, false);
  for (uintptr_t i = 0; i < 3; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, write_on, (void *)(i + 1)), 0);
  uint64_t read = 0;
  alarm(100);
  for (unsigned round = 0; round < 60 || read < 1000; round++) {
    uint64_t pos = 0, before[4] = {0};
    size_t n;
    for (unsigned part = 0; part < 4 && (n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL)); part++) {
      const struct keep_record *r;
      for (size_t at = 0; (r = keep_next(buf, n, &at)); read++) {
        uint64_t id = r->as.span.id, who = id >> 32;
        assert_true(r->as.type == RING_SPAN && who >= 1 && who <= 3 && (uint32_t)id > before[who]);
        before[who] = (uint32_t)id;
        for (size_t i = 0; i < r->a_len; i++)
          if ((uint8_t)keep_a(r)[i] != id % 251)
            fail_msg("span %lx is torn", (unsigned long)id);
      }
    }
  }
  alarm(0);
  atomic_store(&stop, true);
  for (unsigned i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
}

static void a_child_starts_empty(void **state) {
  (void)state;
  uint64_t pos = 0;
  put_span(1, NULL, 0);
  pid_t child = fork();
  if (child == 0) {
    keep_forget(); /* as the fork handler does */
    bool empty = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL) == 0 && keep_counts().spans == 0;
    put_span(2, NULL, 0);
    bool works = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL) > 0;
    _exit(empty && works ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(read_spans(1, sizeof buf), 1);
}

/* A child made behind our back finds the memory wiped, and goes on. */
static void a_fork_without_a_word(void **state) {
  (void)state;
  for (uint64_t id = 1; id < 3 * KEEP_MAX_SPANS; id++)
    put_span(id, NULL, 0);
  pid_t child = fork();
  if (child == 0) {
    alarm(100);
    for (uint64_t id = 1; id < 3 * KEEP_MAX_SPANS; id++)
      put_span(id, NULL, 0);
    uint64_t pos = 0;
    _exit(keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL) > 0 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* --- moves --- */

#define EVENTS 3000
struct event {
  bool move;
  uint64_t id, parent, since_or_start;
};

static uint64_t expected_parent(const struct event *e, unsigned at, unsigned n) {
  uint64_t parent = e[at].parent;
  for (unsigned i = at + 1; i < n; i++)
    if (e[i].move && e[i].id == parent && e[i].since_or_start <= e[at].since_or_start && e[i].parent != e[at].id)
      parent = e[i].parent;
  return parent;
}

static void put_event(const struct event *e) {
  struct ring_move move = {.type = RING_MOVE, .span = e->id, .parent = e->parent, .since_ns = e->since_or_start};
  struct ring_span span = {.type = RING_SPAN, .id = e->id, .parent = e->parent, .start_ns = e->since_or_start};
  keep_put(e->move ? (const void *)&move : &span, 1, NULL, 0, NULL, 0);
}

static void moves_as_they_came(void **state) {
  (void)state;
  static struct event e[EVENTS];
  for (unsigned seed = 1; seed <= 20; seed++) {
    keep_forget();
    srand(seed);
    unsigned few = seed % 2 ? 5 : 200;
    for (unsigned i = 0; i < EVENTS; i++) {
      e[i] = (struct event){rand() % 3 == 0, (uint64_t)(rand() % (int)few), (uint64_t)(rand() % (int)few),
                            (uint64_t)(rand() % 100)};
      if (!e[i].move)
        e[i].id = few + i;
      put_event(&e[i]);
    }
    uint64_t pos = 0;
    size_t n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL), at = 0;
    keep_moves_apply(buf, n, SIZE_MAX);
    for (unsigned i = 0; i < EVENTS; i++) {
      const struct keep_record *r = keep_next(buf, n, &at);
      assert_non_null(r);
      if (!e[i].move)
        assert_int_equal(r->as.span.parent, expected_parent(e, i, EVENTS));
    }
  }
}

static void starts_once(void **state) {
  (void)state;
  assert_int_equal(recalls, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(kept_as_given, begin),
      cmocka_unit_test_setup(oldest_make_way_by_number, begin),
      cmocka_unit_test_setup(newest_are_shown, begin),
      cmocka_unit_test_setup(oldest_make_way_by_bytes, begin),
      cmocka_unit_test_setup(a_late_reader_is_told, begin),
      cmocka_unit_test_setup(marks_do_not_drive_out_others, begin),
      cmocka_unit_test_setup(read_while_written, begin),
      cmocka_unit_test_setup(a_child_starts_empty, begin),
      cmocka_unit_test_setup(a_fork_without_a_word, begin),
      cmocka_unit_test_setup(moves_as_they_came, begin),
      cmocka_unit_test(starts_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
