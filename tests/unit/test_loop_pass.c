// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c

/* Several passes over loaders, in one another, beside one another, looked at, left: which is the epoch? */
#include "tests/support/loop_script.h"

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

int main(void) {
  const struct CMUnitTest tests[] = {
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
