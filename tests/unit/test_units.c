// links: tools/units.c
/* Numbers in words: three digits, the right unit at each border, the same in every locale. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/units.h"

static char text[UNITS_MAX];

static void durations(void **state) {
  static const struct {
    int64_t ns;
    const char *want;
  } cases[] = {{0, "0 ns"},
               {999, "999 ns"},
               {1000, "1.00 µs"},
               {12340, "12.3 µs"},
               {999499, "999 µs"},
               {999500, "1.00 ms"},
               {9994999, "9.99 ms"},
               {9995000, "10.0 ms"},
               {99950000, "100 ms"},
               {999500000, "1.00 s"},
               {59949999999, "59.9 s"},
               {59950000000, "1 m 00 s"},
               {61499999999, "1 m 01 s"},
               {3599499999999, "59 m 59 s"},
               {3599500000000, "1 h 00 m"},
               {86399499999999, "23 h 59 m"},
               {86400000000000, "1 d 00 h"},
               {-1, "-"},
               {INT64_MAX, "106751 d 23 h"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(units_duration(cases[i].ns, text), cases[i].want);
  units_init(false);
  assert_string_equal(units_duration(1500, text), "1.50 us");
  units_init(true);
}

static void shares(void **state) {
  (void)state;
  assert_string_equal(units_share(31, 100, text), "31 %");
  assert_string_equal(units_share(0, 100, text), "0 %");
  assert_string_equal(units_share(4, 1000, text), "0.4 %");
  assert_string_equal(units_share(1, 10000, text), "< 0.1 %");
  assert_string_equal(units_share(1, 0, text), "-");
  assert_string_equal(units_share(INT64_MAX, 1, text), "922337203685477580800 %");
}

static void counts(void **state) {
  (void)state;
  assert_string_equal(units_count(0, text), "0");
  assert_string_equal(units_count(999, text), "999");
  assert_string_equal(units_count(1000, text), "1,000");
  assert_string_equal(units_count(-123456, text), "-123,456");
  assert_string_equal(units_count(INT64_MIN, text), "-9,223,372,036,854,775,808");
  assert_string_equal(units_of(1, "span", "spans", text), "1 span");
  assert_string_equal(units_of(1200, "span", "spans", text), "1,200 spans");
}

static void reals(void **state) {
  static const double values[] = {0.1, 1e300, 5e-324, -1.0 / 3, 123456789.125, 2};
  (void)state;
  assert_string_equal(units_real(NAN, text), "NaN");
  assert_string_equal(units_exact(-INFINITY, text), "-Infinity");
  assert_string_equal(units_real(0.9687512345, text), "0.968751");
  assert_string_equal(units_real(40000000, text), "40000000");
  assert_string_equal(units_exact(0.1, text), "0.1");
  assert_string_equal(units_exact(2, text), "2.0");
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    assert_true(strtod(units_exact(values[i], text), NULL) == values[i]);
}

static void rates_signals_times(void **state) {
  (void)state;
  assert_string_equal(units_rate(0.256, text), "0.26");
  assert_string_equal(units_rate(5.23, text), "5.2");
  assert_string_equal(units_rate(123.4, text), "123");
  assert_string_equal(units_rate(12345.6, text), "12,346");
  assert_string_equal(units_signal(SIGKILL, text), "SIGKILL");
  assert_string_equal(units_signal(SIGTERM, text), "SIGTERM");
  assert_string_equal(units_signal(4000, text), "signal 4000");
  setenv("TZ", "UTC", 1);
  tzset();
  assert_string_equal(units_time(1000000000000000000, text), "2001-09-09 01:46:40");
  assert_true(strlen(units_time(INT64_MAX, text)) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(durations), cmocka_unit_test(shares), cmocka_unit_test(counts),
                                     cmocka_unit_test(reals), cmocka_unit_test(rates_signals_times)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
