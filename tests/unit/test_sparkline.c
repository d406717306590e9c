// links: tools/sparkline.c tools/buf.c
/* Heights of sparklines: order is kept, the ends are the ends, and what is no number does not move the others. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "tools/sparkline.h"

#define AT(v)                                                                                                                  \
  { .known = true, .value = (v) }
#define BAD(v)                                                                                                                 \
  { .known = true, .bad = true, .value = (v) }

static void draws(const struct sparkline_point *points, size_t n, const char *want) {
  struct buf out = {0};
  sparkline_values(points, n, false, &out);
  assert_string_equal(buf_text(&out), want);
  buf_fini(&out);
}
#define DRAWS(want, ...)                                                                                                       \
  draws((const struct sparkline_point[]){__VA_ARGS__},                                                                         \
        sizeof((const struct sparkline_point[]){__VA_ARGS__}) / sizeof(struct sparkline_point), want)

static void values(void **state) {
  (void)state;
  DRAWS("_.:-=+*#", AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7));
  DRAWS("#_", AT(-1), AT(-9));
  DRAWS("_", AT(0));
  DRAWS("___", AT(0), AT(0), AT(0));
  DRAWS("_!#", AT(1), BAD(2), AT(3));
  DRAWS("_!!#", AT(1), AT(INFINITY), AT(-INFINITY), AT(2));
  DRAWS("_  #", AT(1), {0}, AT(NAN), AT(2));
  DRAWS(" ! ", {0}, BAD(NAN), {0});
  DRAWS("_#", AT(-DBL_MAX), AT(DBL_MAX));
  DRAWS("_#", AT(5e-324), AT(DBL_MIN));
  draws(NULL, 0, "");
}

static void nearly_level(void **state) {
  struct buf out = {0};
  (void)state;
  sparkline_values((const struct sparkline_point[]){AT(1000), AT(1000.5), AT(1001)}, 3, false, &out);
  for (size_t i = 0; i < 3; i++)
    assert_non_null(strchr("-=", buf_text(&out)[i])); /* in the middle, not over the full height */
  buf_fini(&out);
}

static void counts(void **state) {
  const uint64_t bins[] = {0, 1, 500, 1000, 0, UINT64_MAX}, few[] = {0, 1, 2, 3, 0, 6};
  struct buf out = {0};
  (void)state;
  sparkline_counts(few, 6, 1, false, &out);
  assert_string_equal(buf_text(&out), "_:-=_#");
  buf_clear(&out);
  sparkline_counts(bins, 6, 1, false, &out);
  assert_string_equal(buf_text(&out), "_..._#");
  buf_clear(&out);
  sparkline_counts(few, 6, 2, false, &out);
  assert_string_equal(buf_text(&out), ":*#");
  buf_clear(&out);
  sparkline_counts(few, 1, 1, false, &out);
  assert_string_equal(buf_text(&out), "_");
  buf_clear(&out);
  sparkline_counts(few, 6, 6, true, &out);
  assert_string_equal(buf_text(&out), "█");
  buf_fini(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(nearly_level), cmocka_unit_test(counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
