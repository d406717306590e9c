/* The parameters of a torch module in the order of its named_parameters(), without running any code of the script.
 *
 * GIL held; no error is left.
 */
#ifndef CIRRON_SNAPSHOT_WALK_H
#define CIRRON_SNAPSHOT_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "py.h"

/* Every parameter once, wherever it is met first, over all modules walked since walk_init. */
struct walk {
  PyObject **found; /* owned references, so that they hold whatever runs while they are asked */
  uint32_t count, room;
  bool names;     /* also their names: */
  uint32_t *name; /* offset in `text` of each, */
  uint32_t *name_len;
  char *text;
  size_t text_len, text_room;
  uint64_t names_hash; /* another one where any name is another, also if names are not asked for */
  uintptr_t *seen;     /* set of addresses of parameters and modules, open addressing */
  uint32_t seen_count, seen_room;
  bool failed; /* no memory: what was found is not all */
  bool odd;    /* a module was met that is unlike others */
};

void walk_init(struct walk *walk, bool names);
/* Adds those of a module. `prefix`: what its names begin with. False: its class, or a module in it, keeps them in a way of its own,
 * and nothing was added. */
bool walk_module(struct walk *walk, PyObject *module, const char *prefix);
/* Adds one object under a name, unless it was met before. For lists that others made. */
void walk_add(struct walk *walk, PyObject *object, const char *name, size_t len);
void walk_hash(struct walk *walk, const char *text);
/* Was it met? */
bool walk_has(const struct walk *walk, const void *address);
void walk_fini(struct walk *walk); /* gives the references back */

#endif
