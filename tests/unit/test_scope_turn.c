// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c

/* Stacks that take turns on a thread, as those of asyncio's tasks do. Who has its turn is said by the test. */
#include <pthread.h>

#include "tests/support/loop_script.h"

#define MANY 8
static struct scope_turn turns[MANY];
static int now = -1; /* the thread's own */

static struct scope *choose(struct scope *own) {
  return now < 0 ? own : scope_turn(own, &turns[now]);
}

static void moved(uint64_t from, uint64_t parent) {
  for (int i = 0; i < MANY; i++)
    if (turns[i].parent == from)
      turns[i].parent = parent;
}

static int begin(void **state) {
  static const struct scope_chooser chooser = {choose, moved};
  setup(state);
  taking_turns = true;
  now = -1;
  memset(turns, 0, sizeof turns);
  atomic_store(&scope_chooser, &chooser);
  return 0;
}

/* It begins where the one that has its turn is. */
static void create(int i) {
  turns[i] = (struct scope_turn){.serial = scope_new_serial()};
  turns[i].parent = scope_lend(scope_get(), &turns[i].in_epoch);
}

static uint64_t parent_of(const char *name) {
  return nth(name, 0)->parent;
}

static void each_has_its_own(void **state) {
  (void)state;
  struct span *outer = enter("outer"), *in[2], *deep[2];
  create(0), create(1);
  for (now = 0; now < 2; now++)
    in[now] = enter(now ? "in 1" : "in 0");
  for (now = 0; now < 2; now++)
    deep[now] = enter(now ? "deep 1" : "deep 0");
  now = 0;
  leave(in[0]);
  now = 1;
  leave(deep[1]);
  leave(in[1]);
  now = -1;
  assert_ptr_equal(scope_top(scope_get()), outer);
  leave(outer);
  finish();
  for (int i = 0; i < 2; i++) {
    assert_int_equal(parent_of(i ? "in 1" : "in 0"), nth("outer", 0)->id);
    assert_int_equal(parent_of(i ? "deep 1" : "deep 0"), nth(i ? "in 1" : "in 0", 0)->id);
  }
  assert_int_equal(nth("outer", 0)->flags, SPAN_LENT);
  (void)deep;
}

static void memory_goes_round(void **state) {
  (void)state;
  create(0), create(1);
  now = 0;
  struct scope *first = scope_get();
  leave(enter("a"));
  uint64_t serial = scope_serial(first);
  now = 1;
  assert_ptr_equal(scope_get(), first); /* nothing was open in it */
  assert_int_not_equal(scope_serial(first), serial);
  struct span *b = enter("b");
  now = 0;
  assert_ptr_not_equal(scope_get(), first);
  assert_int_equal(scope_serial(scope_get()), serial);
  struct span *c = enter("c");
  now = 1;
  assert_ptr_equal(scope_of(b), first);
  assert_true(scope_holds(first, b, b->id));
  leave(b);
  now = 0;
  leave(c);
  now = -1;
  finish();
  assert_int_equal(many("a") + many("b") + many("c"), 3);
}

static void ends_with_something_open(void **state) {
  (void)state;
  create(0);
  now = 0;
  enter("left");
  iter("L", "i"), next("i");
  train();
  now = -1;
  struct span *other = enter("other");
  scope_turn_end(&turns[0]);
  leave(other);
  finish();
  assert_int_equal(nth("left", 0)->flags, SPAN_CUT);
  assert_true(nth("left", 0)->end_ns <= nth("other", 0)->end_ns);
  assert_int_equal(children(nth("epoch", 0), "step"), 1);
}

static void *end_elsewhere(void *turn) {
  scope_turn_end(turn);
  return NULL;
}

static void ends_on_another_thread(void **state) {
  (void)state;
  pthread_t thread;
  create(0), create(1);
  now = 0;
  enter("left");
  now = -1;
  pthread_create(&thread, NULL, end_elsewhere, &turns[0]);
  pthread_join(thread, NULL);
  now = 1;
  struct span *next_turn = enter("next");
  leave(next_turn);
  now = -1;
  finish();
  assert_int_equal(nth("left", 0)->flags, SPAN_CUT);
  assert_true(nth("left", 0)->end_ns <= nth("next", 0)->start_ns);
}

static void all_end_with_the_thread(void **state) {
  (void)state;
  for (int i = 0; i < MANY; i++)
    create(i);
  for (now = 0; now < MANY; now++)
    enter("left");
  now = -1;
  finish();
  assert_int_equal(many("left"), MANY);
  scope_turn_end(&turns[0]); /* the thread's memory is gone */
}

static void too_many(void **state) {
  (void)state;
  static struct scope_turn all[SCOPE_MAX_TURNS + 1];
  struct scope *own = scope_get();
  for (unsigned i = 0; i <= SCOPE_MAX_TURNS; i++) {
    all[i] = (struct scope_turn){.serial = scope_new_serial(), .parent = SPAN_ROOT};
    struct scope *s = scope_turn(own, &all[i]);
    assert_true(s ? i < SCOPE_MAX_TURNS : i == SCOPE_MAX_TURNS);
    if (s)
      scope_push(s, SPAN_USER, segment_name("x", 1), SPAN_NO_INDEX, scope_clock(s));
  }
  assert_int_equal(segment_get()->dropped_depth, 1);
  for (unsigned i = 0; i < SCOPE_MAX_TURNS; i++)
    scope_turn_end(&all[i]);
  assert_non_null(scope_turn(own, &all[SCOPE_MAX_TURNS]));
}

/* Two trainings, event by event in turns. */
static void trainings_at_once(void **state) {
  (void)state;
  static const char *const iterators[] = {"i", "j"};
  struct span *around[2];
  create(0), create(1);
  for (now = 0; now < 2; now++) {
    around[now] = enter(now ? "one" : "zero");
    iter(now ? "M" : "L", iterators[now]);
  }
  for (int i = 0; i < 3; i++) {
    for (now = 0; now < 2; now++)
      next(iterators[now]);
    for (now = 0; now < 2; now++)
      forward(true), backward();
    for (now = 0; now < 2; now++)
      update();
  }
  for (now = 0; now < 2; now++) {
    stop(iterators[now]);
    leave(around[now]);
  }
  now = -1;
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 6);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(children(nth("epoch", i), "step"), 3);
    assert_int_equal(children(nth(i ? "one" : "zero", 0), "epoch"), 1);
  }
  for (unsigned i = 0; i < 6; i++)
    assert_int_equal(children(nth("step", i), "data_load") + children(nth("step", i), "optimizer_step"), 2);
}

/* The iterator goes away while another has its turn. */
static void iterator_dropped_elsewhere(void **state) {
  (void)state;
  create(0);
  now = 0;
  struct span *around = enter("around");
  iter("L", "i"), next("i");
  train();
  now = -1;
  struct span *other = enter("other");
  loop_pass_end("i", false);
  leave(other);
  now = 0;
  leave(around);
  now = -1;
  finish();
  assert_true(nth("epoch", 0)->end_ns < nth("other", 0)->end_ns);
  assert_int_equal(nth("epoch", 0)->flags & SPAN_CUT, 0);
}

/* A step and a pass that never were: what began in them is their parent's, whatever was open or not begun when that showed. */
static void began_in_what_never_was(void **state) {
  (void)state;
  struct span *around = enter("around");
  iter("L", "i"), next("i");
  create(0), create(1), create(2);
  for (now = 0; now < 2; now++)
    leave(enter("closed"));
  now = 0;
  struct span *open = enter("open");
  now = -1;
  forward(false);
  next("i"); /* it was only looked at: no step */
  now = 0;
  leave(open);
  leave(enter("later")); /* in a stack that was there before */
  for (now = 1; now < 3; now++)
    leave(enter("later"));
  now = -1;
  stop("i");
  leave(around);
  finish();
  assert_int_equal(many("step"), 0);
  assert_int_equal(many_in("closed", "eval") + many_in("open", "eval") + many_in("later", "eval"), 6);
}

/* What was fetched before the step was opened is moved into it; but not with what another has done under the same parent since. */
static void nothing_is_taken_along(void **state) {
  (void)state;
  struct span *epoch = enter_epoch(0);
  create(0), create(1);
  now = 0;
  iter("L", "i");
  for (int i = 0; i < 6; i++) {
    struct span *s = enter("fetch");
    next("i");
    leave(s);
    if (i >= 3) {
      now = 1;
      leave(enter("chatter"));
      now = 0;
    }
    s = enter("work");
    train();
    leave(s);
  }
  stop("i");
  now = -1;
  leave(epoch);
  finish();
  assert_int_equal(many("step"), 6);
  assert_int_equal(many_in("fetch", "step"), 3);
  assert_int_equal(many_in("chatter", "step"), 0);
}

static void epochs_by_hand_around(void **state) {
  (void)state;
  struct span *epoch = enter_epoch(0);
  create(0);
  now = 0;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    train();
  }
  stop("i");
  create(1);
  now = 1;
  iter("M", "j"), next("j");
  train();
  stop("j");
  now = -1;
  leave(epoch);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many_in("step", "epoch"), 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(each_has_its_own, begin),         cmocka_unit_test_setup(memory_goes_round, begin),
      cmocka_unit_test_setup(ends_with_something_open, begin), cmocka_unit_test_setup(ends_on_another_thread, begin),
      cmocka_unit_test_setup(all_end_with_the_thread, begin),  cmocka_unit_test_setup(too_many, begin),
      cmocka_unit_test_setup(trainings_at_once, begin),        cmocka_unit_test_setup(iterator_dropped_elsewhere, begin),
      cmocka_unit_test_setup(began_in_what_never_was, begin),  cmocka_unit_test_setup(nothing_is_taken_along, begin),
      cmocka_unit_test_setup(epochs_by_hand_around, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
