/* Observing chosen Python functions: one table of probes, set when the module that defines the function has run.
 *
 * How a function is observed depends on the interpreter's version (docs/architecture.md); the probe does not see the difference.
 * Code that is in no table runs untouched. All of this runs with the GIL held, on the thread that makes the call.
 */
#ifndef CIRRON_OBSERVE_H
#define CIRRON_OBSERVE_H

#include "py.h"

/* What a call tells the check of overhead (check.c) beside what its probe makes of it. */
/* OBSERVE_ALWAYS: nothing, but it is observed in all blocks. */
enum observe_pace { OBSERVE_NO_PACE, OBSERVE_UPDATE, OBSERVE_REQUEST, OBSERVE_PASS, OBSERVE_ALWAYS };

struct observe_call {
  PyObject *const *args; /* as passed by position, self first; borrowed, good until the call returns */
  size_t nargs;
  PyObject *kwnames; /* names of the arguments after those, or NULL */
  void *state[6];    /* the probe's own; zero at enter, as enter left it at leave */
};

struct probe {
  const char *module;   /* "torch.optim.optimizer" */
  const char *qualname; /* "Optimizer.__init__"; NULL: nothing in it, only observe_ran is told of the module */
  bool direct;          /* called by name from Python code, not through a type's slot: needs more on 3.11 */
  /* Before the call. False: leave is not wanted. Must not raise, and must not leave an exception set. */
  bool (*enter)(struct observe_call *call);
  /* After the call: its result (borrowed), or NULL with the exception set, which must stay as it is. */
  void (*leave)(struct observe_call *call, PyObject *result);
  enum observe_pace pace;
  bool apart;    /* called too seldom for one of the first places in the table */
  bool optional; /* not in all versions that we know: if it is not there, nothing is amiss */
  const char
      *args; /* "self batch": what its arguments are called from the first on, or it is another function now; NULL: any */
  /* With a class as owner in qualname: also observe overrides in subclasses? No: only this very function object. */
};

/* Adds probes. Called before the interpreter is attached (init.c); the table must live for ever. */
void observe_add(const struct probe *probes, size_t n);

/* Observes one function object now, for those that come into being at run time (an optimizer's step). Needs `function` to be a
 * plain Python function. Returns 0, -EALREADY if it is observed already, -ENOTSUP if it is no plain function or its layout is
 * not known. */
int observe_function(PyObject *function, const struct probe *probe);

/* Observes a function of a module that is there for as long as `on`, and then no more: for what matters now and then. */
void observe_meanwhile(const struct probe *probe, bool on);

/* What an observed function is when it is called: the probe around the function itself. */
PyObject *observe_run(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames);

/* Not NULL: called instead for functions with a pace, and all observed functions are kept alive. Set before the first. */
extern vectorcallfunc observe_paced;

/* Not NULL: called after each call that is an update or a request and did not raise, when nothing of ours is under way. It may run
 * Python code. 0, or -1 with an error, which the call then ends with. */
extern int (*_Atomic observe_after)(void);

/* Takes all functions without a pace out of observation, or puts them back. Needs observe_paced. */
void observe_pause(bool pause);

/* Argument `position` of the call, or the keyword argument `name` (interned; may be NULL), or NULL. Borrowed. */
PyObject *observe_arg(const struct observe_call *call, size_t position, PyObject *name);

/* Not NULL: asked for each module that has run, and nothing of it is observed if the answer is no. Set before the first. */
extern bool (*observe_allowed)(const char *module);

/* Not NULL: told of each probe whether its function was found: 0, -EALREADY, -ENOENT, -ENOTSUP (no plain function), -EINVAL (other
 * arguments). Set before the first, as observe_ran, which is told when all probes of a module were tried. */
extern void (*observe_found)(const struct probe *probe, int result);
extern void (*observe_ran)(const char *module);

/* The module of this name has run: resolve the table's entries in it. For attach.c. */
void observe_module_ready(const char *module_name);

/* The same for all modules of the table that are there already: the interpreter was attached late. For attach.c. */
void observe_modules_present(void);

/* The interpreter is gone; another may come. For attach.c. */
void observe_forget(void);

/* Is a code object's file that of a module in the table? Returns the module's name or NULL. For attach.c. */
const char *observe_wanted_module(const char *file_name);

#endif
