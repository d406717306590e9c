#include "tree.h"

#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"

/* Longer chains exist in broken data only. */
#define DEEPEST 1024
/* Late children of a span that is closed find its place for this many commits; those of one that is known to have such, always, or
 * as long as there are not many nodes. */
#define IDLE_COMMITS 20

static uint64_t filter_bit(uint64_t id) {
  return 1ull << id % 64;
}

static uint64_t *filter_word(struct tree *tree, uint64_t id) {
  return &tree->filter[id % TREE_FILTER_BITS / 64];
}

struct tree_node *tree_find(struct tree *tree, uint64_t id) {
  if (tree->recent < tree->count && tree->nodes[tree->recent].id == id)
    return &tree->nodes[tree->recent];
  if (!(*filter_word(tree, id) & filter_bit(id)))
    return NULL;
  return idmap_get(&tree->map, id, &tree->recent) ? &tree->nodes[tree->recent] : NULL;
}

struct tree_node *tree_make(struct tree *tree, uint64_t id) {
  struct tree_node *found = tree_find(tree, id);
  if (found)
    return found;
  if (!id || tree->count >= TREE_MAX)
    return NULL;
  if (tree->count == tree->room) {
    uint32_t room = tree->room ? tree->room * 2 : 64;
    struct tree_node *nodes = realloc(tree->nodes, room * sizeof *nodes);
    if (!nodes)
      return NULL;
    tree->nodes = nodes;
    tree->room = room;
  }
  if (idmap_put(&tree->map, id, tree->count) != 0)
    return NULL;
  *filter_word(tree, id) |= filter_bit(id);
  struct tree_node *node = &tree->nodes[tree->count++];
  *node = (struct tree_node){.id = id};
  if (id == SPAN_ROOT) {
    node->kind = SPAN_SESSION;
    node->placed = true;
  }
  return node;
}

static int phase_of(uint8_t kind) {
  switch (kind) {
  case SPAN_DATA_LOAD:
    return TREE_DATA_LOAD;
  case SPAN_FORWARD:
    return TREE_FORWARD;
  case SPAN_BACKWARD:
    return TREE_BACKWARD;
  case SPAN_OPTIMIZER:
    return TREE_OPTIMIZER;
  default:
    return -1;
  }
}

static int64_t sum(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b); /* strangers' numbers may wrap */
}

void tree_sums_add(struct tree_sums *sums, uint8_t kind, int64_t duration_ns) {
  int phase = phase_of(kind);
  sums->child_ns = sum(sums->child_ns, duration_ns);
  if (phase >= 0) {
    sums->phase_ns[phase] = sum(sums->phase_ns[phase], duration_ns);
    sums->phase_count[phase]++;
  }
}

void tree_sums_take(struct tree_sums *sums, uint8_t kind, int64_t duration_ns) {
  int phase = phase_of(kind);
  sums->child_ns = sum(sums->child_ns, -duration_ns);
  if (phase >= 0) {
    sums->phase_ns[phase] = sum(sums->phase_ns[phase], -duration_ns);
    sums->phase_count[phase]--;
  }
}

uint64_t tree_epoch(struct tree *tree, uint64_t span) {
  for (int i = 0; i < DEEPEST && span && span != SPAN_ROOT; i++) {
    const struct tree_node *node = tree_find(tree, span);
    if (!node || !node->placed)
      return 0;
    if (node->kind == SPAN_EPOCH || node->kind == SPAN_EVAL)
      return span;
    span = node->parent;
  }
  return 0;
}

/* Is it of no use any more? An open span never is; without a record it is kept while its children keep coming. */
static bool done_with(struct tree_node *node, bool many) {
  if (node->id == SPAN_ROOT || node->open || node->last_row)
    return false;
  if ((!node->closed || node->lent) && !many)
    return false;
  return ++node->idle > IDLE_COMMITS;
}

static void filter_anew(struct tree *tree) {
  memset(tree->filter, 0, sizeof tree->filter);
  for (uint32_t i = 0; i < tree->count; i++)
    *filter_word(tree, tree->nodes[i].id) |= filter_bit(tree->nodes[i].id);
}

void tree_trim(struct tree *tree) {
  bool many = tree->count > TREE_MANY;
  uint32_t before = tree->count;
  for (uint32_t i = 0; i < tree->count;) {
    struct tree_node *node = &tree->nodes[i];
    if (!done_with(node, many)) {
      i++;
      continue;
    }
    idmap_remove(&tree->map, node->id);
    *node = tree->nodes[--tree->count];
    if (i < tree->count)
      (void)idmap_put(&tree->map, node->id, i); /* is there already: changes a value, needs no memory */
  }
  if (tree->count < before)
    filter_anew(tree);
}

void tree_fini(struct tree *tree) {
  idmap_fini(&tree->map);
  free(tree->nodes);
  *tree = (struct tree){0};
}
