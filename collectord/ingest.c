#include "ingest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ingest_internal.h"
#include "ring_reader.h"
#include "text.h"

#define MOVES_FREE (1u << 26) /* a quarter of a second */
#define MOVES_A_ROW 64u

int ingest_room(void **list, size_t *room, size_t count, size_t size) {
  if (count < *room)
    return 0;
  size_t bigger = *room ? *room * 2 : 64;
  void *moved = realloc(*list, bigger * size);
  if (!moved)
    return -ENOMEM;
  *list = moved;
  *room = bigger;
  return 0;
}

int64_t ingest_wall(const struct ingest *in, uint64_t monotonic_ns) {
  return in->wall_offset_ns + (int64_t)monotonic_ns;
}

int ingest_init(struct ingest *in, const struct ring_segment *segment, const struct ingest_origin *origin,
                const struct store *store) {
  *in = (struct ingest){.rank = origin->rank, .main_tid = origin->main_tid, .open_dirty = true};
  if (origin->anchor_monotonic_ns >= INGEST_LIMIT || origin->anchor_realtime_ns >= 2 * INGEST_LIMIT ||
      origin->start_monotonic_ns >= INGEST_LIMIT)
    return -EPROTO;
  in->wall_offset_ns = (int64_t)origin->anchor_realtime_ns - (int64_t)origin->anchor_monotonic_ns;
  in->start_ns = origin->start_monotonic_ns;
  names_init(&in->names, segment, store);
  return 0;
}

void ingest_fini(struct ingest *in) {
  for (size_t i = 0; i < in->row_count; i++)
    free((char *)in->rows[i].span.attrs);
  for (size_t i = 0; i < in->mark_count; i++) {
    free((char *)in->marks[i].text);
    free((char *)in->marks[i].attrs);
  }
  free(in->rows);
  free(in->marks);
  free(in->steps);
  free(in->epochs);
  free(in->moves);
  free(in->gone_epochs);
  free(in->past_epochs);
  free(in->scan);
  free(in->open);
  idmap_fini(&in->open_epochs);
  names_fini(&in->names);
  tree_fini(&in->tree);
  rollups_fini(&in->rollups);
  *in = (struct ingest){0};
}

static int64_t duration(const struct span_row *span) {
  return span->end_ns - span->start_ns;
}

void ingest_link(struct ingest *in, size_t at) {
  struct ingest_row *row = &in->rows[at];
  struct tree_node *parent = tree_make(&in->tree, row->span.parent);
  row->before = 0;
  if (!parent)
    return;
  row->before = parent->last_row;
  parent->last_row = (uint32_t)at + 1;
  parent->idle = 0;
  tree_sums_add(&parent->sums, row->span.kind, duration(&row->span));
}

int ingest_name(struct ingest *in, struct store *store, uint32_t id, uint32_t *out) {
  if (!id) {
    *out = 0;
    return 0;
  }
  int err = names_get(&in->names, store, id, out);
  if (err == -EBADMSG) {
    *out = 0;
    return 0;
  }
  return err;
}

static int copy_text(const char *text, size_t len, const char **out) {
  *out = NULL;
  if (!len)
    return 0;
  char *copy = malloc(len);
  if (!copy)
    return -ENOMEM;
  memcpy(copy, text, len);
  *out = copy;
  return 0;
}

/* Is it a span that can be? The root is the only one of its kind. */
static bool plausible(uint64_t id, uint64_t parent, uint8_t kind, uint64_t start_ns) {
  bool root = id == SPAN_ROOT;
  return id && id < INGEST_LIMIT && parent < INGEST_LIMIT && kind < SPAN_KINDS && start_ns < INGEST_LIMIT &&
         root == (kind == SPAN_SESSION) && (root ? parent == 0 : parent != id);
}

static uint64_t parent_of(uint64_t id, uint64_t parent) {
  return parent || id == SPAN_ROOT ? parent : SPAN_ROOT;
}

static int add_step(struct ingest *in, const struct span_row *span, const struct tree_sums *sums) {
  int err = INGEST_ROOM(in->steps, in->step_room, in->step_count);
  if (err)
    return err;
  struct step_row *step = &in->steps[in->step_count++];
  *step = (struct step_row){
      .span = span->id,
      .parent = span->parent,
      .index = span->index,
      .start_ns = span->start_ns,
      .end_ns = span->end_ns,
      .cpu_ns = span->cpu_ns,
      .gpu_ns = span->gpu_ns,
      .rank = in->rank,
      .tid = span->tid,
      .error = span->flags & SPAN_ERROR,
  };
  if (sums) {
    memcpy(step->phase_ns, sums->phase_ns, sizeof step->phase_ns);
    memcpy(step->phase_count, sums->phase_count, sizeof step->phase_count);
  }
  return 0;
}

static int add_epoch(struct ingest *in, const struct span_row *span) {
  int err = INGEST_ROOM(in->epochs, in->epoch_room, in->epoch_count);
  if (!err)
    in->epochs[in->epoch_count++] = *span;
  return err;
}

static int add_past_epoch(struct ingest *in, uint64_t id) {
  int err = INGEST_ROOM(in->past_epochs, in->past_room, in->past_count);
  if (!err)
    in->past_epochs[in->past_count++] = id;
  return err;
}

/* What a step or an epoch is beside its row. One that is added in vain is written again later, with the same contents. */
static int add_structure(struct ingest *in, const struct span_row *span, const struct tree_node *node) {
  if (span->kind == SPAN_STEP)
    return add_step(in, span, node ? &node->sums : NULL);
  if (span->kind != SPAN_EPOCH && span->kind != SPAN_EVAL)
    return 0;
  int err = add_epoch(in, span);
  if (!err)
    err = add_past_epoch(in, span->id);
  if (!err)
    idmap_remove(&in->open_epochs, span->id);
  return err;
}

/* The span's own node learns its place. */
static void close_node(struct tree_node *node, const struct span_row *span) {
  node->parent = span->parent;
  node->kind = span->kind;
  node->flags = span->flags;
  node->placed = node->closed = true;
  node->idle = 0;
}

/* Takes the row behind the last one, which is ready but for its sums. What can fail comes first. */
static int add_row(struct ingest *in) {
  struct ingest_row *row = &in->rows[in->row_count];
  const struct span_row *span = &row->span;
  struct tree_node *node = tree_find(&in->tree, span->id);
  int err = add_structure(in, span, node);
  if (err)
    return err;
  if (node)
    close_node(node, span);
  int64_t self = duration(span) - (node ? node->sums.child_ns : 0);
  row->self_ns = self > 0 ? self : 0;
  ingest_link(in, in->row_count++);
  in->spans++;
  if (span->end_ns > in->last_ns)
    in->last_ns = span->end_ns;
  if (span->id == SPAN_ROOT)
    in->root_closed = true;
  return 0;
}

static int take_span(struct ingest *in, struct store *store, const struct ring_record *record, uint32_t tid) {
  const struct ring_span *s = &record->span;
  if (!plausible(s->id, s->parent, s->kind, s->start_ns) || s->end_ns >= INGEST_LIMIT) {
    in->damaged++;
    return 0;
  }
  int err = INGEST_ROOM(in->rows, in->row_room, in->row_count);
  if (err)
    return err;
  struct ingest_row *row = &in->rows[in->row_count]; /* made where it stays: most of the work are copies */
  *row = (struct ingest_row){.span = {
                                 .id = s->id,
                                 .parent = parent_of(s->id, s->parent),
                                 .start_ns = ingest_wall(in, s->start_ns),
                                 .end_ns = ingest_wall(in, s->end_ns < s->start_ns ? s->start_ns : s->end_ns),
                                 .index = s->index,
                                 .cpu_ns = s->cpu_ns,
                                 .gpu_ns = SPAN_NO_TIME,
                                 .tid = tid,
                                 .kind = s->kind,
                                 .flags = (uint8_t)(s->flags & ~(SPAN_DOUBTFUL | SPAN_LENT)),
                             }};
  struct tree_node *node = s->flags & SPAN_LENT ? tree_make(&in->tree, row->span.id) : NULL;
  if (node)
    node->lent = true;
  err = ingest_name(in, store, s->name, &row->span.name);
  if (!err)
    err = ingest_name(in, store, s->module, &row->span.module);
  if (!err)
    err = ingest_name(in, store, s->exception, &row->span.exception);
  if (!err && record->text_len && text_is_json_object(record->text, record->text_len)) {
    err = copy_text(record->text, record->text_len, &row->span.attrs);
    row->span.attrs_len = (uint32_t)record->text_len;
  }
  if (err)
    return err;
  err = add_row(in);
  if (err)
    free((char *)row->span.attrs);
  return err;
}

static int take_mark(struct ingest *in, struct store *store, const struct ring_record *record) {
  const struct ring_mark *m = &record->mark;
  bool text = m->value_type == MARK_STRING;
  if (!m->id || m->id >= INGEST_LIMIT || m->span >= INGEST_LIMIT || m->ts_ns >= INGEST_LIMIT || m->value_type < MARK_FLOAT ||
      m->value_type > MARK_STRING || (text && record->text_bad)) {
    in->damaged++;
    return 0;
  }
  struct mark_row row = {
      .id = m->id,
      .span = m->span ? m->span : SPAN_ROOT,
      .ts_ns = ingest_wall(in, m->ts_ns),
      .summary = m->flags & MARK_SUMMARY,
      .type = m->value_type,
  };
  if (m->value_type == MARK_FLOAT)
    row.f = m->value.f;
  else if (!text)
    row.i = m->value.i;
  int err = ingest_name(in, store, m->name, &row.name);
  if (!err)
    err = INGEST_ROOM(in->marks, in->mark_room, in->mark_count);
  if (!err && text) {
    err = copy_text(record->text, record->value_len, &row.text);
    row.text_len = record->value_len;
  }
  const char *attrs = record->text + record->value_len;
  size_t attrs_len = record->text_len - record->value_len;
  if (!err && attrs_len && text_is_json_object(attrs, attrs_len)) {
    err = copy_text(attrs, attrs_len, &row.attrs);
    row.attrs_len = attrs_len;
  }
  if (err) {
    free((char *)row.text);
    return err;
  }
  in->marks[in->mark_count++] = row;
  in->marks_stored++;
  return 0;
}

/* A moved step or epoch whose own row waits for the store, or is there already. */
static int moved_structure(struct ingest *in, const struct span_row *span) {
  if (span->kind == SPAN_EPOCH || span->kind == SPAN_EVAL)
    return add_epoch(in, span);
  for (size_t i = in->step_count; span->kind == SPAN_STEP && i-- > 0;)
    if (in->steps[i].span == span->id) {
      in->steps[i].parent = span->parent;
      break;
    }
  return 0;
}

/* Children in sealed blocks are moved while reading (table moves). That table knows no end: only where it is needed. */
static int move_sealed(struct ingest *in, struct tree_node *from, struct tree_node *to, const struct ingest_move *move,
                       bool all) {
  bool known = from && from->sealed && from->sealed_start_ns >= move->since_ns;
  if (!known && !(in->taken_over && all))
    return 0;
  int err = INGEST_ROOM(in->moves, in->move_room, in->move_count);
  if (err)
    return err;
  in->moves[in->move_count++] = *move;
  if (to && from) {
    if (!to->sealed || to->sealed_start_ns < from->sealed_start_ns)
      to->sealed_start_ns = from->sealed_start_ns;
    to->sealed = true;
  }
  return 0;
}

/* Is it in the store already? Then its part has to be written again. */
static void row_changed(struct ingest *in, size_t at) {
  size_t end = 0;
  if (at >= in->rows_stored)
    return;
  in->parts_dirty = true;
  for (size_t i = 0; i < in->part_count; i++) {
    end += in->parts[i].count;
    if (at < end) {
      in->parts[i].dirty = true;
      return;
    }
  }
}

/* Moves cost as much as the span has children, and come from strangers. What an honest process can do between two commits is far below. */
static bool too_many_moves(const struct ingest *in) {
  return in->moved > MOVES_FREE + MOVES_A_ROW * (uint64_t)in->row_count;
}

int ingest_apply_move(struct ingest *in, uint64_t span, int64_t since_ns, uint64_t parent) {
  if (too_many_moves(in)) {
    in->damaged++;
    return 0;
  }
  struct tree_node *to = tree_make(&in->tree, parent);
  struct tree_node *from = tree_find(&in->tree, span);
  struct ingest_move move = {.span = span, .parent = parent, .since_ns = since_ns};
  bool all = since_ns <= ingest_wall(in, 0);
  int err = move_sealed(in, from, to, &move, all);
  if (err || !from)
    return err;
  uint32_t *link = &from->last_row;
  while (*link) {
    struct ingest_row *row = &in->rows[*link - 1];
    in->moved++;
    if (row->span.id == parent || row->span.start_ns < since_ns) {
      link = &row->before;
      continue;
    }
    uint32_t at = *link;
    *link = row->before;
    row->before = 0;
    row->span.parent = parent;
    row_changed(in, at - 1);
    tree_sums_take(&from->sums, row->span.kind, duration(&row->span));
    if (to) {
      row->before = to->last_row;
      to->last_row = at;
      tree_sums_add(&to->sums, row->span.kind, duration(&row->span));
    }
    err = moved_structure(in, &row->span);
    if (err)
      return err; /* what is moved so far is moved; the rest when the record is given again */
  }
  return 0;
}

static int take_move(struct ingest *in, const struct ring_move *m) {
  if (!m->span || m->span >= INGEST_LIMIT || m->parent >= INGEST_LIMIT || m->span == m->parent || m->since_ns >= INGEST_LIMIT) {
    in->damaged++;
    return 0;
  }
  return ingest_apply_move(in, m->span, ingest_wall(in, m->since_ns), parent_of(0, m->parent));
}

int ingest_record(struct ingest *in, struct store *store, const struct ring_record *record, uint32_t tid) {
  switch (record->type) {
  case RING_SPAN:
    return take_span(in, store, record, tid);
  case RING_MARK:
    return take_mark(in, store, record);
  case RING_MOVE:
    return take_move(in, &record->move);
  default:
    return 0;
  }
}

bool ingest_settled(struct ingest *in, const struct ingest_row *row) {
  const struct tree_node *parent = tree_find(&in->tree, row->span.parent);
  if (!parent || !parent->open || parent->closed)
    return true;
  if (parent->kind == SPAN_STEP || (parent->flags & SPAN_DOUBTFUL))
    return false;
  /* What lies in a pass beside its steps may become part of one. */
  return (parent->kind != SPAN_EPOCH && parent->kind != SPAN_EVAL) || row->span.kind == SPAN_STEP;
}

/* Sums up the rows that came since the last time. Now every parent is known: by its record, or from the open tables. */
static int sum_rows(struct ingest *in) {
  uint64_t parent = 0, epoch = 0; /* children of the same span come one after the other */
  for (; in->summed < in->row_count; in->summed++) {
    const struct ingest_row *row = &in->rows[in->summed];
    if (row->span.parent != parent)
      epoch = tree_epoch(&in->tree, parent = row->span.parent);
    struct rollup_span span = {
        .epoch = epoch,
        .name = row->span.name,
        .kind = row->span.kind,
        .error = row->span.flags & SPAN_ERROR,
        .total_ns = duration(&row->span),
        .self_ns = row->self_ns,
    };
    int err = rollups_add(&in->rollups, &span);
    if (err)
      return err;
  }
  for (; in->steps_placed < in->step_count; in->steps_placed++)
    in->steps[in->steps_placed].epoch = tree_epoch(&in->tree, in->steps[in->steps_placed].parent);
  return 0;
}

static bool same_open(const struct span_row *a, const struct span_row *b) {
  return a->id == b->id && a->parent == b->parent && a->name == b->name && a->module == b->module && a->index == b->index &&
         a->kind == b->kind && a->flags == b->flags && a->start_ns == b->start_ns;
}

/* Puts row n of the list for open_spans there; notices whether it is another than before. */
static int show_open(struct ingest *in, size_t n, const struct span_row *row) {
  if (n < in->open_count && same_open(&in->open[n], row))
    return 0;
  int err = INGEST_ROOM(in->open, in->open_room, n);
  if (err)
    return err;
  in->open[n] = *row;
  in->open_dirty = true;
  return 0;
}

static int list_open(struct ingest *in) {
  size_t n = 0;
  int err = 0;
  if (!in->root_closed) {
    struct span_row root = {
        .id = SPAN_ROOT,
        .start_ns = ingest_wall(in, in->start_ns),
        .index = SPAN_NO_INDEX,
        .cpu_ns = SPAN_NO_TIME,
        .gpu_ns = SPAN_NO_TIME,
        .name = in->root_name,
        .tid = in->main_tid,
        .kind = SPAN_SESSION,
    };
    err = show_open(in, n++, &root);
  }
  for (size_t i = 0; !err && i < in->scan_count; i++) {
    const struct tree_node *node = tree_find(&in->tree, in->scan[i].id);
    if (!node || !node->closed)
      err = show_open(in, n++, &in->scan[i]);
  }
  if (err)
    return err;
  if (n != in->open_count)
    in->open_dirty = true;
  in->open_count = n;
  return 0;
}

int ingest_prepare(struct ingest *in) {
  int err = list_open(in);
  return err ? err : sum_rows(in);
}

bool ingest_dirty(const struct ingest *in) {
  return in->row_count > in->rows_stored || in->parts_dirty || in->mark_count || in->step_count || in->epoch_count ||
         in->move_count || in->gone_count || in->open_dirty;
}

size_t ingest_pending(const struct ingest *in) {
  return (in->row_count > BLOCK_MAX ? in->row_count - BLOCK_MAX : 0) + in->mark_count;
}
