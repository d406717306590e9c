/* In the place of the store (collectord/store.h), for fuzz targets that are to be quick: it keeps no data, but what must be right about
 * them. Blocks: how many rows each has, and that a sealed one stays as it is. Names: that rows in use are rows that it gave out. What a
 * transaction did goes with its rollback. Header only. */
#ifndef CIRRON_FUZZ_NO_STORE_H
#define CIRRON_FUZZ_NO_STORE_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/store.h"

#define NO_STORE_BLOCKS 64
#define NO_STORE_NAMES 256

struct no_store_block {
  size_t rows; /* 0: there is no such block */
  bool sealed;
};

struct no_store_name {
  uint32_t len;
  char text[64]; /* of longer ones the end is not compared */
};

struct no_store_state {
  struct no_store_block blocks[NO_STORE_BLOCKS]; /* by number; 0 is none */
  size_t block_count;
  uint32_t names;
};

struct store {
  struct no_store_state now, committed;
  struct no_store_name names[NO_STORE_NAMES]; /* by row; 0 is none */
  unsigned generation;
};

__attribute__((unused)) static void no_store_clear(struct store *store) {
  store->now.block_count = 0;
  store->now.names = 0;
  memset(store->now.blocks, 0, sizeof store->now.blocks);
  store->committed = store->now;
}

__attribute__((unused)) static int64_t no_store_rows(const struct store *store) {
  size_t sum = 0;
  for (size_t i = 0; i < NO_STORE_BLOCKS; i++)
    sum += store->committed.blocks[i].rows;
  return (int64_t)sum;
}

int store_commit(struct store *store) {
  store->committed = store->now;
  return 0;
}

void store_rollback(struct store *store) {
  store->now = store->committed;
  store->generation++;
}

unsigned store_generation(const struct store *store) {
  return store->generation;
}

int store_name(struct store *store, const char *text, size_t len, uint32_t *out) {
  size_t part = len < sizeof store->names->text ? len : sizeof store->names->text;
  for (uint32_t row = 1; row <= store->now.names; row++)
    if (store->names[row].len == len && memcmp(store->names[row].text, text, part) == 0) {
      *out = row;
      return 0;
    }
  if (store->now.names + 1 == NO_STORE_NAMES)
    return -ENOMEM;
  *out = ++store->now.names;
  store->names[*out].len = (uint32_t)len;
  memcpy(store->names[*out].text, text, part);
  return 0;
}

static void no_store_check_name(const struct store *store, uint32_t row) {
  if (row > store->now.names)
    abort();
}

static void no_store_check_row(const struct store *store, const struct span_row *row) {
  no_store_check_name(store, row->name);
  no_store_check_name(store, row->module);
  no_store_check_name(store, row->exception);
}

int store_block_put(struct store *store, int64_t sid, const struct span_row *rows, size_t n, bool sealed, int64_t *block) {
  (void)sid;
  if (!n || n > BLOCK_MAX || *block < 0 || *block >= NO_STORE_BLOCKS)
    abort();
  for (size_t i = 0; i < n; i++)
    no_store_check_row(store, &rows[i]);
  if (!*block || !store->now.blocks[*block].rows) {
    if (store->now.block_count + 1 == NO_STORE_BLOCKS)
      return -ENOMEM;
    *block = (int64_t)++store->now.block_count;
  }
  struct no_store_block *at = &store->now.blocks[*block];
  if (at->sealed)
    abort();
  *at = (struct no_store_block){.rows = n, .sealed = sealed};
  return 0;
}

int store_block_delete(struct store *store, int64_t block) {
  if (block <= 0 || block >= NO_STORE_BLOCKS || store->now.blocks[block].sealed)
    abort();
  store->now.blocks[block].rows = 0;
  return 0;
}

int store_blocks_unsealed(struct store *store, int64_t sid, int (*each)(int64_t block, const struct block *rows, void *arg),
                          void *arg) {
  (void)store, (void)sid, (void)each, (void)arg;
  return 0;
}

int store_open_spans(struct store *store, int64_t sid, const struct span_row *rows, size_t n) {
  (void)sid;
  for (size_t i = 0; i < n; i++)
    no_store_check_row(store, &rows[i]);
  return 0;
}

int store_move(struct store *store, int64_t sid, uint64_t span, int64_t since_ns, uint64_t parent) {
  (void)store, (void)sid, (void)since_ns;
  if (!span || span == parent)
    abort();
  return 0;
}

int store_mark(struct store *store, int64_t sid, const struct mark_row *row) {
  (void)sid;
  no_store_check_name(store, row->name);
  return 0;
}

int store_step(struct store *store, int64_t sid, const struct step_row *row) {
  (void)store, (void)sid, (void)row;
  return 0;
}

int store_epoch(struct store *store, int64_t sid, const struct span_row *row, int64_t rank) {
  (void)sid, (void)rank;
  no_store_check_row(store, row);
  return 0;
}

int store_epoch_delete(struct store *store, int64_t sid, uint64_t span) {
  (void)store, (void)sid, (void)span;
  return 0;
}

int store_rollup(struct store *store, int64_t sid, const struct rollup_row *row) {
  (void)sid;
  no_store_check_name(store, row->name);
  return 0;
}

int store_snapshot(struct store *store, int64_t sid, const struct snapshot_row *row) {
  (void)store, (void)sid;
  size_t sum = 0; /* all that it points to is there */
  for (size_t i = 0; i < row->tensor_len; i++)
    sum += (uint8_t)row->tensor[i];
  for (size_t i = 0; i < row->model_len; i++)
    sum += (uint8_t)row->model[i];
  for (size_t i = 0; i < row->dtype_len; i++)
    sum += (uint8_t)row->dtype[i];
  for (uint32_t i = 0; i < row->ndim; i++)
    sum += (size_t)row->shape[i];
  sum += strlen(row->attrs) + strlen(row->mode) + (row->stats ? row->stats->count : 0);
  *(volatile size_t *)&sum = sum;
  return 0;
}

int store_snapshot_pass(struct store *store, int64_t sid, const struct snapshot_pass_row *row) {
  (void)store, (void)sid;
  if (!row->reason || !row->mode)
    abort();
  return 0;
}

int store_rollups_read(struct store *store, int64_t sid, int (*each)(const struct rollup_row *row, void *arg), void *arg) {
  (void)store, (void)sid, (void)each, (void)arg;
  return 0;
}

int store_ring_tail(struct store *store, int64_t sid, uint32_t ring_no, uint64_t tail) {
  (void)store, (void)sid, (void)ring_no, (void)tail;
  return 0;
}

int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail) {
  (void)store, (void)sid, (void)ring_no;
  *tail = 0;
  return 0;
}

int store_session_find(struct store *store, uint64_t prefix, int64_t *sid) {
  (void)store, (void)prefix, (void)sid;
  return -ENOENT;
}

int store_session_owner(struct store *store, int64_t sid, int64_t *uid, int64_t *pid) {
  (void)store, (void)sid, (void)uid, (void)pid;
  return -ENOENT;
}

int store_session_read(struct store *store, int64_t sid, struct session_state *out) {
  (void)store, (void)sid, (void)out;
  return -ENOENT;
}

int store_session_add(struct store *store, const struct session_row *row, int64_t *sid) {
  (void)store, (void)row;
  *sid = 1;
  return 0;
}

int store_session_ranks(struct store *store, int64_t sid, int64_t rank, int64_t local_rank, int64_t world_size) {
  (void)store, (void)sid, (void)rank, (void)local_rank, (void)world_size;
  return 0;
}

int store_session_update(struct store *store, int64_t sid, const struct session_state *state) {
  (void)store, (void)sid, (void)state;
  return 0;
}

#endif
