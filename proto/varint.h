/* Variable-length integers (LEB128, little end first, at most 10 bytes) and zigzag, as blocks and histograms use them. */
#ifndef CIRRON_VARINT_H
#define CIRRON_VARINT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VARINT_MAX_BYTES 10

static inline uint64_t zigzag(uint64_t difference) {
  return (difference << 1) ^ (uint64_t)((int64_t)difference >> 63);
}

static inline uint64_t unzigzag(uint64_t v) {
  return (v >> 1) ^ (0 - (v & 1));
}

static inline uint8_t *varint_put(uint8_t *p, uint64_t v) {
  while (v >= 0x80) {
    *p++ = (uint8_t)(v | 0x80);
    v >>= 7;
  }
  *p++ = (uint8_t)v;
  return p;
}

/* The same for tight loops, where VARINT_MAX_BYTES may be written from p on. Without branches up to 8 bytes, as lengths in a column of
 * times can't be predicted. */
static inline uint8_t *varint_put_padded(uint8_t *p, uint64_t v) {
  if (v >> 56)
    return varint_put(p, v);
  unsigned last = (63 - (unsigned)__builtin_clzll(v | 1)) / 7; /* of the bytes, counted from 0 */
  /* pull eight groups of 7 bits apart, halves first */
  v = (v & 0x000000000fffffffull) | (v & 0x00fffffff0000000ull) << 4;
  v = (v & 0x00003fff00003fffull) | (v & 0x0fffc0000fffc000ull) << 2;
  v = (v & 0x007f007f007f007full) | (v & 0x3f803f803f803f80ull) << 1;
  v |= 0x8080808080808080ull & ((1ull << 8 * last) - 1);
  memcpy(p, &v, sizeof v);
  return p + last + 1;
}

/* Reads one that lies within [p, end). Returns where the next one begins; NULL if it is cut off or does not fit 64 bits. */
static inline const uint8_t *varint_get(const uint8_t *p, const uint8_t *end, uint64_t *out) {
  uint64_t v = 0;
  for (unsigned shift = 0; p < end && shift < 70; shift += 7) {
    uint8_t byte = *p++;
    if (shift == 63 && byte > 1)
      return NULL;
    v |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out = v;
      return p;
    }
  }
  return NULL;
}

/* The same for tight loops, where VARINT_MAX_BYTES may be read from p on whatever they are; the caller looks at the end. Without
 * branches up to 8 bytes, as lengths in a column of times can't be predicted. */
static inline const uint8_t *varint_get_padded(const uint8_t *p, uint64_t *out) {
  if (*p < 0x80) {
    *out = *p;
    return p + 1;
  }
  uint64_t word;
  memcpy(&word, p, sizeof word);
  uint64_t stops = ~word & 0x8080808080808080ull;
  if (!stops)
    return varint_get(p, p + VARINT_MAX_BYTES, out);
  unsigned last = (unsigned)__builtin_ctzll(stops); /* highest bit of the last byte */
  word &= (2ull << last) - 1;
  /* squeeze eight groups of 7 bits together, pairs first */
  word = (word & 0x007f007f007f007full) | ((word & 0x7f007f007f007f00ull) >> 1);
  word = (word & 0x00003fff00003fffull) | ((word & 0x3fff00003fff0000ull) >> 2);
  *out = (word & 0x000000000fffffffull) | ((word & 0x0fffffff00000000ull) >> 4);
  return p + last / 8 + 1;
}

#endif
