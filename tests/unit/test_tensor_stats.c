// links: proto/tensor_stats.c proto/tensor_scalar.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor_stats.h"

enum { MOST = 5 * TENSOR_BLOCK + 77 };

static uint64_t seed;

static uint64_t random64(void) { /* xorshift: the same numbers in each run */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}

static double uniform(void) { /* 0..1 */
  return (double)(random64() >> 11) * 0x1p-53;
}

static double normal(void) {
  return sqrt(-2 * log(uniform() + 0x1p-54)) * cos(2 * M_PI * uniform());
}

/* ---- a reference that shares nothing with what is tested: long double, number by number ---- */

static double half_decoded(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double x = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                            : ldexp(fraction, -24);
  return h >> 15 ? -x : x;
}

static double decoded(enum tensor_dtype dtype, const uint8_t *data, size_t i) {
  union {
    float f32;
    double f64;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
  } x = {0};
  memcpy(&x, data + i * tensor_size(dtype), tensor_size(dtype));
  switch (dtype) {
  case TENSOR_F32:
    return (double)x.f32;
  case TENSOR_F64:
    return x.f64;
  case TENSOR_F16:
    return half_decoded(x.u16);
  case TENSOR_BF16:
    x.u32 = (uint32_t)x.u16 << 16;
    return (double)x.f32;
  case TENSOR_I8:
    return x.i8;
  case TENSOR_I16:
    return x.i16;
  case TENSOR_I32:
    return x.i32;
  case TENSOR_I64:
    return (double)x.i64;
  case TENSOR_U8:
    return x.u8;
  case TENSOR_U16:
    return x.u16;
  case TENSOR_U32:
    return x.u32;
  case TENSOR_U64:
    return (double)x.u64;
  case TENSOR_BOOL:
    return x.u8 != 0;
  default:
    fail();
    return 0;
  }
}

static void reference_histogram(enum tensor_dtype dtype, const uint8_t *data, size_t n, struct tensor_stats *r) {
  volatile double factor = 1, width = r->max - r->min, scale = 16 / width; /* volatile: each step rounded to a double */
  if (r->min == r->max) {
    r->histogram[0] = r->count - r->nans - r->infs - r->neg_infs;
    return;
  }
  if (isinf(width))
    factor = 0.5;
  else if (isinf(scale))
    factor = 0x1p600;
  volatile double low = r->min * factor, high = r->max * factor;
  width = high - low;
  scale = 16 / width;
  for (size_t i = 0; i < n; i++) {
    volatile double x = decoded(dtype, data, i), from, bin;
    if (!isfinite(x))
      continue;
    x = x * factor;
    from = x - low;
    bin = from * scale;
    r->histogram[bin >= 15 ? 15 : (int)bin]++;
  }
}

static void reference(enum tensor_dtype dtype, const uint8_t *data, size_t n, struct tensor_stats *r) {
  long double sum = 0, squares = 0, m2 = 0;
  size_t finite = 0;
  *r = (struct tensor_stats){.count = n, .min = INFINITY, .max = -INFINITY};
  for (size_t i = 0; i < n; i++) {
    double x = decoded(dtype, data, i);
    r->nans += isnan(x) != 0;
    r->infs += x == (double)INFINITY;
    r->neg_infs += x == -(double)INFINITY;
    r->zeros += x == 0;
    if (!isfinite(x))
      continue;
    finite++;
    sum += (long double)x;
    squares += (long double)x * (long double)x;
    r->min = fmin(r->min, x);
    r->max = fmax(r->max, x);
    if (x != 0) {
      int bin = (int)floor((ilogb(x) + 48) / 2.0);
      r->magnitude[bin < 0 ? 0 : bin > 31 ? 31 : bin]++;
    }
  }
  long double mean = sum / (long double)finite;
  for (size_t i = 0; i < n; i++) {
    double x = decoded(dtype, data, i);
    if (isfinite(x))
      m2 += ((long double)x - mean) * ((long double)x - mean);
  }
  r->mean = (double)mean;
  r->std = r->min == r->max ? 0 : (double)sqrtl(m2 / (long double)finite);
  r->norm = (double)sqrtl(squares);
  if (!finite)
    r->mean = r->std = r->min = r->max = r->norm = NAN;
  else
    reference_histogram(dtype, data, n, r);
}

/* ---- comparing ---- */

static const char *const levels[] = {"scalar", "AVX2", "AVX-512"};

static void close_to(double x, double expected, double within, const char *what, const char *where) {
  if (isnan(expected) ? isnan(x) : x == expected || fabs(x - expected) <= within)
    return;
  fail_msg("%s: %s is %.17g, not %.17g (off by %.3g, allowed %.3g)", where, what, x, expected, fabs(x - expected), within);
}

static void same(uint64_t x, uint64_t expected, const char *what, int i, const char *where) {
  if (x != expected)
    fail_msg("%s: %s[%d] is %llu, not %llu", where, what, i, (unsigned long long)x, (unsigned long long)expected);
}

static void compare(const struct tensor_stats *s, const struct tensor_stats *r, const char *where) {
  double finite = (double)(r->count - r->nans - r->infs - r->neg_infs), rms = r->norm / sqrt(finite);
  same(s->count, r->count, "count", 0, where);
  same(s->nans, r->nans, "nans", 0, where);
  same(s->infs, r->infs, "infs", 0, where);
  same(s->neg_infs, r->neg_infs, "neg_infs", 0, where);
  same(s->zeros, r->zeros, "zeros", 0, where);
  close_to(s->min, r->min, 0, "min", where);
  close_to(s->max, r->max, 0, "max", where);
  close_to(s->mean, r->mean, 1e-12 * fabs(r->mean) + 1e-15 * rms, "mean", where);
  /* what has no spread has none; else a distance from the mean is no more exact than the mean, which is a double */
  close_to(s->std, r->std, r->min == r->max ? 0 : 1e-12 * r->std + (r->std < 1e-6 * rms ? 1e-16 * rms : 0), "std", where);
  close_to(s->norm, r->norm, 1e-12 * r->norm, "norm", where);
  for (int i = 0; i < TENSOR_BINS; i++)
    same(s->histogram[i], r->histogram[i], "histogram", i, where);
  for (int i = 0; i < TENSOR_MAGNITUDES; i++)
    same(s->magnitude[i], r->magnitude[i], "magnitude", i, where);
}

/* In pieces of the given number of blocks; 0: of random ones. */
static void statistics(enum tensor_dtype dtype, const uint8_t *data, size_t n, size_t blocks, struct tensor_stats *stats) {
  struct tensor_pass pass;
  tensor_pass_begin(&pass, dtype);
  for (int turn = 0; turn < 2; turn++) {
    for (size_t i = 0, piece; i < n; i += piece) {
      piece = (blocks ? blocks : 1 + random64() % 3) * TENSOR_BLOCK;
      piece = piece < n - i ? piece : n - i;
      (turn ? tensor_pass_histogram : tensor_pass_moments)(&pass, data + i * tensor_size(dtype), piece);
    }
    if (!turn)
      tensor_pass_turn(&pass);
  }
  *stats = pass.stats;
}

/* At an address that suits nothing, next to what may not be read. */
static const uint8_t *displaced(enum tensor_dtype dtype, const void *data, size_t n) {
  static uint8_t *copy;
  size_t bytes = n * tensor_size(dtype);
  free(copy);
  copy = malloc(bytes + 1);
  assert_non_null(copy);
  memcpy(copy + 1, data, bytes);
  return copy + 1;
}

static void check(enum tensor_dtype dtype, const void *data, size_t n, const char *name) {
  struct tensor_stats r, s, again;
  const uint8_t *at = displaced(dtype, data, n);
  char where[160];
  reference(dtype, data, n, &r);
  for (enum tensor_level level = TENSOR_SCALAR; level <= TENSOR_AVX512; level++) {
    if (tensor_level_set(level))
      continue;
    snprintf(where, sizeof where, "%zu %s of %s, %s", n, tensor_dtype_name(dtype), name, levels[level]);
    statistics(dtype, at, n, SIZE_MAX / TENSOR_BLOCK, &s);
    compare(&s, &r, where);
    statistics(dtype, at, n, 0, &again);
    if (memcmp(&s, &again, sizeof s) != 0)
      fail_msg("%s: the result depends on how the numbers come in pieces", where);
  }
}

/* ---- numbers ---- */

static uint16_t half_encoded(double x) { /* the nearest, or thereabouts */
  if (isnan(x))
    return 0x7e01;
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  x = fabs(x);
  if (x >= 65520)
    return sign | 0x7c00;
  int e = x < 0x1p-14 ? -14 : ilogb(x);
  return sign | (uint16_t)((x < 0x1p-14 ? 0 : e + 14) * 1024 + (int)nearbyint(ldexp(x, 10 - e)));
}

static void encode(enum tensor_dtype dtype, void *data, size_t i, double x) {
  uint8_t *p = (uint8_t *)data + i * tensor_size(dtype);
  float single = (float)x;
  uint16_t half = half_encoded(x);
  uint32_t word;
  if (dtype == TENSOR_F16)
    memcpy(p, &half, 2);
  else if (dtype == TENSOR_F32)
    memcpy(p, &single, 4);
  else if (dtype == TENSOR_F64)
    memcpy(p, &x, 8);
  else {
    memcpy(&word, &single, 4);
    half = (uint16_t)(word >> 16);
    memcpy(p, &half, 2);
  }
}

static const enum tensor_dtype floats[] = {TENSOR_F32, TENSOR_F64, TENSOR_F16, TENSOR_BF16};
static const size_t lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 1000, TENSOR_BLOCK - 1, TENSOR_BLOCK, TENSOR_BLOCK + 1, MOST};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static double from_normal(size_t i) {
  (void)i;
  return 0.02 * normal();
}
static double from_uniform(size_t i) {
  (void)i;
  return uniform();
}
static double from_constant(size_t i) {
  (void)i;
  return 0.1;
}
static double from_zeros(size_t i) {
  return i % 3 ? 0 : i % 2 ? -0.0 : normal();
}
static double from_nothing(size_t i) {
  return i % 2 ? 0 : -0.0;
}
static double from_ones(size_t i) { /* of a norm's weights */
  return i % 7 ? 1 : 1 + 0.001 * normal();
}
static double from_far(size_t i) {
  (void)i;
  return 1000 + 1000 / 3.5e4 * normal();
}
static double from_outlier(size_t i) { /* first, and far from all others */
  return i ? normal() : 3e4;
}
static double from_drift(size_t i) {
  return (double)i + normal();
}
static double from_octaves(size_t i) {
  return (i & 1 ? -1 : 1) * exp2(-30 + 45 * uniform());
}
static double from_edges(size_t i) { /* of the bins */
  return i < 2 ? (i ? 16 : 0) : (double)(random64() % 17);
}
static double from_near_edges(size_t i) {
  return i < 2 ? (i ? 1 : -1) : -1 + (double)(random64() % 16) / 8 + ((double)(random64() % 5) - 2) * 0x1p-24;
}
static double from_others(size_t i) {
  static const double others[] = {NAN, INFINITY, -INFINITY, 0, -NAN};
  (void)i;
  return random64() % 10 ? normal() : others[random64() % 5];
}
static double from_only_others(size_t i) {
  return i % 3 ? NAN : i % 2 ? INFINITY : -INFINITY;
}
static double from_one_finite(size_t i) {
  return i ? NAN : -2.5;
}

#define FROM(name)                                                                                                             \
  { #name, from_##name }
static const struct {
  const char *name;
  double (*number)(size_t i);
} sources[] = {FROM(normal), FROM(uniform),    FROM(constant), FROM(zeros),       FROM(nothing),
               FROM(ones),   FROM(far),        FROM(outlier),  FROM(drift),       FROM(octaves),
               FROM(edges),  FROM(near_edges), FROM(others),   FROM(only_others), FROM(one_finite)};

static void test_floats(void **state) {
  (void)state;
  static double data[MOST];
  for (size_t t = 0; t < sizeof floats / sizeof floats[0]; t++)
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++)
      for (size_t k = 0; k < LENGTHS; k++) {
        for (size_t i = 0; i < lengths[k]; i++)
          encode(floats[t], data, i, sources[s].number(i));
        check(floats[t], data, lengths[k], sources[s].name);
      }
}

/* Ends of the range: neither squares nor the range itself may run over, nor what is small vanish. */
static void test_range_of_types(void **state) {
  (void)state;
  static double data[MOST];
  static const struct {
    double scale;
    const char *name;
  } scales[] = {{DBL_MAX / 8, "huge"},   {0x1p700, "2^700"},      {0x1p481, "2^481"},         {0x1p479, "2^479"},
                {0x1p-399, "2^-399"},    {0x1p-401, "2^-401"},    {0x1p-700, "2^-700"},       {DBL_MIN, "the least normal"},
                {0x1p-1060, "denormal"}, {0x1p-1070, "smallest"}, {FLT_MAX / 8, "huge"},      {FLT_MIN, "the least normal"},
                {0x1p-140f, "denormal"}, {0x1p-147, "smallest"},  {0x1p-20, "half denormal"}, {8000, "huge half"}};
  for (size_t t = 0; t < sizeof floats / sizeof floats[0]; t++)
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
      for (size_t k = 0; k < LENGTHS; k++) {
        for (size_t i = 0; i < lengths[k]; i++) {
          double x = normal();
          encode(floats[t], data, i, scales[s].scale * (x > 8 ? 8 : x < -8 ? -8 : x));
        }
        check(floats[t], data, lengths[k], scales[s].name);
      }
}

static void test_extremes(void **state) {
  (void)state;
  static double doubles[MOST];
  static float singles[MOST];
  for (size_t i = 0; i < MOST; i++) {
    doubles[i] = i % 2 ? DBL_MAX : -DBL_MAX;
    singles[i] = i % 2 ? FLT_MAX : -FLT_MAX;
  }
  struct tensor_stats stats;
  for (enum tensor_level level = TENSOR_SCALAR; level <= TENSOR_AVX512; level++) {
    if (tensor_level_set(level))
      continue;
    statistics(TENSOR_F64, (uint8_t *)doubles, 1000, 1, &stats);
    close_to(stats.std, DBL_MAX, DBL_MAX * 1e-12, "std", "largest doubles");
    assert_true(isinf(stats.norm)); /* more than a double holds */
    assert_int_equal(stats.histogram[0], 500);
    assert_int_equal(stats.histogram[15], 500);
  }
  check(TENSOR_F64, doubles, 1, "largest");
  check(TENSOR_F32, singles, MOST, "largest");
  for (size_t i = 0; i < MOST; i++)
    doubles[i] = i % 3 ? DBL_MAX : DBL_MAX / 2;
  statistics(TENSOR_F64, (uint8_t *)doubles, MOST, 1, &stats);
  close_to(stats.mean, DBL_MAX / 6 * 5, DBL_MAX * 1e-4, "mean", "largest doubles");
}

/* Blocks of all sizes after each other: units change on the way, and what is left of the small ones does not matter. */
static void test_units(void **state) {
  (void)state;
  static double data[MOST];
  static const double ladder[] = {0x1p-1070, 0x1p-600, 0x1p-200, 1, 0x1p300, 0x1p600, 0x1p1000};
  for (int round = 0; round < 40; round++) {
    double scale = 1;
    for (size_t i = 0; i < MOST; i++) {
      if (i % TENSOR_BLOCK == 0)
        scale = round < 7 ? ladder[(i / TENSOR_BLOCK + (size_t)round) % 7] : ladder[random64() % 7];
      data[i] = scale * (1 + uniform());
    }
    check(TENSOR_F64, data, MOST, "all units");
  }
}

/* All bits there are: every kind of NaN, denormals, integers from end to end. */
static void test_random_bits(void **state) {
  (void)state;
  static uint64_t data[MOST];
  for (int dtype = TENSOR_NONE + 1; dtype < TENSOR_DTYPES; dtype++)
    for (size_t k = 0; k < LENGTHS; k++) {
      for (size_t i = 0; i < MOST; i++)
        data[i] = random64();
      check((enum tensor_dtype)dtype, data, lengths[k], "random bits");
    }
}

static void test_small_integers(void **state) {
  (void)state;
  static uint64_t data[MOST];
  for (int dtype = TENSOR_I8; dtype < TENSOR_DTYPES; dtype++)
    for (size_t k = 0; k < LENGTHS; k++) {
      size_t size = tensor_size((enum tensor_dtype)dtype);
      for (size_t i = 0; i < lengths[k]; i++) {
        int64_t x = (int64_t)(random64() % 5) - 2;
        memcpy((uint8_t *)data + i * size, &x, size);
      }
      check((enum tensor_dtype)dtype, data, lengths[k], "-2..2");
    }
}

/* Integers beyond 2^53 are compared as the doubles nearest to them. */
static void test_large_integers(void **state) {
  (void)state;
  static uint64_t data[MOST];
  for (size_t i = 0; i < MOST; i++)
    data[i] = (1ull << 62) - 16 + random64() % 32;
  check(TENSOR_I64, data, MOST, "about 2^62");
  check(TENSOR_U64, data, MOST, "about 2^62");
  for (size_t i = 0; i < MOST; i++)
    data[i] = UINT64_MAX - random64() % 5000;
  check(TENSOR_U64, data, MOST, "the largest");
}

/* Another rounding, flushed denormals and traps of the thread's own change nothing, and are as they were afterwards. */
static void test_mode_of_the_thread(void **state) {
  (void)state;
  static float data[MOST];
  for (size_t i = 0; i < MOST; i++)
    data[i] = i % 2 ? 0x1p-140f * (float)uniform() : i % 5 ? 1e-38f * (float)normal() : NAN;
#if defined __x86_64__
  struct tensor_stats plain, other;
  for (enum tensor_level level = TENSOR_SCALAR; level <= TENSOR_AVX512; level++) {
    if (tensor_level_set(level))
      continue;
    statistics(TENSOR_F32, (uint8_t *)data, MOST, 1, &plain);
    unsigned mode = __builtin_ia32_stmxcsr(), odd = 0x1f80 & ~0x80u; /* invalid operations trap */
    odd |= 0x8040 | 0x6000;                                          /* flush denormals, both ways; round to zero */
    __builtin_ia32_ldmxcsr(odd);
    statistics(TENSOR_F32, (uint8_t *)data, MOST, 1, &other);
    unsigned after = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(mode);
    assert_int_equal(after, odd); /* no flag of an exception either */
    assert_memory_equal(&plain, &other, sizeof plain);
  }
#endif
  check(TENSOR_F32, data, MOST, "denormals");
}

/* Between the passes the numbers may change: what is out of range then is in the outer bins, NaN in none. */
static void test_changed_between(void **state) {
  (void)state;
  static float data[TENSOR_BLOCK + 5];
  enum { N = sizeof data / sizeof data[0] };
  for (enum tensor_level level = TENSOR_SCALAR; level <= TENSOR_AVX512; level++) {
    if (tensor_level_set(level))
      continue;
    struct tensor_pass pass;
    for (size_t i = 0; i < N; i++)
      data[i] = (float)uniform();
    tensor_pass_begin(&pass, TENSOR_F32);
    tensor_pass_moments(&pass, data, N);
    tensor_pass_turn(&pass);
    for (size_t i = 0; i < N; i++)
      data[i] = i % 4 == 0 ? NAN : i % 4 == 1 ? -1e30f * (float)i : i % 4 == 2 ? 3 + (float)i * 1e20f : 0.5f;
    tensor_pass_histogram(&pass, data, N);
    assert_int_equal(pass.stats.histogram[0], (N + 2) / 4);
    assert_int_equal(pass.stats.histogram[15], (N + 1) / 4);
    uint64_t all = 0;
    for (int i = 0; i < TENSOR_BINS; i++)
      all += pass.stats.histogram[i];
    assert_int_equal(all, N - (N + 3) / 4);
  }
}

static void test_nothing(void **state) {
  (void)state;
  struct tensor_pass pass;
  for (int dtype = TENSOR_NONE; dtype <= TENSOR_DTYPES; dtype++) {
    tensor_pass_begin(&pass, (enum tensor_dtype)dtype);
    tensor_pass_turn(&pass);
    assert_false(tensor_pass_needs_histogram(&pass));
    assert_int_equal(pass.stats.count, 0);
    assert_true(isnan(pass.stats.mean) && isnan(pass.stats.std) && isnan(pass.stats.min) && isnan(pass.stats.max));
    assert_true(isnan(pass.stats.norm));
  }
}

static void test_types(void **state) {
  (void)state;
  assert_int_equal(tensor_size(TENSOR_NONE), 0);
  assert_int_equal(tensor_size(TENSOR_DTYPES), 0);
  assert_int_equal(tensor_size((enum tensor_dtype) - 1), 0);
  assert_null(tensor_dtype_name(TENSOR_NONE));
  assert_null(tensor_dtype_safetensors((enum tensor_dtype)200));
  assert_string_equal(tensor_dtype_name(TENSOR_BF16), "bfloat16");
  assert_string_equal(tensor_dtype_safetensors(TENSOR_BF16), "BF16");
  for (int dtype = TENSOR_NONE + 1; dtype < TENSOR_DTYPES; dtype++) {
    assert_true(tensor_size((enum tensor_dtype)dtype) > 0);
    assert_non_null(tensor_dtype_name((enum tensor_dtype)dtype));
    assert_non_null(tensor_dtype_safetensors((enum tensor_dtype)dtype));
  }
  enum tensor_level best = tensor_level();
  assert_int_equal(tensor_level_set(TENSOR_SCALAR), 0);
  assert_int_equal(tensor_level(), TENSOR_SCALAR);
  assert_int_equal(tensor_level_set((enum tensor_level)(TENSOR_AVX512 + 1)), -ENOTSUP);
  assert_int_equal(tensor_level_set(best), 0);
}

static int begin(void **state) {
  (void)state;
  seed = 20;
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_types, begin),
      cmocka_unit_test_setup(test_floats, begin),
      cmocka_unit_test_setup(test_range_of_types, begin),
      cmocka_unit_test_setup(test_extremes, begin),
      cmocka_unit_test_setup(test_units, begin),
      cmocka_unit_test_setup(test_random_bits, begin),
      cmocka_unit_test_setup(test_small_integers, begin),
      cmocka_unit_test_setup(test_large_integers, begin),
      cmocka_unit_test_setup(test_mode_of_the_thread, begin),
      cmocka_unit_test_setup(test_changed_between, begin),
      cmocka_unit_test_setup(test_nothing, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
