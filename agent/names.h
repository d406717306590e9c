/* The fixed names of automatic spans, as ids of the present segment. */
#ifndef CIRRON_NAMES_H
#define CIRRON_NAMES_H

#include <stdint.h>

enum name { NAME_EPOCH, NAME_EVAL, NAME_STEP, NAME_DATA_LOAD, NAME_FORWARD, NAME_BACKWARD, NAME_OPTIMIZER_STEP, NAMES };

/* Made on first use in a session; afterwards a look into a table. Any thread. */
uint32_t name_id(enum name name);

/* A class name for `module` or `exception` of a record; `key` as from py_class_name, for a cache. Needs the GIL. */
uint32_t name_of_class(const char *text, uintptr_t key);

#endif
