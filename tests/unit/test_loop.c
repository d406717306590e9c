// links: agent/loop.c agent/loop_pass.c agent/loop_step.c agent/scope.c agent/outlet.c agent/session.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c

/* Loops as scripts write them, event by event, and the tree that has to come out: what collectord would build of the ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void iter(const char *loader, const char *iterator) {
  loop_pass_begin(scope_get(), loader, iterator);
}

static void next(const char *iterator) {
  struct span *load = loop_load_begin(scope_get(), iterator);
  loop_load_end(scope_get(), iterator, load, true);
}

static void stop(const char *iterator) { /* asked, and found exhausted */
  struct span *load = loop_load_begin(scope_get(), iterator);
  loop_load_end(scope_get(), iterator, load, false);
  loop_pass_end(iterator, true);
}

static void event(enum span_kind kind, enum name name) {
  struct span *s = scope_push(scope_get(), kind, name_id(name), SPAN_NO_INDEX, session_clock());
  scope_pop(scope_get(), s, session_clock(), 0);
}

static void forward(bool train) {
  loop_forward(scope_get(), train);
  event(SPAN_FORWARD, NAME_FORWARD);
}

static void backward(void) {
  loop_backward(scope_get());
  event(SPAN_BACKWARD, NAME_BACKWARD);
}

static void update(void) {
  loop_update_begin(scope_get());
  struct span *s = scope_push(scope_get(), SPAN_OPTIMIZER, name_id(NAME_OPTIMIZER_STEP), SPAN_NO_INDEX, session_clock());
  uint64_t end = session_clock();
  scope_pop(scope_get(), s, end, 0);
  loop_update_end(scope_get(), end);
}

static void train(void) {
  forward(true);
  backward();
  update();
}

static struct span *enter(const char *name) {
  scope_get(); /* before the name: it makes the session */
  return scope_push(scope_get(), SPAN_USER, segment_name(name, strlen(name)), SPAN_NO_INDEX, session_clock());
}

static struct span *enter_epoch(int64_t index) {
  scope_get();
  return scope_push(scope_get(), SPAN_EPOCH, name_id(NAME_EPOCH), index, session_clock());
}

static void leave(struct span *s) {
  loop_pop(scope_get(), s, session_clock(), 0);
}

/* --- the collector's side ------------------------------------------------------------------------------------------------ */

#define MAX_ROWS 4096
static struct ring_span rows[MAX_ROWS];
static unsigned count;

static const char *text_of(uint32_t name) {
  const char *names = (const char *)segment_get() + SEGMENT_NAMES_OFFSET;
  static char text[4][64];
  static unsigned turn;
  uint32_t len = *(const uint32_t *)(const void *)(names + (size_t)name * 4);
  char *out = text[turn++ % 4];
  snprintf(out, 64, "%.*s", (int)len, names + (size_t)name * 4 + 4);
  return out;
}

static const struct ring_span *row_of(uint64_t id) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].id == id)
      return &rows[i];
  return NULL;
}

static void apply_move(const struct ring_move *m) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].parent == m->span && rows[i].start_ns >= m->since_ns && rows[i].id != m->parent)
      rows[i].parent = m->parent;
}

/* For whoever mends a failing case: CIRRON_TEST_SHOW=1 prints the tree. */
static void show_tree(uint64_t parent, int depth) {
  for (unsigned i = 0; i < count; i++)
    if (rows[i].parent == parent && rows[i].id != parent) {
      printf("%*s%s #%llu %llu..%llu\n", depth * 2, "", text_of(rows[i].name), (unsigned long long)rows[i].id,
             (unsigned long long)rows[i].start_ns % 100000000, (unsigned long long)rows[i].end_ns % 100000000);
      if (depth < SCOPE_MAX_DEPTH)
        show_tree(rows[i].id, depth + 1);
    }
}

/* Always true of a tree, whatever was done. */
static void check_tree(void) {
  for (unsigned i = 0; i < count; i++) {
    const struct ring_span *s = &rows[i], *p = row_of(s->parent);
    assert_true(s->start_ns <= s->end_ns);
    if (s->id == SPAN_ROOT)
      continue;
    assert_non_null(p);
    assert_true(p->start_ns <= s->start_ns && s->end_ns <= p->end_ns);
    for (unsigned j = 0; j < i; j++)
      if (rows[j].parent == s->parent && rows[j].id != SPAN_ROOT)
        assert_true(rows[j].end_ns <= s->start_ns || s->end_ns <= rows[j].start_ns);
    if (s->kind == SPAN_STEP || s->kind == SPAN_EPOCH) /* never in one of its own kind */
      for (; p; p = row_of(p->parent))
        assert_int_not_equal(p->kind, s->kind);
  }
}

static void finish(void) {
  struct ring *ring = session_rings();
  session_close();
  count = 0;
  for (uint64_t at = 0; at < ring->head; at++) {
    const void *cell = ring->cells + (at & ring->mask) * RING_CELL;
    uint8_t type = *(const uint8_t *)cell;
    if (type == RING_SPAN && count < MAX_ROWS)
      rows[count++] = *(const struct ring_span *)cell;
    else if (type == RING_MOVE)
      apply_move(cell);
  }
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++)
    assert_int_equal(ring->open[i].id, 0);
  if (getenv("CIRRON_TEST_SHOW"))
    show_tree(0, 0);
  check_tree();
}

static unsigned many(const char *name) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++)
    n += strcmp(text_of(rows[i].name), name) == 0;
  return n;
}

/* How many spans `name` have an ancestor `above`. */
static unsigned many_in(const char *name, const char *above) {
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

static const struct ring_span *nth(const char *name, unsigned n) { /* in order of their begin */
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

static unsigned children(const struct ring_span *parent, const char *name) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++)
    n += rows[i].parent == parent->id && strcmp(text_of(rows[i].name), name) == 0;
  return n;
}

static int setup(void **state) {
  (void)state;
  scope_forget();
  session_forget(); /* as in the child of a fork: everything anew */
  session_env = (struct env){.enabled = true, .ring_cells = 16384, .module_depth = 1, .cpu_time = ENV_CPU_AUTO};
  session_init();
  return 0;
}

/* --- what has to come out ------------------------------------------------------------------------------------------------ */

static void plain_loop(void **state) {
  (void)state;
  for (int epoch = 0; epoch < 2; epoch++) {
    iter("L", "i");
    for (int i = 0; i < 4; i++) {
      next("i");
      train();
    }
    stop("i");
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 8);
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many_in("data_load", "step"), 8);
  assert_int_equal(many("data_load"), 8);
  assert_int_equal(many_in("optimizer_step", "step"), 8);
  for (unsigned e = 0; e < 2; e++) {
    assert_int_equal(nth("epoch", e)->index, e);
    assert_int_equal(children(nth("epoch", e), "step"), 4);
  }
  for (unsigned s = 0; s < 8; s++)
    assert_int_equal(nth("step", s)->index, s);
  assert_int_equal(nth("step", 0)->end_ns, nth("optimizer_step", 0)->end_ns);
  assert_int_equal(nth("step", 1)->start_ns, nth("data_load", 1)->start_ns);
}

static void accumulation(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 1; i <= 6; i++) {
    next("i");
    forward(true);
    backward();
    if (i == 4 || i == 6)
      update();
  }
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 2);
  assert_int_equal(children(nth("step", 0), "data_load"), 4);
  assert_int_equal(children(nth("step", 1), "data_load"), 2);
}

static void two_updates_share_a_step(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    forward(true);
    train();
    forward(true);
    train();
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 3);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(children(nth("step", i), "forward"), 4);
    assert_int_equal(children(nth("step", i), "optimizer_step"), 2);
  }
}

static void evaluation_only(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 4; i++) {
    next("i");
    forward(false);
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 0);
  assert_int_equal(many("epoch"), 0);
  assert_int_equal(many("eval"), 1);
  assert_int_equal(many_in("data_load", "eval"), 4);
  assert_int_equal(many_in("forward", "eval"), 4);
}

static void evaluation_in_training_mode(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 4; i++) {
    next("i");
    forward(true); /* model.eval() was forgotten */
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 0);
  assert_int_equal(children(nth("eval", 0), "forward"), 4);
}

static void epochs_by_hand(void **state) {
  (void)state;
  for (int e = 0; e < 2; e++) {
    struct span *epoch = enter_epoch(e);
    iter("T", "t");
    for (int i = 0; i < 3; i++) {
      next("t");
      train();
    }
    stop("t");
    iter("V", "v");
    for (int i = 0; i < 2; i++) {
      next("v");
      forward(false);
    }
    stop("v");
    leave(epoch);
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("eval"), 2);
  assert_int_equal(many_in("eval", "epoch"), 2);
  assert_int_equal(many_in("eval", "step"), 0);
  assert_int_equal(many_in("data_load", "step"), 6);
  assert_int_equal(children(nth("epoch", 0), "step"), 3);
}

static void validation_inside_the_epoch(void **state) {
  (void)state;
  iter("T", "t");
  for (int i = 0; i < 4; i++) {
    next("t");
    train();
    if (i % 2 == 1) {
      iter("V", "v");
      for (int j = 0; j < 2; j++) {
        next("v");
        forward(false);
      }
      stop("v");
    }
  }
  stop("t");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many("eval"), 2);
  assert_int_equal(many_in("eval", "step"), 0);
  assert_int_equal(children(nth("epoch", 0), "eval"), 2);
  for (unsigned i = 0; i < 4; i++) {
    assert_int_equal(children(nth("step", i), "data_load"), 1);
    assert_int_equal(nth("step", i)->end_ns, nth("optimizer_step", i)->end_ns);
  }
}

static void validation_before_the_first_update(void **state) {
  (void)state;
  iter("T", "t");
  next("t");
  iter("V", "v");
  next("v");
  forward(false);
  stop("v");
  train();
  next("t");
  train();
  stop("t");
  finish();
  assert_int_equal(many("step"), 2);
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 1);
}

static void loaders_in_parallel(void **state) {
  (void)state;
  iter("A", "a");
  iter("B", "b");
  for (int i = 0; i < 3; i++) {
    next("a");
    next("b");
    train();
  }
  stop("a");
  loop_pass_end("b", false);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many("step"), 3);
  for (unsigned i = 0; i < 3; i++)
    assert_int_equal(children(nth("step", i), "data_load"), 2);
}

static void second_loader_between_two_updates(void **state) {
  (void)state;
  iter("A", "a");
  iter("B", "b");
  for (int i = 0; i < 3; i++) {
    next("a");
    train();
    next("b");
    train();
  }
  stop("a");
  loop_pass_end("b", false);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  for (unsigned i = 0; i < 3; i++)
    assert_int_equal(children(nth("step", i), "optimizer_step"), 2);
}

static void short_loader_begun_again(void **state) {
  (void)state;
  iter("A", "a");
  iter("B", "b0");
  const char *b = "b0";
  for (int i = 0; i < 4; i++) {
    next("a");
    if (i == 2) {
      stop(b);
      iter("B", b = "b1");
    }
    next(b);
    train();
  }
  stop("a");
  loop_pass_end(b, false);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("data_load", "step"), 8);
}

static void loader_inside_a_loader(void **state) {
  (void)state;
  iter("A", "a");
  for (int i = 0; i < 2; i++) {
    next("a");
    iter("B", "b");
    for (int j = 0; j < 3; j++) {
      next("b");
      train();
    }
    stop("b");
  }
  stop("a");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many("data_load"), 8);
  assert_int_equal(many_in("data_load", "epoch"), 8);
  assert_int_equal(many_in("data_load", "step"), 8);
  assert_int_equal(children(nth("step", 0), "data_load"), 2);
  assert_int_equal(children(nth("step", 3), "data_load"), 2);
  assert_int_equal(children(nth("step", 1), "data_load"), 1);
}

static void loaders_three_deep(void **state) {
  (void)state;
  iter("A", "a");
  for (int i = 0; i < 2; i++) {
    next("a");
    iter("B", "b");
    for (int j = 0; j < 2; j++) {
      next("b");
      iter("C", "c");
      for (int k = 0; k < 2; k++) {
        next("c");
        train();
      }
      stop("c");
    }
    stop("b");
  }
  stop("a");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many("step"), 8);
  assert_int_equal(many_in("step", "epoch"), 8);
}

static void updates_after_each_inner_pass(void **state) {
  (void)state;
  iter("A", "a");
  for (int i = 0; i < 3; i++) {
    next("a");
    iter("B", "b");
    for (int j = 0; j < 2; j++) {
      next("b");
      forward(true);
      backward();
    }
    stop("b");
    update();
  }
  stop("a");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(children(nth("step", 1), "data_load"), 3);
}

static void train_pass(const char *loader, const char *iterator, int batches) {
  iter(loader, iterator);
  for (int i = 0; i < batches; i++) {
    next(iterator);
    train();
  }
  stop(iterator);
}

static void eval_pass(const char *loader, const char *iterator, int batches) {
  iter(loader, iterator);
  for (int i = 0; i < batches; i++) {
    next(iterator);
    forward(false);
  }
  stop(iterator);
}

static void batch_of_another_loader_looked_at(void **state) {
  (void)state;
  iter("V", "peek");
  next("peek"); /* and the iterator is kept, as tutorials do */
  loop_optimizer(scope_get());
  for (int e = 0; e < 3; e++) {
    train_pass("T", "t", 2);
    eval_pass("V", "v", 2);
  }
  finish();
  assert_int_equal(many("epoch"), 3);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("eval"), 4);
  assert_int_equal(many_in("epoch", "eval"), 0);
  for (unsigned e = 0; e < 3; e++) {
    assert_int_equal(nth("epoch", e)->index, e);
    assert_int_equal(children(nth("epoch", e), "step"), 2);
    assert_int_equal(children(nth("epoch", e), "eval"), 0);
    assert_int_equal(children(nth("step", 2 * e), "data_load"), 1);
  }
  assert_false(nth("epoch", 2)->flags & SPAN_CUT);
}

/* Without a sign that it was only looked at, it is taken for the loop around, until its loader is begun anew. */
static void batch_looked_at_after_all_else(void **state) {
  (void)state;
  iter("V", "peek");
  next("peek");
  for (int e = 0; e < 3; e++) {
    train_pass("T", "t", 2);
    eval_pass("V", "v", 2);
  }
  finish();
  assert_int_equal(many("epoch"), 3);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("eval"), 3);
  assert_int_equal(many_in("step", "epoch"), 6);
  assert_int_equal(many_in("epoch", "eval"), 0);
  for (unsigned e = 0; e < 3; e++)
    assert_int_equal(children(nth("epoch", e), "step"), 2);
}

static void looked_at_and_evaluated_before_training(void **state) {
  (void)state;
  iter("V", "peek");
  next("peek");
  eval_pass("V", "v", 2);
  for (int e = 0; e < 2; e++)
    train_pass("T", "t", 2);
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("eval"), 1); /* what was looked at is no pass around it */
  assert_int_equal(children(nth("eval", 0), "data_load"), 2);
}

static void looked_at_and_dropped_while_training(void **state) {
  (void)state;
  iter("V", "peek");
  next("peek");
  loop_optimizer(scope_get());
  iter("T", "t");
  for (int i = 0; i < 4; i++) {
    next("t");
    train();
    if (i == 2)
      loop_pass_end("peek", false);
  }
  stop("t");
  train_pass("T", "t", 2);
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(children(nth("epoch", 0), "step"), 4);
  assert_int_equal(many("eval"), 1);
}

static void three_looked_at(void **state) {
  (void)state;
  static const char *const kept[] = {"x", "y", "z"};
  for (int i = 0; i < 3; i++)
    iter(kept[i], kept[i]);
  for (int i = 0; i < 3; i++)
    next(kept[i]);
  loop_optimizer(scope_get());
  train_pass("T", "t", 2);
  train_pass("T", "t", 2);
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("step", "epoch"), 4);
}

static void more_looked_at_than_are_told_apart(void **state) {
  (void)state;
  static char kept[3 * LOOP_MAX_PASSES];
  for (unsigned i = 0; i < sizeof kept; i++) {
    iter(&kept[i], &kept[i]);
    next(&kept[i]);
  }
  loop_optimizer(scope_get());
  train_pass("T", "t", 3);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many_in("step", "epoch"), 3);
}

static void iterators_of_failed_epochs_kept(void **state) {
  (void)state;
  static char kept[40];
  for (unsigned i = 0; i < sizeof kept; i++) {
    iter("T", &kept[i]); /* the traceback of each keeps the loop's frame */
    next(&kept[i]);
    train();
    next(&kept[i]);
    forward(true);
  }
  finish();
  assert_int_equal(many("epoch"), sizeof kept);
  assert_int_equal(many("step"), sizeof kept);
  assert_int_equal(many_in("step", "epoch"), sizeof kept);
}

static void evaluated_over_the_loader_that_trains(void **state) {
  (void)state;
  iter("T", "t");
  for (int i = 0; i < 3; i++) {
    next("t");
    train();
    eval_pass("T", "again", 3);
  }
  stop("t");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 3);
  assert_int_equal(many_in("step", "epoch"), 3);
  assert_int_equal(many_in("eval", "epoch"), 3);
}

/* One batch ahead of the training, so the last update comes when the loader is exhausted already. */
static void fetched_ahead(void **state) {
  (void)state;
  for (int e = 0; e < 2; e++) {
    iter("T", "t");
    next("t");
    for (int i = 0; i < 3; i++) {
      if (i < 2)
        next("t");
      else
        stop("t");
      train();
    }
    struct span *s = enter("save");
    leave(s);
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 6);
  assert_int_equal(children(nth("epoch", 0), "step"), 3);
  assert_int_equal(many_in("save", "epoch"), 0);
  assert_int_equal(nth("epoch", 0)->end_ns, nth("optimizer_step", 2)->end_ns);
}

static void update_after_the_pass(void **state) {
  (void)state;
  for (int e = 0; e < 2; e++) {
    iter("T", "t");
    for (int i = 0; i < 3; i++) {
      next("t");
      forward(true);
      backward();
    }
    stop("t");
    update(); /* with the gradient of the whole set */
    eval_pass("V", "v", 2);
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 2);
  assert_int_equal(many("eval"), 2);
  assert_int_equal(many_in("eval", "epoch"), 0);
  assert_int_equal(children(nth("step", 1), "data_load"), 3);
}

static void gradients_that_nobody_used(void **state) {
  (void)state;
  iter("T", "t");
  next("t");
  forward(true);
  backward();
  stop("t");
  struct span *s = enter("after");
  leave(s);
  train_pass("U", "u", 2);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 1);
  assert_int_equal(many("step"), 2);
  assert_int_equal(many_in("after", "eval"), 0);
}

/* zip(loader, cycle(short)): the short one, begun first, is exhausted in the middle. */
static void outer_pass_ends_first(void **state) {
  (void)state;
  iter("S", "s");
  iter("T", "t");
  for (int i = 0; i < 4; i++) {
    next("t");
    if (i < 2)
      next("s");
    else if (i == 2)
      stop("s");
    train();
  }
  stop("t");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("step", "epoch"), 4);
  assert_int_equal(many("eval"), 0);
}

static void batch_drawn_for_each_step(void **state) {
  (void)state;
  iter("T", "t");
  for (int i = 0; i < 3; i++) {
    next("t");
    iter("U", "u"); /* next(iter(loader)) */
    next("u");
    loop_pass_end("u", false);
    train();
  }
  stop("t");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many("step"), 3);
  assert_int_equal(children(nth("step", 1), "data_load"), 2);
}

static void iterator_of_another_thread(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) { /* iter() was not seen here */
    next("t");
    train();
  }
  stop("t");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("step", "epoch"), 3);
}

static void second_iterator_goes_on_alone(void **state) {
  (void)state;
  iter("A", "a");
  iter("B", "b");
  for (int i = 0; i < 2; i++) {
    next("a");
    next("b");
    train();
  }
  stop("a");
  for (int i = 0; i < 2; i++) {
    next("b");
    train();
  }
  stop("b");
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("step", "epoch"), 4);
}

static void empty_loader(void **state) {
  (void)state;
  iter("L", "i");
  stop("i");
  finish();
  assert_int_equal(many("eval"), 0);
  assert_int_equal(many("data_load"), 0);
}

static void data_set_that_learns(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 2; i++) {
    struct span *load = loop_load_begin(scope_get(), "i");
    train();
    loop_load_end(scope_get(), "i", load, true);
    train();
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 2);
  assert_int_equal(nth("step", 0)->end_ns, nth("optimizer_step", 1)->end_ns);
}

static void scope_around_the_update(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    struct span *s = enter("train_step");
    train();
    struct span *log = enter("log");
    leave(log);
    leave(s);
    s = enter("after");
    leave(s);
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("train_step", "step"), 3);
  assert_int_equal(many_in("after", "step"), 0);
  assert_int_equal(many_in("after", "epoch"), 3);
  assert_int_equal(nth("step", 1)->end_ns, nth("train_step", 1)->end_ns);
}

static void scope_around_the_whole_body(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    struct span *s = enter("body");
    next("i");
    train();
    leave(s);
  }
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("step", "body"), 3);
}

static void batch_fetched_ahead_inside_a_scope(void **state) {
  (void)state;
  iter("L", "i");
  next("i");
  for (int i = 0; i < 3; i++) {
    struct span *s = enter("body");
    train();
    next("i"); /* for the next round */
    leave(s);
  }
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("optimizer_step", "step"), 3);
}

static void batch_fetched_in_a_scope_of_its_own(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    struct span *s = enter("fetch");
    next("i");
    leave(s);
    s = enter("work");
    train();
    leave(s);
  }
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("data_load", "step"), 3);
  for (unsigned i = 0; i < 3; i++) {
    assert_int_equal(children(nth("step", i), "fetch"), 1);
    assert_int_equal(children(nth("step", i), "work"), 1);
  }
}

static void iterator_used_in_two_scopes(void **state) {
  (void)state;
  iter("L", "i");
  struct span *s = enter("phase_a");
  for (int i = 0; i < 2; i++) {
    next("i");
    train();
  }
  leave(s);
  s = enter("phase_b");
  for (int i = 0; i < 4; i++) {
    next("i");
    train();
  }
  stop("i");
  leave(s);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many_in("step", "phase_a"), 2);
  assert_int_equal(many_in("step", "phase_b"), 4);
  assert_int_equal(many_in("data_load", "phase_a"), 2);
}

static void iterator_made_in_a_scope_and_used_after_it(void **state) {
  (void)state;
  struct span *s = enter("set_up");
  iter("L", "i");
  leave(s);
  for (int i = 0; i < 2; i++) {
    next("i");
    train();
  }
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many_in("step", "epoch"), 2);
  assert_int_equal(many_in("epoch", "set_up"), 0);
}

static void loop_left_early(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 6; i++) {
    next("i");
    if (i == 5)
      break;
    train();
  }
  loop_pass_end("i", false); /* dropped */
  struct span *s = enter("after");
  leave(s);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("data_load"), 6);
  assert_int_equal(many("step"), 5);
  assert_int_equal(many_in("after", "epoch"), 0);
}

static void first_batch_looked_at(void **state) {
  (void)state;
  iter("L", "peek");
  next("peek"); /* and the iterator is kept */
  forward(false);
  for (int e = 0; e < 2; e++) {
    iter("L", "i");
    for (int i = 0; i < 2; i++) {
      next("i");
      train();
    }
    stop("i");
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 4);
  assert_int_equal(many("eval"), 1);
  assert_int_equal(many_in("step", "eval"), 0);
}

static void batch_that_failed_joins_the_next(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 6; i++) {
    next("i");
    forward(true);
    if (i == 2)
      continue; /* raised, caught by the loop */
    backward();
    update();
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 5);
  assert_int_equal(many_in("data_load", "step"), 6);
  assert_int_equal(children(nth("step", 2), "data_load"), 2);
}

static void load_that_fails(void **state) {
  (void)state;
  iter("L", "i");
  next("i");
  train();
  struct span *load = loop_load_begin(scope_get(), "i");
  struct span *inside = enter("decode");
  leave(inside);
  loop_load_end(scope_get(), "i", load, false); /* the data set raised */
  next("i");
  train();
  stop("i");
  finish();
  assert_int_equal(many("data_load"), 2);
  assert_int_equal(many("step"), 2);
  assert_int_equal(many("decode"), 1);
}

static void closure_inside_the_update(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 2; i++) {
    next("i");
    loop_update_begin(scope_get());
    struct span *s = scope_push(scope_get(), SPAN_OPTIMIZER, name_id(NAME_OPTIMIZER_STEP), SPAN_NO_INDEX, session_clock());
    for (int j = 0; j < 4; j++) {
      forward(true);
      backward();
    }
    uint64_t end = session_clock();
    scope_pop(scope_get(), s, end, 0);
    loop_update_end(scope_get(), end);
  }
  stop("i");
  finish();
  assert_int_equal(many("step"), 2);
  assert_int_equal(many_in("forward", "optimizer_step"), 8);
}

static void ended_in_the_middle(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    train();
  }
  finish(); /* an exception ended the program; the iterator was never dropped */
  assert_int_equal(many("epoch"), 1);
  assert_true(nth("epoch", 0)->flags & SPAN_CUT);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("step", "epoch"), 3);
}

static void no_loader(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++)
    train();
  finish();
  assert_int_equal(many("step"), 0);
  assert_int_equal(many("epoch"), 0);
  assert_int_equal(many("optimizer_step"), 3);
}

static void loader_inside_a_data_set(void **state) {
  (void)state;
  iter("L", "i");
  struct span *load = loop_load_begin(scope_get(), "i");
  iter("inner", "n");
  assert_null(loop_load_begin(scope_get(), "n"));
  loop_pass_end("n", false);
  loop_load_end(scope_get(), "i", load, true);
  train();
  stop("i");
  finish();
  assert_int_equal(many("data_load"), 1);
  assert_int_equal(many("epoch"), 1);
}

static void deep(void **state) {
  (void)state;
  struct span *open[100];
  for (int i = 0; i < 100; i++)
    open[i] = enter("d");
  for (int i = 0; i < 100; i++)
    assert_true((open[i] != NULL) == (i < SCOPE_MAX_DEPTH - 1));
  assert_int_equal(segment_get()->dropped_depth, 100 - (SCOPE_MAX_DEPTH - 1));
  leave(open[0]); /* takes what is open above with it */
  struct span *after = enter("after");
  assert_int_equal(after->parent, SPAN_ROOT);
  leave(after);
  finish();
  assert_int_equal(many("d"), SCOPE_MAX_DEPTH - 1);
}

/* Any order of events leaves a sound tree. */
static void at_random(void **state) {
  (void)state;
  static const char *const loaders[] = {"A", "B", "C"}, *const iterators[] = {"a", "b", "c", "d"};
  for (unsigned seed = 1; seed <= 2000; seed++) {
    setup(NULL);
    srand(seed);
    struct span *open[8];
    uint64_t ids[8];
    unsigned n = 0;
    for (int i = 0; i < 150; i++) {
      const char *it = iterators[rand() % 4];
      switch (rand() % 10) {
      case 0:
        iter(loaders[rand() % 3], it);
        break;
      case 1:
        stop(it);
        break;
      case 2:
      case 3:
        next(it);
        break;
      case 4:
        forward(rand() % 2);
        break;
      case 5:
        backward();
        break;
      case 6:
      case 7:
        update();
        break;
      case 8:
        if (n < 8) {
          open[n] = rand() % 4 ? enter("s") : scope_find(scope_get(), SPAN_EPOCH) ? enter("s") : enter_epoch(i);
          ids[n] = open[n]->id;
          n++;
        }
        break;
      default:
        if (n) {
          unsigned k = (unsigned)rand() % n; /* not always the innermost */
          if (scope_holds(scope_get(), open[k], ids[k]))
            leave(open[k]);
          n = k;
        }
      }
    }
    finish();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(plain_loop, setup),
      cmocka_unit_test_setup(accumulation, setup),
      cmocka_unit_test_setup(two_updates_share_a_step, setup),
      cmocka_unit_test_setup(evaluation_only, setup),
      cmocka_unit_test_setup(evaluation_in_training_mode, setup),
      cmocka_unit_test_setup(epochs_by_hand, setup),
      cmocka_unit_test_setup(validation_inside_the_epoch, setup),
      cmocka_unit_test_setup(validation_before_the_first_update, setup),
      cmocka_unit_test_setup(loaders_in_parallel, setup),
      cmocka_unit_test_setup(second_loader_between_two_updates, setup),
      cmocka_unit_test_setup(short_loader_begun_again, setup),
      cmocka_unit_test_setup(loader_inside_a_loader, setup),
      cmocka_unit_test_setup(loaders_three_deep, setup),
      cmocka_unit_test_setup(updates_after_each_inner_pass, setup),
      cmocka_unit_test_setup(batch_of_another_loader_looked_at, setup),
      cmocka_unit_test_setup(batch_looked_at_after_all_else, setup),
      cmocka_unit_test_setup(looked_at_and_evaluated_before_training, setup),
      cmocka_unit_test_setup(looked_at_and_dropped_while_training, setup),
      cmocka_unit_test_setup(three_looked_at, setup),
      cmocka_unit_test_setup(more_looked_at_than_are_told_apart, setup),
      cmocka_unit_test_setup(iterators_of_failed_epochs_kept, setup),
      cmocka_unit_test_setup(evaluated_over_the_loader_that_trains, setup),
      cmocka_unit_test_setup(fetched_ahead, setup),
      cmocka_unit_test_setup(update_after_the_pass, setup),
      cmocka_unit_test_setup(gradients_that_nobody_used, setup),
      cmocka_unit_test_setup(outer_pass_ends_first, setup),
      cmocka_unit_test_setup(batch_drawn_for_each_step, setup),
      cmocka_unit_test_setup(iterator_of_another_thread, setup),
      cmocka_unit_test_setup(second_iterator_goes_on_alone, setup),
      cmocka_unit_test_setup(empty_loader, setup),
      cmocka_unit_test_setup(data_set_that_learns, setup),
      cmocka_unit_test_setup(scope_around_the_update, setup),
      cmocka_unit_test_setup(scope_around_the_whole_body, setup),
      cmocka_unit_test_setup(batch_fetched_ahead_inside_a_scope, setup),
      cmocka_unit_test_setup(batch_fetched_in_a_scope_of_its_own, setup),
      cmocka_unit_test_setup(iterator_used_in_two_scopes, setup),
      cmocka_unit_test_setup(iterator_made_in_a_scope_and_used_after_it, setup),
      cmocka_unit_test_setup(loop_left_early, setup),
      cmocka_unit_test_setup(first_batch_looked_at, setup),
      cmocka_unit_test_setup(batch_that_failed_joins_the_next, setup),
      cmocka_unit_test_setup(load_that_fails, setup),
      cmocka_unit_test_setup(closure_inside_the_update, setup),
      cmocka_unit_test_setup(ended_in_the_middle, setup),
      cmocka_unit_test_setup(no_loader, setup),
      cmocka_unit_test_setup(loader_inside_a_data_set, setup),
      cmocka_unit_test_setup(deep, setup),
      cmocka_unit_test_setup(at_random, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
