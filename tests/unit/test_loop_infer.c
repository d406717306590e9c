// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c

/* Steps of loops without a loader: they come of updates alone. */
#include "agent/loop_infer.h"
#include "agent/loop_own.h"
#include "tests/support/loop_script.h"

static int without_loader(void **state) {
  int r = setup(state);
  infer_off = false;
  return r;
}

static void plain_loop(void **state) {
  (void)state;
  for (int i = 0; i < 5; i++)
    train();
  finish();
  assert_int_equal(many("step"), 5);
  for (const char *const *name = (const char *const[]){"forward", "backward", "optimizer_step", NULL}; *name; name++)
    assert_int_equal(many_in(*name, "step"), 5);
  for (unsigned i = 0; i < 5; i++) {
    assert_int_equal(nth("step", i)->index, i);
    assert_int_equal(nth("step", i)->start_ns <= nth("forward", i)->start_ns, 1);
    assert_int_equal(nth("step", i)->end_ns, nth("optimizer_step", i)->end_ns);
  }
}

static void accumulated(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 4; j++) {
      forward(true);
      backward();
    }
    update();
  }
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(children(nth("step", 1), "backward"), 4);
}

static void backward_alone(void **state) { /* no module: the loss is made of plain tensors */
  (void)state;
  for (int i = 0; i < 3; i++) {
    backward();
    update();
  }
  update();
  finish();
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("backward", "step"), 3);
}

static void evaluation_between(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    if (i % 3 == 0)
      for (int j = 0; j < 4; j++)
        forward(false);
    train();
  }
  finish();
  assert_int_equal(many("step"), 6);
  assert_int_equal(many("forward"), 14);
  assert_int_equal(many_in("forward", "step"), 6);
}

static void two_optimizers_take_turns(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    forward(true);
    backward();
    update_by("critic");
    forward(true);
    backward();
    update_by("generator");
  }
  finish();
  assert_int_equal(many("step"), 4);
  assert_int_equal(children(nth("step", 2), "optimizer_step"), 2);
  assert_int_equal(children(nth("step", 2), "forward"), 2);
}

static void scopes_around_the_parts(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct span *s = enter("ahead");
    forward(true);
    leave(s);
    s = enter("back");
    backward();
    leave(s);
    s = enter("apply");
    update();
    leave(s);
  }
  finish();
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("ahead", "step"), 4);
  assert_int_equal(many_in("back", "step"), 4);
  assert_int_equal(many_in("apply", "step"), 4);
  assert_int_equal(children(nth("step", 1), "ahead"), 1);
}

static void scopes_around_all(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct span *s = enter("turn");
    train();
    forward(true); /* looked at afterwards: no part of the next */
    leave(s);
  }
  finish();
  assert_int_equal(many("step"), 4);
  assert_int_equal(many_in("step", "turn"), 4);
  assert_int_equal(many_in("forward", "step"), 4);
}

static void epochs_of_the_script(void **state) {
  (void)state;
  for (int e = 0; e < 2; e++) {
    struct span *epoch = enter_epoch(e);
    for (int i = 0; i < 3; i++)
      train();
    leave(epoch);
  }
  finish();
  assert_int_equal(many("epoch"), 2);
  assert_int_equal(many("step"), 6);
  assert_int_equal(many_in("step", "epoch"), 6);
}

static void scope_held_over_updates(void **state) {
  (void)state;
  train();
  forward(true);
  struct span *s = enter("phase");
  for (int i = 0; i < 3; i++)
    train();
  leave(s);
  train();
  finish();
  assert_int_equal(many("optimizer_step"), 5);
  assert_int_equal(many_in("optimizer_step", "step"), 5);
}

static void work_that_came_to_nothing(void **state) { /* an update that a scaler left out */
  (void)state;
  train();
  forward(true);
  backward();
  train();
  forward(true);
  finish();
  assert_int_equal(many("step"), 2);
  assert_int_equal(children(nth("step", 1), "forward"), 2);
  assert_int_equal(many_in("forward", "step"), 3);
}

static void closures(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    loop_update_begin(scope_get(), "lbfgs");
    struct span *s = scope_push(scope_get(), SPAN_OPTIMIZER, name_id(NAME_OPTIMIZER_STEP), SPAN_NO_INDEX, scope_now());
    for (int j = 0; j < 3; j++) {
      forward(true);
      backward();
    }
    uint64_t end = scope_now();
    scope_pop(scope_get(), s, end, 0);
    loop_update_end(scope_get(), end);
  }
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("forward", "optimizer_step"), 9);
  assert_int_equal(many_in("optimizer_step", "step"), 3);
}

static void a_loader_after_all(void **state) {
  (void)state;
  train();
  train();
  iter("L", "i");
  for (int i = 0; i < 3; i++) {
    next("i");
    train();
  }
  stop("i");
  train();
  finish();
  assert_int_equal(many("step"), 5); /* the last is of a process that has loaders */
  assert_int_equal(many_in("step", "epoch"), 3);
}

static void a_loader_was_made(void **state) {
  (void)state;
  loop_loader(scope_get());
  train();
  train();
  finish();
  assert_int_equal(many("step"), 0);
}

static void loader_of_another_thread(void **state) {
  (void)state;
  for (int i = 0; i < 6; i++) {
    if (i == 3)
      loop_loader(NULL); /* no stack of ours */
    train();
  }
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(children(nth("step", 2), "optimizer_step"), 1);
}

static void work_before_a_framework_runs(void **state) {
  (void)state;
  forward(true);
  own_end(scope_get(), own_begin(scope_get(), RUN_TRAINING, "trainer"), 0);
  train();
  finish();
  assert_int_equal(many("step"), 0);
  setup(state);
  infer_off = false;
  forward(true);
  own_end(scope_get(), own_begin(scope_get(), RUN_EVAL, "trainer"), 0);
  train();
  finish();
  assert_int_equal(many("step"), 1);
  assert_int_equal(many("eval"), 1);
  assert_int_equal(many_in("eval", "step"), 0);
}

/* What goes on after the loop does not wait for ever to be told that it is in no step. */
static void long_after(void **state) {
  (void)state;
  train();
  train();
  for (int i = 0; i < 1000; i++) {
    assert_true(i < 300 || scope_count(scope_get(), SPAN_STEP) == 0);
    leave(enter("after"));
  }
  train();
  for (int i = 0; i < 1000; i++)
    forward(false);
  assert_int_equal(scope_count(scope_get(), SPAN_STEP), 0);
  finish();
  assert_int_equal(many("step"), 3);
  assert_int_equal(many_in("after", "step"), 0);
  assert_int_equal(many_in("forward", "step"), 3);
}

static void warm_up(void **state) {
  (void)state;
  forward(true);
  train();
  loop_loader(scope_get());
  iter("L", "i");
  next("i");
  train();
  stop("i");
  finish();
  assert_int_equal(many("step"), 1);
  assert_int_equal(nth("step", 0)->index, 0);
  assert_int_equal(many_in("forward", "step"), 1);
  assert_int_equal(many_in("optimizer_step", "step"), 1);
}

/* Whatever a script does, the tree is one; each update is in a step. */
static void at_random(void **state) {
  for (unsigned seed = 0; seed < 300; seed++) {
    without_loader(state);
    struct span *open[8];
    uint64_t ids[8];
    unsigned depth = 0;
    srand(seed);
    for (int i = 0; i < 60; i++) {
      switch (rand() % 9) {
      case 0:
      case 1:
        forward(rand() % 4 != 0);
        break;
      case 2:
        backward();
        break;
      case 3:
      case 4:
        update_by(rand() % 3 ? "a" : "b");
        break;
      case 5:
      case 6:
        if (depth < 8) {
          open[depth] = rand() % 6 || scope_find(scope_get(), SPAN_EPOCH) ? enter("scope") : enter_epoch(i);
          ids[depth] = open[depth]->id;
          depth++;
        }
        break;
      default:
        if (depth) {
          unsigned at = rand() % 5 ? depth - 1 : (unsigned)rand() % depth; /* what is above it is closed with it */
          if (scope_holds(scope_get(), open[at], ids[at]))
            leave(open[at]);
          depth = at;
        }
      }
    }
    finish();
    assert_int_equal(many_in("optimizer_step", "step"), many("optimizer_step"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(plain_loop, without_loader),
      cmocka_unit_test_setup(accumulated, without_loader),
      cmocka_unit_test_setup(backward_alone, without_loader),
      cmocka_unit_test_setup(evaluation_between, without_loader),
      cmocka_unit_test_setup(two_optimizers_take_turns, without_loader),
      cmocka_unit_test_setup(scopes_around_the_parts, without_loader),
      cmocka_unit_test_setup(scopes_around_all, without_loader),
      cmocka_unit_test_setup(epochs_of_the_script, without_loader),
      cmocka_unit_test_setup(scope_held_over_updates, without_loader),
      cmocka_unit_test_setup(work_that_came_to_nothing, without_loader),
      cmocka_unit_test_setup(closures, without_loader),
      cmocka_unit_test_setup(a_loader_after_all, without_loader),
      cmocka_unit_test_setup(a_loader_was_made, without_loader),
      cmocka_unit_test_setup(loader_of_another_thread, without_loader),
      cmocka_unit_test_setup(work_before_a_framework_runs, without_loader),
      cmocka_unit_test_setup(long_after, without_loader),
      cmocka_unit_test_setup(warm_up, without_loader),
      cmocka_unit_test_setup(at_random, without_loader),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
