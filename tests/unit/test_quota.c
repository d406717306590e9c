// links: collectord/quota.c
/* How many records of a session are taken: by the second, and in all. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <limits.h>

#include "collectord/quota.h"

#define MS 1000000ull
#define BEGIN (1000000 * MS)

static void none_is_no_limit(void **state) {
  (void)state;
  static const struct quota zero;
  assert_false(quota_is_set(NULL));
  assert_false(quota_is_set(&zero));
}

/* A second's worth at once, then as time goes by, whatever the distance of the visits. */
static void rate_holds_over_time(void **state) {
  (void)state;
  static const struct quota quota = {.rate = 1000};
  static const uint64_t distances_ns[] = {1 * MS, 333333, 10 * MS, 900 * MS, 70001};
  for (unsigned d = 0; d < sizeof distances_ns / sizeof *distances_ns; d++) {
    struct quota_use use = {0};
    uint64_t now = BEGIN, sum = 0;
    for (; now < BEGIN + 20000 * MS; now += distances_ns[d]) {
      quota_visit(&quota, &use, now);
      unsigned n = quota_allows(&quota, &use, UINT_MAX);
      assert_in_range(n, 0, 1000);
      quota_taken(&quota, &use, n, 64 * n, true);
      sum += n;
    }
    assert_in_range(sum, 20000, 21000); /* that of the first moment, and of up to 20 s */
    assert_true(quota_over(&use));
  }
}

/* What was not taken is not saved up for more than a second. */
static void silence_earns_one_second(void **state) {
  (void)state;
  static const struct quota quota = {.rate = 1000};
  struct quota_use use = {0};
  quota_visit(&quota, &use, BEGIN);
  assert_false(quota_taken(&quota, &use, quota_allows(&quota, &use, 300), 0, false));
  quota_visit(&quota, &use, BEGIN + 100 * MS);
  assert_int_equal(quota_allows(&quota, &use, UINT_MAX), 800);
  quota_visit(&quota, &use, BEGIN + 900 * MS);
  assert_int_equal(quota_allows(&quota, &use, UINT_MAX), 1000);
  quota_visit(&quota, &use, BEGIN + 60000 * MS);
  assert_int_equal(quota_allows(&quota, &use, UINT_MAX), 1000);
  assert_int_equal(quota_allows(&quota, &use, 20), 20);
}

/* Over it is who wants more than there is; that is said once, and over after a second without. */
static void who_is_over_it(void **state) {
  (void)state;
  static const struct quota quota = {.rate = 1000};
  struct quota_use use = {0};
  quota_visit(&quota, &use, BEGIN);
  assert_false(quota_taken(&quota, &use, 1000, 64000, false)); /* all, and nothing is left over */
  assert_false(quota_over(&use));
  assert_int_equal(quota_allows(&quota, &use, 5), 0);
  assert_true(quota_taken(&quota, &use, 0, 0, true));
  assert_true(quota_over(&use));
  quota_visit(&quota, &use, BEGIN + 500 * MS);
  assert_false(quota_taken(&quota, &use, 500, 32000, true));
  quota_visit(&quota, &use, BEGIN + 1499 * MS);
  assert_true(quota_over(&use));
  quota_visit(&quota, &use, BEGIN + 1500 * MS);
  assert_false(quota_over(&use));
}

static void bytes_in_all(void **state) {
  (void)state;
  static const struct quota quota = {.bytes = 6400};
  struct quota_use use = {0};
  quota_visit(&quota, &use, BEGIN);
  assert_int_equal(quota_allows(&quota, &use, 70), 70);
  assert_false(quota_taken(&quota, &use, 70, 4480, true));
  assert_int_equal(quota_allows(&quota, &use, 70), 70); /* the last visit may go a little over it */
  assert_true(quota_taken(&quota, &use, 70, 4480, true));
  quota_visit(&quota, &use, BEGIN + 3600000 * MS);
  assert_int_equal(quota_allows(&quota, &use, 70), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_is_no_limit), cmocka_unit_test(rate_holds_over_time), cmocka_unit_test(silence_earns_one_second),
      cmocka_unit_test(who_is_over_it),   cmocka_unit_test(bytes_in_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
