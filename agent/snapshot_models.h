/* Which models a snapshot is of: those that the script named, the one that a framework trains; else those that were seen at work, together
 * with an optimizer that has their parameters.
 *
 * GIL held, main interpreter. Nothing is kept but weak references.
 */
#ifndef CIRRON_SNAPSHOT_MODELS_H
#define CIRRON_SNAPSHOT_MODELS_H

#include "py.h"

/* Is it of use to be told what trains? Read for each outermost forward in training mode and each update. */
extern bool models_sought;
void models_saw_module(PyObject *module);
void models_saw_optimizer(PyObject *optimizer);

/* A new list of tuples (what, name): what is a model, or a list of tuples (name, tensor) where an optimizer has tensors that belong to no
 * model that was seen. The caller must not keep it. NULL without an error: there is none. */
PyObject *models_now(void);

void models_forget(void); /* in the child of a fork, or for another session */

#endif
