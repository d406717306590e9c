/* Text in UTF-8: reading a character, and cutting without cutting one. */
#ifndef CIRRON_UTF8_H
#define CIRRON_UTF8_H

#include <stddef.h>
#include <stdint.h>

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

#define UTF8_REPLACEMENT 0xfffdu

/* The character at text, of which `left` bytes (at least 1) are there, and how many it has: 1 to 4. 0: it is none, as overlong forms and
 * surrogates are; *code is the replacement character then, which stands for this one byte. */
static inline size_t utf8_decode(const char *text, size_t left, uint32_t *code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *p = (const unsigned char *)text;
  size_t n = p[0] < 0x80                   ? 1
             : p[0] >= 0xf0 && p[0] < 0xf8 ? 4
             : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
             : p[0] >= 0xc0 && p[0] < 0xe0 ? 2
                                           : 0;
  uint32_t c = n == 1 ? p[0] : n ? p[0] & (0x7fu >> n) : 0;
  *code = UTF8_REPLACEMENT;
  if (n == 0 || n > left)
    return 0;
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80)
      return 0;
    c = c << 6 | (p[i] & 0x3f);
  }
  if (n > 1 && (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)))
    return 0;
  *code = c;
  return n;
}

#endif
