/* The kernels of tensor_kernel.h with AVX2. 32 numbers go round at a time: in four registers of floats, or eight of doubles.
 *
 * The bins of a block's numbers are written to a buffer, a byte each, and counted by comparing them with each bin that occurs.
 */
#if defined __x86_64__
#include "tensor_kernel.h"

#include <immintrin.h>
#include <stdbool.h>

#define TARGET __attribute__((target("avx2,fma,f16c,popcnt")))
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNLIKELY(x) __builtin_expect(x, 0)
/* Short loops over registers: unrolled early, or their arrays stay in memory. */
#define UNROLL _Pragma("GCC unroll 8")

enum { AT_ONCE = 32 };

/* ---- numbers ---- */

/* Held exactly by a float32. `type` is a constant wherever this is called. */
#define IS_NARROW(type) ((type) != TENSOR_F64)
#define SIZE_OF(type) ((type) == TENSOR_F64 ? 8u : (type) == TENSOR_F32 ? 4u : 2u)
#define AT(type, data, i) ((const uint8_t *)(data) + (size_t)(i)*SIZE_OF(type))

INLINE __m256 load8(enum tensor_dtype type, const void *data, size_t i) {
  const void *p = AT(type, data, i);
  return type == TENSOR_F16 ? _mm256_cvtph_ps(_mm_loadu_si128(p)) : _mm256_loadu_ps(p);
}

/* 32 numbers, in some order. */
INLINE void load32(enum tensor_dtype type, const void *data, size_t i, __m256 x[4]) {
  if (type == TENSOR_BF16) { /* the upper halves of words, and the lower ones */
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    UNROLL
    for (int k = 0; k < 4; k += 2) {
      __m256i words = _mm256_loadu_si256((const void *)AT(type, data, i + 8 * (size_t)k));
      x[k] = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
      x[k + 1] = _mm256_castsi256_ps(_mm256_and_si256(words, upper));
    }
    return;
  }
  UNROLL
  for (int k = 0; k < 4; k++)
    x[k] = load8(type, data, i + 8 * (size_t)k);
}

INLINE __m256d load4(enum tensor_dtype type, const void *data, size_t i) {
  const void *p = AT(type, data, i);
  switch (type) {
  case TENSOR_F32:
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
  case TENSOR_F16:
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(p)));
  case TENSOR_BF16:
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64(p)), 16)));
  default:
    return _mm256_loadu_pd(p);
  }
}

/* All ones where a number is not finite. */
INLINE __m256 others_ps(__m256 x) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(x), exponent), exponent));
}

INLINE __m256d others_pd(__m256d x) {
  const __m256i exponent = _mm256_set1_epi64x(0x7ff0000000000000);
  return _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(_mm256_castpd_si256(x), exponent), exponent));
}

/* ---- counting ---- */

INLINE uint32_t bytes_total(__m256i counts) {
  uint64_t sums[4];
  _mm256_storeu_si256((__m256i *)sums, _mm256_sad_epu8(counts, _mm256_setzero_si256()));
  return (uint32_t)(sums[0] + sums[1] + sums[2] + sums[3]);
}

enum { COUNTED_AT_ONCE = 8 };
_Static_assert(TENSOR_BLOCK / AT_ONCE < 256, "a byte counts a block's");

/* counts[bin - base] of those from first to last. */
INLINE void bytes_count(const uint8_t *bin, size_t n, unsigned first, unsigned last, unsigned base, uint32_t *counts) {
  for (unsigned from = first; from <= last; from += COUNTED_AT_ONCE) {
    __m256i sum[COUNTED_AT_ONCE], of[COUNTED_AT_ONCE];
    UNROLL
    for (int k = 0; k < COUNTED_AT_ONCE; k++) {
      sum[k] = _mm256_setzero_si256();
      of[k] = _mm256_set1_epi8((char)(from + (unsigned)k));
    }
    for (size_t i = 0; i < n; i += AT_ONCE) {
      __m256i b = _mm256_load_si256((const __m256i *)(bin + i));
      UNROLL
      for (int k = 0; k < COUNTED_AT_ONCE; k++)
        sum[k] = _mm256_sub_epi8(sum[k], _mm256_cmpeq_epi8(b, of[k]));
    }
    UNROLL
    for (int k = 0; k < COUNTED_AT_ONCE; k++)
      if (from + (unsigned)k <= last)
        counts[from + (unsigned)k - base] += bytes_total(sum[k]);
  }
}

INLINE unsigned least_of(__m256i bytes) {
  __m128i x = _mm_min_epu8(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  x = _mm_min_epu8(x, _mm_srli_epi16(x, 8));
  return (unsigned)_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(x, _mm_set1_epi16(0xff)))) & 0xff;
}

INLINE unsigned most_of(__m256i bytes) {
  return 0xff - least_of(_mm256_xor_si256(bytes, _mm256_set1_epi8(-1)));
}

/* Four registers of words, 0..255 each, as one of bytes, in some order. */
INLINE __m256i bytes_of(__m256i a, __m256i b, __m256i c, __m256i d) {
  return _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
}

/* ---- moments ---- */

/* Bytes are half of a float's exponent plus one; 40 is bin 0. */
enum { BIN_0 = 40 };

struct magnitudes {
  _Alignas(32) uint8_t bin[TENSOR_BLOCK];
  __m256i least, most;
};

struct moments {
  __m256d sum[4], sum_sq[4];
};

INLINE void moments_begin(struct moments *m) {
  UNROLL
  for (int i = 0; i < 4; i++)
    m->sum[i] = m->sum_sq[i] = _mm256_setzero_pd();
}

INLINE void moments_add(struct moments *m, int i, __m256d x) {
  m->sum[i & 3] = _mm256_add_pd(m->sum[i & 3], x);
  m->sum_sq[i & 3] = _mm256_fmadd_pd(x, x, m->sum_sq[i & 3]);
}

INLINE double total(const __m256d x[4]) {
  double lanes[4];
  _mm256_storeu_pd(lanes, _mm256_add_pd(_mm256_add_pd(x[0], x[1]), _mm256_add_pd(x[2], x[3])));
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

struct others {
  uint32_t nans, infs, neg_infs, zeros;
};

/* Counts what is not finite among 8 floats, and makes it 0 that takes no part in the range. */
INLINE void narrow_others(__m256 *x, __m256 *low, __m256 *high, struct others *o) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  __m256 others = others_ps(*x);
  unsigned odd = (unsigned)_mm256_movemask_ps(others);
  unsigned infs = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(*x, infinity, _CMP_EQ_OQ));
  unsigned neg_infs = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(*x, -infinity, _CMP_EQ_OQ));
  o->infs += (uint32_t)__builtin_popcount(infs);
  o->neg_infs += (uint32_t)__builtin_popcount(neg_infs);
  o->nans += (uint32_t)__builtin_popcount(odd & ~infs & ~neg_infs);
  *low = _mm256_min_ps(*low, _mm256_blendv_ps(*x, infinity, others));
  *high = _mm256_max_ps(*high, _mm256_blendv_ps(*x, -infinity, others));
  *x = _mm256_andnot_ps(others, *x);
}

/* Counts zeros among 32. True: there are numbers that are not finite. */
INLINE bool narrow_odd(const __m256 x[4], struct others *o) {
  __m256i zero[4], odd = _mm256_setzero_si256();
  UNROLL
  for (int k = 0; k < 4; k++) {
    zero[k] = _mm256_castps_si256(_mm256_cmp_ps(x[k], _mm256_setzero_ps(), _CMP_EQ_OQ));
    odd = _mm256_or_si256(odd, _mm256_castps_si256(others_ps(x[k])));
  }
  __m256i zeros = _mm256_packs_epi16(_mm256_packs_epi32(zero[0], zero[1]), _mm256_packs_epi32(zero[2], zero[3]));
  o->zeros += (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_epi8(zeros));
  return !_mm256_testz_si256(odd, odd);
}

INLINE void wide_others(__m256d *x, __m256d *low, __m256d *high, struct others *o) {
  const __m256d infinity = _mm256_set1_pd(__builtin_inf());
  __m256d others = others_pd(*x);
  unsigned odd = (unsigned)_mm256_movemask_pd(others);
  unsigned infs = (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(*x, infinity, _CMP_EQ_OQ));
  unsigned neg_infs = (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(*x, -infinity, _CMP_EQ_OQ));
  o->infs += (uint32_t)__builtin_popcount(infs);
  o->neg_infs += (uint32_t)__builtin_popcount(neg_infs);
  o->nans += (uint32_t)__builtin_popcount(odd & ~infs & ~neg_infs);
  *low = _mm256_min_pd(*low, _mm256_blendv_pd(*x, infinity, others));
  *high = _mm256_max_pd(*high, _mm256_blendv_pd(*x, -infinity, others));
  *x = _mm256_andnot_pd(others, *x);
}

INLINE bool wide_odd(const __m256d x[8], struct others *o) {
  __m256d odd = _mm256_setzero_pd();
  UNROLL
  for (int k = 0; k < 8; k++) {
    o->zeros +=
        (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_pd(_mm256_cmp_pd(x[k], _mm256_setzero_pd(), _CMP_EQ_OQ)));
    odd = _mm256_or_pd(odd, others_pd(x[k]));
  }
  return _mm256_movemask_pd(odd);
}

/* True: there is a number with an exponent of 0, or one that is not finite. */
INLINE bool magnitudes_add(struct magnitudes *m, size_t i, __m256i bin) {
  _mm256_store_si256((__m256i *)(m->bin + i), bin);
  m->least = _mm256_min_epu8(m->least, _mm256_add_epi8(bin, _mm256_set1_epi8(-1))); /* one less; of 0: the most there is */
  m->most = _mm256_max_epu8(m->most, bin);
  return !_mm256_testz_si256(_mm256_cmpeq_epi8(bin, _mm256_setzero_si256()), _mm256_set1_epi8(-1));
}

/* Of n numbers. Those with the exponent 0 are not counted: they are the `others`, 0 or not finite, or next to 0. */
INLINE void magnitudes_take(const struct magnitudes *m, size_t n, struct tensor_block *block, uint32_t others) {
  enum { BINS = 128 };
  uint32_t counts[BINS] = {0}, sum = 0;
  unsigned least = least_of(m->least) + 1, most = most_of(m->most);
  bytes_count(m->bin, n, least, most, 0, counts);
  for (unsigned q = least; q <= most; q++) {
    int bin = (int)q - BIN_0;
    block->magnitude[bin < 0 ? 0 : bin >= TENSOR_MAGNITUDES ? TENSOR_MAGNITUDES - 1 : bin] += counts[q];
    sum += counts[q];
  }
  block->magnitude[0] += (uint32_t)n - sum - others;
}

INLINE void narrow_chunk(enum tensor_dtype type, const void *data, size_t i, struct moments *m, struct magnitudes *magnitudes,
                         __m256 *low, __m256 *high, struct others *o) {
  const __m256i one = _mm256_set1_epi32(0x00800000), mask = _mm256_set1_epi8(0x7f);
  __m256 x[4];
  __m256i q[4];
  load32(type, data, i, x);
  UNROLL
  for (int k = 0; k < 4; k++) {
    q[k] = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x[k]), one), 24);
  }
  __m256i bin = _mm256_and_si256(bytes_of(q[0], q[1], q[2], q[3]), mask);
  bool odd = magnitudes_add(magnitudes, i, bin) && narrow_odd(x, o);
  if (UNLIKELY(odd)) {
    UNROLL
    for (int k = 0; k < 4; k++)
      narrow_others(&x[k], low, high, o);
  } else {
    UNROLL
    for (int k = 0; k < 4; k++) {
      *low = _mm256_min_ps(*low, x[k]);
      *high = _mm256_max_ps(*high, x[k]);
    }
  }
  if (type != TENSOR_F32 || UNLIKELY(odd)) {
    UNROLL
    for (int k = 0; k < 8; k++)
      moments_add(m, k, _mm256_cvtps_pd(k & 1 ? _mm256_extractf128_ps(x[k / 2], 1) : _mm256_castps256_ps128(x[k / 2])));
  } else {
    UNROLL
    for (int k = 0; k < 8; k++) /* from memory again: cheaper than the halves of a register */
      moments_add(m, k, load4(type, data, i + 4 * (size_t)k));
  }
}

/* Exponents of eight doubles, cut to the bins there are (a byte holds no more), but for 0, which has to be looked at. */
INLINE __m256i wide_exponents(__m256d x, __m256d y) {
  const __m256i one = _mm256_set1_epi32(0x00100000), mask = _mm256_set1_epi32(0x3ff);
  __m256i upper = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castpd_ps(x), _mm256_castpd_ps(y), 0xdd));
  upper = _mm256_and_si256(_mm256_srli_epi32(_mm256_add_epi32(upper, one), 21), mask);
  upper = _mm256_sub_epi32(upper, _mm256_set1_epi32(TENSOR_OCTAVES_BEFORE - BIN_0));
  return _mm256_min_epi32(_mm256_max_epi32(upper, _mm256_setzero_si256()), _mm256_set1_epi32(BIN_0 + TENSOR_MAGNITUDES - 1));
}

INLINE void wide_chunk(enum tensor_dtype type, const void *data, size_t i, struct moments *m, struct magnitudes *magnitudes,
                       __m256d *low, __m256d *high, struct others *o) {
  __m256d x[8];
  __m256i q[4];
  UNROLL
  for (int k = 0; k < 8; k++)
    x[k] = load4(type, data, i + 4 * (size_t)k);
  UNROLL
  for (int k = 0; k < 4; k++)
    q[k] = wide_exponents(x[2 * k], x[2 * k + 1]);
  if (UNLIKELY(magnitudes_add(magnitudes, i, bytes_of(q[0], q[1], q[2], q[3])) && wide_odd(x, o))) {
    UNROLL
    for (int k = 0; k < 8; k++)
      wide_others(&x[k], low, high, o);
  } else {
    UNROLL
    for (int k = 0; k < 8; k++) {
      *low = _mm256_min_pd(*low, x[k]);
      *high = _mm256_max_pd(*high, x[k]);
    }
  }
  UNROLL
  for (int k = 0; k < 8; k++)
    moments_add(m, k, x[k]);
}

INLINE double end_of(const double *lanes, int n, bool least) {
  double end = lanes[0];
  for (int i = 1; i < n; i++)
    end = (least ? lanes[i] < end : lanes[i] > end) ? lanes[i] : end;
  return end;
}

INLINE double range_end(bool narrow, __m256 x, __m256d y, bool least) {
  double lanes[8];
  if (!narrow) {
    _mm256_storeu_pd(lanes, y);
    return end_of(lanes, 4, least);
  }
  _mm256_storeu_pd(lanes, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
  _mm256_storeu_pd(lanes + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
  return end_of(lanes, 8, least);
}

INLINE void moments_of(enum tensor_dtype type, const void *data, size_t n, struct tensor_block *block) {
  struct moments m;
  struct magnitudes magnitudes;
  struct others o = {0};
  __m256 low = _mm256_set1_ps(__builtin_inff()), high = _mm256_set1_ps(-__builtin_inff());
  __m256d wide_low = _mm256_set1_pd(__builtin_inf()), wide_high = _mm256_set1_pd(-__builtin_inf());
  size_t whole = n - n % AT_ONCE;
  if (whole) {
    moments_begin(&m);
    magnitudes.least = _mm256_set1_epi8(-1);
    magnitudes.most = _mm256_setzero_si256();
    for (size_t i = 0; i < whole; i += AT_ONCE)
      if (IS_NARROW(type))
        narrow_chunk(type, data, i, &m, &magnitudes, &low, &high, &o);
      else
        wide_chunk(type, data, i, &m, &magnitudes, &wide_low, &wide_high, &o);
    block->nans += o.nans;
    block->infs += o.infs;
    block->neg_infs += o.neg_infs;
    block->zeros += o.zeros;
    magnitudes_take(&magnitudes, whole, block, o.nans + o.infs + o.neg_infs + o.zeros);
    double least = range_end(IS_NARROW(type), low, wide_low, true), most = range_end(IS_NARROW(type), high, wide_high, false);
    block->low = least < block->low ? least : block->low;
    block->high = most > block->high ? most : block->high;
    block->sum += total(m.sum);
    block->sum_sq += total(m.sum_sq);
  }
  if (n > whole)
    tensor_kernels_scalar[type].moments(AT(type, data, whole), n - whole, block);
}

INLINE void sums_of(enum tensor_dtype type, const void *data, size_t n, double factor, double pivot, bool odd, double out[2]) {
  struct moments m;
  const __m256d f = _mm256_set1_pd(factor), p = _mm256_set1_pd(pivot);
  size_t whole = n - n % AT_ONCE;
  moments_begin(&m);
  for (size_t i = 0; i < whole; i += AT_ONCE)
    UNROLL
  for (int k = 0; k < 8; k++) {
    __m256d x = load4(type, data, i + 4 * (size_t)k);
    __m256d d = type == TENSOR_F64 ? _mm256_sub_pd(_mm256_mul_pd(x, f), p) : _mm256_sub_pd(x, p);
    moments_add(&m, k, odd ? _mm256_andnot_pd(others_pd(x), d) : d);
  }
  out[0] += total(m.sum);
  out[1] += total(m.sum_sq);
  if (n > whole)
    tensor_kernels_scalar[type].sums(AT(type, data, whole), n - whole, factor, pivot, odd, out);
}

/* ---- the histogram ---- */

enum { NO_BIN = 0xff };

/* The formula as it is told. */
INLINE __m256i bins_exact(enum tensor_dtype type, const void *data, size_t i, const struct tensor_range *range) {
  const __m256d f = _mm256_set1_pd(range->factor), low = _mm256_set1_pd(range->low), scale = _mm256_set1_pd(range->scale);
  __m256i bin[4];
  UNROLL
  for (int k = 0; k < 4; k++) {
    __m128i half[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
      __m256d x = load4(type, data, i + 8 * (size_t)k + 4 * (size_t)h);
      __m256d at = type == TENSOR_F64 ? _mm256_mul_pd(x, f) : x;
      at = _mm256_mul_pd(_mm256_sub_pd(at, low), scale);
      at = _mm256_min_pd(_mm256_max_pd(at, _mm256_setzero_pd()), _mm256_set1_pd(TENSOR_BINS - 1));
      half[h] = _mm256_cvttpd_epi32(_mm256_blendv_pd(at, _mm256_set1_pd(NO_BIN), others_pd(x)));
    }
    bin[k] = _mm256_set_m128i(half[1], half[0]);
  }
  return bytes_of(bin[0], bin[1], bin[2], bin[3]);
}

/* In floats first, bins being whole multiples of 2^16. The error is less than one of those, so all that is not next to such a multiple has
 * the bin that the formula gives; next to 0 it has in any case, and many numbers may lie there. What is not finite or too large comes out as the least number. False: take the formula. */
INLINE bool bins_quick(enum tensor_dtype type, const void *data, size_t i, __m256 low, __m256 scale, __m256i *bin) {
  const __m256i fraction = _mm256_set1_epi32(0xfffe), zero = _mm256_setzero_si256();
  __m256i at[4], odd = zero;
  __m256 x[4];
  load32(type, data, i, x);
  UNROLL
  for (int k = 0; k < 4; k++) {
    at[k] = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_sub_ps(x[k], low), scale));
    __m256i next = _mm256_and_si256(_mm256_add_epi32(at[k], _mm256_set1_epi32(1)), fraction);
    odd = _mm256_or_si256(odd, _mm256_andnot_si256(_mm256_cmpeq_epi32(at[k], zero), _mm256_cmpeq_epi32(next, zero)));
    at[k] = _mm256_srai_epi32(at[k], 16);
  }
  /* signed and cut to 16 bits first, then to 0..255 */
  __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(at[0], at[1]), _mm256_packs_epi32(at[2], at[3]));
  *bin = _mm256_min_epu8(bytes, _mm256_set1_epi8(TENSOR_BINS - 1));
  return _mm256_testz_si256(odd, odd);
}

INLINE void bins_of(enum tensor_dtype type, const void *data, size_t n, const struct tensor_range *range, uint32_t counts[]) {
  _Alignas(32) uint8_t bin[TENSOR_BLOCK];
  double fixed = range->scale * 0x1p16;
  bool quick = IS_NARROW(type) && fixed >= 0x1p-126 && fixed <= 0x1p126;
  const __m256 low = _mm256_set1_ps(IS_NARROW(type) ? (float)range->low : 0), scale = _mm256_set1_ps(quick ? (float)fixed : 0);
  size_t whole = n - n % AT_ONCE;
  for (size_t i = 0; i < whole; i += AT_ONCE) {
    __m256i b;
    if (UNLIKELY(!quick || !bins_quick(type, data, i, low, scale, &b)))
      b = bins_exact(type, data, i, range);
    _mm256_store_si256((__m256i *)(bin + i), b);
  }
  if (whole)
    bytes_count(bin, whole, 0, TENSOR_BINS - 1, 0, counts);
  if (n > whole)
    tensor_kernels_scalar[type].bins(AT(type, data, whole), n - whole, range, counts);
}

#define KERNEL(type, name, size)                                                                                               \
  TARGET static void moments_##name(const void *data, size_t n, struct tensor_block *block) {                                  \
    moments_of(TENSOR_##type, data, n, block);                                                                                 \
  }                                                                                                                            \
  TARGET static void sums_##name(const void *data, size_t n, double factor, double pivot, bool odd, double out[2]) {           \
    if (odd)                                                                                                                   \
      sums_of(TENSOR_##type, data, n, factor, pivot, true, out);                                                               \
    else                                                                                                                       \
      sums_of(TENSOR_##type, data, n, factor, pivot, false, out);                                                              \
  }                                                                                                                            \
  TARGET static void bins_##name(const void *data, size_t n, const struct tensor_range *range, uint32_t counts[TENSOR_BINS]) { \
    bins_of(TENSOR_##type, data, n, range, counts);                                                                            \
  }
TENSOR_EACH_FLOAT(KERNEL)

#define ENTRY(type, name, size) [TENSOR_##type] = {moments_##name, sums_##name, bins_##name},
const struct tensor_kernel tensor_kernels_avx2[TENSOR_DTYPES] = {TENSOR_EACH_FLOAT(ENTRY)};
#endif
