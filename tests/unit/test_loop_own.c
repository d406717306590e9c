// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c

/* Loops that a framework runs, event by event, and the tree that has to come out. */
#include "tests/support/loop_script.h"

#include "agent/loop_own.h"

#define NO_ERROR 0u
#define AN_ERROR 1u

static uint64_t begin(enum loop_run_kind kind) {
  return own_begin(scope_get(), kind, "object");
}

static void end(uint64_t number, uint32_t exception) {
  own_end(scope_get(), number, exception);
}

static struct loop_run *run(void) {
  return own_training(scope_get());
}

static void epoch_begin(int64_t index) {
  own_epoch_begin(scope_get(), run(), index);
}

static void epoch_end(void) {
  own_epoch_end(scope_get(), run(), NO_ERROR);
}

static void step_begin(int64_t index) {
  own_step_begin(scope_get(), run(), SPAN_STEP, index);
}

static void step_end(void) {
  own_step_end(scope_get(), run(), scope_now());
}

static void evaluate(void) {
  uint64_t eval = begin(RUN_EVAL);
  iter("E", "e");
  next("e");
  forward(false);
  stop("e");
  end(eval, NO_ERROR);
}

/* Batches are loaded before the framework says that the step begins; two a step. */
static void steps(int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) {
    next("i");
    next("i");
    step_begin(i);
    forward(true);
    backward();
    train();
    step_end();
  }
}

static void plain(void **state) {
  (void)state;
  uint64_t number = begin(RUN_TRAINING);
  for (int e = 0; e < 2; e++) {
    epoch_begin(4 + e);
    iter("L", "i");
    steps(3 * e, 3 * e + 3);
    stop("i");
    evaluate();
    epoch_end();
  }
  end(number, NO_ERROR);
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("eval"), 2);
  assert_int_equal(many_in("eval", "epoch"), 2);
  assert_int_equal(many("data_load"), 14);
  assert_int_equal(many_in("data_load", "step"), 12);
  for (unsigned s = 0; s < 6; s++) {
    assert_int_equal(nth("step", s)->index, s);
    assert_int_equal(children(nth("step", s), "data_load"), 2);
    assert_int_equal(children(nth("step", s), "optimizer_step"), 1);
  }
  assert_int_equal(nth("epoch", 1)->index, 5);
  assert_int_equal(nth("eval", 1)->index, 1);
}

static void left_over(void **state) {
  (void)state;
  uint64_t number = begin(RUN_TRAINING);
  epoch_begin(SPAN_NO_INDEX);
  steps(0, 1);
  next("i");
  step_begin(1); /* no update comes of it */
  forward(true);
  epoch_end();
  epoch_begin(SPAN_NO_INDEX);
  next("i");
  step_begin(1);
  forward(true);
  step_begin(1); /* once more: it goes on */
  train();
  step_end();
  end(number, NO_ERROR);
  finish();
  assert_int_equal(many("step"), 2);
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(nth("epoch", 1)->index, 1);
  assert_int_equal(children(nth("epoch", 0), "forward"), 1);
  assert_int_equal(children(nth("step", 1), "forward"), 2);
}

static void left_by_an_exception(void **state) {
  (void)state;
  uint64_t outer = begin(RUN_TRAINING);
  begin(RUN_TRAINING); /* a function of the framework in another */
  epoch_begin(0);
  steps(0, 1);
  step_begin(1);
  begin(RUN_EVAL);
  end(outer, AN_ERROR);
  iter("L", "i"); /* the names are torch's again */
  next("i");
  train();
  next("i");
  train();
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 4);
  assert_int_equal(nth("epoch", 0)->flags & SPAN_ERROR, SPAN_ERROR);
  assert_int_equal(nth("step", 0)->flags & SPAN_ERROR, 0);
  assert_int_equal(nth("step", 1)->flags & SPAN_ERROR, SPAN_ERROR);
  assert_int_equal(nth("eval", 0)->flags & SPAN_ERROR, SPAN_ERROR);
  assert_int_equal(nth("step", 2)->index, 0);
}

static void inside_an_epoch(void **state) {
  (void)state;
  bool summary;
  uint64_t outer = begin(RUN_TRAINING);
  epoch_begin(0);
  steps(0, 2);
  uint64_t inner = begin(RUN_TRAINING); /* of a callback */
  epoch_begin(0);
  assert_int_equal(own_place(scope_get(), &summary), 0);
  steps(0, 3);
  evaluate();
  end(inner, NO_ERROR);
  steps(2, 3);
  end(outer, NO_ERROR);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many("eval"), 1);
  assert_int_equal(many("optimizer_step"), 6);
}

static void in_an_epoch_made_by_hand(void **state) {
  (void)state;
  struct span *epoch = enter_epoch(7);
  uint64_t number = begin(RUN_TRAINING);
  epoch_begin(0);
  steps(0, 2);
  epoch_end();
  end(number, NO_ERROR);
  leave(epoch);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(children(nth("epoch", 0), "step"), 2);
  assert_int_equal(many_in("data_load", "step"), 4);
}

/* A batch was looked at before, and a loop of torch's is under way. */
static void torch_before(void **state) {
  (void)state;
  iter("L", "kept");
  next("kept");
  train();
  next("kept");
  uint64_t number = begin(RUN_TRAINING);
  epoch_begin(0);
  steps(0, 2);
  end(number, NO_ERROR);
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 3);
  assert_int_equal(nth("epoch", 1)->parent, SPAN_ROOT);
}

static void evaluated_by_a_loop_of_torch(void **state) {
  (void)state;
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    train();
    evaluate();
  }
  stop("i");
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(many("step"), 3);
  assert_int_equal(many("eval"), 3);
  assert_int_equal(many_in("eval", "step"), 0);
  assert_int_equal(many_in("eval", "epoch"), 3);
}

/* Left open by the callback in which the step ends: not part of it. */
static void scope_between_steps(void **state) {
  (void)state;
  uint64_t number = begin(RUN_TRAINING);
  epoch_begin(0);
  step_begin(0);
  train();
  uint64_t since = scope_now();
  struct span *between = enter("between");
  event(SPAN_USER, NAME_FETCH);
  own_step_end(scope_get(), run(), since);
  leave(between);
  step_begin(1);
  struct span *held = enter("held");
  train();
  step_end(); /* closed with the step */
  assert_false(scope_holds(scope_get(), held, held->id));
  epoch_end();
  end(number, NO_ERROR);
  finish();
  assert_int_equal(children(nth("epoch", 0), "between"), 1);
  assert_int_equal(children(nth("step", 1), "held"), 1);
  assert_int_equal(children(nth("between", 0), "fetch"), 1);
}

static void places_of_numbers(void **state) {
  (void)state;
  bool summary;
  struct span *around = enter("around");
  uint64_t number = begin(RUN_TRAINING);
  assert_int_equal(own_place(scope_get(), &summary), around->id);
  assert_true(summary);
  epoch_begin(0);
  uint64_t epoch = run()->epoch_id;
  assert_int_equal(own_place(scope_get(), &summary), epoch);
  assert_false(summary);
  step_begin(0);
  uint64_t step = run()->step_id;
  assert_int_equal(own_place(scope_get(), &summary), step);
  step_end();
  assert_int_equal(own_place(scope_get(), &summary), step);
  assert_false(summary);
  uint64_t eval = begin(RUN_EVAL);
  assert_int_equal(own_place(scope_get(), &summary), step);
  run()->over = true;
  assert_int_equal(own_place(scope_get(), &summary), epoch);
  assert_true(summary);
  end(eval, NO_ERROR);
  epoch_end();
  end(number, NO_ERROR);
  eval = begin(RUN_EVAL);
  assert_int_equal(own_place(scope_get(), &summary), scope_top(scope_get())->id);
  assert_false(summary);
  end(eval, NO_ERROR);
  leave(around);
  finish();
}

static void too_many(void **state) {
  (void)state;
  uint64_t first = begin(RUN_TRAINING), number = first;
  for (unsigned i = 1; i < LOOP_MAX_RUNS; i++)
    assert_int_not_equal(number = begin(RUN_TRAINING), 0);
  assert_int_equal(begin(RUN_EVAL), 0);
  assert_true(own_has(scope_get(), number));
  end(first, NO_ERROR);
  assert_false(own_has(scope_get(), first));
  finish();
}

static void thread_ends_in_it(void **state) {
  (void)state;
  begin(RUN_TRAINING);
  epoch_begin(0);
  steps(0, 1);
  step_begin(1);
  finish();
  assert_int_equal(many("epoch"), 1);
  assert_int_equal(nth("epoch", 0)->flags & SPAN_CUT, SPAN_CUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(plain, setup),
      cmocka_unit_test_setup(left_over, setup),
      cmocka_unit_test_setup(left_by_an_exception, setup),
      cmocka_unit_test_setup(inside_an_epoch, setup),
      cmocka_unit_test_setup(in_an_epoch_made_by_hand, setup),
      cmocka_unit_test_setup(torch_before, setup),
      cmocka_unit_test_setup(evaluated_by_a_loop_of_torch, setup),
      cmocka_unit_test_setup(scope_between_steps, setup),
      cmocka_unit_test_setup(places_of_numbers, setup),
      cmocka_unit_test_setup(too_many, setup),
      cmocka_unit_test_setup(thread_ends_in_it, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
