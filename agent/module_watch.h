/* The models that the script named by watch(), and the one that a framework trains, for whoever looks at their tensors when an epoch ends.
 *
 * GIL held (or an attached thread state), any thread, the interpreter whose models are wanted. Nothing is kept by us but weak
 * references: a model that the script has let go of is not in the list.
 */
#ifndef CIRRON_MODULE_WATCH_H
#define CIRRON_MODULE_WATCH_H

#include "py.h"

/* A framework begins to train this model, in the main interpreter: it is watched until it trains another one or watch(None) is called, after those that
 * the script named. One that cannot be weakly referenced is not. Leaves no error behind, needs that none is set. */
void module_watch_found(PyObject *model);

/* A new list of tuples (model, name), in the order in which they were first named. Names are texts, and no two are the same. The list
 * is the caller's and holds the models, so it must not be kept for longer than they are looked at. It is a copy: watch() called meanwhile
 * does not change it. A model is what the script passed; where that was wrapped (module_wrap.h), what lies in it.
 * NULL: none, also where there is no memory or watch() was never called; no error is left, and one that was set before stays. */
PyObject *module_watched(void);

#endif
