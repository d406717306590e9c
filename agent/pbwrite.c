/* See pbwrite.h. Only what cirron.proto needs: varints, fixed64 and length-delimited fields. */
#include "pbwrite.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };

void pbwrite_init(struct pbwrite *pb, void *buf, size_t size) {
  *pb = (struct pbwrite){.buf = buf, .size = size};
}

size_t pbwrite_len(const struct pbwrite *pb) {
  return pb->overflow ? 0 : pb->len;
}

static void put_raw(struct pbwrite *pb, const void *data, size_t len) {
  if (pb->overflow || len > pb->size - pb->len) {
    pb->overflow = true;
    return;
  }
  if (len)
    memcpy(pb->buf + pb->len, data, len);
  pb->len += len;
}

static size_t varint(uint8_t out[10], uint64_t value) {
  size_t n = 0;
  for (; value >= 0x80; value >>= 7)
    out[n++] = (uint8_t)(value | 0x80);
  out[n++] = (uint8_t)value;
  return n;
}

void pbwrite_varint(struct pbwrite *pb, uint64_t value) {
  uint8_t bytes[10];
  put_raw(pb, bytes, varint(bytes, value));
}

static void put_tag(struct pbwrite *pb, unsigned field, unsigned wire) {
  pbwrite_varint(pb, (uint64_t)field << 3 | wire);
}

void pbwrite_uint(struct pbwrite *pb, unsigned field, uint64_t value) {
  if (value == 0)
    return;
  put_tag(pb, field, WIRE_VARINT);
  pbwrite_varint(pb, value);
}

void pbwrite_int(struct pbwrite *pb, unsigned field, int64_t value) {
  pbwrite_uint(pb, field, (uint64_t)value);
}

void pbwrite_fixed64(struct pbwrite *pb, unsigned field, uint64_t value) {
  if (value == 0)
    return;
  uint8_t bytes[8];
  for (int i = 0; i < 8; i++)
    bytes[i] = (uint8_t)(value >> 8 * i);
  put_tag(pb, field, WIRE_FIXED64);
  put_raw(pb, bytes, sizeof(bytes));
}

void pbwrite_element(struct pbwrite *pb, unsigned field, const void *data, size_t len) {
  put_tag(pb, field, WIRE_BYTES);
  pbwrite_varint(pb, len);
  put_raw(pb, data, len);
}

void pbwrite_bytes(struct pbwrite *pb, unsigned field, const void *data, size_t len) {
  if (len > 0)
    pbwrite_element(pb, field, data, len);
}

void pbwrite_text(struct pbwrite *pb, unsigned field, const char *text) {
  pbwrite_bytes(pb, field, text, text ? strlen(text) : 0);
}

size_t pbwrite_begin(struct pbwrite *pb, unsigned field) {
  put_tag(pb, field, WIRE_BYTES);
  return pb->len;
}

/* The length is known only now: what was written makes room for it. */
void pbwrite_end(struct pbwrite *pb, size_t begin) {
  uint8_t bytes[10];
  if (pb->overflow)
    return;
  size_t len = pb->len - begin, n = varint(bytes, len);
  if (n > pb->size - pb->len) {
    pb->overflow = true;
    return;
  }
  memmove(pb->buf + begin + n, pb->buf + begin, len);
  memcpy(pb->buf + begin, bytes, n);
  pb->len += n;
}
