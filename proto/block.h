/* Column blocks: how raw spans are kept in the store.
 *
 * A block holds up to BLOCK_MAX spans of one session, column by column (delta and variable-length integers, then zstd). The
 * collector encodes, readers of the store decode. Decoding treats the bytes as hostile.
 */
#ifndef CIRRON_BLOCK_H
#define CIRRON_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#define BLOCK_MAX 4096u
#define BLOCK_FORMAT 1u

/* One span as it is stored. Ids are the sequence numbers within the session, times are wall-clock nanoseconds, names are rows of
 * the `names` table (0: none). */
struct span_row {
  uint64_t id, parent;
  int64_t start_ns, end_ns;
  int64_t index;            /* or SPAN_NO_INDEX */
  int64_t cpu_ns, gpu_ns;   /* or SPAN_NO_TIME */
  uint32_t name, module, exception;
  uint32_t tid;
  uint8_t kind, flags;      /* enum span_kind, enum span_flag */
  uint32_t attrs_len;
  const char *attrs;        /* a JSON object without its end marker, or NULL; see below for who owns it */
};

/* Encode rows[0..n) into a buffer from malloc. Returns 0, or -EINVAL (n is 0 or above BLOCK_MAX), -ENOMEM. */
int block_encode(const struct span_row *rows, size_t n, uint8_t **out, size_t *out_len);

/* Decoded block. `attrs` of the rows point into memory of the block. */
struct block {
  size_t count;
  struct span_row *rows;
  void *memory;
};

/* Returns 0, -EBADMSG (not a block of this format, or damaged) or -ENOMEM. The block is fit for reuse by another block_decode:
 * its memory is kept. block_fini frees it; both accept a zeroed block. */
int block_decode(const uint8_t *data, size_t len, struct block *block);
void block_fini(struct block *block);

#endif
