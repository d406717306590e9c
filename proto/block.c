/* Column blocks (block.h). Owns this format; changes of it need a new BLOCK_FORMAT.
 *
 *   block:    u8 magic | u8 format | u16 count | u32 raw length | one zstd frame with checksum, which holds the columns
 *   columns:  id, parent, name, kind, flags, start, end, index, cpu, gpu, tid, module, exception, attrs lengths: each
 *             u8 encoding | u16 length | that many bytes; then the bytes of all attrs
 *   encoding: COLUMN_SAME, one varint that stands for all rows; COLUMN_EACH, one varint a row
 *
 * All numbers are little endian. The varints are chosen so that the usual value is small, and so that every 64-bit value comes back:
 * differences are taken modulo 2^64. A column has its length in front so that a reader can skip it. Each column goes through an array
 * of 64-bit values, which stays in the first-level cache; one pass for the varints and one for the rows is faster than one for both.
 */
#include "block.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "ring_abi.h"
#include "varint.h"

enum { BLOCK_MAGIC = 0xc1, BLOCK_HEAD = 8, COLUMNS = 14, COLUMN_HEAD = 3, COLUMN_SAME = 0, COLUMN_EACH = 1 };

#define ZSTD_LEVEL 1
#define COLUMN_MAX (COLUMN_HEAD + BLOCK_MAX * VARINT_MAX_BYTES)
#define KEEP_BYTES (4u << 20) /* larger buffers are given back after use */

static_assert(BLOCK_MAX * VARINT_MAX_BYTES <= UINT16_MAX, "a column's length fits its field");
static_assert(COLUMNS * COLUMN_MAX + VARINT_MAX_BYTES + BLOCK_MAX * RING_TEXT_MAX_CELLS * RING_TEXT_BYTES <= BLOCK_MAX_RAW,
              "rings can't reach it");

/* ---- encode ---- */

struct encoder {
  ZSTD_CCtx *zstd;
  uint8_t *raw;
  size_t capacity;
  uint64_t values[BLOCK_MAX];
};

static pthread_key_t encoder_key;
static pthread_once_t encoder_once = PTHREAD_ONCE_INIT;
static int encoder_key_error;

static void encoder_free(void *arg) {
  struct encoder *e = arg;
  if (!e)
    return;
  (void)ZSTD_freeCCtx(e->zstd); /* only ever 0 */
  free(e->raw);
  free(e);
}

static void encoder_key_make(void) {
  encoder_key_error = pthread_key_create(&encoder_key, encoder_free);
}

/* A compression context is worth keeping: making one costs as much as a third of a block. */
static struct encoder *encoder_get(void) {
  if (pthread_once(&encoder_once, encoder_key_make) || encoder_key_error)
    return NULL;
  struct encoder *e = pthread_getspecific(encoder_key);
  if (e)
    return e;
  e = calloc(1, sizeof *e);
  if (!e)
    return NULL;
  e->zstd = ZSTD_createCCtx();
  if (!e->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
      ZSTD_isError(ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_checksumFlag, 1)) || pthread_setspecific(encoder_key, e)) {
    encoder_free(e);
    return NULL;
  }
  return e;
}

static int encoder_reserve(struct encoder *e, size_t bytes) {
  if (e->capacity >= bytes)
    return 0;
  uint8_t *raw = realloc(e->raw, bytes);
  if (!raw)
    return -ENOMEM;
  e->raw = raw;
  e->capacity = bytes;
  return 0;
}

static void encoder_trim(struct encoder *e) {
  if (e->capacity <= KEEP_BYTES)
    return;
  free(e->raw);
  e->raw = NULL;
  e->capacity = 0;
}

static uint8_t *bytes_put(uint8_t *p, const uint64_t *values, size_t n) {
  for (size_t i = 0; i < n; i++)
    p[i] = (uint8_t)values[i];
  return p + n;
}

/* Varints; the first value, a difference to 0, says nothing about how long the others are. */
static uint8_t *values_put(uint8_t *p, const uint64_t *values, size_t n, uint64_t others) {
  p = varint_put_padded(p, values[0]);
  if (others < 0x80)
    return bytes_put(p, values + 1, n - 1);
  for (size_t i = 1; i < n; i++)
    p = varint_put_padded(p, values[i]);
  return p;
}

/* Behind p there is room for VARINT_MAX_BYTES a value, and as much again. `same`: only the first value is there, and stands for all. */
static uint8_t *column_put(uint8_t *p, const uint64_t *values, size_t n, bool same) {
  uint8_t *head = p;
  uint64_t differs = 0, others = 0;
  for (size_t i = 1; !same && i < n; i++) {
    differs |= values[i] ^ values[0];
    others |= values[i];
  }
  p = values_put(p + COLUMN_HEAD, values, differs ? n : 1, others);
  uint16_t length = htole16((uint16_t)(p - head - COLUMN_HEAD));
  head[0] = differs ? COLUMN_EACH : COLUMN_SAME;
  memcpy(head + 1, &length, sizeof length);
  return p;
}

/* How much room rows take at most before compression; above BLOCK_MAX_RAW if it is too much. */
static size_t raw_bound(const struct span_row *rows, size_t n) {
  size_t bytes = (size_t)COLUMNS * (COLUMN_HEAD + n * VARINT_MAX_BYTES) + VARINT_MAX_BYTES;
  for (size_t i = 0; i < n && bytes <= BLOCK_MAX_RAW; i++)
    bytes += rows[i].attrs ? rows[i].attrs_len : 0;
  return bytes;
}

static uint32_t attrs_len(const struct span_row *row) {
  return row->attrs ? row->attrs_len : 0;
}

/* Bits that are not the same in all rows, of the fields that often are: rows are looked through once for all of them, as they are too
 * many for the first-level cache. */
static struct span_row differences(const struct span_row *rows, size_t n) {
  struct span_row d = {0};
  for (size_t i = 1; i < n; i++) {
    const struct span_row *a = &rows[0], *b = &rows[i];
    d.name |= a->name ^ b->name;
    d.kind |= a->kind ^ b->kind;
    d.flags |= a->flags ^ b->flags;
    d.index |= a->index ^ b->index;
    d.cpu_ns |= a->cpu_ns ^ b->cpu_ns;
    d.gpu_ns |= a->gpu_ns ^ b->gpu_ns;
    d.module |= a->module ^ b->module;
    d.exception |= a->exception ^ b->exception;
    d.attrs_len |= attrs_len(a) ^ attrs_len(b);
  }
  return d;
}

/* One column: `expression` is the value of `row`, whose predecessor is `before` (a row of zeroes for the first). `varies`: unless it is
 * known to be the same in all rows. */
#define PUT(varies, expression)                                                                                                \
  do {                                                                                                                         \
    const struct span_row *before = &zero;                                                                                     \
    bool same = !(varies);                                                                                                     \
    for (size_t i = 0; i < (same ? 1 : n); i++) {                                                                              \
      const struct span_row *row = &rows[i];                                                                                   \
      v[i] = (expression);                                                                                                     \
      before = row;                                                                                                            \
    }                                                                                                                          \
    (void)before;                                                                                                              \
    p = column_put(p, v, n, same);                                                                                             \
  } while (0)

static size_t columns_put(const struct span_row *rows, size_t n, uint64_t *v, uint8_t *raw) {
  static const struct span_row zero;
  uint8_t *p = raw;
  const struct span_row d = differences(rows, n);
  PUT(true, zigzag(row->id - before->id));
  PUT(true, zigzag(row->id - row->parent));
  PUT(d.name, row->name);
  PUT(d.kind, row->kind);
  PUT(d.flags, row->flags);
  PUT(true, zigzag((uint64_t)row->start_ns - (uint64_t)before->start_ns));
  PUT(true, (uint64_t)row->end_ns - (uint64_t)row->start_ns);
  PUT(d.index, zigzag((uint64_t)row->index) + 1); /* SPAN_NO_INDEX, the least of all, becomes 0 */
  PUT(d.cpu_ns, (uint64_t)row->cpu_ns + 1);       /* SPAN_NO_TIME becomes 0 */
  PUT(d.gpu_ns, (uint64_t)row->gpu_ns + 1);
  PUT(true, zigzag((uint64_t)row->tid - before->tid));
  PUT(d.module, row->module);
  PUT(d.exception, row->exception);
  PUT(d.attrs_len, attrs_len(row));
  for (size_t i = 0; i < n; i++) {
    if (!rows[i].attrs || !rows[i].attrs_len)
      continue;
    memcpy(p, rows[i].attrs, rows[i].attrs_len);
    p += rows[i].attrs_len;
  }
  return (size_t)(p - raw);
}

static void head_put(uint8_t *head, size_t n, size_t raw_len) {
  uint16_t count = htole16((uint16_t)n);
  uint32_t length = htole32((uint32_t)raw_len);
  head[0] = BLOCK_MAGIC;
  head[1] = BLOCK_FORMAT;
  memcpy(head + 2, &count, sizeof count);
  memcpy(head + 4, &length, sizeof length);
}

static int encode(struct encoder *e, const struct span_row *rows, size_t n, uint8_t **out, size_t *out_len) {
  size_t raw_len = columns_put(rows, n, e->values, e->raw);
  size_t bound = ZSTD_compressBound(raw_len);
  uint8_t *data = malloc(BLOCK_HEAD + bound);
  if (!data)
    return -ENOMEM;
  size_t packed = ZSTD_compress2(e->zstd, data + BLOCK_HEAD, bound, e->raw, raw_len);
  if (ZSTD_isError(packed)) { /* with room enough only memory can be missing */
    free(data);
    return -ENOMEM;
  }
  head_put(data, n, raw_len);
  uint8_t *fitted = realloc(data, BLOCK_HEAD + packed);
  *out = fitted ? fitted : data;
  *out_len = BLOCK_HEAD + packed;
  return 0;
}

int block_encode(const struct span_row *rows, size_t n, uint8_t **out, size_t *out_len) {
  if (!n || n > BLOCK_MAX)
    return -EINVAL;
  size_t bound = raw_bound(rows, n);
  if (bound > BLOCK_MAX_RAW)
    return -EINVAL;
  struct encoder *e = encoder_get();
  if (!e || encoder_reserve(e, bound))
    return -ENOMEM;
  int rc = encode(e, rows, n, out, out_len);
  encoder_trim(e);
  return rc;
}

/* ---- decode ---- */

struct block_memory {
  ZSTD_DCtx *zstd;
  uint8_t *raw;
  size_t capacity;
  unsigned columns; /* rows are 0 outside of these, as only these were written since they were zeroed */
  uint64_t values[BLOCK_MAX];
  struct span_row rows[BLOCK_MAX];
};

struct reader {
  const uint8_t *p, *end; /* VARINT_MAX_BYTES behind end may be read */
  size_t n;
  uint64_t *values;
  struct span_row *rows;
  unsigned columns;
};

static int column_each(const uint8_t *p, const uint8_t *end, size_t n, uint64_t *values) {
  for (size_t i = 0; i < n; i++) {
    if (p >= end)
      return -EBADMSG;
    p = varint_get_padded(p, &values[i]);
    if (!p)
      return -EBADMSG;
  }
  return p == end ? 0 : -EBADMSG;
}

static int column_same(const uint8_t *p, const uint8_t *end, size_t n, uint64_t *values) {
  uint64_t value = 0;
  p = varint_get(p, end, &value);
  if (p != end)
    return -EBADMSG;
  for (size_t i = 0; i < n; i++)
    values[i] = value;
  return 0;
}

/* The next column: into r->values, or past it. */
static int column_get(struct reader *r, bool wanted) {
  if (r->end - r->p < COLUMN_HEAD)
    return -EBADMSG;
  uint8_t encoding = r->p[0];
  uint16_t length;
  memcpy(&length, r->p + 1, sizeof length);
  length = le16toh(length);
  const uint8_t *p = r->p + COLUMN_HEAD;
  if (r->end - p < length || encoding > COLUMN_EACH)
    return -EBADMSG;
  r->p = p + length;
  if (!wanted)
    return 0;
  return (encoding == COLUMN_EACH ? column_each : column_same)(p, p + length, r->n, r->values);
}

/* One column: `statement` puts `value` into `row`, whose predecessor is `before`. */
#define GET(column, statement)                                                                                                 \
  do {                                                                                                                         \
    bool wanted = (r->columns & (column)) != 0;                                                                                \
    int rc = column_get(r, wanted);                                                                                            \
    if (rc)                                                                                                                    \
      return rc;                                                                                                               \
    const struct span_row *before = &zero;                                                                                     \
    for (size_t i = 0; wanted && i < r->n; i++) {                                                                              \
      struct span_row *row = &r->rows[i];                                                                                      \
      uint64_t value = r->values[i];                                                                                           \
      statement;                                                                                                               \
      before = row;                                                                                                            \
    }                                                                                                                          \
    (void)before;                                                                                                              \
  } while (0)

/* For columns that are narrower than 64 bits: collects the bits that do not fit. */
#define GET_NARROW(column, bits, statement)                                                                                    \
  do {                                                                                                                         \
    uint64_t high = 0;                                                                                                         \
    GET(column, high |= value; statement);                                                                                     \
    if (high >> (bits))                                                                                                        \
      return -EBADMSG;                                                                                                         \
  } while (0)

static int attrs_get(struct reader *r) {
  if (!(r->columns & BLOCK_ATTRS))
    return 0;
  const uint8_t *p = r->p;
  for (size_t i = 0; i < r->n; i++) {
    struct span_row *row = &r->rows[i];
    if ((size_t)(r->end - p) < row->attrs_len)
      return -EBADMSG;
    row->attrs = row->attrs_len ? (const char *)p : NULL;
    p += row->attrs_len;
  }
  return p == r->end ? 0 : -EBADMSG;
}

static int columns_get(struct reader *r) {
  static const struct span_row zero;
  GET(BLOCK_ID, row->id = before->id + unzigzag(value));
  GET(BLOCK_PARENT, row->parent = row->id - unzigzag(value));
  GET_NARROW(BLOCK_NAME, 32, row->name = (uint32_t)value);
  GET_NARROW(BLOCK_KIND, 8, row->kind = (uint8_t)value);
  GET_NARROW(BLOCK_FLAGS, 8, row->flags = (uint8_t)value);
  GET(BLOCK_START, row->start_ns = (int64_t)((uint64_t)before->start_ns + unzigzag(value)));
  GET(BLOCK_END, row->end_ns = (int64_t)((uint64_t)row->start_ns + value));
  GET(BLOCK_INDEX, row->index = (int64_t)unzigzag(value - 1));
  GET(BLOCK_CPU, row->cpu_ns = (int64_t)(value - 1));
  GET(BLOCK_GPU, row->gpu_ns = (int64_t)(value - 1));
  GET_NARROW(BLOCK_TID, 33, row->tid = (uint32_t)(before->tid + unzigzag(value)));
  GET_NARROW(BLOCK_MODULE, 32, row->module = (uint32_t)value);
  GET_NARROW(BLOCK_EXCEPTION, 32, row->exception = (uint32_t)value);
  GET_NARROW(BLOCK_ATTRS, 32, row->attrs_len = (uint32_t)value);
  return attrs_get(r);
}

static struct block_memory *memory_get(struct block *block) {
  struct block_memory *m = block->memory;
  if (m)
    return m;
  m = calloc(1, sizeof *m);
  if (!m)
    return NULL;
  m->zstd = ZSTD_createDCtx();
  if (!m->zstd) {
    free(m);
    return NULL;
  }
  block->memory = m;
  block->rows = m->rows;
  return m;
}

static int memory_reserve(struct block_memory *m, size_t raw_len) {
  size_t bytes = raw_len + VARINT_MAX_BYTES;
  if (m->capacity >= bytes && (m->capacity <= KEEP_BYTES || bytes > KEEP_BYTES))
    return 0;
  free(m->raw); /* what is in it is of no more use */
  m->capacity = 0;
  m->raw = malloc(bytes);
  if (!m->raw)
    return -ENOMEM;
  m->capacity = bytes;
  return 0;
}

static int unpack(struct block_memory *m, const uint8_t *data, size_t len, size_t raw_len) {
  int rc = memory_reserve(m, raw_len);
  if (rc)
    return rc;
  size_t got = ZSTD_decompressDCtx(m->zstd, m->raw, raw_len, data, len);
  if (ZSTD_isError(got))
    return ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation ? -ENOMEM : -EBADMSG;
  memset(m->raw + raw_len, 0, VARINT_MAX_BYTES);
  return got == raw_len ? 0 : -EBADMSG;
}

int block_decode_columns(const uint8_t *data, size_t len, unsigned columns, struct block *block) {
  block->count = 0;
  if (!data || len < BLOCK_HEAD || data[0] != BLOCK_MAGIC || data[1] != BLOCK_FORMAT)
    return -EBADMSG;
  uint16_t count;
  uint32_t raw_len;
  memcpy(&count, data + 2, sizeof count);
  memcpy(&raw_len, data + 4, sizeof raw_len);
  count = le16toh(count);
  raw_len = le32toh(raw_len);
  if (!count || count > BLOCK_MAX || raw_len > BLOCK_MAX_RAW)
    return -EBADMSG;
  struct block_memory *m = memory_get(block);
  if (!m)
    return -ENOMEM;
  int rc = unpack(m, data + BLOCK_HEAD, len - BLOCK_HEAD, raw_len);
  if (rc)
    return rc;
  columns |= (columns & BLOCK_PARENT ? BLOCK_ID : 0) | (columns & BLOCK_END ? BLOCK_START : 0);
  if (m->columns & ~columns)
    memset(m->rows, 0, sizeof m->rows);
  m->columns = columns;
  struct reader r = {m->raw, m->raw + raw_len, count, m->values, m->rows, columns};
  rc = columns_get(&r);
  if (rc)
    return rc;
  block->count = count;
  return 0;
}

int block_decode(const uint8_t *data, size_t len, struct block *block) {
  return block_decode_columns(data, len, BLOCK_ALL, block);
}

void block_fini(struct block *block) {
  struct block_memory *m = block->memory;
  if (m) {
    (void)ZSTD_freeDCtx(m->zstd); /* only ever 0 */
    free(m->raw);
    free(m);
  }
  *block = (struct block){0};
}
