// links: tools/overhead.c tools/db.c tools/say.c tools/text.c tools/buf.c tools/units.c tools/jsontext.c tools/vtab_args.c tools/vtab_spans.c tools/spans.c tools/spans_each.c tools/spans_moves.c tools/spans_names.c proto/block.c proto/histogram.c
/* The estimate of an overhead check: median and its interval, by pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "tools/overhead.h"

static void about(double got, double want) {
  if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
    fail_msg("%g, expected %g", got, want);
}

/* 1, 2, ... count, not in order. */
static struct overhead_estimate of_ranks(size_t count) {
  double differences[1000], shares[1000];
  struct overhead_estimate e;
  for (size_t i = 0; i < count; i++) {
    differences[i * 7 % count] = (double)i + 1;
    shares[i * 11 % count] = ((double)i + 1) / 100;
  }
  overhead_estimate(differences, shares, count, &e);
  return e;
}

/* The ranks that tables of the sign test give for 95 %. */
static void test_interval(void **state) {
  (void)state;
  const struct {
    size_t count, k;
  } cases[] = {{6, 1}, {8, 1}, {9, 2}, {12, 3}, {15, 4}, {20, 6}, {25, 8}, {40, 14}, {50, 18}, {100, 40}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct overhead_estimate e = of_ranks(cases[i].count);
    assert_true(e.known);
    about(e.low, (double)cases[i].k);
    about(e.high, (double)(cases[i].count + 1 - cases[i].k));
    about(e.share_low, (double)cases[i].k / 100);
    about(e.median, (double)(cases[i].count + 1) / 2);
    about(e.share, (double)(cases[i].count + 1) / 200);
  }
}

static void test_too_few(void **state) {
  (void)state;
  for (size_t count = 0; count < 6; count++)
    assert_false(of_ranks(count).known);
  about(of_ranks(5).median, 3);
}

/* How often does the interval hold the true median? Of noise with a long tail, as a busy machine makes it. */
static void test_it_holds_what_it_says(void **state) {
  (void)state;
  unsigned held = 0, wide = 0;
  uint64_t random = 7;
  for (int turn = 0; turn < 2000; turn++) {
    double differences[60], shares[60];
    struct overhead_estimate e;
    for (int i = 0; i < 60; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      double u = ((double)(random >> 11) + 0.5) / (double)(1ull << 53);
      differences[i] = 3 + tan(3.14159265358979 * (u - 0.5)); /* Cauchy: it has no mean */
      shares[i] = differences[i] / 300;
    }
    overhead_estimate(differences, shares, 60, &e);
    held += e.low <= 3 && 3 <= e.high;
    wide += e.high - e.low > 2;
  }
  assert_in_range(held, 1880, 1960);
  assert_in_range(wide, 0, 40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_interval),
      cmocka_unit_test(test_too_few),
      cmocka_unit_test(test_it_holds_what_it_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
