/* Reads a tensor, whichever way its numbers lie, and takes its statistics on the way. Both programs do it by this code; they differ in
 * where a piece of memory comes from. */
#ifndef CIRRON_TENSOR_READ_H
#define CIRRON_TENSOR_READ_H

#include <stddef.h>
#include <stdint.h>

#include "tensor_stats.h"

#define TENSOR_MAX_DIMS 64
/* No tensor has more numbers. It bounds what a view that was made up can cost: at most so many numbers are looked at, each in constant
 * time, and for each at most TENSOR_GAP bytes more than its own are asked for. Who wants a bound in time returns an error from fetch. */
#define TENSOR_MAX_ELEMENTS (1ull << 40)
#define TENSOR_GAP 2048

struct tensor_view {
  uint64_t address; /* of the first number, in the process that has it */
  enum tensor_dtype dtype;
  uint32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* in numbers, not bytes; 0 and less than 0 are allowed; NULL: contiguous */
};

/* Number of numbers, or -EINVAL: no type, too many dimensions, a size below 0, or a number that would lie outside of the address space;
 * -EFBIG: more than TENSOR_MAX_ELEMENTS. */
int64_t tensor_elements(const struct tensor_view *view);

/* `bytes` bytes at `address`: in `buffer`, which has that much room, or where they are. NULL: *error, a negative errno. */
typedef const void *(*tensor_fetch)(void *arg, uint64_t address, size_t bytes, void *buffer, int *error);
/* `n` rows of `bytes` bytes each, `n` at most TENSOR_ROWS, one after another into `buffer`. 0 or a negative errno. */
typedef int (*tensor_fetch_rows)(void *arg, const uint64_t *addresses, unsigned n, size_t bytes, void *buffer);
#define TENSOR_ROWS 256
/* The next bytes of the tensor in C order, for a file. 0 or a negative errno, with which the reading ends. */
typedef int (*tensor_sink)(void *arg, const void *data, size_t bytes);

struct tensor_source {
  tensor_fetch fetch;
  tensor_fetch_rows fetch_rows; /* or NULL: row by row. For views whose numbers lie far apart */
  void *fetch_arg;
  void *buffer; /* at least TENSOR_BUFFER_MIN bytes; more than a tensor's bytes spare the second fetch */
  size_t buffer_bytes;
  tensor_sink sink; /* or NULL */
  void *sink_arg;
};
#define TENSOR_BUFFER_MIN (1u << 20)

/* 0, *stats being the statistics, or a negative errno: what tensor_elements says of the view, or fetch or sink returned. Nothing is given
 * to the sink twice. Without a sink the numbers are taken in the order in which they lie in memory: the statistics are the same
 * but for the last bits of mean, std and norm. What lies in gaps of up to TENSOR_GAP bytes between numbers may be fetched with them;
 * nothing before the first or after the last number is. */
int tensor_read(const struct tensor_view *view, const struct tensor_source *source, struct tensor_stats *stats);

#endif
