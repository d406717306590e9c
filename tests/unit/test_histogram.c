// links: proto/histogram.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/histogram.h"

static uint64_t seed = 7;

static uint64_t random64(void) { /* xorshift: the same numbers in each run */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}

static void test_bins(void **state) {
  (void)state;
  assert_int_equal(histogram_bin(0), 0);
  assert_int_equal(histogram_bin(1), 1);
  assert_int_equal(histogram_bin(2), 9);
  assert_int_equal(histogram_bin(3), 13);
  assert_int_equal(histogram_bin(8), 25);
  assert_int_equal(histogram_bin(15), 32);
  assert_int_equal(histogram_bin(UINT64_MAX), HISTOGRAM_BINS - 1);
  for (int i = 0; i < 100000; i++) {
    uint64_t v = random64() >> (random64() % 64), low, high;
    unsigned bin = histogram_bin(v);
    assert_true(bin < HISTOGRAM_BINS);
    histogram_bounds(bin, &low, &high);
    assert_true(low <= v && v <= high);
    assert_true(high - low <= low / 8);
  }
}

static void test_bounds_leave_no_gap(void **state) {
  (void)state;
  uint64_t next = 0, low, high;
  for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
    histogram_bounds(bin, &low, &high);
    if (high < low)
      continue; /* holds no whole number */
    assert_true(low == next);
    assert_int_equal(histogram_bin(low), bin);
    assert_int_equal(histogram_bin(high), bin);
    next = high + 1;
  }
  assert_true(next == 0); /* ran over: up to the last one */
}

static void test_pack(void **state) {
  (void)state;
  uint32_t counts[HISTOGRAM_BINS];
  uint64_t back[HISTOGRAM_BINS], twice[HISTOGRAM_BINS];
  uint8_t packed[HISTOGRAM_PACKED_MAX];
  for (int round = 0; round < 200; round++) {
    for (int i = 0; i < HISTOGRAM_BINS; i++)
      counts[i] = random64() % (unsigned)(round + 1) ? 0 : (uint32_t)(random64() >> (random64() % 32 + 32));
    if (round == 0)
      for (int i = 0; i < HISTOGRAM_BINS; i++)
        counts[i] = UINT32_MAX;
    size_t len = histogram_pack(counts, packed);
    assert_true(len <= sizeof packed);
    memset(back, 0, sizeof back);
    assert_int_equal(histogram_add_packed(back, packed, len), 0);
    for (int i = 0; i < HISTOGRAM_BINS; i++)
      assert_true(back[i] == counts[i]);
    memcpy(twice, back, sizeof twice);
    assert_int_equal(histogram_add_packed(twice, packed, len), 0);
    for (int i = 0; i < HISTOGRAM_BINS; i++)
      assert_true(twice[i] == 2 * back[i]);
  }
}

static void test_pack_of_nothing(void **state) {
  (void)state;
  uint32_t counts[HISTOGRAM_BINS] = {0};
  uint64_t back[HISTOGRAM_BINS] = {0};
  uint8_t packed[HISTOGRAM_PACKED_MAX];
  assert_int_equal(histogram_pack(counts, packed), 0);
  assert_int_equal(histogram_add_packed(back, packed, 0), 0);
  assert_int_equal(histogram_add_packed(back, NULL, 0), 0);
  assert_int_equal(histogram_quantile(back, 0.5, 0, UINT64_MAX), 0);
}

static void test_hostile(void **state) {
  (void)state;
  static const uint8_t beyond[] = {0x80, 0x04, 1, 1, 1}; /* bin 512, then 513 */
  static const uint8_t half[] = {5}, cut[] = {5, 0x80},
                       huge[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 1};
  uint64_t counts[HISTOGRAM_BINS] = {0};
  assert_int_equal(histogram_add_packed(counts, beyond, sizeof beyond), -EBADMSG);
  assert_int_equal(histogram_add_packed(counts, half, sizeof half), -EBADMSG);
  assert_int_equal(histogram_add_packed(counts, cut, sizeof cut), -EBADMSG);
  assert_int_equal(histogram_add_packed(counts, huge, sizeof huge), -EBADMSG);
  for (int i = 0; i < HISTOGRAM_BINS; i++)
    assert_true(counts[i] == 0);
  assert_int_equal(histogram_add_packed(counts, beyond, 3), 0);
  assert_true(counts[512] == 1);
  static const uint8_t most[] = {0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
  assert_int_equal(histogram_add_packed(counts, most, sizeof most), 0);
  assert_int_equal(histogram_add_packed(counts, most, sizeof most), 0);
  assert_true(counts[0] == UINT64_MAX);
  uint8_t bytes[40];
  for (int round = 0; round < 50000; round++) {
    for (size_t i = 0; i < sizeof bytes; i++)
      bytes[i] = (uint8_t)(random64() >> (random64() % 2 ? 56 : 60));
    (void)histogram_add_packed(counts, bytes, random64() % sizeof bytes); /* only that nothing breaks */
  }
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void test_quantiles(void **state) {
  (void)state;
  enum { N = 10001 };
  static uint64_t values[N];
  uint64_t counts[HISTOGRAM_BINS] = {0};
  for (int i = 0; i < N; i++) {
    values[i] = (uint64_t)exp((double)(random64() >> 11) / 9007199254740992.0 * 20);
    counts[histogram_bin(values[i])]++;
  }
  qsort(values, N, sizeof *values, by_value);
  static const double parts[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    size_t rank = (size_t)ceil(parts[i] * N);
    uint64_t exact = values[rank ? rank - 1 : 0];
    uint64_t got = histogram_quantile(counts, parts[i], values[0], values[N - 1]);
    assert_int_equal(histogram_bin(got), histogram_bin(exact));
    assert_true(got >= values[0] && got <= values[N - 1]);
  }
  uint64_t least = histogram_quantile(counts, -1, 0, UINT64_MAX), most = histogram_quantile(counts, 2, 0, UINT64_MAX);
  assert_true(least <= values[0] && histogram_bin(most) == histogram_bin(values[N - 1]));
  assert_true(histogram_quantile(counts, NAN, 0, UINT64_MAX) <= most);
}

static void test_quantile_of_one(void **state) {
  (void)state;
  uint64_t counts[HISTOGRAM_BINS] = {0};
  counts[histogram_bin(1000)] = 1;
  assert_true(histogram_quantile(counts, 0.5, 1000, 1000) == 1000); /* known exactly by its limits */
  counts[histogram_bin(1000)] = 0;
  counts[HISTOGRAM_BINS - 1] = UINT64_MAX;
  assert_int_equal(histogram_bin(histogram_quantile(counts, 0.5, 0, UINT64_MAX)), HISTOGRAM_BINS - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bins),
      cmocka_unit_test(test_bounds_leave_no_gap),
      cmocka_unit_test(test_pack),
      cmocka_unit_test(test_pack_of_nothing),
      cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_quantiles),
      cmocka_unit_test(test_quantile_of_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
