// links: agent/loop.c agent/loop_infer.c agent/loop_pass.c agent/loop_own.c agent/loop_step.c agent/scope.c agent/keep.c agent/keep_moves.c agent/keep_recall.c agent/scope_turn.c agent/outlet.c agent/session.c agent/root.c agent/cuda.c agent/names.c agent/segment.c agent/ring_writer.c agent/env.c agent/fd.c agent/cost.c agent/clock.c agent/shed.c
/* When detail is left out, which, and that it comes back only in a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>

#include "agent/link.h"
#include "agent/session.h"
#include "agent/shed.h"

/* No collector: the link is not linked in. */
_Atomic uint64_t link_due_ns = UINT64_MAX;
void link_tick(uint64_t now_ns) {
  (void)now_ns;
}
void link_hurry(void) {
}
void link_goodbye(uint64_t patience_ns) {
  (void)patience_ns;
}
void link_forget(void) {
}
int link_connected(void) {
  return 0;
}
bool link_reached(void) {
  return false;
}
bool link_reachable(void) {
  return false;
}

#define SECOND 1000000000ull

static unsigned long long now, spent;

static int fresh(void **state) {
  (void)state;
  session_env = (struct env){.max_overhead = 1, .module_depth = 3, .workers = true, .cpu_time = ENV_CPU_ON};
  shed_start();
  shed_forget();
  now = 5 * SECOND;
  spent = SECOND; /* attaching: before the first look, so it does not count */
  assert_false(shed_look(now, spent));
  return 0;
}

/* A second at this share of the time, in ppm. */
static bool second(unsigned ppm) {
  now += SECOND;
  spent += ppm * 1000ull;
  return shed_look(now, spent);
}

static void test_order(void **state) {
  (void)state;
  static const unsigned levels[] = {SHED_CPU_TIME, SHED_NESTED, SHED_FORWARDS, SHED_BACKWARDS};
  for (size_t i = 0; i < 4; i++) {
    assert_false(shed_is(levels[i]));
    assert_false(second(20000));
    assert_true(second(20000));
    assert_int_equal(shed_level, levels[i]);
    assert_int_equal(session_env.cpu_time, ENV_CPU_OFF);
    assert_int_equal(session_env.module_depth, i ? 1 : 3);
    assert_int_equal(session_env.workers, !i);
  }
  for (int i = 0; i < 5; i++)
    assert_false(second(900000)); /* nothing more to leave out */
}

static void test_what_is_not_there_is_passed_over(void **state) {
  (void)state;
  session_env.cpu_time = ENV_CPU_OFF;
  session_env.module_depth = 1;
  session_env.workers = false;
  assert_false(second(20000));
  assert_true(second(20000));
  assert_int_equal(shed_level, SHED_FORWARDS);
}

static void test_below_the_bound(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++)
    assert_false(second(i % 2 ? 9000 : 30000)); /* never twice in a row */
  assert_int_equal(shed_level, SHED_NOTHING);
}

static void test_it_does_not_come_back(void **state) {
  (void)state;
  assert_false(second(20000));
  assert_true(second(20000));
  for (int i = 0; i < 20; i++)
    assert_false(second(10));
  assert_int_equal(shed_level, SHED_CPU_TIME);
}

/* Looks come with the calls: far more of them than windows. */
static void test_often_looked_at(void **state) {
  (void)state;
  unsigned changes = 0;
  for (int i = 0; i < 2500; i++) {
    now += SECOND / 1000;
    spent += 30000; /* 3 % */
    changes += shed_look(now, spent);
  }
  assert_int_equal(changes, 1);
}

static void test_a_child_has_all(void **state) {
  (void)state;
  for (int i = 0; i < 8; i++)
    second(20000);
  assert_int_equal(shed_level, SHED_BACKWARDS);
  shed_forget();
  assert_int_equal(shed_level, SHED_NOTHING);
  assert_int_equal(session_env.cpu_time, ENV_CPU_ON);
  assert_int_equal(session_env.module_depth, 3);
  assert_true(session_env.workers);
  assert_false(shed_look(now, 0)); /* a counter that starts anew */
  assert_false(second(20000));
  assert_true(second(20000));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_order, fresh),           cmocka_unit_test_setup(test_what_is_not_there_is_passed_over, fresh),
      cmocka_unit_test_setup(test_below_the_bound, fresh), cmocka_unit_test_setup(test_it_does_not_come_back, fresh),
      cmocka_unit_test_setup(test_often_looked_at, fresh), cmocka_unit_test_setup(test_a_child_has_all, fresh),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
