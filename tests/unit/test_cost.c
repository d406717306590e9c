// links: agent/cost.c agent/clock.c
/* What the agent measures of itself: which calls are timed and for how many they count, and that nothing counts twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>

#include "agent/cost.h"

#define US 1000u
#define MS 1000000u

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void spin(uint64_t ns) {
  for (uint64_t until = now_ns() + ns; now_ns() < until;)
    ;
}

static uint64_t counter;

static int fresh(void **state) {
  (void)state;
  cost_start();
  cost_forget();
  counter = 0;
  cost_to(&counter);
  cost_thread = (struct cost_thread){.left = 1, .gap = 1, .random = 1};
  return 0;
}

static void test_each_call_counts_once(void **state) {
  (void)state;
  uint64_t weights = 0, calls = 0, timed = 0, last = 0;
  for (; calls < 100000; calls++) {
    struct cost_timing t = cost_call();
    if (!t.weight)
      continue;
    timed++;
    weights += t.weight;
    assert_int_equal(weights, calls + 1);
    if (timed > COST_FIRST + 1)
      assert_in_range(calls - last, COST_GAP / 2 + 1, COST_GAP / 2 + COST_GAP - 1);
    else
      assert_int_equal(t.weight, 1);
    last = calls;
  }
  assert_in_range(calls - weights, 0, 2 * COST_GAP);
  assert_in_range(timed, calls / COST_GAP * 9 / 10, calls / COST_GAP * 11 / 10 + COST_FIRST);
}

/* A job that makes four calls a step: each of them has to have its turn. */
static void test_no_pattern_is_kept(void **state) {
  (void)state;
  unsigned kinds[4] = {0};
  for (unsigned call = 0; call < 100000; call++)
    if (cost_call().weight > 1)
      kinds[call % 4]++;
  for (unsigned i = 0; i < 4; i++)
    assert_in_range(kinds[i], 300, 480); /* of some 1560 */
}

static void test_time_is_right(void **state) {
  (void)state;
  spin(2 * MS); /* the counter's pace is known by then */
  for (unsigned call = 0; call < COST_FIRST; call++) {
    struct cost_timing t = cost_call();
    spin(20 * US);
    cost_end(&t);
  }
  assert_in_range(counter, COST_FIRST * 18 * US, COST_FIRST * 10 * MS); /* the machine may be busy */
}

static void test_a_timed_call_stands_for_others(void **state) {
  (void)state;
  struct cost_timing t = {.begun = clock_ticks(), .weight = 50};
  spin(2 * MS);
  t = cost_rare();
  t.weight = 50;
  spin(10 * US);
  cost_end(&t);
  if (counter < 50 * 9 * US) /* it was interrupted: then it counts once */
    assert_in_range(counter, 50 * US, 100 * MS);
  else
    assert_in_range(counter, 50 * 9 * US, 50 * 50 * US);
}

static void test_what_was_interrupted_stands_for_itself(void **state) {
  (void)state;
  spin(MS);
  struct cost_timing t = cost_rare();
  t.weight = 90;
  spin(3 * MS);
  cost_end(&t);
  assert_in_range(counter, 2900 * US, 60 * MS);
}

static void test_rare_work_inside_a_call(void **state) {
  (void)state;
  spin(MS);
  struct cost_timing call = cost_rare();
  call.weight = 60;
  struct cost_timing rare = cost_rare();
  spin(4 * MS);
  cost_end(&rare);
  uint64_t of_rare = counter;
  cost_end(&call);
  assert_in_range(of_rare, 3900 * US, 80 * MS);
  assert_in_range(counter - of_rare, 0, of_rare / 4); /* its own few ns, 60 times */
}

static void test_left_for_a_while(void **state) {
  (void)state;
  spin(MS);
  struct cost_timing t = cost_rare();
  spin(200 * US);
  cost_end(&t);
  spin(20 * MS); /* the function that is observed */
  cost_again(&t);
  spin(200 * US);
  cost_end(&t);
  assert_in_range(counter, 390 * US, 15 * MS);
}

static void test_spent_before_the_session(void **state) {
  (void)state;
  cost_forget();
  spin(MS);
  struct cost_timing t = cost_rare();
  spin(300 * US);
  cost_end(&t);
  assert_int_equal(counter, 0);
  cost_to(&counter);
  assert_in_range(counter, 290 * US, 20 * MS);
  uint64_t before = counter;
  cost_to(&counter); /* once only */
  assert_int_equal(counter, before);
}

static void test_forgotten_in_a_child(void **state) {
  (void)state;
  cost_to(NULL);
  struct cost_timing t = cost_rare();
  spin(100 * US);
  cost_end(&t);
  cost_forget();
  cost_to(&counter);
  assert_int_equal(counter, 0);
}

static void test_counters_that_disagree(void **state) {
  (void)state;
  struct cost_timing t = cost_rare();
  t.begun += 1000000000; /* as on another processor, ahead of this one */
  cost_end(&t);
  assert_int_equal(counter, 0);
  t = cost_rare();
  spin(100 * US);
  cost_end(&t);
  assert_in_range(counter, 1, 20 * MS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_each_call_counts_once, fresh),
      cmocka_unit_test_setup(test_no_pattern_is_kept, fresh),
      cmocka_unit_test_setup(test_time_is_right, fresh),
      cmocka_unit_test_setup(test_a_timed_call_stands_for_others, fresh),
      cmocka_unit_test_setup(test_what_was_interrupted_stands_for_itself, fresh),
      cmocka_unit_test_setup(test_rare_work_inside_a_call, fresh),
      cmocka_unit_test_setup(test_left_for_a_while, fresh),
      cmocka_unit_test_setup(test_spent_before_the_session, fresh),
      cmocka_unit_test_setup(test_forgotten_in_a_child, fresh),
      cmocka_unit_test_setup(test_counters_that_disagree, fresh),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
