/* Making one function object call us: its vectorcall slot, and on 3.11 its type. For observe.c. */
#ifndef CIRRON_OBSERVE_SWAP_H
#define CIRRON_OBSERVE_SWAP_H

#include "py.h"

/* Puts `ours` where calls of `function` go. `direct`: also those from Python code by name. Returns 0, -EALREADY, or -ENOTSUP: no
 * plain function, an unknown layout, or somebody else is there; nothing is written then. `before` is called when nothing can
 * fail any more but it; its failure is returned. */
int observe_swap(PyObject *function, vectorcallfunc ours, bool direct, int (*before)(PyObject *function, const void *data),
                 const void *data);

/* Takes an observed function out of observation for a while, or puts it back. Where somebody else has come meanwhile, nothing is
 * written. */
void observe_swap_pause(PyObject *function, vectorcallfunc ours, bool direct, bool pause);

/* Where calls of every plain function go: good after the first observe_swap that returned 0. */
extern vectorcallfunc observe_original;

/* The interpreter is gone. */
void observe_swap_forget(void);

/* 3.11: a subtype of `function` with the same size, made once, or NULL. Only calls through its vectorcall slot reach it, where
 * plain functions are inlined. */
PyTypeObject *observe_retype(size_t vectorcall_offset);
bool observe_retype_is(const PyObject *object); /* of that type? */
void observe_retype_forget(void);

#endif
