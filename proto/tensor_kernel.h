/* What tensor_stats.c has its processor do, block by block: one table of functions for each level. Between the files of the kernels
 * only; others call tensor_stats.h.
 *
 * A number is a double to all of them: float32 and narrower ones and integers of up to 32 bits are doubles exactly, integers of 64 bits are
 * rounded to the nearest. All are called with the processor's default floating-point mode (tensor_stats.c sees to it).
 */
#ifndef CIRRON_TENSOR_KERNEL_H
#define CIRRON_TENSOR_KERNEL_H

#include "tensor_stats.h"

/* Of up to TENSOR_BLOCK numbers; the sums, low and high are of the finite ones. */
struct tensor_block {
  double sum, sum_sq, low, high;
  uint32_t nans, infs, neg_infs, zeros;
  uint32_t magnitude[TENSOR_MAGNITUDES];
};

/* The bin of x: (x * factor - low) * scale. */
struct tensor_range {
  double factor, low, scale;
};

struct tensor_kernel {
  /* Adds to *block, which was begun with all zeros, low = infinity and high = -infinity. */
  void (*moments)(const void *data, size_t n, struct tensor_block *block);
  /* out[0]: the sum of d = x * factor - pivot, out[1]: that of d * d; of finite numbers. Adds to out. */
  void (*sums)(const void *data, size_t n, double factor, double pivot, double out[2]);
  /* Adds to counts. */
  void (*bins)(const void *data, size_t n, const struct tensor_range *range, uint32_t counts[TENSOR_BINS]);
};

extern const struct tensor_kernel tensor_kernels_scalar[TENSOR_DTYPES];
/* Where a function is NULL the scalar one takes its place. */
extern const struct tensor_kernel tensor_kernels_avx2[TENSOR_DTYPES];
extern const struct tensor_kernel tensor_kernels_avx512[TENSOR_DTYPES];

#define TENSOR_EACH_TYPE(X)                                                                                                    \
  X(F32, f32, 4)                                                                                                               \
  X(F64, f64, 8)                                                                                                               \
  X(F16, f16, 2)                                                                                                               \
  X(BF16, bf16, 2)                                                                                                             \
  X(I8, i8, 1)                                                                                                                 \
  X(I16, i16, 2)                                                                                                               \
  X(I32, i32, 4)                                                                                                               \
  X(I64, i64, 8)                                                                                                               \
  X(U8, u8, 1)                                                                                                                 \
  X(U16, u16, 2)                                                                                                               \
  X(U32, u32, 4)                                                                                                               \
  X(U64, u64, 8)                                                                                                               \
  X(BOOL, bool, 1)

/* (exponent + 1) / 2 of a double's biased exponent is one number for the two octaves of a bin; this one is bin 0. */
#define TENSOR_OCTAVES_BEFORE 488

#endif
