/* A few numbers of a tensor, to see whether they change. PyTorch's version counter tells of what is done to a tensor, but not of what is
 * written through `tensor.data`, or into an array that shares its memory: averaged weights are often swapped in like that.
 */
#ifndef CIRRON_SNAPSHOT_SAMPLE_H
#define CIRRON_SNAPSHOT_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* Of the tensor that lies here, whose memory has to be there. No strides: in C order, dense. */
uint64_t snapshot_sample(uint64_t address, size_t item_bytes, unsigned ndim, const int64_t *shape, const int64_t *strides);

#endif
