/* Writes tensors into a file in the format of the public safetensors library, as they are read: in any order, each one as a whole.
 *
 *   uint64 length of the header | header: JSON, filled up with spaces to 8 bytes | the tensors' bytes, next to each other
 *
 * In the file they lie by the size of their numbers, larger ones first, so that each is aligned. The file has another name
 * (.NAME.*.tmp) until all of it is on the disk; a file of that kind whose writer is gone is removed by the next one. Links libc only, any thread.
 */
#ifndef CIRRON_SAFETENSORS_H
#define CIRRON_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor_stats.h"

struct safetensors_tensor {
  const char *name; /* any bytes; what is not UTF-8 becomes U+FFFD */
  size_t name_len;
  enum tensor_dtype dtype;
  uint32_t ndim;
  const int64_t *shape;
  bool left_out; /* set: another one before it has its name, or its name or type cannot be in such a file */
  uint64_t offset, bytes;
};

struct safetensors;

/* Begins NAME in `folder`, which must stay open. `tensors` must stay, too; their names and shapes only until it returns. -EOVERFLOW: sizes that cannot be. */
int safetensors_begin(int folder, const char *name, const char *span, struct safetensors_tensor *tensors, size_t n,
                      struct safetensors **out);
/* The bytes of tensor i follow, in C order. */
int safetensors_seek(struct safetensors *file, size_t i);
int safetensors_put(struct safetensors *file, const void *data, size_t bytes);

/* All of them are there: gives the file its name. Whatever it returns, `file` is gone, and so is the temporary file.
 * -EIO: of a tensor bytes are missing. */
int safetensors_end(struct safetensors *file, bool torn);
void safetensors_drop(struct safetensors *file); /* accepts NULL */

#endif
