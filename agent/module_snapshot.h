/* What profile() settles about snapshots. */
#ifndef CIRRON_MODULE_SNAPSHOT_H
#define CIRRON_MODULE_SNAPSHOT_H

#include "py.h"

/* Begins what the settled settings ask for: snapshots, sample_rate, output_dir. 0, or -1 with an error. */
int module_snapshot_set(PyObject *settings);

#endif
