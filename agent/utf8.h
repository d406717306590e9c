/* Cutting text without cutting a character. */
#ifndef CIRRON_UTF8_H
#define CIRRON_UTF8_H

#include <stddef.h>

/* How many bytes of text[0..len) to keep so that at most `max` remain and no UTF-8 character is cut in two. Bytes that are no
 * UTF-8 are cut at `max`. */
static inline size_t utf8_cut(const char *text, size_t len, size_t max) {
  if (len <= max)
    return len;
  size_t end = max;
  while (end > 0 && max - end < 3 && ((unsigned char)text[end] & 0xc0) == 0x80)
    end--;
  return ((unsigned char)text[end] & 0xc0) == 0x80 ? max : end;
}

#endif
