/* Spans that are open: seen in the tables of open spans, not by a record. See ingest.h. */
#include <errno.h>
#include <string.h>

#include "ingest_internal.h"

/* Looks after which a span that left the open table without a record is given up: its slot may be freed a moment before the
 * record is published. */
#define MISSING_LOOKS 2
/* Open spans of a session that are shown: 256 threads at their deepest. */
#define MAX_SHOWN 16384u

static int add_entry(struct ingest *in, struct store *store, const struct ring_open *entry) {
  if (!entry->id || entry->id >= INGEST_LIMIT || entry->id == SPAN_ROOT || entry->parent >= INGEST_LIMIT ||
      entry->parent == entry->id || entry->start_ns >= INGEST_LIMIT || entry->kind >= SPAN_KINDS || entry->kind == SPAN_SESSION)
    return 0;
  struct span_row row = {
      .id = entry->id,
      .parent = entry->parent ? entry->parent : SPAN_ROOT,
      .start_ns = ingest_wall(in, entry->start_ns),
      .index = entry->index,
      .cpu_ns = SPAN_NO_TIME,
      .gpu_ns = SPAN_NO_TIME,
      .tid = entry->tid,
      .kind = entry->kind,
      .flags = (uint8_t)(entry->flags & ~SPAN_LENT),
  };
  int err = ingest_name(in, store, entry->name, &row.name);
  if (!err)
    err = ingest_name(in, store, entry->module, &row.module);
  if (!err)
    err = INGEST_ROOM(in->scan, in->scan_room, in->scan_count);
  if (err)
    return err;
  struct tree_node *node = tree_make(&in->tree, row.id);
  if (!node || node->closed)
    return 0;
  node->parent = row.parent;
  node->kind = row.kind;
  node->flags = row.flags;
  node->placed = node->open = true;
  node->missing = 0;
  node->idle = 0;
  in->scan[in->scan_count++] = row;
  return 0;
}

/* An epoch that is open is shown in the epochs table, once it is certain that it is one. */
static int show_epoch(struct ingest *in, const struct span_row *row) {
  uint32_t shown;
  bool epoch = row->kind == SPAN_EPOCH || row->kind == SPAN_EVAL;
  if (!epoch || (row->flags & SPAN_DOUBTFUL) || (idmap_get(&in->open_epochs, row->id, &shown) && shown == row->kind))
    return 0; /* an eval becomes an epoch with its first update: then the row is written again */
  int err = INGEST_ROOM(in->epochs, in->epoch_room, in->epoch_count);
  if (!err)
    err = idmap_put(&in->open_epochs, row->id, row->kind);
  if (!err)
    in->epochs[in->epoch_count++] = *row;
  return err;
}

/* The span never was: what lay in it is its parent's. */
static int dissolve(struct ingest *in, uint64_t id) {
  const struct tree_node *node = tree_find(&in->tree, id);
  uint64_t parent = node && node->placed && node->parent ? node->parent : SPAN_ROOT;
  uint32_t shown;
  bool epoch = node && (node->kind == SPAN_EPOCH || node->kind == SPAN_EVAL);
  int err = ingest_apply_move(in, id, INT64_MIN, parent);
  for (size_t i = 0; i < in->scan_count; i++)
    if (in->scan[i].parent == id) {
      struct tree_node *child = tree_find(&in->tree, in->scan[i].id);
      in->scan[i].parent = parent;
      if (child && !child->closed)
        child->parent = parent;
    }
  if (epoch)
    in->moved += in->rollups.count;
  if (!err && epoch)
    err = rollups_merge(&in->rollups, id, tree_epoch(&in->tree, parent));
  for (size_t i = 0; epoch && i < in->step_count; i++)
    if (in->steps[i].epoch == id)
      in->steps[i].epoch = tree_epoch(&in->tree, parent);
  if (!err && idmap_get(&in->open_epochs, id, &shown)) {
    err = INGEST_ROOM(in->gone_epochs, in->gone_room, in->gone_count);
    if (!err) {
      in->gone_epochs[in->gone_count++] = id;
      idmap_remove(&in->open_epochs, id);
    }
  }
  return err;
}

/* Spans that left the open tables without a record: dissolved, or their record found no room in the ring. */
static int give_up_missing(struct ingest *in) {
  for (uint32_t i = 0; i < in->tree.count; i++) {
    struct tree_node *node = &in->tree.nodes[i];
    if (!node->open || ++node->missing <= 1) /* 1: seen in this look */
      continue;
    if (!node->closed && node->missing <= MISSING_LOOKS)
      continue;
    bool lost = !node->closed;
    uint64_t id = node->id;
    node->open = false;
    int err = lost ? dissolve(in, id) : 0; /* may make nodes: `node` is no longer good */
    if (err)
      return err;
  }
  return 0;
}

static int root_name(struct ingest *in, struct store *store) {
  return in->root_name ? 0 : names_text(&in->names, store, "cirron.session", strlen("cirron.session"), &in->root_name);
}

int ingest_open_spans(struct ingest *in, struct store *store, const struct ring_open *open, size_t n) {
  int err = root_name(in, store);
  in->scan_count = 0;
  for (size_t i = 0; !err && i < n && in->scan_count < MAX_SHOWN; i++)
    err = add_entry(in, store, &open[i]);
  for (size_t i = 0; !err && i < in->scan_count; i++)
    err = show_epoch(in, &in->scan[i]);
  return err ? err : give_up_missing(in);
}

/* Children whose parent was seen neither open nor closed hang on the root, or the tree of a dead session would be in pieces. */
static int adopt_orphans(struct ingest *in) {
  for (uint32_t i = 0; i < in->tree.count; i++) {
    const struct tree_node *node = &in->tree.nodes[i];
    if (node->placed || !node->last_row || in->taken_over)
      continue;
    int err = ingest_apply_move(in, node->id, INT64_MIN, SPAN_ROOT);
    if (err)
      return err;
  }
  return 0;
}

int ingest_end(struct ingest *in, struct store *store) {
  int err = root_name(in, store);
  size_t kept = 0;
  for (uint32_t i = 0; !err && i < in->tree.count; i++) {
    struct tree_node *node = &in->tree.nodes[i];
    bool doubtful = node->open && (node->flags & SPAN_DOUBTFUL);
    bool vanished = node->open && node->missing > 1;
    if (node->closed || !(doubtful || vanished))
      continue;
    node->open = false;
    err = dissolve(in, node->id);
  }
  for (size_t i = 0; !err && i < in->scan_count; i++) {
    const struct tree_node *node = tree_find(&in->tree, in->scan[i].id);
    if (node && (node->open || node->closed))
      in->scan[kept++] = in->scan[i];
  }
  if (err)
    return err;
  in->scan_count = kept;
  in->ended = true;
  return adopt_orphans(in);
}
