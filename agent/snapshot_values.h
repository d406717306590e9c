/* What a model's values are that need not be plain tensors of PyTorch's: arrays of other frameworks, tensors on a device.
 *
 * GIL held; code of the framework may run, and let other threads run. No error is left.
 */
#ifndef CIRRON_SNAPSHOT_VALUES_H
#define CIRRON_SNAPSHOT_VALUES_H

#include "snapshot_tensor.h"

/* What is to be known of anything. What no other process can read, or nobody, has a reason. */
void values_facts(PyObject *object, struct tensor_facts *facts);

/* Its numbers in host memory: an object to be given back, and the facts of that; NULL: there are none. */
PyObject *values_of(PyObject *object, struct tensor_facts *facts);

#endif
