/* Histograms of durations (HISTOGRAM_BINS, proto/store_abi.h): counts that can be added, kept small, and asked for quantiles.
 *
 * The collector packs them into roll-ups, readers add and read them. What is unpacked is treated as hostile.
 */
#ifndef CIRRON_HISTOGRAM_H
#define CIRRON_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "store_abi.h"

/* What histogram_pack writes at most: a gap of two bytes and a count of five. */
#define HISTOGRAM_PACKED_MAX (HISTOGRAM_BINS * 7)

unsigned histogram_bin(uint64_t duration_ns);

/* The least and the greatest duration of a bin. Bins of less than 8 ns that hold no whole number have high < low. */
void histogram_bounds(unsigned bin, uint64_t *low, uint64_t *high);

/* Returns the bytes written to out, 0 if all counts are 0. */
size_t histogram_pack(const uint32_t counts[HISTOGRAM_BINS], uint8_t out[HISTOGRAM_PACKED_MAX]);

/* Adds a packed histogram to counts (sums stay at their greatest value instead of running over). Returns 0, or -EBADMSG with counts
 * as they were. */
int histogram_add_packed(uint64_t counts[HISTOGRAM_BINS], const uint8_t *data, size_t len);

/* The duration below which the part q (0 to 1) of all lies: exact to the bin, a straight line within it, and never outside
 * [min_ns, max_ns], which the caller knows (0, UINT64_MAX if not). 0 if there are no counts. */
uint64_t histogram_quantile(const uint64_t counts[HISTOGRAM_BINS], double q, uint64_t min_ns, uint64_t max_ns);

#endif
