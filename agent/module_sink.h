/* output=...: the sinks that profile() was asked for, and the lines that Python prints.
 *
 * Printing runs the script's code, so it happens only where nothing of ours is under way and the script has called something: when a
 * scope ends, a mark is set, epochs() or batches() go on, an observed step or request of a loader has ended, in flush(), shutdown() and at
 * the end. All of it needs the GIL.
 */
#ifndef CIRRON_MODULE_SINK_H
#define CIRRON_MODULE_SINK_H

#include <stdatomic.h>

#include "module_state.h"
#include "sink.h"

/* Begins what the settled settings ask for: output, flush_interval, output_dir, spool_max_bytes. 0, or -1 with an error. */
int module_sink_set(PyObject *module, PyObject *settings);

/* Prints what is due. 0, or -1 with an error that is not ours (Ctrl-C came meanwhile). */
int module_sink_lines(struct module_state *state);

static inline int module_sink_check(struct module_state *state) {
  return __builtin_expect(atomic_load_explicit(&sink_lines_due, memory_order_relaxed), 0) ? module_sink_lines(state) : 0;
}

/* The same at the end of a call that gives `result`, which is passed on. */
static inline PyObject *module_sink_after(struct module_state *state, PyObject *result) {
  if (!result || module_sink_check(state) == 0)
    return result;
  py.Py_DecRef(result);
  return NULL;
}

/* The same where only an object of the module's own types is at hand. */
int module_sink_lines_of(PyObject *object);
static inline int module_sink_check_of(PyObject *object) {
  return __builtin_expect(atomic_load_explicit(&sink_lines_due, memory_order_relaxed), 0) ? module_sink_lines_of(object) : 0;
}

/* Everything that there is, to all sinks. `self`: the module or an object of its types. As module_sink_lines. */
int module_sink_flush(PyObject *self);

/* The module goes. */
void module_sink_drop(const struct module_state *state);

void module_sink_forget(void); /* in the child of a fork */

#endif
