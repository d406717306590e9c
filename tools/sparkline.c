#include "sparkline.h"

#include <math.h>

#define LEVEL_SHARE 0.01 /* of the greatest value: a span that is drawn over the full height at least */

static void add_level(struct buf *out, int level, bool utf8) {
  static const char *const blocks[SPARKLINE_LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char letters[] = "_.:-=+*#";
  level = level < 0 ? 0 : level >= SPARKLINE_LEVELS ? SPARKLINE_LEVELS - 1 : level;
  if (utf8)
    buf_puts(out, blocks[level]);
  else
    buf_putc(out, letters[level]);
}

static bool drawn(const struct sparkline_point *p) {
  return p->known && !p->bad && isfinite(p->value);
}

void sparkline_values(const struct sparkline_point *points, size_t n, bool utf8, struct buf *out) {
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < n; i++)
    if (drawn(&points[i])) {
      low = fmin(low, points[i].value);
      high = fmax(high, points[i].value);
    }
  /* Halves, because the whole range of huge numbers is none. */
  double middle = low / 2 + high / 2, half = high / 2 - low / 2, least = fmax(fabs(low), fabs(high)) * LEVEL_SHARE / 2;
  half = fmax(half, least);
  for (size_t i = 0; i < n; i++) {
    if (points[i].known && (points[i].bad || isinf(points[i].value)))
      buf_putc(out, '!');
    else if (!drawn(&points[i]))
      buf_putc(out, ' ');
    else if (half == 0)
      add_level(out, 0, utf8);
    else /* -1 to 1 becomes 0 to 7 */
      add_level(out, (int)lround(((points[i].value - middle) / half + 1) / 2 * (SPARKLINE_LEVELS - 1)), utf8);
  }
}

static double group(const uint64_t *counts, size_t n, size_t from, size_t per_glyph) {
  double sum = 0;
  for (size_t i = from; i < n && i < from + per_glyph; i++)
    sum += (double)counts[i];
  return sum;
}

void sparkline_counts(const uint64_t *counts, size_t n, size_t per_glyph, bool utf8, struct buf *out) {
  double most = 0;
  for (size_t i = 0; i < n; i += per_glyph)
    most = fmax(most, group(counts, n, i, per_glyph));
  for (size_t i = 0; i < n; i += per_glyph) {
    double sum = group(counts, n, i, per_glyph);
    add_level(out, sum > 0 ? 1 + (int)lround(sum / most * (SPARKLINE_LEVELS - 2)) : 0, utf8);
  }
}
