/* Raw tensors that the process itself writes (proto/safetensors.h), where it reads them itself: weights.safetensors and
 * gradients.safetensors in the area's directory. GIL held.
 */
#ifndef CIRRON_SNAPSHOT_FILE_H
#define CIRRON_SNAPSHOT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshot_files;

/* For the request in the area; `folder` stays the caller's. NULL: they cannot be begun, and *error says why (negative). */
struct snapshot_files *files_begin(int folder, int *error);
/* The entry's bytes follow, by files_put. False: it goes into no file. */
bool files_next(struct snapshot_files *files, uint32_t entry);
int files_put(void *files, const void *data, size_t bytes); /* a tensor_sink */
/* What was read is all there, or it is not: then there is no file. Bits: 1 weights, 2 gradients are there; *error as above. */
unsigned files_end(struct snapshot_files *files, bool whole, int *error);

#endif
