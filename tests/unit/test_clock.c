// links: agent/clock.c
/* A thread's clock: the same time as the system's, without ever running backwards, whatever the processor's counter does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/clock.h"

#define US 1000u
#define MS 1000000u

/* As after clock_init where the counter is trusted, which is not so on every machine that runs this. */
static struct clock begun(void) {
  return (struct clock){.from_ticks = clock_ticks(), .from_ns = clock_system()};
}

static void spin(uint64_t ns) {
  for (uint64_t until = clock_system() + ns; clock_system() < until;)
    ;
}

static void settle(struct clock *clock) {
  while (!clock->rate)
    (void)clock_now(clock);
}

/* Whatever interrupts this thread lies between two of the three readings. */
static void check_time(struct clock *clock, uint64_t tolerance_ns) {
  uint64_t last = clock->last, before = clock_system(), now = clock_now(clock), after = clock_system();
  assert_true(now >= last);
  assert_in_range(now, before - tolerance_ns, after + tolerance_ns);
}

static void test_says_the_system_s_time(void **state) {
  (void)state;
  struct clock clock = begun();
  for (uint64_t until = clock_system() + 150 * MS; clock_system() < until;)
    check_time(&clock, 5 * US);
  assert_true(clock.rate != 0);
}

static void test_looks_again_after_the_horizon(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  uint64_t looked = clock.ns;
  spin(2 * CLOCK_HORIZON_NS);
  check_time(&clock, 5 * US);
  assert_true(clock.ns > looked);
}

static void test_rate_is_taken_again_after_a_second(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  uint64_t from = clock.from_ns, rate = clock.rate;
  spin(1050 * MS);
  check_time(&clock, 5 * US);
  assert_true(clock.from_ns > from);
  assert_in_range(clock.rate, rate - rate / 1000, rate + rate / 1000);
}

static void test_without_a_counter_is_the_system_s_clock(void **state) {
  (void)state;
  struct clock clock = {0};
  for (int i = 0; i < 1000; i++)
    check_time(&clock, 0);
  assert_int_equal(clock.rate, 0);
}

static void test_init(void **state) {
  (void)state;
  struct clock clock = {.rate = 1, .last = UINT64_MAX};
  clock_init(&clock);
  assert_int_equal(clock.rate, 0);
  check_time(&clock, 5 * US);
}

/* The machine slept: the counter went on, the system's clock did not. At most one horizon is told by it. */
static void test_counter_ran_ahead(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  clock.ticks -= 2 * clock.horizon;
  check_time(&clock, 5 * US);
  assert_int_equal(clock.rate, 0);
  settle(&clock);
  check_time(&clock, 5 * US);
}

static void test_counter_went_back(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  clock.ticks += 1000 * clock.horizon;
  check_time(&clock, 5 * US);
  assert_int_equal(clock.rate, 0);
}

static void test_wrong_rate_is_found_at_the_next_look(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  clock.rate += clock.rate / 50;
  spin(CLOCK_HORIZON_NS + MS);
  (void)clock_now(&clock);
  assert_int_equal(clock.rate, 0);
}

/* What was said stays said: where a look finds that it was too much, the clock waits. */
static void test_never_runs_backwards(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  uint64_t ahead = clock_system() + 3 * MS;
  clock.last = ahead;
  assert_int_equal(clock_now(&clock), ahead);
  assert_int_equal(clock_look(&clock), ahead);
  spin(4 * MS);
  check_time(&clock, 5 * US);
}

/* A thread that was silent for long: nothing is concluded from so old a look. */
static void test_after_a_long_time(void **state) {
  (void)state;
  struct clock clock = begun();
  settle(&clock);
  uint64_t hour = 3600ull * 1000 * MS, ticks = (uint64_t)((double)hour / (double)clock.rate * 4294967296.0);
  clock.ns -= hour, clock.from_ns -= hour;
  clock.ticks -= ticks / 3, clock.from_ticks -= ticks / 3;
  check_time(&clock, 5 * US);
  assert_true(clock.rate != 0);
  check_time(&clock, 5 * US);
}

static void test_ticks_in_nanoseconds(void **state) {
  (void)state;
  spin(20 * MS);
  uint64_t before = clock_system(), ticks = clock_ticks();
  spin(10 * MS);
  uint64_t past = clock_ticks() - ticks, ns = clock_system() - before;
  assert_in_range(clock_ticks_ns(past), 9 * MS, ns + ns / 100);
  assert_int_equal(clock_ticks_ns(0), 0);
}

int main(void) {
  clock_start();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_says_the_system_s_time),
      cmocka_unit_test(test_looks_again_after_the_horizon),
      cmocka_unit_test(test_rate_is_taken_again_after_a_second),
      cmocka_unit_test(test_without_a_counter_is_the_system_s_clock),
      cmocka_unit_test(test_init),
      cmocka_unit_test(test_counter_ran_ahead),
      cmocka_unit_test(test_counter_went_back),
      cmocka_unit_test(test_wrong_rate_is_found_at_the_next_look),
      cmocka_unit_test(test_never_runs_backwards),
      cmocka_unit_test(test_after_a_long_time),
      cmocka_unit_test(test_ticks_in_nanoseconds),
  };
  return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
