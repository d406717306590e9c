// links: proto/tensor_read.c proto/tensor_stats.c proto/tensor_scalar.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* Views of tensors as a hostile process lists them, read out of a small memory. Bytes: dtype, number of dimensions, ways (1: rows are
 * fetched by themselves, 2: a sink, 4: memory is given as it is), the level; 8 of address, from the memory's start on; for each
 * dimension 9 of shape and 9 of stride: how far the number is shifted down (so that small ones are easily found), and the number. The
 * rest is what lies in memory, over and over. What is small is compared with what the indices say. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor_read.h"
#include "tests/fuzz/fuzz.h"

enum { BYTES = 1 << 15, MOST_DIMS = 70, MOST_FETCHES = 8, COMPARED = 4096 };
#define BASE 0x550000000000ull

struct memory {
  uint8_t *data;
  int fetches;
  int64_t sunk;
  uint8_t file[COMPARED * 8];
  int direct;
};

static const uint8_t *at(struct memory *m, uint64_t address, size_t bytes, int *error) {
  if (!bytes)
    abort();
  *error = ++m->fetches > MOST_FETCHES ? -ECANCELED : -EFAULT; /* patience has an end */
  if (m->fetches > MOST_FETCHES || address < BASE || bytes > BYTES || address - BASE > BYTES - bytes)
    return NULL;
  *error = 0;
  return m->data + (address - BASE);
}

static const void *fetch(void *arg, uint64_t address, size_t bytes, void *buffer, int *error) {
  struct memory *m = arg;
  const uint8_t *data = at(m, address, bytes, error);
  return !data || m->direct ? data : memcpy(buffer, data, bytes);
}

static int fetch_rows(void *arg, const uint64_t *addresses, unsigned n, size_t bytes, void *buffer) {
  struct memory *m = arg;
  int error, before = m->fetches;
  if (!n || n > TENSOR_ROWS)
    abort();
  for (unsigned i = 0; i < n; i++) {
    m->fetches = before;
    const uint8_t *data = at(m, addresses[i], bytes, &error);
    if (!data)
      return error;
    memcpy((uint8_t *)buffer + i * bytes, data, bytes);
  }
  return 0;
}

static int sink(void *arg, const void *data, size_t bytes) {
  struct memory *m = arg;
  if (m->sunk + (int64_t)bytes <= (int64_t)sizeof m->file)
    memcpy(m->file + m->sunk, data, bytes);
  m->sunk += (int64_t)bytes;
  return 0;
}

static void compare(const struct tensor_view *v, struct memory *m, int64_t n) {
  size_t size = tensor_size(v->dtype);
  int64_t index[MOST_DIMS] = {0};
  if (m->sunk != n * (int64_t)size)
    abort();
  for (int64_t i = 0; i < n; i++) {
    uint64_t address = v->address, step = size;
    for (unsigned d = v->ndim; d-- > 0;) {
      address += (uint64_t)index[d] * (v->strides ? (uint64_t)v->strides[d] * size : step);
      step *= (uint64_t)v->shape[d];
    }
    if (memcmp(m->file + (size_t)i * size, m->data + (address - BASE), size) != 0)
      abort();
    for (unsigned d = v->ndim; d-- > 0;) {
      if (++index[d] < v->shape[d])
        break;
      index[d] = 0;
    }
  }
}

static int64_t number(const uint8_t *data) {
  int64_t x;
  memcpy(&x, data + 1, 8);
  return x >> (data[0] & 63);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static uint8_t buffer[TENSOR_BUFFER_MIN];
  int64_t shape[MOST_DIMS], strides[MOST_DIMS];
  if (len < 12)
    return 0;
  struct tensor_view v = {.dtype = (enum tensor_dtype)data[0], .ndim = data[1] % MOST_DIMS, .shape = shape};
  uint8_t ways = data[2], level = data[3];
  memcpy(&v.address, data + 4, 8);
  v.address += BASE;
  data += 12, len -= 12;
  if (len < v.ndim * 18u + 1)
    return 0;
  for (unsigned d = 0; d < v.ndim; d++, data += 18, len -= 18) {
    shape[d] = number(data);
    strides[d] = number(data + 9);
  }
  v.strides = ways & 8 ? NULL : strides;
  struct memory *m = calloc(1, sizeof *m);
  uint8_t *bytes = malloc(BYTES);
  if (!m || !bytes)
    abort();
  for (size_t i = 0; i < BYTES; i += len)
    memcpy(bytes + i, data, len < BYTES - i ? len : BYTES - i);
  m->data = bytes;
  m->direct = ways & 4;
  struct tensor_source source = {
      .fetch = fetch, .fetch_arg = m, .buffer = buffer, .buffer_bytes = sizeof buffer, .sink_arg = m};
  source.fetch_rows = ways & 1 ? fetch_rows : NULL;
  source.sink = ways & 2 ? sink : NULL;
  (void)tensor_level_set((enum tensor_level)(level % (TENSOR_AVX512 + 1))); /* what there is */
  int64_t n = tensor_elements(&v);
  struct tensor_stats stats;
  int rc = tensor_read(&v, &source, &stats);
  if (n < 0 ? rc != n : !rc && stats.count != (uint64_t)n)
    abort();
  if (!rc && source.sink && n <= COMPARED)
    compare(&v, m, n);
  uint64_t binned = 0, scaled = 0;
  for (int i = 0; !rc && i < TENSOR_BINS; i++)
    binned += stats.histogram[i];
  for (int i = 0; !rc && i < TENSOR_MAGNITUDES; i++)
    scaled += stats.magnitude[i];
  if (!rc && (binned + stats.nans + stats.infs + stats.neg_infs != stats.count || scaled + stats.zeros != binned))
    abort();
  free(bytes);
  free(m);
  return 0;
}
