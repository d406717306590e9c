/* Histograms of durations (histogram.h); the layout of bins and of the packed form is that of store_abi.h. */
#include "histogram.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "varint.h"

unsigned histogram_bin(uint64_t duration_ns) {
  if (!duration_ns)
    return 0;
  unsigned e = 63 - (unsigned)__builtin_clzll(duration_ns);
  uint64_t top = e >= 3 ? duration_ns >> (e - 3) : duration_ns << (3 - e);
  return 1 + 8 * e + (unsigned)(top & 7);
}

void histogram_bounds(unsigned bin, uint64_t *low, uint64_t *high) {
  assert(bin < HISTOGRAM_BINS);
  if (!bin) {
    *low = *high = 0;
    return;
  }
  unsigned e = (bin - 1) / 8;
  uint64_t top = 8 + (bin - 1) % 8;
  if (e >= 3) {
    *low = top << (e - 3);
    *high = *low + (1ull << (e - 3)) - 1;
  } else { /* less than one wide: the whole numbers in it, if any */
    unsigned down = 3 - e;
    *low = (top + (1u << down) - 1) >> down;
    *high = ((top + (1u << down)) >> down) - 1;
  }
}

size_t histogram_pack(const uint32_t counts[HISTOGRAM_BINS], uint8_t out[HISTOGRAM_PACKED_MAX]) {
  uint8_t *p = out;
  unsigned before = 0;
  for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++) {
    if (!counts[bin])
      continue;
    p = varint_put(p, bin - before);
    p = varint_put(p, counts[bin]);
    before = bin;
  }
  return (size_t)(p - out);
}

/* The next pair; NULL if it is damaged. *bin is the bin before it, then its own. */
static const uint8_t *pair_get(const uint8_t *p, const uint8_t *end, uint64_t *bin, uint64_t *count) {
  uint64_t gap;
  p = varint_get(p, end, &gap);
  if (!p || gap >= HISTOGRAM_BINS - *bin)
    return NULL;
  *bin += gap;
  return varint_get(p, end, count);
}

int histogram_add_packed(uint64_t counts[HISTOGRAM_BINS], const uint8_t *data, size_t len) {
  const uint8_t *end = data + len;
  uint64_t bin = 0, count = 0;
  for (const uint8_t *p = data; p != end;)
    if (!(p = pair_get(p, end, &bin, &count)))
      return -EBADMSG;
  bin = 0;
  for (const uint8_t *p = data; p != end;) {
    p = pair_get(p, end, &bin, &count);
    if (__builtin_add_overflow(counts[bin], count, &counts[bin]))
      counts[bin] = UINT64_MAX;
  }
  return 0;
}

static double total_of(const uint64_t counts[HISTOGRAM_BINS]) {
  double total = 0;
  for (unsigned bin = 0; bin < HISTOGRAM_BINS; bin++)
    total += (double)counts[bin];
  return total;
}

uint64_t histogram_quantile(const uint64_t counts[HISTOGRAM_BINS], double q, uint64_t min_ns, uint64_t max_ns) {
  double total = total_of(counts), below = 0;
  if (!(total > 0))
    return 0;
  double rank = fmax(1, ceil(fmin(fmax(q, 0), 1) * total)); /* the rank-th smallest */
  unsigned bin = 0, last = 0;
  for (; bin < HISTOGRAM_BINS; bin++) {
    if (counts[bin])
      last = bin;
    if (below + (double)counts[bin] >= rank)
      break;
    below += (double)counts[bin];
  }
  if (bin == HISTOGRAM_BINS) /* sums of doubles may be a little short */
    bin = last;
  uint64_t low, high;
  histogram_bounds(bin, &low, &high);
  uint64_t value = low;
  if (high > low && counts[bin]) {
    double part = fmin(fmax((rank - below - 0.5) / (double)counts[bin], 0), 1);
    value = low + (uint64_t)(part * (double)(high - low));
  }
  return value < min_ns ? min_ns : value > max_ns ? max_ns : value;
}
