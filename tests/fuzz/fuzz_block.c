// links: proto/block.c
/* Column blocks as they come out of a damaged store. First byte: 0, the block as it is; else its columns, to be packed here because
 * the checksum stops everything else; then two bytes of row count, one of columns that are asked for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "proto/block.h"
#include "tests/fuzz/fuzz.h"

static uint8_t packed[1 << 20];

static size_t pack(const uint8_t *data, size_t len, uint16_t count) {
  uint32_t raw_len = (uint32_t)len;
  packed[0] = 0xc1;
  packed[1] = BLOCK_FORMAT;
  memcpy(packed + 2, &count, 2);
  memcpy(packed + 4, &raw_len, 4);
  size_t n = ZSTD_compress(packed + 8, sizeof packed - 8, data, len, 1);
  return ZSTD_isError(n) ? 0 : n + 8;
}

/* What was decoded can be written again, and is the same when it is read again. */
static void there_and_back(const struct block *block) {
  uint8_t *data;
  size_t len;
  if (block_encode(block->rows, block->count, &data, &len) != 0)
    return; /* attributes beyond the limit */
  struct block again = {0};
  if (block_decode(data, len, &again) != 0 || again.count != block->count)
    abort();
  for (size_t i = 0; i < again.count; i++) {
    struct span_row a = block->rows[i], b = again.rows[i];
    if (a.attrs_len != b.attrs_len || (a.attrs_len && memcmp(a.attrs, b.attrs, a.attrs_len) != 0))
      abort();
    if (a.id != b.id || a.parent != b.parent || a.start_ns != b.start_ns || a.end_ns != b.end_ns || a.index != b.index ||
        a.cpu_ns != b.cpu_ns || a.tid != b.tid || a.name != b.name || a.kind != b.kind || a.flags != b.flags)
      abort();
  }
  block_fini(&again);
  free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct block block = {0};
  if (len < 4 || len > 60000)
    return 0;
  uint16_t count;
  memcpy(&count, data + 1, 2);
  unsigned columns = data[3] == 0xff ? BLOCK_ALL : data[3] | (unsigned)count << 8;
  if (data[0]) {
    len = pack(data + 4, len - 4, count);
    data = packed;
  } else {
    data += 4, len -= 4;
  }
  if (len && block_decode_columns(data, len, columns, &block) == 0 && (columns & BLOCK_ALL) == BLOCK_ALL)
    there_and_back(&block);
  block_fini(&block);
  return 0;
}
