// links: proto/tensor_stats.c proto/tensor_scalar.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* Statistics of tensors against one bare read of the same memory, in the same rounds: one thread, every level that the processor has.
 * Times are of the thread's CPU, the least of all rounds.
 *
 *   tensor_bench [ROUNDS]
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/tensor_stats.h"

enum { MOST_TENSORS = 200, MOST_ROUNDS = 101 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- tensors ---- */

struct model {
  const char *name;
  size_t sizes[MOST_TENSORS], total;
  int n;
};

static void add(struct model *m, size_t numbers) {
  m->sizes[m->n++] = numbers;
  m->total += numbers;
}

static void add_convolution(struct model *m, size_t in, size_t out, size_t kernel) { /* and its norm's weight and bias */
  add(m, in * out * kernel * kernel);
  add(m, out);
  add(m, out);
}

static void resnet50(struct model *m) {
  static const size_t blocks[] = {3, 4, 6, 3};
  *m = (struct model){.name = "ResNet-50's 161 tensors"};
  add_convolution(m, 3, 64, 7);
  size_t in = 64;
  for (size_t stage = 0; stage < 4; stage++)
    for (size_t block = 0; block < blocks[stage]; block++) {
      size_t width = (size_t)64 << stage;
      add_convolution(m, in, width, 1);
      add_convolution(m, width, width, 3);
      add_convolution(m, width, 4 * width, 1);
      if (!block)
        add_convolution(m, in, 4 * width, 1);
      in = 4 * width;
    }
  add(m, in * 1000);
  add(m, 1000);
}

static uint64_t seed = 1;

static double random_normal(void) { /* of twelve small ones: near enough */
  double sum = 0;
  for (int k = 0; k < 6; k++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    sum += (double)(seed >> 32) * 0x1p-32 + (double)(seed >> 8 & 0xffffff) * 0x1p-24 - 1;
  }
  return sum;
}

static uint16_t half_of(uint32_t bits) { /* of a float below 65504, cut */
  uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff, fraction = (bits & 0x7fffff) | 0x800000;
  if (exponent < 113) /* denormal */
    return (uint16_t)(sign | (exponent < 103 ? 0 : fraction >> (126 - exponent)));
  return (uint16_t)(sign | ((exponent - 112) << 10) | (fraction >> 13 & 0x3ff));
}

static void put(enum tensor_dtype dtype, void *data, size_t i, double x) {
  float single = (float)x;
  uint32_t bits;
  memcpy(&bits, &single, 4);
  if (dtype == TENSOR_F64)
    ((double *)data)[i] = x;
  else if (dtype == TENSOR_F32)
    ((float *)data)[i] = single;
  else if (dtype == TENSOR_BF16)
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
  else if (dtype == TENSOR_F16)
    ((uint16_t *)data)[i] = half_of(bits);
  else
    memset((uint8_t *)data + i * tensor_size(dtype), (int)(int8_t)(x * 1000), tensor_size(dtype));
}

enum filling { WEIGHTS, HALF_ZEROS, SOME_NAN, FAR, OCTAVES };

static void fill(enum tensor_dtype dtype, void *data, size_t n, enum filling filling) {
  for (size_t i = 0; i < n; i++) {
    double x = 0.02 * random_normal();
    if (filling == HALF_ZEROS && x < 0)
      x = 0;
    else if (filling == SOME_NAN && seed % 1000 < 1)
      x = NAN;
    else if (filling == FAR)
      x = 1 + x / 600;
    else if (filling == OCTAVES)
      x *= exp2(-(double)(seed >> 20 & 63));
    put(dtype, data, i, x);
  }
}

/* ---- what is timed ---- */

typedef uint64_t words __attribute__((vector_size(64), aligned(1), may_alias));

#if defined __x86_64__
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
read_once(const uint8_t *data, size_t bytes) {
  words sum[4] = {0};
  for (; bytes >= 256; bytes -= 256, data += 256)
    for (int k = 0; k < 4; k++)
      sum[k] += ((const words *)data)[k];
  sum[0] += sum[1] + sum[2] + sum[3];
  return sum[0][0] + sum[0][1] + sum[0][2] + sum[0][3] + sum[0][4] + sum[0][5] + sum[0][6] + sum[0][7];
}

static volatile uint64_t kept;

static double time_read(const struct model *m, enum tensor_dtype dtype, const uint8_t *data) {
  double start = now();
  for (int i = 0; i < m->n; data += m->sizes[i++] * tensor_size(dtype))
    kept += read_once(data, m->sizes[i] * tensor_size(dtype));
  return now() - start;
}

/* Returns the whole; *first: the first pass. */
static double time_statistics(const struct model *m, enum tensor_dtype dtype, const uint8_t *data, double *first) {
  double start = now();
  *first = 0;
  for (int i = 0; i < m->n; data += m->sizes[i++] * tensor_size(dtype)) {
    struct tensor_pass pass;
    double begin = now();
    tensor_pass_begin(&pass, dtype);
    tensor_pass_moments(&pass, data, m->sizes[i]);
    tensor_pass_turn(&pass);
    *first += now() - begin;
    tensor_pass_histogram(&pass, data, m->sizes[i]);
    kept += pass.stats.histogram[0];
  }
  return now() - start;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, int n) {
  qsort(x, (size_t)n, sizeof *x, ascending);
  return x[n / 2];
}

static double least(const double *x, int n) {
  double y = x[0];
  for (int i = 1; i < n; i++)
    y = x[i] < y ? x[i] : y;
  return y;
}

static void run(const struct model *m, enum tensor_dtype dtype, enum filling filling, const char *what, int rounds) {
  static const char *const names[] = {"scalar", "AVX2", "AVX-512"};
  static double reads[MOST_ROUNDS], ratio[3][MOST_ROUNDS], first[3][MOST_ROUNDS], took[3][MOST_ROUNDS];
  size_t bytes = m->total * tensor_size(dtype);
  uint8_t *data = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  enum tensor_level best = tensor_level();
  if (!data) {
    printf("  %s of %s: no memory for it\n", m->name, tensor_dtype_name(dtype));
    return;
  }
  fill(dtype, data, m->total, filling);
  (void)time_read(m, dtype, data);
  for (int r = 0; r < rounds; r++) {
    reads[r] = time_read(m, dtype, data);
    for (int level = 0; level <= (int)best; level++) {
      if (tensor_level_set((enum tensor_level)level))
        continue;
      took[level][r] = time_statistics(m, dtype, data, &first[level][r]);
      ratio[level][r] = took[level][r] / reads[r];
      first[level][r] /= reads[r];
    }
  }
  (void)tensor_level_set(best);
  free(data);
  double scalar = least(took[0], rounds), bare = least(reads, rounds);
  printf("  %s, %s of %s, %.0f MB: one read %.2f ms\n", m->name, tensor_dtype_name(dtype), what, (double)bytes / 1e6,
         bare * 1e3);
  for (int level = (int)best; level >= 0; level--) {
    double own = least(took[level], rounds);
    printf("    %-8s %8.2f ms = %5.2f reads (median of rounds %5.2f, first pass %5.2f), %5.2f ns a number, %4.1f times as fast "
           "as scalar\n",
           names[level], own * 1e3, own / bare, median(ratio[level], rounds), median(first[level], rounds),
           own * 1e9 / (double)m->total, scalar / own);
  }
}

int main(int argc, char **argv) {
  static struct model resnet, large = {.name = "one tensor"};
  int rounds = argc > 1 ? atoi(argv[1]) : 15;
  rounds = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
  resnet50(&resnet);
  add(&large, 100000000);
  run(&resnet, TENSOR_F32, WEIGHTS, "weights", rounds);
  run(&large, TENSOR_F32, WEIGHTS, "weights", (rounds + 2) / 3);
  run(&resnet, TENSOR_BF16, WEIGHTS, "weights", rounds);
  run(&resnet, TENSOR_F16, WEIGHTS, "weights", rounds);
  run(&resnet, TENSOR_F64, WEIGHTS, "weights", (rounds + 1) / 2);
  run(&resnet, TENSOR_F32, HALF_ZEROS, "weights, half of them 0", rounds);
  run(&resnet, TENSOR_F32, SOME_NAN, "weights, one in 1,000 NaN", rounds);
  run(&resnet, TENSOR_F32, FAR, "weights about 1", rounds);
  run(&resnet, TENSOR_F32, OCTAVES, "weights of 64 octaves", rounds);
  run(&resnet, TENSOR_I8, WEIGHTS, "weights", (rounds + 1) / 2);
  return 0;
}
