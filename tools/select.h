/* The k-th smallest of many numbers, in linear time. */
#ifndef CIRRON_SELECT_H
#define CIRRON_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* Of n > 0 numbers, the index (in ascending order) of the one below or at which the part q lies: 0 to n - 1. */
size_t select_rank(double q, size_t n);

/* What stands at v[k] once v[from..end) is sorted, with from <= k < end. Moves the numbers about: those before k are not greater
 * afterwards, those behind it not less, so that the next, greater rank is found in v[k..end). */
uint32_t select_u32(uint32_t *v, size_t from, size_t end, size_t k);
uint64_t select_u64(uint64_t *v, size_t from, size_t end, size_t k);

#endif
