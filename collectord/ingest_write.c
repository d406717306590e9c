/* The store's side of ingest (ingest.h): what is in memory is written, and after the commit let go. And the reverse, for a session
 * whose collector died. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ingest_internal.h"

/* Rows on their way into a block, with names as the store knows them. Only the thread of the event loop writes. */
static struct span_row batch[BLOCK_MAX];
static size_t chosen[BLOCK_MAX];

static struct span_row with_rows(const struct ingest *in, const struct span_row *row) {
  struct span_row out = *row;
  out.name = names_row(&in->names, row->name);
  out.module = names_row(&in->names, row->module);
  out.exception = names_row(&in->names, row->exception);
  return out;
}

/* ---- rows ---- */

static bool sealing(const struct ingest *in, const struct ingest_row *row) {
  return row->sealing && row->sealing == in->write_no;
}

/* Numbers of blocks that are there to be written over, in the order in which they are read. */
struct reuse {
  const struct ingest_part *parts;
  size_t count, used;
};

static int64_t reuse_next(struct reuse *reuse) {
  return reuse->used < reuse->count ? reuse->parts[reuse->used++].block : 0;
}

static int put_chosen(struct ingest *in, struct store *store, int64_t sid, struct reuse *reuse, size_t n) {
  for (size_t i = 0; i < n; i++)
    batch[i] = with_rows(in, &in->rows[chosen[i]].span);
  int64_t block = reuse_next(reuse);
  return store_block_put(store, sid, batch, n, true, &block);
}

/* One pass over the rows for seal: `any`: also those that are not settled. */
static int seal_some(struct ingest *in, struct store *store, int64_t sid, struct reuse *reuse, bool any, size_t keep,
                     size_t *left) {
  size_t n = 0;
  int err = 0;
  for (size_t i = 0; i < in->row_count && !err && *left > keep; i++) {
    struct ingest_row *row = &in->rows[i];
    if (sealing(in, row) || (!any && !ingest_settled(in, row)))
      continue;
    row->sealing = in->write_no;
    chosen[n++] = i;
    if (n < BLOCK_MAX)
      continue;
    err = put_chosen(in, store, sid, reuse, n);
    *left -= n;
    n = 0;
  }
  if (!err && n >= INGEST_MANY_ROWS) { /* worth a block of its own */
    err = put_chosen(in, store, sid, reuse, n);
    *left -= n;
    n = 0;
  }
  while (n)
    in->rows[chosen[--n]].sealing = 0;
  return err;
}

/* Seals the oldest settled rows until the rest fits one block; when too few are settled, the oldest others too. `many`: all that are
 * settled. */
static int seal(struct ingest *in, struct store *store, int64_t sid, struct reuse *reuse, bool many, size_t *left) {
  int err = seal_some(in, store, sid, reuse, false, many ? 0 : BLOCK_MAX, left);
  return err ? err : seal_some(in, store, sid, reuse, true, BLOCK_MAX, left);
}

/* A part of the next `part.count` of the rows that stay, from rows[*at] on. */
static int put_part(struct ingest *in, struct store *store, int64_t sid, size_t *at, struct ingest_part part) {
  size_t n = 0;
  for (; n < part.count; ++*at)
    if (!sealing(in, &in->rows[*at]))
      batch[n++] = with_rows(in, &in->rows[*at].span);
  part.dirty = false;
  int err = store_block_put(store, sid, batch, n, false, &part.block);
  if (!err)
    in->parts_written[in->parts_written_count++] = part;
  return err;
}

/* All anew: sealed blocks, and one part of what stays. */
static int write_merged(struct ingest *in, struct store *store, int64_t sid, bool many) {
  struct reuse reuse = {in->parts, in->part_count, 0};
  size_t left = in->row_count, at = 0;
  int err = seal(in, store, sid, &reuse, many, &left);
  if (!err && left)
    err = put_part(in, store, sid, &at, (struct ingest_part){.block = reuse_next(&reuse), .count = left});
  for (int64_t block; !err && (block = reuse_next(&reuse));)
    err = store_block_delete(store, block);
  return err;
}

/* What is new joins the last part while that is small, else it becomes a part of its own. Of the others only those that changed. */
static int write_parts(struct ingest *in, struct store *store, int64_t sid) {
  size_t fresh = in->row_count - in->rows_stored, at = 0;
  int err = 0;
  for (size_t i = 0; !err && i < in->part_count; i++) {
    struct ingest_part part = in->parts[i];
    bool joined = i + 1 == in->part_count && part.count < INGEST_PART_ROWS && fresh;
    if (joined) {
      part.count += fresh;
      fresh = 0;
    }
    if (joined || part.dirty) {
      err = put_part(in, store, sid, &at, part);
    } else {
      in->parts_written[in->parts_written_count++] = part;
      at += part.count;
    }
  }
  if (!err && fresh)
    err = put_part(in, store, sid, &at, (struct ingest_part){.count = fresh});
  return err;
}

static int write_rows(struct ingest *in, struct store *store, int64_t sid) {
  in->parts_written_count = 0;
  size_t fresh = in->row_count - in->rows_stored, parts = in->part_count + (fresh > 0);
  bool many = fresh >= INGEST_MANY_ROWS;
  if (many || in->row_count > BLOCK_MAX || parts > INGEST_PARTS || (in->ended && parts > 1))
    return write_merged(in, store, sid, many);
  return write_parts(in, store, sid);
}

/* ---- the other tables ---- */

static int write_structure(struct ingest *in, struct store *store, int64_t sid) {
  int err = 0;
  for (size_t i = 0; !err && i < in->step_count; i++)
    err = store_step(store, sid, &in->steps[i]);
  for (size_t i = 0; !err && i < in->epoch_count; i++) {
    struct span_row row = with_rows(in, &in->epochs[i]);
    err = store_epoch(store, sid, &row, in->rank);
  }
  for (size_t i = 0; !err && i < in->gone_count; i++)
    err = store_epoch_delete(store, sid, in->gone_epochs[i]);
  for (size_t i = 0; !err && i < in->move_count; i++)
    err = store_move(store, sid, in->moves[i].span, in->moves[i].since_ns, in->moves[i].parent);
  return err;
}

static int write_marks(struct ingest *in, struct store *store, int64_t sid) {
  int err = 0;
  for (size_t i = 0; !err && i < in->mark_count; i++) {
    struct mark_row row = in->marks[i];
    row.name = names_row(&in->names, row.name);
    err = store_mark(store, sid, &row);
  }
  return err;
}

static int write_rollups(struct ingest *in, struct store *store, int64_t sid) {
  int err = 0;
  for (size_t i = 0; !err && i < in->rollups.count; i++) {
    const struct rollup *r = in->rollups.list[i];
    if (!r->dirty)
      continue;
    struct rollup_row row = {
        .epoch = r->epoch,
        .name = names_row(&in->names, r->name),
        .kind = r->kind,
        .count = r->count,
        .errors = r->errors,
        .total_ns = r->total_ns,
        .self_ns = r->self_ns,
        .min_ns = r->min_ns,
        .max_ns = r->max_ns,
        .histogram = r->histogram,
    };
    err = store_rollup(store, sid, &row);
  }
  return err;
}

static int write_open(struct ingest *in, struct store *store, int64_t sid) {
  if (!in->open_dirty)
    return 0;
  struct span_row *rows = malloc((in->open_count ? in->open_count : 1) * sizeof *rows);
  if (!rows)
    return -ENOMEM;
  for (size_t i = 0; i < in->open_count; i++)
    rows[i] = with_rows(in, &in->open[i]);
  int err = store_open_spans(store, sid, rows, in->open_count);
  free(rows);
  return err;
}

int ingest_write(struct ingest *in, struct store *store, int64_t sid) {
  in->write_no++; /* nothing that an earlier, failed one chose is chosen */
  int err = names_refresh(&in->names, store);
  if (!err)
    err = write_rows(in, store, sid);
  if (!err)
    err = write_structure(in, store, sid);
  if (!err)
    err = write_marks(in, store, sid);
  if (!err)
    err = write_rollups(in, store, sid);
  if (!err)
    err = write_open(in, store, sid);
  return err;
}

static void note_sealed(struct ingest *in, const struct span_row *span) {
  struct tree_node *parent = tree_find(&in->tree, span->parent);
  if (!parent)
    return;
  if (!parent->sealed || span->start_ns > parent->sealed_start_ns)
    parent->sealed_start_ns = span->start_ns;
  parent->sealed = true;
}

/* The lists of children hold row numbers, which are others now. The sums are as they were. */
static void relink(struct ingest *in) {
  for (uint32_t i = 0; i < in->tree.count; i++)
    in->tree.nodes[i].last_row = 0;
  for (size_t i = 0; i < in->row_count; i++) {
    struct tree_node *parent = tree_find(&in->tree, in->rows[i].span.parent);
    in->rows[i].before = parent ? parent->last_row : 0;
    if (parent)
      parent->last_row = (uint32_t)i + 1;
  }
}

static void drop_sealed(struct ingest *in) {
  size_t kept = 0;
  for (size_t i = 0; i < in->row_count; i++) {
    if (!sealing(in, &in->rows[i])) {
      in->rows[kept++] = in->rows[i];
      continue;
    }
    note_sealed(in, &in->rows[i].span);
    free((char *)in->rows[i].span.attrs);
  }
  if (kept == in->row_count)
    return;
  in->row_count = in->summed = kept;
  relink(in);
}

static void forget_rollups(struct ingest *in) {
  for (size_t i = 0; i < in->rollups.count; i++) {
    struct rollup *r = in->rollups.list[i];
    r->stored = r->stored || r->dirty;
    r->dirty = false;
  }
  if (in->rollups.count <= ROLLUP_MANY)
    return;
  for (size_t i = 0; i < in->past_count; i++)
    rollups_forget(&in->rollups, in->past_epochs[i]);
  in->past_count = 0;
}

void ingest_committed(struct ingest *in) {
  assert(in->summed == in->row_count);
  drop_sealed(in);
  memcpy(in->parts, in->parts_written, in->parts_written_count * sizeof *in->parts);
  in->part_count = in->parts_written_count;
  in->rows_stored = in->row_count; /* what is not in a part is sealed, and gone */
  in->parts_dirty = false;
  for (size_t i = 0; i < in->mark_count; i++) {
    free((char *)in->marks[i].text);
    free((char *)in->marks[i].attrs);
  }
  in->mark_count = in->step_count = in->steps_placed = in->epoch_count = in->gone_count = in->move_count = 0;
  in->open_dirty = false;
  in->moved = 0;
  forget_rollups(in);
  names_committed(&in->names);
  tree_trim(&in->tree);
}

static int take_row(struct ingest *in, const struct span_row *stored) {
  int err = INGEST_ROOM(in->rows, in->row_room, in->row_count);
  struct span_row row = *stored;
  if (!err)
    err = names_adopt(&in->names, stored->name, &row.name);
  if (!err)
    err = names_adopt(&in->names, stored->module, &row.module);
  if (!err)
    err = names_adopt(&in->names, stored->exception, &row.exception);
  row.attrs = NULL;
  if (!err && stored->attrs_len) {
    char *copy = malloc(stored->attrs_len);
    if (!copy)
      return -ENOMEM;
    row.attrs = memcpy(copy, stored->attrs, stored->attrs_len);
  }
  if (err)
    return err;
  in->rows[in->row_count] = (struct ingest_row){.span = row};
  ingest_link(in, in->row_count++);
  return 0;
}

static int take_rollup(const struct rollup_row *stored, void *arg) {
  struct ingest *in = arg;
  struct rollup_row row = *stored;
  int err = names_adopt(&in->names, stored->name, &row.name);
  return err ? err : rollups_load(&in->rollups, &row);
}

/* More than INGEST_PARTS is no store of ours. */
static int take_part(int64_t number, const struct block *block, void *arg) {
  struct ingest *in = arg;
  int err = 0;
  for (size_t i = 0; !err && i < block->count; i++)
    err = take_row(in, &block->rows[i]);
  if (err)
    return err;
  if (in->part_count == INGEST_PARTS)
    return -EOVERFLOW;
  in->parts[in->part_count++] = (struct ingest_part){.block = number, .count = block->count};
  in->rows_stored = in->row_count;
  return 0;
}

int ingest_take_over(struct ingest *in, struct store *store, int64_t sid) {
  in->taken_over = true;
  int err = store_blocks_unsealed(store, sid, take_part, in);
  if (err)
    return err;
  in->summed = in->row_count;
  /* Those whose own record is there are closed; the sums over the children of the others go on. */
  for (size_t i = 0; i < in->row_count; i++) {
    const struct span_row *row = &in->rows[i].span;
    struct tree_node *node = tree_find(&in->tree, row->id);
    if (node) {
      node->parent = row->parent;
      node->kind = row->kind;
      node->placed = node->closed = true;
    }
    if (row->id == SPAN_ROOT)
      in->root_closed = true;
  }
  return store_rollups_read(store, sid, take_rollup, in);
}
