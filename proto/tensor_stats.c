/* Statistics of tensors (tensor_stats.h): what a type is, which kernels this processor has, and how blocks become one result.
 *
 * A block's sums are of its numbers as they are, which is quick and right where the numbers spread around 0. Where they lie close
 * together and far from it, or (float64 alone) their squares would leave the range of a double, the block is summed once more, the
 * distances from its mean this time, in units of a power of two.
 */
#include "tensor_stats.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "tensor_kernel.h"

#if defined __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

/* ---- types ---- */

static const struct {
  uint8_t size;
  const char *name, *safetensors;
} types[TENSOR_DTYPES] = {
    [TENSOR_F32] = {4, "float32", "F32"},    [TENSOR_F64] = {8, "float64", "F64"}, [TENSOR_F16] = {2, "float16", "F16"},
    [TENSOR_BF16] = {2, "bfloat16", "BF16"}, [TENSOR_I8] = {1, "int8", "I8"},      [TENSOR_I16] = {2, "int16", "I16"},
    [TENSOR_I32] = {4, "int32", "I32"},      [TENSOR_I64] = {8, "int64", "I64"},   [TENSOR_U8] = {1, "uint8", "U8"},
    [TENSOR_U16] = {2, "uint16", "U16"},     [TENSOR_U32] = {4, "uint32", "U32"},  [TENSOR_U64] = {8, "uint64", "U64"},
    [TENSOR_BOOL] = {1, "bool", "BOOL"},
};

size_t tensor_size(enum tensor_dtype dtype) {
  return (unsigned)dtype < TENSOR_DTYPES ? types[dtype].size : 0;
}

const char *tensor_dtype_name(enum tensor_dtype dtype) {
  return (unsigned)dtype < TENSOR_DTYPES ? types[dtype].name : NULL;
}

const char *tensor_dtype_safetensors(enum tensor_dtype dtype) {
  return (unsigned)dtype < TENSOR_DTYPES ? types[dtype].safetensors : NULL;
}

/* ---- levels ---- */

static atomic_int chosen; /* level + 1; 0: not looked yet */

static enum tensor_level best_level(void) {
#if defined __x86_64__
  unsigned a, b, c = 0, d; /* f16c: a word that not all compilers know */
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bitalg") &&
      __builtin_cpu_supports("gfni"))
    return TENSOR_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C))
    return TENSOR_AVX2;
#endif
  return TENSOR_SCALAR;
}

enum tensor_level tensor_level(void) {
  int level = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!level) { /* whoever else looks at the same time finds the same */
    level = (int)best_level() + 1;
    atomic_store_explicit(&chosen, level, memory_order_relaxed);
  }
  return (enum tensor_level)(level - 1);
}

int tensor_level_set(enum tensor_level level) {
  if ((unsigned)level > best_level())
    return -ENOTSUP;
  atomic_store_explicit(&chosen, (int)level + 1, memory_order_relaxed);
  return 0;
}

static const struct tensor_kernel *kernel_of(enum tensor_dtype dtype) {
  if (tensor_widens[dtype])
    dtype = TENSOR_F64;
#if defined __x86_64__
  enum tensor_level level = tensor_level();
  if (level == TENSOR_AVX512)
    return &tensor_kernels_avx512[dtype];
  if (level == TENSOR_AVX2)
    return &tensor_kernels_avx2[dtype];
#endif
  return &tensor_kernels_scalar[dtype];
}

/* ---- floating-point mode ---- */

/* The thread may flush denormals, round elsewhere or trap (torch.set_flush_denormal, feenableexcept): not while we count. What it had
 * is put back, the flags of exceptions as well. */
#if defined __x86_64__
enum { DEFAULT_MODE = 0x1f80 };

static unsigned mode_enter(void) {
  unsigned mode = _mm_getcsr();
  _mm_setcsr(DEFAULT_MODE);
  return mode;
}

static void mode_leave(unsigned mode) {
  _mm_setcsr(mode);
}

static double root(double x) { /* sqrt() would want libm for errno's sake */
  __m128d v = _mm_set_sd(x);
  return _mm_cvtsd_f64(_mm_sqrt_sd(v, v));
}
#else
static unsigned mode_enter(void) {
  return 0;
}

static void mode_leave(unsigned mode) {
  (void)mode;
}

static double root(double x) {
  return __builtin_sqrt(x);
}
#endif

/* ---- the first pass ---- */

/* Units in which a pass keeps its mean and squares. A float64 above HUGE_FROM overflows when it is squared and summed, one below
 * PLAIN_FROM vanishes; the units are far enough from each other that what vanishes when the larger one is taken did not matter. */
enum unit { UNIT_TINY, UNIT_PLAIN, UNIT_HUGE };
static const double factors[] = {0x1p600, 1, 0x1p-600}, units[] = {0x1p-600, 1, 0x1p600};
#define PLAIN_FROM 0x1p-400
#define HUGE_FROM 0x1p480

void tensor_pass_begin(struct tensor_pass *pass, enum tensor_dtype dtype) {
  memset(pass, 0, sizeof *pass);
  pass->dtype = dtype;
  pass->unit = dtype == TENSOR_F64 ? UNIT_TINY : UNIT_PLAIN;
  pass->stats.min = __builtin_inf();
  pass->stats.max = -__builtin_inf();
}

static uint64_t finite_of(const struct tensor_stats *stats) {
  return stats->count - stats->nans - stats->infs - stats->neg_infs;
}

/* What a block needs at least; one of zeros alone is content with any. */
static unsigned unit_of(const struct tensor_block *block) {
  double most = -block->low > block->high ? -block->low : block->high;
  return most >= HUGE_FROM ? UNIT_HUGE : most >= PLAIN_FROM ? UNIT_PLAIN : UNIT_TINY;
}

/* A block's numbers as the kernels take them: where they are, or, of integers, a bufferful at a time. */
struct part {
  const uint8_t *at;
  size_t left, n; /* numbers after this part, and in it */
  const void *data;
  double widened[512];
};

static bool part_next(struct part *p, enum tensor_dtype dtype) {
  tensor_widen widen = tensor_widens[dtype];
  size_t most = widen ? sizeof p->widened / sizeof p->widened[0] : TENSOR_BLOCK;
  p->n = p->left < most ? p->left : most;
  p->data = p->at;
  if (widen && p->n) {
    widen(p->at, p->n, p->widened);
    p->data = p->widened;
  }
  p->at += p->n * types[dtype].size;
  p->left -= p->n;
  return p->n;
}

/* The buffer stays as it is: clearing it would cost more than most tensors do. */
#define PART_BEGIN(p, where, numbers) ((p)->at = (where), (p)->left = (numbers))

static void unit_raise(struct tensor_pass *pass, unsigned unit) {
  for (; pass->unit < unit; pass->unit++) {
    pass->stats.mean *= 0x1p-600;
    pass->m2 = pass->m2 * 0x1p-600 * 0x1p-600;
    pass->sum_sq = pass->sum_sq * 0x1p-600 * 0x1p-600;
  }
}

struct moments {
  double n, mean, m2, sum_sq;
};

static double between(double x, double low, double high) {
  return x > high ? high : x > low ? x : low; /* NaN: low */
}

/* Squared distances are lost in the difference of two sums when they are less than this part of it. */
#define LOST(m2, sum_sq) ((m2)*16 < (sum_sq))

/* Once more, with distances from a number within the block: all are 0 where all numbers are the same. */
static void moments_far(const struct tensor_pass *pass, const struct tensor_kernel *kernel, const void *data, size_t n,
                        const struct tensor_block *block, struct moments *m) {
  double factor = factors[pass->unit], low = block->low * factor, high = block->high * factor;
  double pivot = between(pass->unit == UNIT_PLAIN ? block->sum / m->n : low / 2 + high / 2, low, high);
  for (int tries = 0; tries < 2; tries++) {
    double sums[2] = {0, 0};
    struct part p;
    for (PART_BEGIN(&p, data, n); part_next(&p, pass->dtype);)
      kernel->sums(p.data, p.n, factor, pivot, m->n < (double)n, sums);
    m->mean = between(pivot + sums[0] / m->n, low, high);
    m->m2 = sums[1] - sums[0] * (sums[0] / m->n);
    if (!LOST(m->m2, sums[1]))
      break;
    pivot = m->mean;
  }
  m->m2 = m->m2 > 0 ? m->m2 : 0;
  m->sum_sq = m->m2 + m->n * m->mean * m->mean;
}

static void merge(struct tensor_pass *pass, const struct moments *m, double n) { /* n: finite numbers with this block */
  double delta = m->mean - pass->stats.mean, part = m->n / n;
  pass->stats.mean = m->n == n ? m->mean : pass->stats.mean + delta * part;
  pass->m2 += m->m2 + delta * delta * part * (n - m->n);
  pass->sum_sq += m->sum_sq;
}

static void add_block(struct tensor_pass *pass, const struct tensor_kernel *kernel, const void *data, size_t n) {
  struct tensor_stats *stats = &pass->stats;
  struct tensor_block block = {.low = __builtin_inf(), .high = -__builtin_inf()};
  struct part p;
  for (PART_BEGIN(&p, data, n); part_next(&p, pass->dtype);)
    kernel->moments(p.data, p.n, &block);
  stats->count += n;
  stats->nans += block.nans;
  stats->infs += block.infs;
  stats->neg_infs += block.neg_infs;
  stats->zeros += block.zeros;
  for (int i = 0; i < TENSOR_MAGNITUDES; i++)
    stats->magnitude[i] += block.magnitude[i];
  struct moments m = {.n = (double)(n - block.nans - block.infs - block.neg_infs)};
  if (m.n == 0)
    return;
  stats->min = block.low < stats->min ? block.low : stats->min;
  stats->max = block.high > stats->max ? block.high : stats->max;
  unit_raise(pass, unit_of(&block));
  m.mean = block.sum / m.n;
  m.m2 = block.sum_sq - block.sum * m.mean;
  m.sum_sq = block.sum_sq;
  if (pass->unit != UNIT_PLAIN || LOST(m.m2, m.sum_sq))
    moments_far(pass, kernel, data, n, &block, &m);
  merge(pass, &m, (double)finite_of(stats));
}

void tensor_pass_moments(struct tensor_pass *pass, const void *data, size_t n) {
  size_t size = tensor_size(pass->dtype);
  if (!size)
    return;
  const struct tensor_kernel *kernel = kernel_of(pass->dtype);
  unsigned mode = mode_enter();
  for (const uint8_t *at = data; n;) {
    size_t block = n < TENSOR_BLOCK ? n : TENSOR_BLOCK;
    add_block(pass, kernel, at, block);
    at += block * size;
    n -= block;
  }
  mode_leave(mode);
}

/* ---- between the passes, and the second one ---- */

/* Range and scale of the bins. A range that is no double, or so small that what it is divided by is none, is taken in other units. */
static void range_set(struct tensor_pass *pass) {
  double low = pass->stats.min, high = pass->stats.max;
  pass->factor = 1;
  if (high - low > __DBL_MAX__)
    pass->factor = 0.5;
  else if (TENSOR_BINS / (high - low) > __DBL_MAX__)
    pass->factor = 0x1p600;
  pass->low = low * pass->factor;
  pass->scale = TENSOR_BINS / (high * pass->factor - pass->low);
}

void tensor_pass_turn(struct tensor_pass *pass) {
  struct tensor_stats *stats = &pass->stats;
  uint64_t finite = finite_of(stats);
  if (!finite) {
    stats->mean = stats->std = stats->min = stats->max = stats->norm = __builtin_nan("");
    return;
  }
  unsigned mode = mode_enter();
  stats->min += 0.0; /* -0 is 0: which of them comes first is no matter */
  stats->max += 0.0;
  double unit = units[pass->unit];
  stats->mean = between(stats->mean * unit, stats->min, stats->max);
  stats->std = root(pass->m2 / (double)finite) * unit;
  stats->norm = root(pass->sum_sq) * unit;
  if (stats->min < stats->max)
    range_set(pass);
  else
    stats->histogram[0] = finite;
  mode_leave(mode);
}

bool tensor_pass_needs_histogram(const struct tensor_pass *pass) {
  return pass->scale > 0;
}

void tensor_pass_histogram(struct tensor_pass *pass, const void *data, size_t n) {
  size_t size = tensor_size(pass->dtype);
  if (!size || !tensor_pass_needs_histogram(pass))
    return;
  const struct tensor_kernel *kernel = kernel_of(pass->dtype);
  const struct tensor_range range = {pass->factor, pass->low, pass->scale};
  unsigned mode = mode_enter();
  for (const uint8_t *at = data; n;) {
    size_t block = n < TENSOR_BLOCK ? n : TENSOR_BLOCK;
    uint32_t counts[TENSOR_BINS] = {0};
    struct part p;
    for (PART_BEGIN(&p, at, block); part_next(&p, pass->dtype);)
      kernel->bins(p.data, p.n, &range, counts);
    for (int i = 0; i < TENSOR_BINS; i++)
      pass->stats.histogram[i] += counts[i];
    at += block * size;
    n -= block;
  }
  mode_leave(mode);
}
