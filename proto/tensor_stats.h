/* Statistics of one tensor's numbers, computed alike by collectord and, where it may not read, by the traced process: the same
 * machine gives the same bits, however the numbers come in pieces.
 *
 * Two passes: the first finds counts, moments, range and magnitudes, the second the histogram between the range found. All is of the
 * finite numbers alone, but for the counts that name the others. Sums are 64-bit, in blocks of TENSOR_BLOCK numbers that are merged in
 * order, so they hold where a float's own width does not, also where the mean is large against the spread.
 *
 * No allocation, no locks, no floating-point exceptions or modes are changed; any thread. Links libc only.
 */
#ifndef CIRRON_TENSOR_STATS_H
#define CIRRON_TENSOR_STATS_H

#include <stddef.h>
#include <stdint.h>

#define TENSOR_BINS 16       /* of the histogram between min and max */
#define TENSOR_MAGNITUDES 32 /* of the histogram of magnitudes, two octaves each */
#define TENSOR_BLOCK 4096    /* numbers whose sums are taken together */

/* Little endian, as they lie in memory. A complex number is two of its parts, which are numbers of their own. */
enum tensor_dtype {
  TENSOR_NONE, /* of a type that is not known here */
  TENSOR_F32,
  TENSOR_F64,
  TENSOR_F16,
  TENSOR_BF16,
  TENSOR_I8,
  TENSOR_I16,
  TENSOR_I32,
  TENSOR_I64,
  TENSOR_U8,
  TENSOR_U16,
  TENSOR_U32,
  TENSOR_U64,
  TENSOR_BOOL, /* one byte, 0 or not */
  TENSOR_DTYPES
};

/* As it lies in memory shared by the two programs: numbers of 8 bytes alone. */
struct tensor_stats {
  uint64_t count;                /* all numbers */
  uint64_t nans, infs, neg_infs; /* of these, not finite */
  uint64_t zeros;
  /* Of the finite ones; NaN where there are none. std is that of the population, norm the root of the sum of squares. */
  double mean, std, min, max, norm;
  /* Bin i of [min, max] cut in 16 of the same width holds low <= x < high, the last one its high end as well. Where all finite
   * numbers are the same number v, the range is [v, v + 1]. The bin of x is (x - min) * (16 / (max - min)) in double, cut to a
   * whole number, 15 at most. */
  uint64_t histogram[TENSOR_BINS];
  /* Finite numbers that are not 0, by floor(log2|x|) = e: bin (e + 48) / 2, those below in bin 0, those above in the last. The
   * edges are the same for all tensors, so counts can be added over ranks and epochs: bin i is [2^(2i-48), 2^(2i-46)). */
  uint64_t magnitude[TENSOR_MAGNITUDES];
};

/* Bytes of one number; 0 for TENSOR_NONE and what is no type. */
size_t tensor_size(enum tensor_dtype dtype);
/* As PyTorch and NumPy call it: "float32"; and as safetensors does: "F32". NULL for TENSOR_NONE. */
const char *tensor_dtype_name(enum tensor_dtype dtype);
const char *tensor_dtype_safetensors(enum tensor_dtype dtype);

/* The processor's best, found once. The lower ones can be asked for by tests and benches; -ENOTSUP: this processor has not got it. */
enum tensor_level { TENSOR_SCALAR, TENSOR_AVX2, TENSOR_AVX512 };
enum tensor_level tensor_level(void);
int tensor_level_set(enum tensor_level level);

/* A tensor that comes in pieces, in order. All pieces but the last are of a multiple of TENSOR_BLOCK numbers; they may lie at any
 * address. The second pass brings the same numbers again. If they changed meanwhile, what is outside of the range falls into the outer bins,
 * and NaN into none. */
struct tensor_pass {
  enum tensor_dtype dtype;
  struct tensor_stats stats;
  double low, scale; /* of the second pass */
  double m2, sum_sq; /* sum of squared distances from the mean, and of squares */
};
void tensor_pass_begin(struct tensor_pass *pass, enum tensor_dtype dtype);
void tensor_pass_moments(struct tensor_pass *pass, const void *data, size_t n);
void tensor_pass_turn(struct tensor_pass *pass); /* the first pass is over; `stats` is whole but for the histogram */
void tensor_pass_histogram(struct tensor_pass *pass, const void *data, size_t n);
/* After the second pass the result is in `stats`. Of no numbers at all, turn and end are all there is to do. */

#endif
