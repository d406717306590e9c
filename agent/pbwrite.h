/* Writing protobuf messages (wire format of proto3) into a buffer of the caller, without a library and without allocation.
 *
 * Fields are written in any order, each at most once unless it is repeated. As proto3 wants it, the plain writers leave out zero
 * and empty values; pbwrite_element does not, it is for repeated fields. What does not fit sets `overflow`, writes nothing more
 * and makes pbwrite_len 0.
 */
#ifndef CIRRON_PBWRITE_H
#define CIRRON_PBWRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pbwrite {
  uint8_t *buf;
  size_t len, size;
  bool overflow;
};

void pbwrite_init(struct pbwrite *pb, void *buf, size_t size);
size_t pbwrite_len(const struct pbwrite *pb); /* 0 after an overflow */

void pbwrite_uint(struct pbwrite *pb, unsigned field, uint64_t value); /* uint32, uint64 */
void pbwrite_int(struct pbwrite *pb, unsigned field, int64_t value);   /* int32, int64: negative ones take ten bytes */
void pbwrite_fixed64(struct pbwrite *pb, unsigned field, uint64_t value);
void pbwrite_bytes(struct pbwrite *pb, unsigned field, const void *data, size_t len);
void pbwrite_text(struct pbwrite *pb, unsigned field, const char *text); /* NULL is the empty text */
void pbwrite_element(struct pbwrite *pb, unsigned field, const void *data, size_t len);

void pbwrite_varint(struct pbwrite *pb, uint64_t value); /* alone: inside a packed field */

/* A message inside the message: what is written between the two belongs to it. */
size_t pbwrite_begin(struct pbwrite *pb, unsigned field);
void pbwrite_end(struct pbwrite *pb, size_t begin);

#endif
