/* What the probes of frameworks share: is a call still where it began, what ended it, and the numbers that a framework has.
 *
 * GIL held. Nothing of it runs code of the script but where that is said, and no error is left.
 */
#ifndef CIRRON_FRAMEWORK_H
#define CIRRON_FRAMEWORK_H

#include "frameworks.h"
#include "hot.h"
#include "loop_own.h"
#include "observe.h"
#include "scope.h"
#include "session.h"

/* A framework's probes are silent: it is not among those that are observed, or this is a loader's worker. `bits` of env.h. */
static inline bool framework_off(unsigned bits) {
  return session_is_worker() || !(frameworks_chosen() & bits);
}

/* Is the stack that the call was entered with, state[0], still the one whose turn it is? Not in the child of a fork. */
static inline bool framework_same_stack(const struct observe_call *call) {
  return likely(call->state[0] == scope_peek());
}

/* The class of the exception that is set now, as a name's id; 0: none is set. */
uint32_t framework_exception(struct scope *scope);

/* A loop begins that the script runs itself, and of which only `object`, its list of callbacks, is told. It ends when that is told, or
 * when the object goes away on this thread. No loop begins where one is under way already that is the object's or a framework's. */
void framework_loop(struct scope *scope, PyObject *object);
void framework_forget(void); /* in the child of a fork */

/* own_end and own_epoch_end, and then the snapshot that is due: as the last thing that a probe does, for it may run code of the script. */
void framework_end(struct scope *scope, uint64_t number, uint32_t exception);
void framework_epoch_end(struct scope *scope, struct loop_run *run, uint32_t exception);

/* A number as a whole one, a fraction cut off. False: it is none, or NULL. */
bool framework_whole(PyObject *value, int64_t *out);
/* The same of object.name, which asks the object. */
bool framework_attr(PyObject *object, const char *name, int64_t *out);
/* An argument by position or name; NULL: it was not given. Borrowed. */
PyObject *framework_arg(const struct observe_call *call, size_t position, const char *name);

/* Is there nothing in a dict but Python's own numbers, texts and None? */
bool framework_plain(PyObject *logs);

/* The numbers in a dict, as marks on span `span`. Only what is a number of Python's own: turning a tensor into one might wait for the
 * device. Anything else but texts and None is counted as refused. */
void framework_marks(struct scope *scope, PyObject *logs, uint64_t span, bool summary);

/* The same, where the framework's own numbers are asked for by `value_of`, which may run the framework's code. */
enum framework_value { FRAMEWORK_NUMBER, FRAMEWORK_PASSED_OVER, FRAMEWORK_NO_NUMBER };
typedef enum framework_value framework_value_of(PyObject *value, double *out);
void framework_marks_of(struct scope *scope, PyObject *logs, uint64_t span, framework_value_of *value_of);

#endif
