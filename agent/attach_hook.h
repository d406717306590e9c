/* The audit hook, put in before the interpreter exists, and its memory. For attach.c. */
#ifndef CIRRON_ATTACH_HOOK_H
#define CIRRON_ATTACH_HOOK_H

#include "py.h"

/* 0 or -ENOTSUP. Before Py_Initialize, or later with the GIL held. */
int attach_hook_add(int (*callback)(const char *event, PyObject *args, void *data));

/* In the event that precedes the freeing of all hooks. */
void attach_hook_before_free(void);

#endif
