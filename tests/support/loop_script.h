/* A script's loop, event by event, and the tree that collectord would build of the ring. For the tests of loop*.c. */
#ifndef CIRRON_TEST_LOOP_SCRIPT_H
#define CIRRON_TEST_LOOP_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/keep.h"
#include "agent/keep_moves.h"
#include "agent/link.h"
#include "agent/loop.h"
#include "agent/names.h"
#include "agent/scope.h"
#include "agent/segment.h"
#include "agent/session.h"

/* There is no collector here: the test reads the ring itself. */
_Atomic uint64_t link_due_ns = UINT64_MAX;
void link_tick(uint64_t now_ns) {
  (void)now_ns;
}
void link_goodbye(uint64_t patience_ns) {
  (void)patience_ns;
}
void link_forget(void) {
}
void link_hurry(void) {
}
int link_connected(void) {
  return 1;
}

bool link_reached(void) {
  return true;
}

bool link_reachable(void) {
  return false;
}

/* --- the script's side --------------------------------------------------------------------------------------------------- */

static inline void iter(const char *loader, const char *iterator) {
  loop_pass_begin(scope_get(), loader, iterator);
}

static inline void next(const char *iterator) {
  struct span *load = loop_load_begin(scope_get(), iterator);
  loop_load_end(scope_get(), iterator, load, true);
}

static inline void stop(const char *iterator) { /* asked, and found exhausted */
  struct span *load = loop_load_begin(scope_get(), iterator);
  loop_load_end(scope_get(), iterator, load, false);
  loop_pass_end(iterator, true);
}

static inline void event(enum span_kind kind, enum name name) {
  struct span *s = scope_push(scope_get(), kind, name_id(name), SPAN_NO_INDEX, scope_now());
  scope_pop(scope_get(), s, scope_now(), 0);
}

static inline void forward(bool train) {
  loop_forward(scope_get(), train);
  event(SPAN_FORWARD, NAME_FORWARD);
}

static inline void backward(void) {
  loop_backward(scope_get());
  event(SPAN_BACKWARD, NAME_BACKWARD);
}

static inline void update_by(const char *optimizer) {
  loop_update_begin(scope_get(), optimizer);
  struct span *s = scope_push(scope_get(), SPAN_OPTIMIZER, name_id(NAME_OPTIMIZER_STEP), SPAN_NO_INDEX, scope_now());
  uint64_t end = scope_now();
  scope_pop(scope_get(), s, end, 0);
  loop_update_end(scope_get(), end);
}

static inline void update(void) {
  update_by("optimizer");
}

static inline void train(void) {
  forward(true);
  backward();
  update();
}

static inline struct span *enter(const char *name) {
  scope_get(); /* before the name: it makes the session */
  return scope_push(scope_get(), SPAN_USER, segment_name(name, strlen(name)), SPAN_NO_INDEX, scope_now());
}

static inline struct span *enter_epoch(int64_t index) {
  scope_get();
  return scope_push(scope_get(), SPAN_EPOCH, name_id(NAME_EPOCH), index, scope_now());
}

static inline void leave(struct span *s) {
  loop_pop(scope_get(), s, scope_now(), 0);
}

/* --- the collector's side ------------------------------------------------------------------------------------------------ */

#define MAX_ROWS 4096
static struct ring_span rows[MAX_ROWS];
static unsigned count;
static bool taking_turns; /* siblings of a thread may overlap */

static inline const char *text_of(uint32_t name) {
  const char *names = (const char *)segment_get() + SEGMENT_NAMES_OFFSET;
  static char text[4][64];
  static unsigned turn;
  uint32_t len = *(const uint32_t *)(const void *)(names + (size_t)name * 4);
  char *out = text[turn++ % 4];
  snprintf(out, 64, "%.*s", (int)len, names + (size_t)name * 4 + 4);
  return out;
}

static inline const struct ring_span *row_of(uint64_t id) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].id == id)
      return &rows[i];
  return NULL;
}

static inline void apply_move(const struct ring_move *m) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].parent == m->span && rows[i].start_ns >= m->since_ns && rows[i].id != m->parent)
      rows[i].parent = m->parent;
}

/* For whoever mends a failing case: CIRRON_TEST_SHOW=1 prints the tree. */
static inline void show_tree(uint64_t parent, int depth) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].parent == parent && rows[i].id != parent) {
      printf("%*s%s #%llu %llu..%llu\n", depth * 2, "", text_of(rows[i].name), (unsigned long long)rows[i].id,
             (unsigned long long)rows[i].start_ns % 100000000, (unsigned long long)rows[i].end_ns % 100000000);
      if (depth < SCOPE_MAX_DEPTH)
        show_tree(rows[i].id, depth + 1);
    }
}

/* Always true of a tree, whatever was done. */
static inline void check_tree(void) {
  for (unsigned i = 0; i < count; i++) {
    const struct ring_span *s = &rows[i], *p = row_of(s->parent);
    assert_true(s->start_ns <= s->end_ns);
    if (s->id == SPAN_ROOT)
      continue;
    assert_non_null(p);
    assert_true(p->start_ns <= s->start_ns && s->end_ns <= p->end_ns);
    for (unsigned j = 0; j < i; j++)
      if (rows[j].parent == s->parent && rows[j].id != SPAN_ROOT)
        assert_true(rows[j].end_ns <= s->start_ns || s->end_ns <= rows[j].start_ns || taking_turns);
    if (s->kind == SPAN_STEP || s->kind == SPAN_EPOCH) /* never in one of its own kind */
      for (; p; p = row_of(p->parent))
        assert_int_not_equal(p->kind, s->kind);
  }
}

/* What is kept in the process is the same tree. */
static inline void check_kept(void) {
  static _Alignas(8) char buf[KEEP_SPANS_BYTES];
  uint64_t pos = 0;
  size_t n = keep_read(KEEP_SPANS, &pos, buf, sizeof buf, NULL), at = 0;
  unsigned kept = 0;
  const struct keep_record *r;
  keep_moves_apply(buf, n, SIZE_MAX);
  while ((r = keep_next(buf, n, &at)))
    if (r->as.type == RING_SPAN) {
      const struct ring_span *row = row_of(r->as.span.id);
      assert_non_null(row);
      assert_memory_equal(row, &r->as.span, sizeof *row);
      kept++;
    }
  assert_int_equal(kept, count);
}

static inline void finish(void) {
  struct ring *ring = session_rings();
  session_close();
  count = 0;
  for (uint64_t at = 0; at < ring->head; at++) {
    const void *cell = ring->cells + (at & ring->mask) * RING_CELL;
    uint8_t type = *(const uint8_t *)cell;
    if (type == RING_SPAN && count < MAX_ROWS) {
      rows[count] = *(const struct ring_span *)cell;
      rows[count++].text_cells = 0; /* the ring's business */
    } else if (type == RING_MOVE)
      apply_move(cell);
  }
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++)
    assert_int_equal(ring->open[i].id, 0);
  if (getenv("CIRRON_TEST_SHOW"))
    show_tree(0, 0);
  check_tree();
  check_kept();
}

static inline unsigned many(const char *name) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++)
    n += strcmp(text_of(rows[i].name), name) == 0;
  return n;
}

/* How many spans `name` have an ancestor `above`. */
static inline unsigned many_in(const char *name, const char *above) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++) {
    if (strcmp(text_of(rows[i].name), name) != 0)
      continue;
    const struct ring_span *p = row_of(rows[i].parent);
    while (p && strcmp(text_of(p->name), above) != 0)
      p = p->id == SPAN_ROOT ? NULL : row_of(p->parent);
    n += p != NULL;
  }
  return n;
}

static inline const struct ring_span *nth(const char *name, unsigned n) { /* in order of their begin */
  const struct ring_span *found = NULL;
  uint64_t after = 0;
  for (unsigned k = 0; k <= n; k++) {
    found = NULL;
    for (unsigned i = 0; i < count; i++)
      if (strcmp(text_of(rows[i].name), name) == 0 && rows[i].start_ns > after &&
          (!found || rows[i].start_ns < found->start_ns))
        found = &rows[i];
    assert_non_null(found);
    after = found->start_ns;
  }
  return found;
}

static inline unsigned children(const struct ring_span *parent, const char *name) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++)
    n += rows[i].parent == parent->id && strcmp(text_of(rows[i].name), name) == 0;
  return n;
}

static inline int setup(void **state) {
  (void)state;
  taking_turns = false;
  atomic_store(&scope_chooser, NULL);
  scope_forget();
  session_forget(); /* as in the child of a fork: everything anew */
  keep_forget();
  assert_true(keep_start());
  session_env = (struct env){.enabled = true, .ring_cells = 16384, .module_depth = 1, .cpu_time = ENV_CPU_AUTO};
  session_init();
  loop_loader(NULL); /* but for test_loop_infer.c */
  return 0;
}

#endif
