/* trace(...): what this process recorded, as a tree, a dict, JSON or a table. */
#ifndef CIRRON_MODULE_TRACE_H
#define CIRRON_MODULE_TRACE_H

#include <stdint.h>

#include "keep.h"
#include "py.h"

/* cirron.trace(format="tree", name=None, last=None); module_trace_of_handle: the handle's method. Records are kept from the first call
 * on, and that one has what the rings hold of before. New reference, or NULL with an error: ValueError for another format, the dependency error without pandas. */
PyObject *module_trace(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *module_trace_of_handle(PyObject *handle, PyObject *args, PyObject *kwargs);

/* Closed spans that are left out: those of one thread between two positions of the log. */
struct module_trace_skip {
  uint64_t from, to;
  uint32_t tid;
};

/* What is kept from these positions on, which it moves: (prefix, pid, rank, spans, marks) as in module_trace_text.c. `skip`: NULL: nothing is left
 * out, and what is open is there, too. New reference, or NULL with an error. */
PyObject *module_trace_rows(uint64_t at[KEEP_LOGS], const struct module_trace_skip *skip);

/* A function of the Python half, which is compiled at first. Borrowed, or NULL with an error. */
struct module_state;
PyObject *module_trace_half(struct module_state *state, const char *name);
extern const char module_trace_text[];

#endif
