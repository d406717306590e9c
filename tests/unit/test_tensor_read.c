// links: proto/tensor_read.c proto/tensor_stats.c proto/tensor_scalar.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor_read.h"

static uint64_t seed = 6;

static uint64_t random64(void) { /* xorshift: the same numbers in each run */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}

static int64_t between(int64_t low, int64_t high) {
  return low + (int64_t)(random64() % (uint64_t)(high - low + 1));
}

/* ---- a process to read from ---- */

struct process {
  const uint8_t *memory;
  uint64_t address, bytes; /* where it claims to have it */
  bool direct;             /* memory is given as it is */
  int fails_at;            /* the fetch that fails; 0: none */
  int fetches, rows;
  uint64_t fetched;
  void (*at_fetch)(struct process *p);
};

static const uint8_t *memory_at(struct process *p, uint64_t address, size_t bytes) {
  assert_true(bytes > 0);
  assert_true(address >= p->address && bytes <= p->bytes && address - p->address <= p->bytes - bytes);
  p->fetched += bytes;
  return p->memory + (address - p->address);
}

static const void *fetch(void *arg, uint64_t address, size_t bytes, void *buffer, int *error) {
  struct process *p = arg;
  if (p->at_fetch)
    p->at_fetch(p);
  if (++p->fetches == p->fails_at) {
    *error = -EFAULT;
    return NULL;
  }
  const uint8_t *data = memory_at(p, address, bytes);
  return p->direct ? data : memcpy(buffer, data, bytes);
}

static int fetch_rows(void *arg, const uint64_t *addresses, unsigned n, size_t bytes, void *buffer) {
  struct process *p = arg;
  assert_true(n >= 1 && n <= TENSOR_ROWS);
  if (++p->fetches == p->fails_at)
    return -EFAULT;
  p->rows += (int)n;
  for (unsigned i = 0; i < n; i++)
    memcpy((uint8_t *)buffer + i * bytes, memory_at(p, addresses[i], bytes), bytes);
  return 0;
}

struct file {
  uint8_t *data;
  size_t bytes, room;
  int fails_at, calls;
};

static int sink(void *arg, const void *data, size_t bytes) {
  struct file *f = arg;
  if (++f->calls == f->fails_at)
    return -ENOSPC;
  assert_true(bytes <= f->room - f->bytes);
  memcpy(f->data + f->bytes, data, bytes);
  f->bytes += bytes;
  return 0;
}

/* ---- a reference ---- */

/* The numbers one by one, as the indices say. */
static uint8_t *gathered(const struct tensor_view *v, const struct process *p, size_t n) {
  size_t size = tensor_size(v->dtype);
  uint8_t *out = malloc(n * size + 1);
  int64_t index[TENSOR_MAX_DIMS] = {0};
  assert_non_null(out);
  for (size_t i = 0; i < n; i++) {
    int64_t at = 0, stride = 1;
    for (unsigned d = v->ndim; d-- > 0;) {
      at += index[d] * (v->strides ? v->strides[d] : stride);
      stride *= v->shape[d];
    }
    memcpy(out + i * size, p->memory + (v->address - p->address) + at * (int64_t)size, size);
    for (unsigned d = v->ndim; d-- > 0;) {
      if (++index[d] < v->shape[d])
        break;
      index[d] = 0;
    }
  }
  return out;
}

static void statistics(enum tensor_dtype dtype, const void *data, size_t n, struct tensor_stats *stats) {
  struct tensor_pass pass;
  tensor_pass_begin(&pass, dtype);
  tensor_pass_moments(&pass, data, n);
  tensor_pass_turn(&pass);
  tensor_pass_histogram(&pass, data, n);
  *stats = pass.stats;
}

static void close_to(double x, double expected, double within) {
  if (isnan(expected) ? !isnan(x) : x != expected && !(fabs(x - expected) <= within))
    fail_msg("%.17g, not %.17g", x, expected);
}

/* The same, but for the order of the sums. */
static void compare(const struct tensor_stats *s, const struct tensor_stats *r) {
  double rms = r->norm / sqrt((double)r->count);
  close_to(s->mean, r->mean, 1e-14 * rms);
  close_to(s->std, r->std, 1e-13 * r->std);
  close_to(s->norm, r->norm, 1e-13 * r->norm);
  struct tensor_stats rest = *s;
  rest.mean = r->mean, rest.std = r->std, rest.norm = r->norm;
  assert_memory_equal(&rest, r, sizeof rest);
}

static void *buffer;
static size_t buffer_bytes = TENSOR_BUFFER_MIN;

/* Every way to read one view. */
static void check(const struct tensor_view *v, struct process *p) {
  int64_t n = tensor_elements(v);
  assert_true(n >= 0);
  size_t bytes = (size_t)n * tensor_size(v->dtype);
  uint8_t *expected = gathered(v, p, (size_t)n);
  struct tensor_stats r, s;
  statistics(v->dtype, expected, (size_t)n, &r);
  for (int way = 0; way < 8; way++) {
    p->direct = way & 1;
    struct file file = {.data = malloc(bytes + 1), .room = bytes};
    struct tensor_source source = {.fetch = fetch, .fetch_arg = p, .buffer = buffer, .buffer_bytes = buffer_bytes};
    source.fetch_rows = way & 2 ? fetch_rows : NULL;
    if (way & 4) {
      source.sink = sink;
      source.sink_arg = &file;
    }
    memset(&s, 0xee, sizeof s);
    assert_non_null(file.data);
    assert_int_equal(tensor_read(v, &source, &s), 0);
    if (way & 4) {
      assert_int_equal(file.bytes, bytes);
      assert_memory_equal(file.data, expected, bytes);
      assert_memory_equal(&s, &r, sizeof s); /* bit for bit: the order is the same */
    } else {
      compare(&s, &r);
    }
    free(file.data);
  }
  free(expected);
}

static float *floats(size_t n) {
  float *x = malloc(n * sizeof *x);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++)
    x[i] = (float)((double)(random64() >> 11) * 0x1p-52 - 1);
  return x;
}

#define BASE 0x7f0000001000ull

static struct process process_of(const void *memory, size_t bytes) {
  return (struct process){.memory = memory, .address = BASE, .bytes = bytes};
}

#define LIST(...) ((const int64_t[]){__VA_ARGS__})

/* ---- tests ---- */

enum { ROWS = 700, COLUMNS = 1100, N = ROWS * COLUMNS }; /* 3 MB of floats: several pieces, and more than the buffer */

static void test_usual_views(void **state) {
  (void)state;
  float *x = floats(N);
  struct process p = process_of(x, N * sizeof *x);
  const struct {
    uint64_t first;
    uint32_t ndim;
    const int64_t *shape, *strides;
  } views[] = {
      {0, 1, LIST(N), NULL},
      {0, 2, LIST(ROWS, COLUMNS), LIST(COLUMNS, 1)},
      {0, 3, LIST(ROWS, 1, COLUMNS), LIST(COLUMNS, -77, 1)},      /* a dimension of one may have any stride */
      {0, 2, LIST(COLUMNS, ROWS), LIST(1, COLUMNS)},              /* transposed */
      {0, 2, LIST(ROWS / 2, COLUMNS), LIST(2 * COLUMNS, 1)},      /* every other row */
      {1, 2, LIST(ROWS, COLUMNS / 2), LIST(COLUMNS, 2)},          /* every other column */
      {5, 2, LIST(ROWS, 1), LIST(COLUMNS, 1)},                    /* a column */
      {5, 1, LIST(ROWS), LIST(COLUMNS)},                          /* the same */
      {7, 2, LIST(ROWS, 600), LIST(COLUMNS, 1)},                  /* a part of each row */
      {7, 2, LIST(ROWS, 9), LIST(COLUMNS, 100)},                  /* far from each other */
      {N - 1, 1, LIST(N), LIST(-1)},                              /* flipped */
      {N - COLUMNS, 2, LIST(ROWS, COLUMNS), LIST(-COLUMNS, 1)},   /* upside down */
      {COLUMNS - 1, 2, LIST(ROWS, COLUMNS), LIST(COLUMNS, -1)},   /* mirrored */
      {N - 1, 2, LIST(COLUMNS, ROWS), LIST(-1, -COLUMNS)},        /* both, transposed */
      {4, 1, LIST(N), LIST(0)},                                   /* one number, broadcast */
      {0, 3, LIST(40, ROWS, 30), LIST(0, 1, 0)},                  /* a row, broadcast */
      {0, 4, LIST(50, 40, 7, 11), LIST(40 * 77, 1, 11 * 40, 40)}, /* channels last */
      {0, 4, LIST(11, 7, 40, 50), LIST(40, 440, 1, 3080)},        /* and the other way around */
      {0, 2, LIST(4000, 100), LIST(1, 1)},                        /* windows that overlap */
      {9, 0, NULL, NULL},                                         /* a single number */
      {0, 2, LIST(0, 5), LIST(5, 1)},
      {0, 3, LIST(1ll << 62, 0, 1ll << 62), NULL}, /* nothing */
  };
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
    struct tensor_view v = {BASE + 4 * views[i].first, TENSOR_F32, views[i].ndim, views[i].shape, views[i].strides};
    check(&v, &p);
  }
  free(x);
}

/* Any view that fits into some memory. */
static void test_random_views(void **state) {
  (void)state;
  enum { BYTES = 1 << 18 };
  uint8_t *x = malloc(BYTES);
  assert_non_null(x);
  for (size_t i = 0; i < BYTES; i++)
    x[i] = (uint8_t)random64();
  struct process p = process_of(x, BYTES);
  for (int round = 0; round < 600; round++) {
    int64_t shape[6], strides[6], low = 0, high = 0, n = 1;
    struct tensor_view v = {.dtype = (enum tensor_dtype)between(1, TENSOR_DTYPES - 1), .ndim = (uint32_t)between(0, 6)};
    int64_t size = (int64_t)tensor_size(v.dtype), room = BYTES / size - 1;
    for (unsigned d = 0; d < v.ndim; d++) {
      int64_t most = (round % 16 ? 5000 : 200000) / n < 1 ? 1 : (round % 16 ? 5000 : 200000) / n;
      shape[d] = round % 3 ? between(1, most < 12 ? most : 12) : between(1, most);
      int64_t reach = (room - (high - low)) / (shape[d] > 1 ? shape[d] - 1 : 1);
      strides[d] = random64() % 3 ? between(-(reach < 4 ? reach : 4), reach < 4 ? reach : 4) : between(-reach, reach);
      *(strides[d] < 0 ? &low : &high) += strides[d] * (shape[d] - 1);
      n *= shape[d];
    }
    v.shape = shape;
    v.strides = strides;
    /* at odd addresses as well */
    v.address = BASE + (uint64_t)(-low * size + between(0, BYTES - (high - low + 1) * size));
    /* nothing outside of the view is asked for */
    p.address = v.address + (uint64_t)(low * size);
    p.bytes = (uint64_t)((high - low + 1) * size);
    p.memory = x + (p.address - BASE);
    check(&v, &p);
  }
  free(x);
}

static void test_larger_buffer(void **state) {
  (void)state;
  static const size_t sizes[] = {TENSOR_BUFFER_MIN + 13, 4 * TENSOR_BUFFER_MIN};
  float *x = floats(N);
  struct process p = process_of(x, N * sizeof *x);
  for (int i = 0; i < 2; i++) {
    buffer_bytes = sizes[i];
    buffer = realloc(buffer, buffer_bytes);
    check(&(struct tensor_view){BASE, TENSOR_F32, 1, LIST(N), NULL}, &p);
    check(&(struct tensor_view){BASE, TENSOR_F32, 2, LIST(COLUMNS, ROWS), LIST(1, COLUMNS)}, &p);
    check(&(struct tensor_view){BASE, TENSOR_F64, 2, LIST(COLUMNS / 2, ROWS), LIST(1, COLUMNS / 2)}, &p);
  }
  buffer_bytes = TENSOR_BUFFER_MIN;
  free(x);
}

/* How much is asked for, and how often. */
static void test_extents(void **state) {
  (void)state;
  enum { BIG = 4 << 20 };
  float *x = floats(BIG);
  struct process p = process_of(x, BIG * sizeof *x);
  struct tensor_stats s;
  struct tensor_source source = {
      .fetch = fetch, .fetch_rows = fetch_rows, .fetch_arg = &p, .buffer = buffer, .buffer_bytes = buffer_bytes};
  const struct {
    struct tensor_view view;
    int most_fetches;
    uint64_t most_bytes; /* both passes */
  } cases[] = {
      {{BASE, TENSOR_F32, 1, LIST(BIG), NULL}, 66, 2 * 4 * BIG},
      {{BASE, TENSOR_F32, 1, LIST(200000), NULL}, 2, 4 * 200000}, /* fits: once */
      {{BASE, TENSOR_F32, 2, LIST(2048, 2048), LIST(1, 2048)}, 66, 2 * 4 * BIG},
      {{BASE, TENSOR_F32, 1, LIST(BIG / 2), LIST(2)}, 80, 2 * 4 * BIG},
      {{BASE, TENSOR_F32, 2, LIST(2048, 512), LIST(2048, 1)}, 50, 2 * 4 * BIG / 4}, /* rows of a quarter */
      {{BASE, TENSOR_F32, 1, LIST(4096), LIST(1024)}, 16, 4 * 4096},                /* numbers far apart: batches of rows */
      {{BASE, TENSOR_F32, 2, LIST(BIG, 4), LIST(0, 1)}, 1000, 2ull * 16 * 1000},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    p.fetches = 0;
    p.fetched = 0;
    assert_int_equal(tensor_read(&cases[i].view, &source, &s), 0);
    if (p.fetches > cases[i].most_fetches || p.fetched > cases[i].most_bytes)
      fail_msg("view %zu: %d fetches of %llu bytes", i, p.fetches, (unsigned long long)p.fetched);
  }
  free(x);
}

static void test_views_that_cannot_be(void **state) {
  (void)state;
  float *x = floats(64);
  struct process p = process_of(x, 64 * sizeof *x);
  struct tensor_source source = {.fetch = fetch, .fetch_arg = &p, .buffer = buffer, .buffer_bytes = buffer_bytes};
  int64_t ones[TENSOR_MAX_DIMS + 1];
  for (int i = 0; i <= TENSOR_MAX_DIMS; i++)
    ones[i] = 1;
  const struct {
    struct tensor_view view;
    int error;
  } cases[] = {
      {{BASE, TENSOR_NONE, 1, LIST(4), NULL}, -EINVAL},
      {{BASE, TENSOR_DTYPES, 1, LIST(4), NULL}, -EINVAL},
      {{BASE, (enum tensor_dtype)255, 1, LIST(4), NULL}, -EINVAL},
      {{BASE, TENSOR_F32, 1, LIST(-1), NULL}, -EINVAL},
      {{BASE, TENSOR_F32, 2, LIST(0, INT64_MIN), NULL}, -EINVAL},
      {{BASE, TENSOR_F32, TENSOR_MAX_DIMS + 1, ones, NULL}, -EINVAL},
      {{BASE, TENSOR_F32, 2, LIST(INT64_MAX, INT64_MAX), NULL}, -EFBIG},
      {{BASE, TENSOR_F32, 2, LIST(1ll << 32, 1ll << 32), NULL}, -EFBIG}, /* 0 in 64 bits */
      {{BASE, TENSOR_F32, 1, LIST((1ll << 40) + 1), LIST(0)}, -EFBIG},
      {{BASE, TENSOR_F32, 1, LIST(2), LIST(INT64_MAX)}, -EINVAL},
      {{BASE, TENSOR_F32, 1, LIST(2), LIST(INT64_MIN)}, -EINVAL},
      {{BASE, TENSOR_F32, 2, LIST(2, 2), LIST(INT64_MIN, INT64_MAX)}, -EINVAL},
      {{BASE, TENSOR_F32, 1, LIST(2), LIST(-(int64_t)BASE)}, -EINVAL},
      {{0, TENSOR_I8, 1, LIST(2), LIST(-1)}, -EINVAL},
      {{UINT64_MAX, TENSOR_I8, 1, LIST(4), NULL}, -EINVAL},
      {{INT64_MAX - 4, TENSOR_F32, 1, LIST(1), NULL}, -ENXIO},
      {{INT64_MAX - 3, TENSOR_F32, 1, LIST(1), NULL}, -EINVAL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct tensor_stats s = {.count = 7};
    if (cases[i].error == -ENXIO) { /* the last one that can be */
      assert_int_equal(tensor_elements(&cases[i].view), 1);
      continue;
    }
    assert_int_equal(tensor_elements(&cases[i].view), cases[i].error);
    assert_int_equal(tensor_read(&cases[i].view, &source, &s), cases[i].error);
    assert_int_equal(s.count, 7);
  }
  assert_int_equal(p.fetches, 0);
  source.buffer_bytes = TENSOR_BUFFER_MIN - 1;
  struct tensor_stats s;
  assert_int_equal(tensor_read(&(struct tensor_view){BASE, TENSOR_F32, 1, LIST(4), NULL}, &source, &s), -EINVAL);
  assert_int_equal(tensor_elements(&(struct tensor_view){BASE, TENSOR_F32, TENSOR_MAX_DIMS, ones, ones}), 1);
  free(x);
}

/* Each fetch and each call of the sink fails once: that is what comes back, and nothing goes on. */
static void test_errors(void **state) {
  (void)state;
  float *x = floats(N);
  struct tensor_view views[] = {
      {BASE, TENSOR_F32, 1, LIST(N), NULL},
      {BASE, TENSOR_F32, 2, LIST(COLUMNS, ROWS), LIST(1, COLUMNS)},
      {BASE, TENSOR_F32, 2, LIST(ROWS, 9), LIST(COLUMNS, 100)},
  };
  for (int k = 0; k < 12; k++) {
    bool rows = k & 1, sinks = k & 2;
    const struct tensor_view *v = &views[k / 4];
    struct tensor_stats s = {.count = 7};
    int at = 1, rc = -1;
    for (; rc; at += at < 20 ? 1 : at / 3) { /* not each of thousands */
      struct process p = process_of(x, N * sizeof *x);
      struct file file = {.data = malloc(N * sizeof *x), .room = N * sizeof *x};
      struct tensor_source source = {.fetch = fetch, .fetch_arg = &p, .buffer = buffer, .buffer_bytes = buffer_bytes};
      source.fetch_rows = rows ? fetch_rows : NULL;
      source.sink = sinks ? sink : NULL;
      source.sink_arg = &file;
      p.fails_at = at;
      rc = tensor_read(v, &source, &s);
      assert_true(rc == 0 || (rc == -EFAULT && p.fetches == at && s.count == 7));
      p.fails_at = 0;
      if (sinks && rc) {
        file.bytes = 0, file.calls = 0, file.fails_at = at;
        int end = tensor_read(v, &source, &s);
        assert_true(end == 0 || (end == -ENOSPC && file.calls == at && s.count == 7));
        s.count = 7;
      }
      free(file.data);
    }
    assert_true(at > 2);
  }
  free(x);
}

static float *changing;
static size_t changing_n;

static void change(struct process *p) {
  if (p->fetches == 3)
    for (size_t i = 0; i < changing_n; i++)
      changing[i] = i % 2 ? NAN : 1e30f;
}

/* The process goes on while it is read: counts stay sane. */
static void test_changed_while_read(void **state) {
  (void)state;
  changing = floats(N);
  changing_n = N;
  struct process p = process_of(changing, N * sizeof *changing);
  p.at_fetch = change;
  struct tensor_source source = {.fetch = fetch, .fetch_arg = &p, .buffer = buffer, .buffer_bytes = buffer_bytes};
  struct tensor_stats s;
  assert_int_equal(tensor_read(&(struct tensor_view){BASE, TENSOR_F32, 1, LIST(N), NULL}, &source, &s), 0);
  uint64_t binned = 0;
  for (int i = 0; i < TENSOR_BINS; i++)
    binned += s.histogram[i];
  assert_int_equal(s.count, N);
  assert_true(s.nans > 0 && s.nans <= N / 2 && binned <= N);
  free(changing);
}

static int begin(void **state) {
  (void)state;
  buffer = malloc(buffer_bytes);
  return buffer ? 0 : -1;
}

static int end(void **state) {
  (void)state;
  free(buffer);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_usual_views),
      cmocka_unit_test(test_random_views),
      cmocka_unit_test(test_larger_buffer),
      cmocka_unit_test(test_extents),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_changed_while_read),
      cmocka_unit_test(test_views_that_cannot_be),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
