#include "utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Length of the character at p, and whether it is one. If not, the length is that of the bytes that could have begun one (at least
 * 1), so that they are replaced together. */
static size_t character(const uint8_t *p, size_t left, bool *good) {
  *good = true;
  if (p[0] < 0x80)
    return 1;
  *good = false;
  uint8_t least = 0x80, most = 0xbf; /* of the second byte */
  size_t want = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : p[0] >= 0xe0 && p[0] <= 0xef ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 1;
  if (p[0] == 0xe0)
    least = 0xa0; /* shorter forms exist */
  else if (p[0] == 0xed)
    most = 0x9f; /* surrogates */
  else if (p[0] == 0xf0)
    least = 0x90;
  else if (p[0] == 0xf4)
    most = 0x8f; /* beyond U+10FFFF */
  size_t have = 1;
  while (have < want && have < left && p[have] >= least && p[have] <= most) {
    have++;
    least = 0x80;
    most = 0xbf;
  }
  *good = want > 1 && have == want;
  return have;
}

size_t utf8_valid(const char *text, size_t len) {
  const uint8_t *p = (const uint8_t *)text;
  size_t at = 0;
  while (at < len) {
    bool good;
    size_t n = character(p + at, len - at, &good);
    if (!good)
      break;
    at += n;
  }
  return at;
}

char *utf8_clean(const char *text, size_t len, size_t *out_len) {
  static const char replacement[] = "\xef\xbf\xbd";
  if (len > (SIZE_MAX - 1) / 3)
    return NULL;
  char *out = malloc(3 * len + 1);
  if (!out)
    return NULL;
  size_t used = 0;
  for (size_t at = 0; at < len;) {
    bool good;
    size_t n = character((const uint8_t *)text + at, len - at, &good);
    memcpy(out + used, good ? text + at : replacement, good ? n : 3);
    used += good ? n : 3;
    at += n;
  }
  out[used] = 0;
  *out_len = used;
  return out;
}

size_t utf8_cut(const char *text, size_t len, size_t limit) {
  if (len <= limit)
    return len;
  size_t cut = limit;
  while (cut && limit - cut < 3 && ((uint8_t)text[cut] & 0xc0) == 0x80)
    cut--;
  return ((uint8_t)text[cut] & 0xc0) == 0x80 ? limit : cut; /* no character is that long: it is no UTF-8 anyway */
}
