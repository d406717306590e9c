/* wrap(estimator): what its files share. GIL held, as for all of the module. */
#ifndef CIRRON_MODULE_WRAP_H
#define CIRRON_MODULE_WRAP_H

#include "module_state.h"

struct wrapped {
  PyObject *inner; /* the estimator */
  struct module_state *state;
  char *attrs; /* attributes of its spans, as JSON */
  size_t attrs_len;
};

/* The estimator's part of an object of ours, or NULL if it is none. Good as long as the object is. */
struct wrapped *module_wrapped(const struct module_state *state, PyObject *object);

/* A new wrapped estimator around `inner`, which is none. NULL with an error. */
PyObject *module_wrap_new(struct module_state *state, PyObject *inner);

enum wrap_result {
  WRAP_TIMED, /* a span for each call */
  WRAP_SELF,  /* no span; in both cases a method that returns its object returns the wrapped one */
  WRAP_CLONE, /* the result is wrapped */
};
/* `function`, a callable that `self`, a wrapped estimator, has under the name `name`. New reference, or NULL with an error. */
PyObject *module_wrap_call(PyObject *self, PyObject *function, PyObject *name, enum wrap_result result);
PyObject *module_wrap_call_type(void);

/* The type of wrapped estimators of this class. New reference, or NULL with an error. */
PyObject *module_wrap_type_for(struct module_state *state, PyObject *class);
PyObject *module_wrap_special_type(void);
PyObject *module_wrap_meta_type(void);

/* An attribute: 1 with *out, 0 if there is none, -1 with an error. */
int module_wrap_find(PyObject *object, const char *name, PyObject **out);
/* The text of an attribute's name, good as long as the name; "" where it has none. */
const char *module_wrap_text(PyObject *name);
bool module_wrap_is_any(const char *text, const char *const *list); /* the list ends with NULL */
/* module.function(first, second); NULL ends the arguments. New reference, or NULL with an error. */
PyObject *module_wrap_ask(const char *module, const char *function, PyObject *first, PyObject *second);

#endif
