/* The kernels of tensor_kernel.h with AVX-512 as of Ice Lake and Zen 4. 64 numbers go round at a time: in four registers of
 * floats, or eight of doubles.
 *
 * A histogram is counted without a table in memory: each number's bin is a byte; a permutation turns it into one bit of eight; a
 * transposition of bits (GFNI) brings the bits of eight numbers together in a byte for each bin, whose population count is added to
 * bytes, which are emptied into wide counters before they can run over.
 */
#if defined __x86_64__
#include "tensor_kernel.h"

#include <immintrin.h>
#include <stdbool.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bitalg,gfni,fma,f16c,popcnt")))
#define INLINE TARGET static inline __attribute__((always_inline))
#define UNLIKELY(x) __builtin_expect(x, 0)
/* Short loops over registers: unrolled early, or their arrays stay in memory. */
#define UNROLL _Pragma("GCC unroll 8")

enum { AT_ONCE = 64, BEFORE_EMPTYING = 16 };

/* ---- numbers ---- */

/* Held exactly by a float32. `type` is a constant wherever this is called. */
#define IS_NARROW(type) ((type) != TENSOR_F64)
#define SIZE_OF(type) ((type) == TENSOR_F64 ? 8u : (type) == TENSOR_F32 ? 4u : 2u)
#define AT(type, data, i) ((const uint8_t *)(data) + (size_t)(i)*SIZE_OF(type))

INLINE __m512 load16(enum tensor_dtype type, const void *data, size_t i) {
  const void *p = AT(type, data, i);
  return type == TENSOR_F16 ? _mm512_cvtph_ps(_mm256_loadu_si256(p)) : _mm512_loadu_ps(p);
}

/* 64 numbers, in some order. */
INLINE void load64(enum tensor_dtype type, const void *data, size_t i, __m512 x[4]) {
  if (type == TENSOR_BF16) { /* the upper halves of words, and the lower ones */
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    UNROLL
    for (int k = 0; k < 4; k += 2) {
      __m512i words = _mm512_loadu_si512(AT(type, data, i + 16 * (size_t)k));
      x[k] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      x[k + 1] = _mm512_castsi512_ps(_mm512_and_si512(words, upper));
    }
    return;
  }
  UNROLL
  for (int k = 0; k < 4; k++)
    x[k] = load16(type, data, i + 16 * (size_t)k);
}

INLINE __m512d load8(enum tensor_dtype type, const void *data, size_t i) {
  const void *p = AT(type, data, i);
  switch (type) {
  case TENSOR_F32:
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
  case TENSOR_F16:
    return _mm512_cvtps_pd(_mm256_cvtph_ps(_mm_loadu_si128(p)));
  case TENSOR_BF16:
    return _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16)));
  default:
    return _mm512_loadu_pd(p);
  }
}

enum { CLASS_NAN = 0x81, CLASS_INF = 0x08, CLASS_NEG_INF = 0x10, CLASS_OTHER = CLASS_NAN | CLASS_INF | CLASS_NEG_INF };

/* ---- counting ---- */

/* Eight bins a group: of each 64 bit lane, byte i counts bin i. */
struct counter {
  __m512i bytes, wide;
};

INLINE void counter_add(struct counter *c, __m512i one_hot) {
  const __m512i identity = _mm512_set1_epi64((long long)0x8040201008040201ull);
  c->bytes = _mm512_add_epi8(c->bytes, _mm512_popcnt_epi8(_mm512_gf2p8affine_epi64_epi8(identity, one_hot, 0)));
}

INLINE void counter_empty(struct counter *c) {
  const uint64_t one = 0x0101010101010101, column = 0x3830282018100800; /* byte 0 of each lane, byte 1 of each lane... */
  const __m512i columns = _mm512_set_epi64(column + 7 * one, column + 6 * one, column + 5 * one, column + 4 * one,
                                           column + 3 * one, column + 2 * one, column + one, column);
  c->wide = _mm512_add_epi64(c->wide, _mm512_sad_epu8(_mm512_permutexvar_epi8(columns, c->bytes), _mm512_setzero_si512()));
  c->bytes = _mm512_setzero_si512();
}

INLINE void counter_take(const struct counter *c, uint32_t counts[8]) {
  uint64_t wide[8];
  _mm512_storeu_si512(wide, c->wide);
  UNROLL
  for (int i = 0; i < 8; i++)
    counts[i] += (uint32_t)wide[i];
}

/* One byte of each word of four registers, byte `which`, in some order: those of d stay where they are. */
INLINE __m512i bytes_of(__m512i a, __m512i b, __m512i c, __m512i d, int which) {
  const __m512i from = _mm512_add_epi8(_mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0), _mm512_set1_epi8((char)which));
  const __mmask64 first = 0x1111111111111111;
  d = _mm512_mask_shuffle_epi8(d, first << (which ^ 1), a, from);
  d = _mm512_mask_shuffle_epi8(d, first << (which ^ 2), b, from);
  return _mm512_mask_shuffle_epi8(d, first << (which ^ 3), c, from);
}

/* Which of 16 bins: a byte 0..15; of 0x80 and more in none. */
INLINE void pair_add(struct counter pair[2], __m512i bin) {
  const __m512i low = _mm512_set4_epi32(0, 0, (int)0x80402010, 0x08040201);
  const __m512i high = _mm512_set4_epi32((int)0x80402010, 0x08040201, 0, 0);
  counter_add(&pair[0], _mm512_shuffle_epi8(low, bin));
  counter_add(&pair[1], _mm512_shuffle_epi8(high, bin));
}

INLINE void pair_begin(struct counter pair[2]) {
  pair[0].bytes = pair[0].wide = pair[1].bytes = pair[1].wide = _mm512_setzero_si512();
}

INLINE void pair_empty(struct counter pair[2]) {
  counter_empty(&pair[0]);
  counter_empty(&pair[1]);
}

/* ---- moments ---- */

/* A number's exponent is the byte (exponent + 1) / 2 of a float, which is one for the two octaves of a bin; 40 is bin 0. Nearly all numbers
 * of a block are in 16 of the 128 there are: these are counted in registers. The others, in windows of 16 as well, where they occur. */
enum { BIN_0 = 40, WINDOWS = 8 };

struct near {
  unsigned base; /* what is subtracted of the exponent, modulo 128 */
  struct counter pair[2];
};

struct far {     /* apart, so that the others stay in registers */
  unsigned used; /* bits: windows */
  struct counter pair[WINDOWS][2];
};

/* The window ends two octaves above the largest of the first numbers. The exponent 0 is never in it, so what is 0 or not finite comes
 * to notice. */
INLINE void near_begin(struct near *m, __m512i exponents) {
  __m512i q = _mm512_and_si512(exponents, _mm512_set1_epi8(0x7f));
  __m128i most = _mm_max_epu8(_mm_max_epu8(_mm512_castsi512_si128(q), _mm512_extracti32x4_epi32(q, 1)),
                              _mm_max_epu8(_mm512_extracti32x4_epi32(q, 2), _mm512_extracti32x4_epi32(q, 3)));
  most = _mm_max_epu8(most, _mm_srli_epi16(most, 8));
  unsigned top = 0xff - (unsigned)_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_andnot_si128(most, _mm_set1_epi16(0xff))));
  m->base = top < 15 ? 1 : top > 126 ? 112 : top - 14;
  pair_begin(m->pair);
}

/* q is an exponent without the base, or with its upper bit set. Returns true where a number is in another window. */
INLINE bool magnitudes_add(struct near *near, struct far *far, __m512i q) {
  const __m512i none = _mm512_set1_epi8((char)0x80), window = _mm512_set1_epi8(0x70);
  q = _mm512_and_si512(q, _mm512_set1_epi8(0x7f));
  __mmask64 other = _mm512_test_epi8_mask(q, window);
  if (!UNLIKELY(other)) {
    pair_add(near->pair, q);
    return false;
  }
  pair_add(near->pair, _mm512_mask_mov_epi8(q, other, none));
  other &= ~_mm512_cmpeq_epi8_mask(q, _mm512_set1_epi8((char)(128 - near->base))); /* the exponent 0 is not counted */
  for (unsigned w = 1; other; w++) {
    __mmask64 here = _mm512_cmpeq_epi8_mask(_mm512_and_si512(q, window), _mm512_set1_epi8((char)(w << 4)));
    here &= other; /* nothing counted twice, nor the exponent 0 */
    if (!here)
      continue;
    other &= ~here;
    if (!(far->used & 1u << w))
      pair_begin(far->pair[w]);
    far->used |= 1u << w;
    pair_add(far->pair[w], _mm512_mask_mov_epi8(none, here, q)); /* four bits of it matter */
  }
  return true;
}

INLINE void magnitudes_empty(struct near *near, struct far *far) {
  pair_empty(near->pair);
  for (unsigned w = 1; w < WINDOWS; w++)
    if (UNLIKELY(far->used & 1u << w))
      pair_empty(far->pair[w]);
}

INLINE uint32_t window_take(const struct counter pair[2], unsigned from, struct tensor_block *block) {
  uint32_t counts[16] = {0}, sum = 0;
  counter_take(&pair[0], counts);
  counter_take(&pair[1], counts + 8);
  for (unsigned i = 0; i < 16; i++) {
    int bin = (int)((from + i) & 0x7f) - BIN_0;
    block->magnitude[bin < 0 ? 0 : bin >= TENSOR_MAGNITUDES ? TENSOR_MAGNITUDES - 1 : bin] += counts[i];
    sum += counts[i];
  }
  return sum;
}

/* Of n numbers. Those with the exponent 0 were not counted: they are the `others`, 0 or not finite, or next to 0. */
INLINE void magnitudes_take(const struct near *near, const struct far *far, struct tensor_block *block, size_t n,
                            uint32_t others) {
  uint32_t sum = window_take(near->pair, near->base, block);
  for (unsigned w = 1; w < WINDOWS; w++)
    if (UNLIKELY(far->used & 1u << w))
      sum += window_take(far->pair[w], near->base + 16 * w, block);
  block->magnitude[0] += (uint32_t)n - sum - others;
}

struct moments {
  __m512d sum[4], sum_sq[4];
};

INLINE void moments_add(struct moments *m, int i, __m512d x) {
  m->sum[i & 3] = _mm512_add_pd(m->sum[i & 3], x);
  m->sum_sq[i & 3] = _mm512_fmadd_pd(x, x, m->sum_sq[i & 3]);
}

INLINE double total(const __m512d x[4]) {
  return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(x[0], x[1]), _mm512_add_pd(x[2], x[3])));
}

INLINE void moments_begin(struct moments *m) {
  UNROLL
  for (int i = 0; i < 4; i++)
    m->sum[i] = m->sum_sq[i] = _mm512_setzero_pd();
}

struct others {
  uint32_t nans, infs, neg_infs, zeros;
};

/* Counts what is not finite among 16 floats, and makes it 0 that takes no part in the range. */
INLINE void narrow_others(__m512 *x, __m512 *low, __m512 *high, struct others *o) {
  __mmask16 others = _mm512_fpclass_ps_mask(*x, CLASS_OTHER);
  *low = _mm512_mask_min_ps(*low, (__mmask16)~others, *low, *x);
  *high = _mm512_mask_max_ps(*high, (__mmask16)~others, *high, *x);
  o->nans += (uint32_t)__builtin_popcount(_mm512_fpclass_ps_mask(*x, CLASS_NAN));
  o->infs += (uint32_t)__builtin_popcount(_mm512_fpclass_ps_mask(*x, CLASS_INF));
  o->neg_infs += (uint32_t)__builtin_popcount(_mm512_fpclass_ps_mask(*x, CLASS_NEG_INF));
  *x = _mm512_mask_mov_ps(*x, others, _mm512_setzero_ps());
}

/* Counts zeros among 64. True: there are numbers that are not finite. */
INLINE bool narrow_odd(const __m512 x[4], struct others *o) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __mmask16 zero[4];
  unsigned others = 0;
  UNROLL
  for (int k = 0; k < 4; k++) {
    zero[k] = _mm512_testn_epi32_mask(_mm512_castps_si512(x[k]), magnitude);
    others |= _mm512_fpclass_ps_mask(x[k], CLASS_OTHER);
  }
  o->zeros +=
      (uint32_t)__builtin_popcountll(_mm512_kunpackd(_mm512_kunpackw(zero[3], zero[2]), _mm512_kunpackw(zero[1], zero[0])));
  return others;
}

INLINE void wide_others(__m512d *x, __m512d *low, __m512d *high, struct others *o) {
  __mmask8 others = _mm512_fpclass_pd_mask(*x, CLASS_OTHER);
  *low = _mm512_mask_min_pd(*low, (__mmask8)~others, *low, *x);
  *high = _mm512_mask_max_pd(*high, (__mmask8)~others, *high, *x);
  o->nans += (uint32_t)__builtin_popcount(_mm512_fpclass_pd_mask(*x, CLASS_NAN));
  o->infs += (uint32_t)__builtin_popcount(_mm512_fpclass_pd_mask(*x, CLASS_INF));
  o->neg_infs += (uint32_t)__builtin_popcount(_mm512_fpclass_pd_mask(*x, CLASS_NEG_INF));
  *x = _mm512_mask_mov_pd(*x, others, _mm512_setzero_pd());
}

INLINE bool wide_odd(const __m512d x[8], struct others *o) {
  const __m512i magnitude = _mm512_set1_epi64(0x7fffffffffffffff);
  unsigned others = 0;
  UNROLL
  for (int k = 0; k < 8; k++) {
    o->zeros += (uint32_t)__builtin_popcount(_mm512_testn_epi64_mask(_mm512_castpd_si512(x[k]), magnitude));
    others |= _mm512_fpclass_pd_mask(x[k], CLASS_OTHER);
  }
  return others;
}

/* Exponents of 64 floats less `base`, whose upper bits are of no meaning. */
INLINE __m512i narrow_exponents(const __m512 x[4], unsigned base) {
  const __m512i one = _mm512_set1_epi32((int)(0x00800000 - (base << 24)));
  __m512i e[4];
  UNROLL
  for (int i = 0; i < 4; i++)
    e[i] = _mm512_add_epi32(_mm512_castps_si512(x[i]), one);
  return bytes_of(e[0], e[1], e[2], e[3], 3);
}

/* Of 64 doubles; as if of floats, but cut to the bins there are, as a byte does not hold more. */
INLINE __m512i wide_exponents(const __m512d x[8], unsigned base) {
  const __m512i one = _mm512_set1_epi32(0x00100000), mask = _mm512_set1_epi32(0x3ff);
  const __m512i before = _mm512_set1_epi32(TENSOR_OCTAVES_BEFORE - BIN_0),
                last = _mm512_set1_epi32(BIN_0 + TENSOR_MAGNITUDES - 1);
  __m512i e[4];
  UNROLL
  for (int i = 0; i < 4; i++) {
    __m512i upper = _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castpd_ps(x[2 * i]), _mm512_castpd_ps(x[2 * i + 1]), 0xdd));
    upper = _mm512_and_si512(_mm512_srli_epi32(_mm512_add_epi32(upper, one), 21), mask);
    upper = _mm512_max_epi32(_mm512_sub_epi32(upper, before), _mm512_setzero_si512());
    e[i] = _mm512_min_epi32(upper, last);
  }
  return _mm512_sub_epi8(bytes_of(e[0], e[1], e[2], e[3], 0), _mm512_set1_epi8((char)base));
}

/* Where numbers are rarely zeros, and of an exponent that is usual in their block, all of them are finite. */
INLINE void narrow_chunk(enum tensor_dtype type, const void *data, size_t i, struct moments *m, struct near *near,
                         struct far *far, __m512 *low, __m512 *high, struct others *o) {
  __m512 x[4];
  load64(type, data, i, x);
  bool odd = magnitudes_add(near, far, narrow_exponents(x, near->base)) && narrow_odd(x, o);
  if (UNLIKELY(odd)) {
    UNROLL
    for (int k = 0; k < 4; k++)
      narrow_others(&x[k], low, high, o);
  } else {
    UNROLL
    for (int k = 0; k < 4; k++) {
      *low = _mm512_min_ps(*low, x[k]);
      *high = _mm512_max_ps(*high, x[k]);
    }
  }
  if (type != TENSOR_F32 || UNLIKELY(odd)) {
    UNROLL
    for (int k = 0; k < 8; k++) {
      __m256 half = k & 1 ? _mm512_extractf32x8_ps(x[k / 2], 1) : _mm512_castps512_ps256(x[k / 2]);
      moments_add(m, k, _mm512_cvtps_pd(half));
    }
  } else {
    UNROLL
    for (int k = 0; k < 8; k++) /* from memory again: cheaper than the halves of a register */
      moments_add(m, k, load8(type, data, i + 8 * (size_t)k));
  }
}

INLINE void wide_chunk(enum tensor_dtype type, const void *data, size_t i, struct moments *m, struct near *near,
                       struct far *far, __m512d *low, __m512d *high, struct others *o) {
  __m512d x[8];
  UNROLL
  for (int k = 0; k < 8; k++)
    x[k] = load8(type, data, i + 8 * (size_t)k);
  if (UNLIKELY(magnitudes_add(near, far, wide_exponents(x, near->base)) && wide_odd(x, o))) {
    UNROLL
    for (int k = 0; k < 8; k++)
      wide_others(&x[k], low, high, o);
  } else {
    UNROLL
    for (int k = 0; k < 8; k++) {
      *low = _mm512_min_pd(*low, x[k]);
      *high = _mm512_max_pd(*high, x[k]);
    }
  }
  UNROLL
  for (int k = 0; k < 8; k++)
    moments_add(m, k, x[k]);
}

INLINE __m512i first_exponents(enum tensor_dtype type, const void *data) {
  __m512 x[4];
  __m512d wide[8];
  if (IS_NARROW(type)) {
    load64(type, data, 0, x);
    return narrow_exponents(x, 0);
  }
  UNROLL
  for (int k = 0; k < 8; k++)
    wide[k] = load8(type, data, 8 * (size_t)k);
  return wide_exponents(wide, 0);
}

INLINE void moments_of(enum tensor_dtype type, const void *data, size_t n, struct tensor_block *block) {
  struct moments m;
  struct near near;
  struct far far;
  struct others o = {0};
  __m512 low = _mm512_set1_ps(__builtin_inff()), high = _mm512_set1_ps(-__builtin_inff());
  __m512d wide_low = _mm512_set1_pd(__builtin_inf()), wide_high = _mm512_set1_pd(-__builtin_inf());
  size_t whole = n - n % AT_ONCE, i = 0;
  if (whole) {
    moments_begin(&m);
    near_begin(&near, first_exponents(type, data));
    far.used = 0;
    while (i < whole) {
      size_t end = whole - i > BEFORE_EMPTYING * AT_ONCE ? i + BEFORE_EMPTYING * AT_ONCE : whole;
      for (; i < end; i += AT_ONCE)
        if (IS_NARROW(type))
          narrow_chunk(type, data, i, &m, &near, &far, &low, &high, &o);
        else
          wide_chunk(type, data, i, &m, &near, &far, &wide_low, &wide_high, &o);
      magnitudes_empty(&near, &far);
    }
    block->nans += o.nans;
    block->infs += o.infs;
    block->neg_infs += o.neg_infs;
    block->zeros += o.zeros;
    magnitudes_take(&near, &far, block, whole, o.nans + o.infs + o.neg_infs + o.zeros);
    double least = IS_NARROW(type) ? (double)_mm512_reduce_min_ps(low) : _mm512_reduce_min_pd(wide_low);
    double most = IS_NARROW(type) ? (double)_mm512_reduce_max_ps(high) : _mm512_reduce_max_pd(wide_high);
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
  const __m512d f = _mm512_set1_pd(factor), p = _mm512_set1_pd(pivot);
  size_t whole = n - n % AT_ONCE;
  moments_begin(&m);
  for (size_t i = 0; i < whole; i += AT_ONCE)
    UNROLL
  for (int k = 0; k < 8; k++) {
    __m512d x = load8(type, data, i + 8 * (size_t)k);
    __m512d d = type == TENSOR_F64 ? _mm512_sub_pd(_mm512_mul_pd(x, f), p) : _mm512_sub_pd(x, p);
    moments_add(&m, k, odd ? _mm512_maskz_mov_pd((__mmask8)~_mm512_fpclass_pd_mask(x, CLASS_OTHER), d) : d);
  }
  out[0] += total(m.sum);
  out[1] += total(m.sum_sq);
  if (n > whole)
    tensor_kernels_scalar[type].sums(AT(type, data, whole), n - whole, factor, pivot, odd, out);
}

/* ---- the histogram ---- */

/* The formula as it is told. */
INLINE __m512i bins_exact(enum tensor_dtype type, const void *data, size_t i, const struct tensor_range *range) {
  const __m512d f = _mm512_set1_pd(range->factor), low = _mm512_set1_pd(range->low), scale = _mm512_set1_pd(range->scale);
  __m512i bin[4];
  UNROLL
  for (int k = 0; k < 4; k++) {
    __m256i half[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
      __m512d x = load8(type, data, i + 16 * (size_t)k + 8 * (size_t)h);
      __mmask8 finite = (__mmask8)~_mm512_fpclass_pd_mask(x, CLASS_OTHER);
      __m512d at = type == TENSOR_F64 ? _mm512_mul_pd(x, f) : x;
      at = _mm512_mul_pd(_mm512_sub_pd(at, low), scale);
      at = _mm512_min_pd(_mm512_max_pd(at, _mm512_setzero_pd()), _mm512_set1_pd(TENSOR_BINS - 1));
      half[h] = _mm256_mask_mov_epi32(_mm256_set1_epi32(0x80), finite, _mm512_cvttpd_epi32(at));
    }
    bin[k] = _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
  }
  return bytes_of(bin[0], bin[1], bin[2], bin[3], 0);
}

/* In floats first, bins being whole multiples of 2^16. The error is less than one of those, so all that is not next to such a multiple has
 * the bin that the formula gives; next to 0 it has in any case, and many numbers may lie there. What is not finite or below the
 * range comes out as all ones. False: take the formula. */
INLINE bool bins_quick(enum tensor_dtype type, const void *data, size_t i, __m512 low, __m512 scale, __m512i *bin) {
  const __m512i top = _mm512_set1_epi32((TENSOR_BINS << 16) - 0x8000), fraction = _mm512_set1_epi32(0xfffe);
  __m512i at[4];
  __m512 x[4];
  __mmask16 odd[4];
  load64(type, data, i, x);
  UNROLL
  for (int k = 0; k < 4; k++) {
    at[k] = _mm512_cvttps_epu32(_mm512_mul_ps(_mm512_sub_ps(x[k], low), scale));
    odd[k] = _mm512_testn_epi32_mask(_mm512_add_epi32(at[k], _mm512_set1_epi32(1)), fraction);
    at[k] = _mm512_min_epu32(at[k], top);
  }
  if (UNLIKELY(odd[0] | odd[1] | odd[2] | odd[3])) {
    unsigned rest = 0;
    UNROLL
    for (int k = 0; k < 4; k++)
      rest |= _mm512_mask_test_epi32_mask(odd[k], at[k], at[k]);
    if (rest)
      return false;
  }
  *bin = bytes_of(at[0], at[1], at[2], at[3], 2);
  return true;
}

INLINE void bins_of(enum tensor_dtype type, const void *data, size_t n, const struct tensor_range *range, uint32_t counts[]) {
  struct counter pair[2];
  pair_begin(pair);
  double fixed = range->scale * 0x1p16;
  bool quick = IS_NARROW(type) && fixed >= 0x1p-126 && fixed <= 0x1p126;
  const __m512 low = _mm512_set1_ps(IS_NARROW(type) ? (float)range->low : 0), scale = _mm512_set1_ps(quick ? (float)fixed : 0);
  size_t whole = n - n % AT_ONCE, i = 0;
  while (i < whole) {
    size_t end = whole - i > BEFORE_EMPTYING * AT_ONCE ? i + BEFORE_EMPTYING * AT_ONCE : whole;
    for (; i < end; i += AT_ONCE) {
      __m512i bin;
      if (UNLIKELY(!quick || !bins_quick(type, data, i, low, scale, &bin)))
        bin = bins_exact(type, data, i, range);
      pair_add(pair, bin);
    }
    pair_empty(pair);
  }
  counter_take(&pair[0], counts);
  counter_take(&pair[1], counts + 8);
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
const struct tensor_kernel tensor_kernels_avx512[TENSOR_DTYPES] = {TENSOR_EACH_FLOAT(ENTRY)};
#endif
