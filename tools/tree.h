/* The spans of one session as they lie in each other, and which of them are worth a line.
 *
 * Holds the whole session: about 90 bytes a span. What a damaged or cut store can hold is borne: parents that are not there, spans
 * that are their own ancestors (not shown, counted), any depth.
 */
#ifndef CIRRON_TREE_H
#define CIRRON_TREE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREE_NONE UINT32_MAX
#define TREE_MAX_DEPTH 200 /* what lies deeper is left out */
#define TREE_KEPT 3        /* spans of a name under one parent that are never collapsed */

struct tree_node {
  uint64_t id, parent;
  int64_t start_ns, end_ns; /* end_ns SPANS_NO_END: none */
  int64_t index;
  uint32_t name, module, exception;
  uint32_t up;           /* the parent's place, TREE_NONE at the top */
  uint32_t first, count; /* children: tree->order[first .. first + count) */
  uint32_t summary;      /* hidden, and the place where tree->groups[summary] is told; or TREE_NONE */
  uint8_t kind, flags;
  bool error; /* it, or something in it, was left by an exception */
  bool hidden, slowest;
};

struct tree_group { /* spans of one name under one parent that are not shown */
  uint32_t name, module, count, errors;
  uint8_t kind;
  bool mixed; /* of several names */
  int64_t total_ns, median_ns, min_ns, max_ns;
};

struct tree {
  struct tree_node *nodes; /* by id */
  uint32_t *order;         /* places, grouped by parent, each group by begin */
  size_t count, cap, roots;
  struct tree_group *groups;
  size_t groups_count;
};

/* Returns 0 or a negative errno. */
int tree_load(sqlite3 *db, int64_t sid, struct tree *out);
void tree_fini(struct tree *tree);

/* Decides what is shown: of many spans of a name under one parent the first, the slowest, those with an error or without an end. */
void tree_collapse(struct tree *tree);

/* Length, up to now_ns where there is no end (0: none then); never negative. */
int64_t tree_duration(const struct tree_node *node, int64_t now_ns);

#endif
