/* The fixed names of automatic spans, as ids of the present segment; ids of class names. */
#ifndef CIRRON_NAMES_H
#define CIRRON_NAMES_H

#include <stdint.h>

#include "hot.h"

enum name {
  NAME_EPOCH,
  NAME_EVAL,
  NAME_STEP,
  NAME_DATA_LOAD,
  NAME_FORWARD,
  NAME_BACKWARD,
  NAME_OPTIMIZER_STEP,
  NAME_FETCH,
  NAME_BATCH,
  NAME_COLLECTIVE,
  NAMES
};

void names_make(void); /* once for each segment, before there is a span */

extern uint32_t name_ids[NAMES];
static inline uint32_t name_id(enum name name) {
  return name_ids[name];
}

#define NAME_CLASSES 64u /* a training job has a handful of outermost modules, optimizers and exceptions */

/* Ids of class names, direct-mapped; one a thread, zeroed at first. Not thread-local by itself: room for that is scarce in a library
 * that is loaded while the program runs. */
struct name_cache {
  struct name_cached {
    uintptr_t key;
    unsigned generation;
    uint32_t id;
  } at[NAME_CLASSES];
};

/* A class name for `module` or `exception` of a record; `key` as from py_class_key. */
uint32_t name_known(const struct name_cache *cache, uintptr_t key); /* 0: not remembered */
uint32_t name_of_class(struct name_cache *cache, const char *text, uintptr_t key);

#endif
