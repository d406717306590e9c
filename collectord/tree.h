/* What is known of the spans of a session that have children or are open: their place in the tree, and sums over their children.
 *
 * A child's record comes before its parent's, so a node is made by the first child (or by the table of open spans) and completed
 * by the record of the span itself. Leaves have no node. SPAN_ROOT is a node like any other.
 */
#ifndef CIRRON_TREE_H
#define CIRRON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "idmap.h"

#define TREE_MAX 65536u /* nodes; spans beyond have no sums over their children */
#define TREE_MANY 4096u /* from here on, those that are done with are let go at each commit */

/* Phases of a step, in the order of step_row.phase_ns. */
enum tree_phase { TREE_DATA_LOAD, TREE_FORWARD, TREE_BACKWARD, TREE_OPTIMIZER, TREE_PHASES };

struct tree_sums {
  int64_t child_ns;
  int64_t phase_ns[TREE_PHASES], phase_count[TREE_PHASES];
};

struct tree_node {
  uint64_t id, parent;
  struct tree_sums sums; /* of direct children whose record has come */
  uint32_t last_row;     /* newest row in memory that is its child: index + 1, then ingest_row.before */
  uint8_t kind, flags;
  bool placed;             /* parent, kind and flags are known */
  bool lent;               /* children may come long after its record */
  bool open, closed;       /* in the table of open spans at the last look; its record has come */
  bool sealed;             /* has children in sealed blocks, */
  int64_t sealed_start_ns; /* the latest of which began then */
  uint8_t missing;         /* looks since it vanished from the table of open spans without a record */
  uint8_t idle;            /* commits since it was last needed */
};

#define TREE_FILTER_BITS 4096u

struct tree {
  struct idmap map;
  /* A bit by the low bits of an id: without it there is no node. Most spans are leaves, and come in about the order of their ids, so what
   * is asked for lies close together here, and far apart in the map. */
  uint64_t filter[TREE_FILTER_BITS / 64];
  struct tree_node *nodes;
  uint32_t count, room;
  uint32_t recent; /* where the last one that was asked for is: children of the same span come one after the other */
};

struct tree_node *tree_find(struct tree *tree, uint64_t id);
/* NULL: there are too many, or no memory. The pointer is good until the next node is made. */
struct tree_node *tree_make(struct tree *tree, uint64_t id);
void tree_sums_add(struct tree_sums *sums, uint8_t kind, int64_t duration_ns);
void tree_sums_take(struct tree_sums *sums, uint8_t kind, int64_t duration_ns);

/* Nearest span of kind epoch or eval that is `span` or above it; 0: none, or not known. */
uint64_t tree_epoch(struct tree *tree, uint64_t span);

/* After a commit: lets go of nodes that are done with. */
void tree_trim(struct tree *tree);
void tree_fini(struct tree *tree);

#endif
