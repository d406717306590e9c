// links: proto/block.c
/* Column blocks: what goes in comes out, and nothing that is no block does harm. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include "proto/block.h"
#include "proto/ring_abi.h"
#include "proto/varint.h"

static uint64_t seed = 1;

static uint64_t random64(void) { /* xorshift: the same rows in each run */
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed * 0x2545f4914f6cdd1dull;
}

static uint64_t odd64(void) {
  static const uint64_t edges[] = {0, 1, 127, 128, UINT64_MAX, INT64_MAX, 1ull << 63, UINT32_MAX, (1ull << 56) - 1, 1ull << 56};
  uint64_t r = random64();
  return r % 4 ? edges[r / 4 % (sizeof edges / sizeof *edges)] : random64() >> (r / 4 % 64);
}

static void usual_rows(struct span_row *rows, size_t n) {
  int64_t now = 1700000000000000000;
  for (size_t i = 0; i < n; i++) {
    now += 1000 + (int64_t)(random64() % 100000);
    rows[i] = (struct span_row){.id = 100 + i,
                                .parent = 90 + i / 10,
                                .start_ns = now,
                                .end_ns = now + (int64_t)(random64() % 900000),
                                .index = i % 5 ? SPAN_NO_INDEX : (int64_t)(i / 5),
                                .cpu_ns = SPAN_NO_TIME,
                                .gpu_ns = SPAN_NO_TIME,
                                .name = 1 + (uint32_t)(i % 50),
                                .module = i % 3 ? 0 : 77,
                                .tid = 4242,
                                .kind = (uint8_t)(i % SPAN_KINDS),
                                .flags = 0};
  }
}

static void odd_rows(struct span_row *rows, size_t n) {
  static const char text[] = "{\"a\":\"\\u0000 and bytes \xff\xfe\"}";
  for (size_t i = 0; i < n; i++) {
    uint32_t len = (uint32_t)(random64() % sizeof text);
    rows[i] = (struct span_row){.id = odd64(),
                                .parent = odd64(),
                                .start_ns = (int64_t)odd64(),
                                .end_ns = (int64_t)odd64(),
                                .index = (int64_t)odd64(),
                                .cpu_ns = (int64_t)odd64(),
                                .gpu_ns = (int64_t)odd64(),
                                .name = (uint32_t)odd64(),
                                .module = (uint32_t)odd64(),
                                .exception = (uint32_t)odd64(),
                                .tid = (uint32_t)odd64(),
                                .kind = (uint8_t)odd64(),
                                .flags = (uint8_t)odd64(),
                                .attrs_len = len,
                                .attrs = len ? text : NULL};
    if (random64() % 8 == 0)
      rows[i].index = SPAN_NO_INDEX;
  }
}

static void assert_row(const struct span_row *got, const struct span_row *want) {
  assert_true(got->id == want->id && got->parent == want->parent);
  assert_true(got->start_ns == want->start_ns && got->end_ns == want->end_ns && got->index == want->index);
  assert_true(got->cpu_ns == want->cpu_ns && got->gpu_ns == want->gpu_ns);
  assert_true(got->name == want->name && got->module == want->module && got->exception == want->exception);
  assert_true(got->tid == want->tid && got->kind == want->kind && got->flags == want->flags);
  assert_int_equal(got->attrs_len, want->attrs ? want->attrs_len : 0);
  if (got->attrs_len)
    assert_memory_equal(got->attrs, want->attrs, got->attrs_len);
  else
    assert_null(got->attrs);
}

static void round_trip(const struct span_row *rows, size_t n, struct block *block) {
  uint8_t *data;
  size_t len;
  assert_int_equal(block_encode(rows, n, &data, &len), 0);
  assert_int_equal(block_decode(data, len, block), 0);
  assert_int_equal(block->count, n);
  for (size_t i = 0; i < n; i++)
    assert_row(&block->rows[i], &rows[i]);
  free(data);
}

static struct span_row rows[BLOCK_MAX + 1];

static void test_varint(void **state) {
  (void)state;
  uint8_t bytes[2 * VARINT_MAX_BYTES], padded[2 * VARINT_MAX_BYTES];
  for (int i = 0; i < 200000; i++) {
    uint64_t v = odd64(), a = 0, b = 0;
    memset(bytes, 0xff, sizeof bytes);
    uint8_t *end = varint_put(bytes, v);
    assert_ptr_equal(varint_get(bytes, end, &a), end);
    assert_ptr_equal(varint_get_padded(bytes, &b), end);
    assert_true(a == v && b == v && unzigzag(zigzag(v)) == v);
    assert_null(varint_get(bytes, end - 1, &a));
    memset(padded, 0xff, sizeof padded);
    assert_int_equal(varint_put_padded(padded, v) - padded, end - bytes);
    assert_memory_equal(padded, bytes, (size_t)(end - bytes));
    for (size_t k = VARINT_MAX_BYTES; k < sizeof padded; k++)
      assert_int_equal(padded[k], 0xff);
  }
  static const uint8_t too_big[VARINT_MAX_BYTES + 1] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2};
  uint64_t v;
  assert_null(varint_get(too_big, too_big + sizeof too_big, &v));
  assert_null(varint_get_padded(too_big, &v));
}

static void test_round_trips(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 2, 3, 255, 1000, BLOCK_MAX};
  struct block block = {0};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    usual_rows(rows, sizes[i]);
    round_trip(rows, sizes[i], &block);
    for (int j = 0; j < 5; j++) {
      odd_rows(rows, sizes[i]);
      round_trip(rows, sizes[i], &block);
    }
  }
  block_fini(&block);
  block_fini(&block);
}

static void test_extremes(void **state) {
  (void)state;
  struct span_row edge[] = {
      {.id = UINT64_MAX, .parent = 0, .start_ns = INT64_MAX, .end_ns = INT64_MIN, .index = INT64_MIN, .cpu_ns = INT64_MIN},
      {.id = 0, .parent = UINT64_MAX, .start_ns = INT64_MIN, .end_ns = INT64_MAX, .index = INT64_MAX, .gpu_ns = INT64_MAX},
      {.id = 1, .start_ns = 100, .end_ns = 50, .index = -1, .cpu_ns = -1, .gpu_ns = -1, .name = UINT32_MAX, .tid = UINT32_MAX},
      {.id = 1ull << 63,
       .parent = 1ull << 63,
       .index = SPAN_NO_INDEX,
       .kind = 255,
       .flags = 255,
       .attrs = "{}",
       .attrs_len = 2},
      {.attrs = "not counted", .attrs_len = 0},
  };
  struct block block = {0};
  round_trip(edge, sizeof edge / sizeof *edge, &block);
  block_fini(&block);
}

static void test_long_attributes(void **state) {
  (void)state;
  size_t most = (size_t)RING_TEXT_MAX_CELLS * RING_TEXT_BYTES;
  char *text = malloc(most);
  memset(text, 'x', most);
  usual_rows(rows, BLOCK_MAX);
  for (size_t i = 0; i < BLOCK_MAX; i++) {
    rows[i].attrs = text;
    rows[i].attrs_len = (uint32_t)most;
  }
  struct block block = {0};
  round_trip(rows, BLOCK_MAX, &block);
  round_trip(rows, 1, &block); /* a small one after a large one */
  block_fini(&block);
  free(text);
}

static void test_refuses_bad_counts(void **state) {
  (void)state;
  uint8_t *data = NULL;
  size_t len = 0;
  usual_rows(rows, BLOCK_MAX + 1);
  assert_int_equal(block_encode(rows, 0, &data, &len), -EINVAL);
  assert_int_equal(block_encode(rows, BLOCK_MAX + 1, &data, &len), -EINVAL);
  rows[0].attrs = "{}";
  rows[0].attrs_len = UINT32_MAX;
  assert_int_equal(block_encode(rows, 1, &data, &len), -EINVAL);
  assert_null(data);
}

static void test_columns(void **state) {
  (void)state;
  usual_rows(rows, 1000);
  rows[7].attrs = "{}";
  rows[7].attrs_len = 2;
  uint8_t *data;
  size_t len;
  assert_int_equal(block_encode(rows, 1000, &data, &len), 0);
  struct block block = {0};
  assert_int_equal(block_decode(data, len, &block), 0);
  for (unsigned columns = 0; columns <= BLOCK_ALL; columns += 1 + columns / 3) {
    assert_int_equal(block_decode_columns(data, len, columns, &block), 0);
    assert_int_equal(block.count, 1000);
    for (size_t i = 0; i < 1000; i++) {
      const struct span_row *row = &block.rows[i];
      assert_true(row->name == (columns & BLOCK_NAME ? rows[i].name : 0));
      assert_true(row->end_ns == (columns & BLOCK_END ? rows[i].end_ns : 0));
      assert_true(row->id == (columns & (BLOCK_ID | BLOCK_PARENT) ? rows[i].id : 0));
      assert_true(row->parent == (columns & BLOCK_PARENT ? rows[i].parent : 0));
      assert_true(row->index == (columns & BLOCK_INDEX ? rows[i].index : 0));
      assert_true((row->attrs != NULL) == (i == 7 && columns & BLOCK_ATTRS));
    }
  }
  free(data);
  block_fini(&block);
}

/* Behind the last byte of what is decoded lies a page that can't be read. */
static uint8_t *guarded_copy(const uint8_t *data, size_t len, uint8_t *area, size_t area_len) {
  uint8_t *copy = area + area_len - len;
  memcpy(copy, data, len);
  return copy;
}

static void test_hostile(void **state) {
  (void)state;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), area_len = 64 * page;
  uint8_t *area = mmap(NULL, area_len + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(area != MAP_FAILED);
  assert_int_equal(mprotect(area + area_len, page, PROT_NONE), 0);
  odd_rows(rows, 300);
  uint8_t *data;
  size_t len;
  assert_int_equal(block_encode(rows, 300, &data, &len), 0);
  struct block block = {0};
  for (size_t cut = 0; cut < len; cut++)
    assert_int_equal(block_decode(guarded_copy(data, cut, area, area_len), cut, &block), -EBADMSG);
  uint8_t *copy = guarded_copy(data, len, area, area_len);
  for (size_t i = 0; i < len; i++)
    for (int bit = 0; bit < 8; bit++) {
      copy[i] ^= (uint8_t)(1 << bit);
      int rc = block_decode(copy, len, &block);
      assert_true(rc == -EBADMSG || rc == 0); /* a few bits of a frame mean nothing */
      assert_true((rc == 0) == (block.count == 300));
      copy[i] ^= (uint8_t)(1 << bit);
    }
  for (int i = 0; i < 20000; i++) {
    memcpy(copy, data, len);
    for (uint64_t j = random64() % 8 + 1; j--;)
      copy[random64() % len] = (uint8_t)random64();
    int rc = block_decode(copy, len, &block);
    assert_true(rc == -EBADMSG || rc == 0);
  }
  assert_int_equal(block_decode(NULL, 0, &block), -EBADMSG);
  assert_int_equal(block_decode(data, len, &block), 0);
  free(data);
  block_fini(&block);
  munmap(area, area_len + page);
}

/* Damage behind the checksum: columns that are packed well but wrong. */

static int decode_raw(const uint8_t *raw, size_t len, uint16_t count, struct block *block) {
  size_t bound = ZSTD_compressBound(len);
  uint8_t *data = malloc(8 + bound);
  uint8_t head[8] = {0xc1,         BLOCK_FORMAT,        (uint8_t)count,      (uint8_t)(count >> 8),
                     (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)(len >> 16)};
  memcpy(data, head, sizeof head);
  size_t packed = ZSTD_compress(data + 8, bound, raw, len, 1);
  int rc = block_decode(data, 8 + packed, block);
  free(data);
  return rc;
}

static void test_hostile_columns(void **state) {
  (void)state;
  odd_rows(rows, 40);
  uint8_t *data;
  size_t len;
  assert_int_equal(block_encode(rows, 40, &data, &len), 0);
  uint8_t raw[16384];
  size_t raw_len = ZSTD_decompress(raw, sizeof raw, data + 8, len - 8);
  assert_false(ZSTD_isError(raw_len));
  struct block block = {0};
  assert_int_equal(decode_raw(raw, raw_len, 40, &block), 0);
  for (size_t cut = 0; cut < raw_len; cut++)
    assert_int_equal(decode_raw(raw, cut, 40, &block), -EBADMSG);
  assert_int_equal(decode_raw(raw, raw_len + 1, 40, &block), -EBADMSG);
  for (uint16_t count = 0; count < 100; count++)
    assert_int_equal(decode_raw(raw, raw_len, count, &block), count == 40 ? 0 : -EBADMSG);
  for (size_t i = 0; i < raw_len; i++) {
    uint8_t kept = raw[i];
    static const uint8_t wrong[] = {0, 1, 0x7f, 0x80, 0xff};
    for (size_t j = 0; j < sizeof wrong; j++) {
      raw[i] = wrong[j];
      int rc = decode_raw(raw, raw_len, 40, &block);
      assert_true(rc == 0 || rc == -EBADMSG);
    }
    raw[i] = kept;
  }
  free(data);
  block_fini(&block);
}

/* A value of 64 bits in each column in turn: columns of narrower fields must refuse it. */
static void test_too_wide(void **state) {
  (void)state;
  static const bool narrow[14] = {[2] = true, [3] = true, [4] = true, [10] = true, [11] = true, [12] = true, [13] = true};
  struct block block = {0};
  for (int wide = -1; wide < 14; wide++) {
    uint8_t raw[14 * 13], *p = raw;
    for (int column = 0; column < 14; column++) {
      uint8_t *end = varint_put(p + 3, column == wide ? 1ull << 40 : 0);
      p[0] = 0; /* the same value in all rows */
      p[1] = (uint8_t)(end - p - 3);
      p[2] = 0;
      p = end;
    }
    assert_int_equal(decode_raw(raw, (size_t)(p - raw), 3, &block), wide >= 0 && narrow[wide] ? -EBADMSG : 0);
  }
  block_fini(&block);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_varint),          cmocka_unit_test(test_round_trips),        cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_long_attributes), cmocka_unit_test(test_refuses_bad_counts), cmocka_unit_test(test_columns),
      cmocka_unit_test(test_hostile),         cmocka_unit_test(test_hostile_columns),    cmocka_unit_test(test_too_wide),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
