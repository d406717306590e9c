// links: tools/ranks.c tools/select.c tools/buf.c tools/say.c tools/text.c
/* The comparison of ranks, on made-up trainings: who is slow, who waited for whom, whatever the clocks say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tools/ranks.h"

#define MS INT64_C(1000000)
#define RANKS 4
#define STEPS 100
#define MAX_CALLS 300

static struct ranks_input in[RANKS];
static struct ranks_step steps[RANKS][STEPS];
static struct ranks_call calls[RANKS][MAX_CALLS];
static struct ranks_result out;

/* A training of `count` steps: each rank works for work[rank], then all wait for the last in one collective, which takes 1 ms. */
static void train(size_t count, const int64_t work[RANKS]) {
  int64_t now = 1000 * MS;
  for (size_t s = 0; s < count; s++) {
    int64_t meet = 0;
    for (size_t r = 0; r < RANKS; r++)
      meet = work[r] > meet ? work[r] : meet;
    for (size_t r = 0; r < RANKS; r++) {
      int64_t end = now + meet + MS;
      steps[r][s] = (struct ranks_step){.index = (int64_t)s, .start_ns = now, .end_ns = end + MS};
      steps[r][s].phase_ns[RANKS_FORWARD] = work[r];
      calls[r][s] =
          (struct ranks_call){.number = (int64_t)s, .group = 1, .meets = true, .start_ns = now + work[r], .end_ns = end};
    }
    now += meet + 2 * MS;
  }
  for (size_t r = 0; r < RANKS; r++)
    in[r] = (struct ranks_input){
        .rank = (int64_t)r, .steps = steps[r], .step_count = count, .calls = calls[r], .call_count = count};
}

static void compare(void) {
  ranks_fini(&out);
  ranks_compare(in, RANKS, &out);
  assert_int_equal(out.n, RANKS);
}

static int end(void **state) {
  (void)state;
  ranks_fini(&out);
  memset(in, 0, sizeof in);
  return 0;
}

static void shift(size_t rank, int64_t ns, int64_t drift_ns) {
  for (size_t i = 0; i < in[rank].step_count; i++) {
    steps[rank][i].start_ns += ns + (int64_t)i * drift_ns;
    steps[rank][i].end_ns += ns + (int64_t)i * drift_ns;
  }
  for (size_t i = 0; i < in[rank].call_count; i++) {
    calls[rank][i].start_ns += ns + (int64_t)i * drift_ns;
    calls[rank][i].end_ns += ns + (int64_t)i * drift_ns;
  }
}

/* Rank 2 works 50 ms longer than the others' 10 ms. */
static void is_slow(int64_t tolerance) {
  assert_int_equal(out.slow, 2);
  assert_int_equal(out.rows[2].last, STEPS);
  assert_int_equal(out.unit_count, STEPS);
  for (size_t r = 0; r < RANKS; r++) {
    int64_t expected = r == 2 ? 0 : STEPS * 50 * MS;
    if (llabs(out.rows[r].waited_ns - expected) > STEPS * tolerance)
      fail_msg("rank %zu waited %lld", r, (long long)out.rows[r].waited_ns);
    assert_int_equal(out.rows[r].waits_most_for, r == 2 ? r : 2);
    assert_true(out.waits[r * RANKS + 2] >= expected - STEPS * tolerance);
  }
  assert_true(llabs(out.skew_median_ns - 50 * MS) <= tolerance);
  assert_true(llabs(out.rows[2].caused_ns - STEPS * 50 * MS) <= STEPS * tolerance);
}

static const int64_t one_slow[RANKS] = {10 * MS, 10 * MS, 60 * MS, 10 * MS};

static void test_one_clock(void **state) {
  (void)state;
  train(STEPS, one_slow);
  compare();
  is_slow(0);
  assert_true(out.by_steps && !out.by_backward);
  assert_int_equal(out.collectives, STEPS);
  assert_int_equal(out.rows[0].steps, STEPS);
  assert_int_equal(out.rows[0].mean_ns, 62 * MS);
  assert_int_equal(out.rows[0].median_ns, 62 * MS);
  assert_int_equal(out.rows[0].p95_ns, 62 * MS);
  assert_int_equal(out.rows[0].collective_ns, STEPS * 51 * MS);
  assert_int_equal(out.rows[2].collective_ns, STEPS * MS);
  int64_t excess;
  assert_int_equal(ranks_excess(&out, 2, &excess), RANKS_FORWARD);
  assert_int_equal(excess, 50 * MS);
  assert_int_equal(ranks_excess(&out, 0, &excess), RANKS_PHASES);
}

/* Each on a host of its own, whose clock is wrong by hours and runs fast. */
static void test_clocks_of_hosts(void **state) {
  (void)state;
  train(STEPS, one_slow);
  for (size_t r = 0; r < RANKS; r++) {
    in[r].host = (unsigned)r;
    shift(r, (int64_t)r * 3600000 * MS - 1800000 * MS, (int64_t)r * 1000); /* 16 to 50 parts in a million */
  }
  compare();
  is_slow(20000); /* half a window's drift */
}

/* Two hosts with two ranks each: the slow one is on the second. */
static void test_two_hosts(void **state) {
  (void)state;
  train(STEPS, one_slow);
  in[2].host = in[3].host = 7;
  shift(2, -5000 * MS, 0);
  shift(3, -5000 * MS, 0);
  compare();
  is_slow(0);
}

/* The host's clock was set between the starts of two of its ranks. */
static void test_a_clock_that_was_set(void **state) {
  (void)state;
  train(STEPS, one_slow);
  shift(1, 700 * MS, 0);
  compare();
  is_slow(0);
}

static void test_nobody_is_slow(void **state) {
  (void)state;
  int64_t even[RANKS] = {10 * MS, 10 * MS + 50000, 10 * MS, 10 * MS + 20000};
  train(STEPS, even);
  compare();
  assert_int_equal(out.slow, -1);
  assert_int_equal(out.units[0].slowest, -1);
  assert_int_equal(out.rows[1].last, 0);
}

/* Slow in a third of the steps only: it does not stand out, but is counted. */
static void test_slow_now_and_then(void **state) {
  (void)state;
  int64_t even[RANKS] = {10 * MS, 10 * MS, 10 * MS, 10 * MS};
  train(90, even);
  for (size_t s = 0; s < 90; s += 3)
    calls[1][s].start_ns += MS / 2;
  compare();
  assert_int_equal(out.rows[1].last, 30);
  assert_int_equal(out.slow, -1);
  assert_int_equal(out.skew_median_ns, 0);
  assert_int_equal(out.skew_p95_ns, MS / 2);
}

static void test_backward(void **state) {
  (void)state;
  train(STEPS, one_slow);
  for (size_t r = 0; r < RANKS; r++) {
    in[r].call_count = 0;
    in[r].backward_meets = true;
    for (size_t s = 0; s < STEPS; s++)
      steps[r][s].phase_ns[RANKS_BACKWARD] = 5 * MS + (r == 2 ? 0 : 50 * MS);
  }
  compare();
  assert_true(out.by_backward);
  is_slow(0);
  int64_t excess;
  assert_int_equal(ranks_excess(&out, 2, &excess), RANKS_FORWARD);
  in[3].backward_meets = false; /* one that does not: nothing is known */
  compare();
  assert_false(out.by_backward);
  assert_int_equal(out.slow, -1);
}

static void test_calls_that_say_nothing(void **state) {
  (void)state;
  train(STEPS, one_slow);
  for (size_t s = 0; s < STEPS; s++) {
    calls[0][s].meets = false;
    calls[1][s].number = RANKS_NO_NUMBER;
    calls[3][s].end_ns = calls[3][s].start_ns - 1;
  }
  compare();
  assert_int_equal(out.collectives, 0);
  assert_int_equal(out.rows[0].waited_ns, 0);
  assert_int_equal(out.rows[0].collective_ns, STEPS * 51 * MS); /* of its time all the same */
}

static void test_without_steps(void **state) {
  (void)state;
  train(STEPS, one_slow);
  for (size_t r = 0; r < RANKS; r++)
    in[r].step_count = 0;
  compare();
  assert_false(out.by_steps);
  assert_int_equal(out.unit_count, STEPS);
  assert_int_equal(out.rows[2].last, STEPS);
  assert_int_equal(out.slow, 2);
  assert_int_equal(out.rows[0].collective_ns, STEPS * 51 * MS);
  assert_int_equal(out.compared_ns, STEPS * 62 * MS - 11 * MS);
}

/* One stopped half way: the others are compared without it from then on. */
static void test_one_that_stopped(void **state) {
  (void)state;
  train(STEPS, one_slow);
  in[1].step_count = in[1].call_count = 40;
  compare();
  assert_int_equal(out.rows[1].steps, 40);
  assert_int_equal(out.rows[1].waited_ns, 40 * 50 * MS);
  assert_int_equal(out.rows[0].waited_ns, STEPS * 50 * MS);
  assert_int_equal(out.units[39].ranks, 4);
  assert_int_equal(out.units[40].ranks, 3);
}

static void test_nothing(void **state) {
  (void)state;
  for (size_t n = 0; n <= 1; n++) {
    ranks_fini(&out);
    ranks_compare(in, n, &out);
    assert_int_equal(out.unit_count, 0);
    assert_int_equal(out.slow, -1);
  }
  compare();
}

/* What no training would say: nothing overflows or hangs. */
static void test_odd_input(void **state) {
  (void)state;
  train(STEPS, one_slow);
  for (size_t s = 0; s < STEPS; s++) {
    steps[0][s].index = (int64_t)(s % 3);
    steps[1][s].end_ns = steps[1][s].start_ns - 5;
    calls[0][s].number = 1;
    calls[1][s].number = INT64_MAX;
    calls[2][s].group = UINT32_MAX;
    in[s % RANKS].host = (unsigned)s;
  }
  compare();
}

int main(void) {
#define T(f) cmocka_unit_test_teardown(f, end)
  const struct CMUnitTest tests[] = {T(test_one_clock),
                                     T(test_clocks_of_hosts),
                                     T(test_two_hosts),
                                     T(test_nobody_is_slow),
                                     T(test_a_clock_that_was_set),
                                     T(test_slow_now_and_then),
                                     T(test_backward),
                                     T(test_calls_that_say_nothing),
                                     T(test_without_steps),
                                     T(test_one_that_stopped),
                                     T(test_nothing),
                                     T(test_odd_input)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
