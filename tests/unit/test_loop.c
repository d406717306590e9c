// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c

/* Steps and scopes: loops as scripts write them, and the tree that has to come out. */
#include "tests/support/loop_script.h"

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
    loop_update_begin(scope_get(), "optimizer");
    struct span *s = scope_push(scope_get(), SPAN_OPTIMIZER, name_id(NAME_OPTIMIZER_STEP), SPAN_NO_INDEX, scope_now());
    for (int j = 0; j < 4; j++) {
      forward(true);
      backward();
    }
    uint64_t end = scope_now();
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
