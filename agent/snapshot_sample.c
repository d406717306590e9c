/* See snapshot_sample.h. */
#include "snapshot_sample.h"

#include <string.h>

#include "../proto/tensor_read.h"

#define SAMPLES 8
#define ONE_LINE 64u /* a tensor so small is looked at as a whole */

static uint64_t one(uint64_t address, size_t item_bytes) {
  uint64_t number = 0;
  memcpy(&number, (const void *)(uintptr_t)address, item_bytes); /* NOLINT(performance-no-int-to-ptr) */
  return number;
}

static uint64_t mixed(uint64_t so_far, uint64_t number) {
  return (so_far ^ number) * 0x9e3779b97f4a7c15u;
}

uint64_t snapshot_sample(uint64_t address, size_t item_bytes, unsigned ndim, const int64_t *shape, const int64_t *strides) {
  int64_t step[TENSOR_MAX_DIMS], elements = 1;
  if (!address || item_bytes == 0 || item_bytes > sizeof(uint64_t))
    return 0;
  for (unsigned i = ndim; i-- > 0; elements *= shape[i])
    step[i] = strides ? strides[i] : elements;
  if (elements == 0)
    return 0;
  if (!strides && (uint64_t)elements * item_bytes <= ONE_LINE) {
    uint64_t all = 1;
    for (int64_t i = 0; i < elements; i++)
      all = mixed(all, one(address + (uint64_t)i * item_bytes, item_bytes));
    return all;
  }
  uint64_t sample = 1;
  for (int64_t k = 0; k < SAMPLES; k++) { /* from the first one to the last, along the diagonal */
    int64_t at = 0;
    for (unsigned i = 0; i < ndim; i++)
      at += (shape[i] - 1) * k / (SAMPLES - 1) * step[i];
    sample = mixed(sample, one(address + (uint64_t)(at * (int64_t)item_bytes), item_bytes));
  }
  return sample;
}
