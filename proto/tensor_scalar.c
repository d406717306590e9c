/* The kernels of tensor_kernel.h in plain C: for processors without wide registers, for odd ends, and as the measure of the others. */
#include <stdbool.h>
#include <string.h>

#include "tensor_kernel.h"

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  return bits;
}

INLINE double double_of(uint64_t bits) {
  double x;
  memcpy(&x, &bits, 8);
  return x;
}

INLINE double from_f16(uint16_t h) {
  uint64_t sign = (uint64_t)(h & 0x8000) << 48, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
  if (!exponent) /* of 2^-24 each */
    return double_of(bits_of((double)fraction * 0x1p-24) | sign);
  return double_of(sign | (exponent == 0x1f ? 0x7ffull : exponent + 1023 - 15) << 52 | fraction << 42);
}

/* `type` is a constant wherever this is called. */
INLINE double load(enum tensor_dtype type, const uint8_t *data, size_t i) {
  uint16_t half;
  uint32_t word;
  float single;
  double x;
  switch (type) {
  case TENSOR_F64:
    memcpy(&x, data + i * 8, 8);
    return x;
  case TENSOR_F16:
    memcpy(&half, data + i * 2, 2);
    return from_f16(half);
  case TENSOR_BF16:
    memcpy(&half, data + i * 2, 2);
    word = (uint32_t)half << 16;
    memcpy(&single, &word, 4);
    return (double)single;
  default:
    memcpy(&single, data + i * 4, 4);
    return (double)single;
  }
}

INLINE unsigned exponent_of(double x) {
  return (unsigned)(bits_of(x) >> 52) & 0x7ff;
}

INLINE void count_other(double x, struct tensor_block *block) {
  if (x != x)
    block->nans++;
  else if (x > 0)
    block->infs++;
  else
    block->neg_infs++;
}

INLINE void moments(enum tensor_dtype type, const uint8_t *data, size_t n, struct tensor_block *block) {
  double sum = 0, sum_sq = 0, low = block->low, high = block->high;
  for (size_t i = 0; i < n; i++) {
    double x = load(type, data, i);
    unsigned exponent = exponent_of(x);
    if (exponent == 0x7ff) {
      count_other(x, block);
      continue;
    }
    if (x == 0) {
      block->zeros++;
    } else {
      int bin = (int)((exponent + 1) / 2) - TENSOR_OCTAVES_BEFORE;
      block->magnitude[bin < 0 ? 0 : bin >= TENSOR_MAGNITUDES ? TENSOR_MAGNITUDES - 1 : bin]++;
    }
    low = x < low ? x : low;
    high = x > high ? x : high;
    sum += x;
    sum_sq += x * x;
  }
  block->low = low;
  block->high = high;
  block->sum += sum;
  block->sum_sq += sum_sq;
}

INLINE void sums(enum tensor_dtype type, const uint8_t *data, size_t n, double factor, double pivot, bool odd, double out[2]) {
  double sum = 0, sum_sq = 0;
  for (size_t i = 0; i < n; i++) {
    double x = load(type, data, i);
    if (odd && exponent_of(x) == 0x7ff)
      continue;
    double d = x * factor - pivot;
    sum += d;
    sum_sq += d * d;
  }
  out[0] += sum;
  out[1] += sum_sq;
}

INLINE void bins(enum tensor_dtype type, const uint8_t *data, size_t n, const struct tensor_range *range, uint32_t counts[]) {
  for (size_t i = 0; i < n; i++) {
    double x = load(type, data, i);
    if (exponent_of(x) == 0x7ff)
      continue;
    double bin = (x * range->factor - range->low) * range->scale;
    counts[!(bin > 0) ? 0 : bin < TENSOR_BINS ? (unsigned)bin : TENSOR_BINS - 1]++;
  }
}

#define KERNEL(type, name, size)                                                                                               \
  static void moments_##name(const void *data, size_t n, struct tensor_block *block) {                                         \
    moments(TENSOR_##type, data, n, block);                                                                                    \
  }                                                                                                                            \
  static void sums_##name(const void *data, size_t n, double factor, double pivot, bool odd, double out[2]) {                  \
    sums(TENSOR_##type, data, n, factor, pivot, odd, out);                                                                     \
  }                                                                                                                            \
  static void bins_##name(const void *data, size_t n, const struct tensor_range *range, uint32_t counts[TENSOR_BINS]) {        \
    bins(TENSOR_##type, data, n, range, counts);                                                                               \
  }
TENSOR_EACH_FLOAT(KERNEL)

#define ENTRY(type, name, size) [TENSOR_##type] = {moments_##name, sums_##name, bins_##name},
const struct tensor_kernel tensor_kernels_scalar[TENSOR_DTYPES] = {TENSOR_EACH_FLOAT(ENTRY)};

#define WIDEN(name, kind, expression)                                                                                          \
  static void widen_##name(const void *data, size_t n, double *out) {                                                          \
    for (size_t i = 0; i < n; i++) {                                                                                           \
      kind x;                                                                                                                  \
      memcpy(&x, (const uint8_t *)data + i * sizeof x, sizeof x);                                                              \
      out[i] = (double)(expression);                                                                                           \
    }                                                                                                                          \
  }
WIDEN(i8, int8_t, x)
WIDEN(i16, int16_t, x)
WIDEN(i32, int32_t, x)
WIDEN(i64, int64_t, x)
WIDEN(u8, uint8_t, x)
WIDEN(u16, uint16_t, x)
WIDEN(u32, uint32_t, x)
WIDEN(u64, uint64_t, x)
WIDEN(bool, uint8_t, x != 0)

const tensor_widen tensor_widens[TENSOR_DTYPES] = {
    [TENSOR_I8] = widen_i8,   [TENSOR_I16] = widen_i16, [TENSOR_I32] = widen_i32,
    [TENSOR_I64] = widen_i64, [TENSOR_U8] = widen_u8,   [TENSOR_U16] = widen_u16,
    [TENSOR_U32] = widen_u32, [TENSOR_U64] = widen_u64, [TENSOR_BOOL] = widen_bool,
};
