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
#define BLOCK_MAX_RAW                                                                                                          \
  (64u << 20) /* bytes before compression: what BLOCK_MAX spans with the longest attributes of a ring take */

/* One span as it is stored. Ids are the sequence numbers within the session, times are wall-clock nanoseconds, names are rows of
 * the `names` table (0: none). */
struct span_row {
  uint64_t id, parent;
  int64_t start_ns, end_ns;
  int64_t index;          /* or SPAN_NO_INDEX */
  int64_t cpu_ns, gpu_ns; /* or SPAN_NO_TIME */
  uint32_t name, module, exception;
  uint32_t tid;
  uint8_t kind, flags; /* enum span_kind, enum span_flag */
  uint32_t attrs_len;
  const char *attrs; /* a JSON object, attrs_len bytes and no zero byte behind them, or NULL; see below for who owns it */
};

/* Encode rows[0..n) into a buffer from malloc. Returns 0, or -EINVAL (n is 0 or above BLOCK_MAX, or more than BLOCK_MAX_RAW
 * bytes, which spans out of rings can't reach), -ENOMEM. Any thread; each keeps some memory for it. */
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

/* The same for readers that need some columns only: the others are skipped and read as 0 (attrs as NULL). BLOCK_PARENT includes
 * BLOCK_ID, BLOCK_END includes BLOCK_START. A damaged column that is skipped is noticed by the checksum all the same. */
enum block_column {
  BLOCK_ID = 1,
  BLOCK_PARENT = 2,
  BLOCK_NAME = 4,
  BLOCK_KIND = 8,
  BLOCK_FLAGS = 16,
  BLOCK_START = 32,
  BLOCK_END = 64,
  BLOCK_INDEX = 128,
  BLOCK_CPU = 256,
  BLOCK_GPU = 512,
  BLOCK_TID = 1024,
  BLOCK_MODULE = 2048,
  BLOCK_EXCEPTION = 4096,
  BLOCK_ATTRS = 8192,
  BLOCK_ALL = 16383,
};
int block_decode_columns(const uint8_t *data, size_t len, unsigned columns, struct block *block);

#endif
