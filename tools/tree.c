#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "buf.h"
#include "spans.h"

#define ERRORS_SHOWN 3 /* of the spans of a name under one parent */
#define OPEN_SHOWN 8
#define CHILDREN_SHOWN 100 /* of one parent, of whatever names */

int64_t tree_duration(const struct tree_node *node, int64_t now_ns) {
  int64_t end = node->end_ns == SPANS_NO_END ? now_ns : node->end_ns;
  return end > node->start_ns ? end - node->start_ns : 0;
}

static int add(const struct span_row *row, const struct spans_session *session, void *arg) {
  struct tree *tree = arg;
  (void)session;
  if (tree->count == tree->cap) {
    if (tree->cap >= UINT32_MAX / 2)
      return -EFBIG;
    tree->cap = tree->cap ? 2 * tree->cap : 1024;
    tree->nodes = buf_realloc(tree->nodes, tree->cap * sizeof *tree->nodes);
  }
  tree->nodes[tree->count++] = (struct tree_node){.id = row->id,
                                                  .parent = row->parent,
                                                  .start_ns = row->start_ns,
                                                  .end_ns = row->end_ns,
                                                  .index = row->index,
                                                  .name = row->name,
                                                  .module = row->module,
                                                  .exception = row->exception,
                                                  .up = TREE_NONE,
                                                  .summary = TREE_NONE,
                                                  .kind = row->kind,
                                                  .flags = row->flags};
  return 0;
}

static int compare_ids(const void *a, const void *b) {
  const struct tree_node *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t find(const struct tree *tree, uint64_t id) {
  struct tree_node key = {.id = id};
  const struct tree_node *node = id ? bsearch(&key, tree->nodes, tree->count, sizeof key, compare_ids) : NULL;
  return node ? (uint32_t)(node - tree->nodes) : TREE_NONE;
}

/* Roots first: TREE_NONE + 1 is 0. */
static int compare_order(const void *a, const void *b, void *arg) {
  const struct tree_node *nodes = arg, *x = &nodes[*(const uint32_t *)a], *y = &nodes[*(const uint32_t *)b];
  uint32_t up_x = x->up + 1, up_y = y->up + 1;
  if (up_x != up_y)
    return up_x < up_y ? -1 : 1;
  if (x->start_ns != y->start_ns)
    return x->start_ns < y->start_ns ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* A span with an error somewhere in it is as worth a line as that one. Stops at what is marked, so loops of parents end it. */
static void mark_errors(struct tree *tree) {
  for (size_t i = 0; i < tree->count; i++)
    for (uint32_t at = tree->nodes[i].flags & SPAN_ERROR ? (uint32_t)i : TREE_NONE; at != TREE_NONE && !tree->nodes[at].error;
         at = tree->nodes[at].up)
      tree->nodes[at].error = true;
}

int tree_load(sqlite3 *db, int64_t sid, struct tree *out) {
  struct spans_filter filter = {.sid = sid};
  *out = (struct tree){0};
  int rc = spans_each(db, &filter, add, out);
  if (rc || !out->count)
    return rc;
  qsort(out->nodes, out->count, sizeof *out->nodes, compare_ids);
  out->order = buf_alloc(out->count * sizeof *out->order);
  for (size_t i = 0; i < out->count; i++) {
    out->nodes[i].up = find(out, out->nodes[i].parent);
    if (out->nodes[i].up == i)
      out->nodes[i].up = TREE_NONE;
    out->order[i] = (uint32_t)i;
  }
  mark_errors(out);
  qsort_r(out->order, out->count, sizeof *out->order, compare_order, out->nodes);
  for (size_t i = 0; i < out->count; i++) {
    uint32_t up = out->nodes[out->order[i]].up;
    if (up == TREE_NONE)
      out->roots++;
    else if (out->nodes[up].count++ == 0)
      out->nodes[up].first = (uint32_t)i;
  }
  return 0;
}

void tree_fini(struct tree *tree) {
  free(tree->nodes);
  free(tree->order);
  free(tree->groups);
  *tree = (struct tree){0};
}

static int compare_names(const struct tree_node *x, const struct tree_node *y) {
  if (x->name != y->name)
    return x->name < y->name ? -1 : 1;
  if (x->module != y->module)
    return x->module < y->module ? -1 : 1;
  return x->kind < y->kind ? -1 : x->kind > y->kind;
}

/* By name, then by length. */
static int compare_alike(const void *a, const void *b, void *arg) {
  const struct tree_node *nodes = arg, *x = &nodes[*(const uint32_t *)a], *y = &nodes[*(const uint32_t *)b];
  int names = compare_names(x, y);
  if (names)
    return names;
  int64_t dx = tree_duration(x, 0), dy = tree_duration(y, 0);
  return dx < dy ? -1 : dx > dy;
}

static struct tree_group *new_group(struct tree *tree, struct tree_node *where) {
  if ((tree->groups_count & (tree->groups_count - 1)) == 0)
    tree->groups = buf_realloc(tree->groups, (tree->groups_count ? 2 * tree->groups_count : 1) * sizeof *tree->groups);
  where->summary = (uint32_t)tree->groups_count;
  struct tree_group *group = &tree->groups[tree->groups_count++];
  *group = (struct tree_group){.name = where->name, .module = where->module, .kind = where->kind, .min_ns = INT64_MAX};
  return group;
}

static void add_to_group(struct tree_group *group, const struct tree_node *node) {
  int64_t ns = tree_duration(node, 0);
  group->count++;
  group->errors += node->error;
  group->total_ns += ns;
  group->min_ns = ns < group->min_ns ? ns : group->min_ns;
  group->max_ns = ns > group->max_ns ? ns : group->max_ns;
}

/* alike[0..n): spans of one name, by length. Hides those that are not worth a line and tells of them at the first of these. */
static void collapse_alike(struct tree *tree, const uint32_t *alike, size_t n) {
  struct tree_node *nodes = tree->nodes;
  size_t errors = 0, open = 0, hidden = 0;
  uint32_t first = alike[0], told = TREE_NONE;
  for (size_t i = 1; i < n; i++)
    if (nodes[alike[i]].start_ns < nodes[first].start_ns ||
        (nodes[alike[i]].start_ns == nodes[first].start_ns && alike[i] < first))
      first = alike[i];
  int64_t median = tree_duration(&nodes[alike[(n - 1) / 2]], 0), most = tree_duration(&nodes[alike[n - 1]], 0);
  nodes[alike[n - 1]].slowest = most > median + median / 4; /* else it is one like the others */
  for (size_t i = 0; i < n; i++) {
    struct tree_node *node = &nodes[alike[i]];
    bool kept = alike[i] == first || node->slowest || (node->end_ns == SPANS_NO_END && open++ < OPEN_SHOWN) ||
                (node->error && errors++ < ERRORS_SHOWN);
    node->hidden = !kept;
    hidden += !kept;
    if (!kept && (told == TREE_NONE || node->start_ns < nodes[told].start_ns))
      told = alike[i];
  }
  if (!hidden)
    return;
  struct tree_group *group = new_group(tree, &nodes[told]);
  for (size_t i = 0; i < n; i++)
    if (nodes[alike[i]].hidden) {
      if (group->count == (hidden - 1) / 2)
        group->median_ns = tree_duration(&nodes[alike[i]], 0);
      add_to_group(group, &nodes[alike[i]]);
    }
}

/* Too many children of many names: those after the first lines become one. Groups that lie among them go with them. */
static void collapse_rest(struct tree *tree, const uint32_t *children, size_t n) {
  size_t lines = 0;
  struct tree_group *rest = NULL;
  for (size_t i = 0; i < n; i++) {
    struct tree_node *node = &tree->nodes[children[i]];
    if (node->hidden && node->summary == TREE_NONE && !rest)
      continue;
    if (!node->hidden && node->end_ns == SPANS_NO_END)
      continue;
    if (lines++ < CHILDREN_SHOWN)
      continue;
    node->hidden = true;
    if (!rest) {
      rest = new_group(tree, node);
      rest->mixed = true;
    } else {
      node->summary = TREE_NONE;
    }
    add_to_group(rest, node);
  }
}

static void collapse_children(struct tree *tree, const uint32_t *children, size_t n, uint32_t *alike) {
  if (n <= TREE_KEPT)
    return;
  memcpy(alike, children, n * sizeof *alike);
  qsort_r(alike, n, sizeof *alike, compare_alike, tree->nodes);
  for (size_t i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && compare_names(&tree->nodes[alike[i]], &tree->nodes[alike[end]]) == 0;)
      end++;
    if (end - i > TREE_KEPT)
      collapse_alike(tree, alike + i, end - i);
  }
  collapse_rest(tree, children, n);
}

void tree_collapse(struct tree *tree) {
  uint32_t *alike = buf_alloc(tree->count * sizeof *alike);
  collapse_children(tree, tree->order, tree->roots, alike);
  for (size_t i = 0; i < tree->count; i++)
    collapse_children(tree, tree->order + tree->nodes[i].first, tree->nodes[i].count, alike);
  free(alike);
}
