/* A row of numbers as one line of text: eight heights, a character each; letters where the locale has no blocks. */
#ifndef CIRRON_SPARKLINE_H
#define CIRRON_SPARKLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define SPARKLINE_LEVELS 8

struct sparkline_point {
  bool known;   /* else a gap */
  bool bad;     /* "!": what is not finite is not drawn */
  double value; /* NaN: a gap */
};

/* From the least to the greatest of the finite values. Values that are within 1 % of each other are drawn as such: nearly level. */
void sparkline_values(const struct sparkline_point *points, size_t n, bool utf8, struct buf *out);

/* A histogram: the highest bin has the full height, an empty one none, any other at least the second height. `per_glyph` bins
 * are taken together. */
void sparkline_counts(const uint64_t *counts, size_t n, size_t per_glyph, bool utf8, struct buf *out);

#endif
