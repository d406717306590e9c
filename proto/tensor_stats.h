/* Statistics of one tensor's numbers, computed alike by collectord and, where it may not read, by the traced process: the same
 * machine gives the same bits, however the numbers come in pieces.
 *
 * Two passes: the first finds counts, moments, range and magnitudes, the second the histogram between the range found. All is of the
 * finite numbers alone, but for the counts that name the others. A number is a double here: all types are doubles exactly but for int64 and
 * uint64, which are rounded to the nearest one first (this matters beyond 2^53). Sums are taken in blocks of TENSOR_BLOCK numbers that
 * are merged in order, so they hold where a float's own width does not, also where the mean is large against the spread, and where the
 * squares of float64 numbers are beyond a double's range.
 *
 * The functions work in the processor's default floating-point mode and put back what the thread had, its exception flags included: whether
 * the thread flushes denormals, rounds elsewhere or traps changes no result (elsewhere than on x86-64 it may). No allocation, no
 * locks; any thread. Links libc only.
 */
#ifndef CIRRON_TENSOR_STATS_H
#define CIRRON_TENSOR_STATS_H

#include <stdbool.h>
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
  /* Of the finite ones; NaN where there are none. std is that of the population, norm the root of the sum of squares: infinite
   * where it is more than a double can hold, which takes float64 numbers near the end of their range. Never -0. */
  double mean, std, min, max, norm;
  /* Bin i of [min, max] cut in 16 of the same width holds low <= x < high, the last one its high end as well. Where all finite
   * numbers are the same number v, the range is [v, v + 1]. The bin of x is (x - min) * (16 / (max - min)) in double, cut to a
   * whole number, 15 at most. Where max - min or 16 / (max - min) is more than a double holds, all three are halved,
   * or multiplied by 2^600, first. */
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

/* The processor's best, found once. TENSOR_AVX512 means what came with Ice Lake and Zen 4 (VBMI, BITALG, GFNI). The lower ones can be asked for by tests and benches; -ENOTSUP: this processor has not got it. */
enum tensor_level { TENSOR_SCALAR, TENSOR_AVX2, TENSOR_AVX512 };
enum tensor_level tensor_level(void);
int tensor_level_set(enum tensor_level level);

/* A tensor that comes in pieces, in order. All pieces but the last are of a multiple of TENSOR_BLOCK numbers; they may lie at any
 * address. The second pass brings the same numbers again. If they changed meanwhile, what is outside of the range falls into the outer bins,
 * and NaN into none. */
struct tensor_pass {
  enum tensor_dtype dtype;
  struct tensor_stats stats;
  unsigned unit;             /* a power of two, in which mean, m2 and sum_sq are kept until the turn */
  double m2, sum_sq;         /* sum of squared distances from the mean, and of squares */
  double factor, low, scale; /* of the second pass */
};
void tensor_pass_begin(struct tensor_pass *pass, enum tensor_dtype dtype);
void tensor_pass_moments(struct tensor_pass *pass, const void *data, size_t n);
void tensor_pass_turn(struct tensor_pass *pass); /* the first pass is over; `stats` is whole but for the histogram */
/* After the turn: false where the second pass would tell nothing new, as all finite numbers are the same or there are none. */
bool tensor_pass_needs_histogram(const struct tensor_pass *pass);
void tensor_pass_histogram(struct tensor_pass *pass, const void *data, size_t n);
/* After the second pass the result is in `stats`. */

#endif
