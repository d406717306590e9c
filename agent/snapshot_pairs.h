/* The tensors of a model that says itself which they are, by code of the script or of its framework: named_parameters(), or a Keras model's weights.
 *
 * GIL held. No error is left.
 */
#ifndef CIRRON_SNAPSHOT_PAIRS_H
#define CIRRON_SNAPSHOT_PAIRS_H

#include "snapshot_walk.h"

/* Does it say so in Keras's way, also where it is a torch module as well? */
bool pairs_is_keras(PyObject *model);

/* Adds them. `model` may be a list of pairs (name, tensor), too. */
void pairs_add(struct walk *walk, PyObject *model, const char *prefix);

#endif
