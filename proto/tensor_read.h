/* Reads a tensor, whichever way its numbers lie, and takes its statistics on the way. Both programs do it by this code; they differ in
 * where a piece of memory comes from. */
#ifndef CIRRON_TENSOR_READ_H
#define CIRRON_TENSOR_READ_H

#include <stddef.h>
#include <stdint.h>

#include "tensor_stats.h"

#define TENSOR_MAX_DIMS 64

struct tensor_view {
  uint64_t address; /* of the first number, in the process that has it */
  enum tensor_dtype dtype;
  uint32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* in numbers, not bytes; 0 and less than 0 are allowed; NULL: contiguous */
};

/* Number of numbers, or -EINVAL: a size below 0, or more bytes than an address space has. */
int64_t tensor_elements(const struct tensor_view *view);

/* `bytes` bytes at `address`: in `buffer`, which has that much room, or where they are. NULL: *error, a negative errno. */
typedef const void *(*tensor_fetch)(void *arg, uint64_t address, size_t bytes, void *buffer, int *error);
/* The next bytes of the tensor in C order, for a file. 0 or a negative errno, with which the reading ends. */
typedef int (*tensor_sink)(void *arg, const void *data, size_t bytes);

struct tensor_source {
  tensor_fetch fetch;
  void *fetch_arg;
  void *buffer; /* at least TENSOR_BUFFER_MIN bytes; more than a tensor's bytes spare the second fetch */
  size_t buffer_bytes;
  tensor_sink sink; /* or NULL */
  void *sink_arg;
};
#define TENSOR_BUFFER_MIN (1u << 20)

/* 0, *stats being the statistics, or a negative errno: -EINVAL for a view that cannot be, what fetch or sink returned. Nothing is given
 * to the sink twice. */
int tensor_read(const struct tensor_view *view, const struct tensor_source *source, struct tensor_stats *stats);

#endif
