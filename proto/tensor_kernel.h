/* What tensor_stats.c has its processor do, block by block: one table of functions for each level. Between the files of the kernels
 * only; others call tensor_stats.h.
 *
 * A number is a double to all of them. There are kernels for floats alone: integers are made doubles first, a buffer at a time (exactly, but
 * for those of 64 bits, which are rounded to the nearest). All are called with the processor's default floating-point mode.
 */
#ifndef CIRRON_TENSOR_KERNEL_H
#define CIRRON_TENSOR_KERNEL_H

#include <stdbool.h>

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
  /* out[0]: the sum of d = x * factor - pivot, out[1]: that of d * d; of finite numbers; `odd`: there are others. Adds to out. */
  void (*sums)(const void *data, size_t n, double factor, double pivot, bool odd, double out[2]);
  /* Adds to counts. */
  void (*bins)(const void *data, size_t n, const struct tensor_range *range, uint32_t counts[TENSOR_BINS]);
};

extern const struct tensor_kernel tensor_kernels_scalar[TENSOR_DTYPES];
extern const struct tensor_kernel tensor_kernels_avx2[TENSOR_DTYPES];
extern const struct tensor_kernel tensor_kernels_avx512[TENSOR_DTYPES];

/* Makes n integers doubles; NULL for floats. */
typedef void (*tensor_widen)(const void *data, size_t n, double *out);
extern const tensor_widen tensor_widens[TENSOR_DTYPES];

/* type, name, bytes */
#define TENSOR_EACH_FLOAT(X) X(F32, f32, 4) X(F64, f64, 8) X(F16, f16, 2) X(BF16, bf16, 2)

/* (exponent + 1) / 2 of a double's biased exponent is one number for the two octaves of a bin; this one is bin 0. */
#define TENSOR_OCTAVES_BEFORE 488

#endif
