// links: tools/select.c
/* Selection against sorting. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tools/select.h"

static int ascending(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void same_as_sorted(void **state) {
  (void)state;
  uint32_t seed = 1, v[200], sorted[200];
  uint64_t wide[200];
  for (int round = 0; round < 20000; round++) {
    size_t n = 1 + (size_t)round % 200;
    uint32_t values = round % 3 == 0 ? 2 : round % 3 == 1 ? 20 : UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
      seed = seed * 1664525 + 1013904223;
      v[i] = round % 7 == 0 ? (uint32_t)i : round % 7 == 1 ? (uint32_t)(n - i) : (seed >> 3) % values;
      wide[i] = (uint64_t)v[i] << 31;
    }
    memcpy(sorted, v, sizeof v);
    qsort(sorted, n, sizeof *sorted, ascending);
    size_t a = seed % n, b = a + seed / 7 % (n - a);
    assert_int_equal(select_u32(v, 0, n, a), sorted[a]);
    assert_int_equal(select_u32(v, a, n, b), sorted[b]); /* a greater rank, on what is left */
    assert_true(select_u64(wide, 0, n, b) == (uint64_t)sorted[b] << 31);
  }
}

static void ranks(void **state) {
  (void)state;
  assert_int_equal(select_rank(0, 5), 0);
  assert_int_equal(select_rank(0.5, 1), 0);
  assert_int_equal(select_rank(0.5, 4), 1);
  assert_int_equal(select_rank(0.5, 5), 2);
  assert_int_equal(select_rank(0.99, 100), 98);
  assert_int_equal(select_rank(0.99, 101), 99);
  assert_int_equal(select_rank(1, 7), 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_sorted), cmocka_unit_test(ranks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
