/* See snapshot_models.h. */
#include "snapshot_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hot.h"
#include "module_watch.h"
#include "snapshot_tensor.h"
#include "snapshot_walk.h"

#define SEEN_MAX 8 /* of each kind, between two snapshots */

HOT_DATA bool models_sought;

struct seen {
  const void *address; /* for comparison; another object may have it by now */
  PyObject *reference; /* weak, or NULL */
};
static struct seen modules[SEEN_MAX], optimizers[SEEN_MAX];

/* What was found last. */
static struct {
  PyObject *list; /* of (weak reference, name); NULL: there is nothing to be remembered */
  unsigned left;
} last;

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

static void let_go(struct seen *seen) {
  PyObject *reference = seen->reference;
  *seen = (struct seen){0};
  drop(reference);
}

void models_forget(void) {
  memset(modules, 0, sizeof modules); /* the references stay */
  memset(optimizers, 0, sizeof optimizers);
  last.list = NULL;
  models_sought = false;
}

/* The object, a new reference; NULL: it is gone. */
static PyObject *alive(struct seen *seen) {
  PyObject *object = seen->reference ? py.PyObject_CallFunctionObjArgs(seen->reference, NULL) : NULL;
  if (object && object != py._Py_NoneStruct)
    return object;
  drop(object);
  py.PyErr_Clear();
  if (seen->reference)
    let_go(seen);
  return NULL;
}

static bool is_alive(struct seen *seen) {
  PyObject *object = alive(seen);
  drop(object);
  return object != NULL;
}

static void saw(struct seen *seen, PyObject *object) {
  struct seen *free_one = NULL;
  for (unsigned i = 0; i < SEEN_MAX; i++)
    if (seen[i].address == object && is_alive(&seen[i]))
      return;
  for (unsigned i = 0; i < SEEN_MAX && !free_one; i++)
    if (!is_alive(&seen[i]))
      free_one = &seen[i];
  PyObject *reference = free_one ? py.PyWeakref_NewRef(object, NULL) : NULL;
  if (reference)
    *free_one = (struct seen){object, reference};
  py.PyErr_Clear();
}

COLD void models_saw_module(PyObject *module) {
  saw(modules, module);
}

COLD void models_saw_optimizer(PyObject *optimizer) {
  saw(optimizers, optimizer);
}

/* --- what optimizers have ------------------------------------------------------------------------------------------------ */

/* Adds the tensors of optimizer.param_groups, named by their places: "0.3" is the fourth of the first group. */
static void optimizer_tensors(struct walk *walk, PyObject *optimizer) {
  PyObject *groups = py.PyObject_GetAttrString(optimizer, "param_groups");
  Py_ssize_t n = groups && (void *)py_type(groups) == py.PyList_Type ? py.PyObject_Size(groups) : 0;
  for (Py_ssize_t g = 0; g < n; g++) {
    PyObject *group = py.PyList_GetItem(groups, g);
    bool is_dict = py_type(group) == (PyTypeObject *)py.PyDict_Type;
    PyObject *params = is_dict ? py_dict_get(group, "params") : NULL;
    Py_ssize_t count = params && (void *)py_type(params) == py.PyList_Type ? py.PyObject_Size(params) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
      char name[48];
      PyObject *tensor = py.PyList_GetItem(params, i);
      if (tensor && tensor_is(tensor))
        walk_add(walk, tensor, name, (size_t)snprintf(name, sizeof name, "%zd.%zd", g, i));
    }
  }
  py.PyErr_Clear();
  drop(groups);
}

/* --- which models -------------------------------------------------------------------------------------------------------- */

struct candidate {
  PyObject *module; /* owned */
  struct walk walk;
};

static int larger_first(const void *a, const void *b) {
  uint32_t na = ((const struct candidate *)a)->walk.count, nb = ((const struct candidate *)b)->walk.count;
  return na < nb ? 1 : na > nb ? -1 : 0;
}

static bool shares(const struct walk *walk, const struct walk *with) {
  for (uint32_t i = 0; i < walk->count; i++)
    if (walk_has(with, walk->found[i]))
      return true;
  return false;
}

static int append(PyObject *list, PyObject *what, const char *name) {
  PyObject *pair = py.Py_BuildValue("(Os)", what, name);
  int r = pair ? py.PyList_Append(list, pair) : -1;
  drop(pair);
  return r;
}

/* "Net", "Net#2". */
static void name_for(PyObject *list, PyObject *module, char *out, size_t size) {
  const char *class = py_class_name(module);
  snprintf(out, size, "%s", class);
  for (unsigned n = 2, taken = 1; taken; n++) {
    taken = 0;
    for (Py_ssize_t i = 0; i < py.PyObject_Size(list) && !taken; i++)
      taken = py.PyUnicode_CompareWithASCIIString(py.PyTuple_GetItem(py.PyList_GetItem(list, i), 1), out) == 0;
    if (taken)
      snprintf(out, size, "%s#%u", class, n);
  }
}

/* Those of which an optimizer has a parameter; of two that lie in one another the outer one. */
static int take_models(PyObject *list, struct candidate *candidates, unsigned count, const struct walk *trained,
                       struct walk *taken) {
  int r = 0;
  qsort(candidates, count, sizeof *candidates, larger_first);
  for (unsigned i = 0; i < count && !r; i++) {
    char name[128];
    const struct walk *w = &candidates[i].walk;
    if (!shares(w, trained) || shares(w, taken))
      continue;
    for (uint32_t k = 0; k < w->count; k++)
      walk_add(taken, w->found[k], "", 0);
    name_for(list, candidates[i].module, name, sizeof name);
    r = append(list, candidates[i].module, name);
  }
  return r;
}

/* What an optimizer has and no model. */
static int take_rest(PyObject *list, const struct walk *trained, const struct walk *taken) {
  PyObject *rest = py.PyList_New(0);
  int r = rest ? 0 : -1;
  for (uint32_t i = 0; i < trained->count && !r; i++) {
    if (walk_has(taken, trained->found[i]))
      continue;
    char name[48];
    snprintf(name, sizeof name, "%.*s", (int)trained->name_len[i], trained->text + trained->name[i]);
    PyObject *pair = py.Py_BuildValue("(sO)", name, trained->found[i]);
    r = pair ? py.PyList_Append(rest, pair) : -1;
    drop(pair);
  }
  if (!r && py.PyObject_Size(rest) > 0)
    r = append(list, rest, "optimizer");
  drop(rest);
  return r;
}

static PyObject *found_at_work(void) {
  struct candidate candidates[SEEN_MAX];
  struct walk trained, taken;
  unsigned count = 0;
  walk_init(&trained, true);
  walk_init(&taken, false);
  for (unsigned i = 0; i < SEEN_MAX; i++) {
    PyObject *optimizer = alive(&optimizers[i]);
    if (optimizer)
      optimizer_tensors(&trained, optimizer);
    drop(optimizer);
  }
  for (unsigned i = 0; i < SEEN_MAX && trained.count; i++) {
    struct candidate *c = &candidates[count];
    if (!(c->module = alive(&modules[i])))
      continue;
    count++;
    walk_init(&c->walk, false);
    (void)walk_module(&c->walk, c->module, ""); /* one of an unusual kind: its tensors are the optimizer's */
  }
  PyObject *list = trained.count ? py.PyList_New(0) : NULL;
  if (list && (take_models(list, candidates, count, &trained, &taken) < 0 || take_rest(list, &trained, &taken) < 0)) {
    py.Py_DecRef(list);
    list = NULL;
  }
  for (unsigned i = 0; i < count; i++) {
    walk_fini(&candidates[i].walk);
    drop(candidates[i].module);
  }
  walk_fini(&taken);
  walk_fini(&trained);
  return list;
}

/* --- what was found last --------------------------------------------------------------------------------------------------- */

#define AGAIN 16u /* times that it holds: an optimizer may have been given more tensors */

static void remember(PyObject *found) {
  PyObject *list = py.PyList_New(0), *before = last.list;
  bool all = list != NULL;
  for (Py_ssize_t i = 0; all && i < py.PyObject_Size(found); i++) {
    PyObject *pair = py.PyList_GetItem(found, i), *model = py.PyTuple_GetItem(pair, 0);
    bool is_model = (void *)py_type(model) != py.PyList_Type;
    PyObject *reference = is_model ? py.PyWeakref_NewRef(model, NULL) : NULL;
    PyObject *kept = reference ? py.Py_BuildValue("(OO)", reference, py.PyTuple_GetItem(pair, 1)) : NULL;
    all = kept && py.PyList_Append(list, kept) == 0;
    drop(kept);
    drop(reference);
  }
  py.PyErr_Clear();
  if (!all) {
    drop(list);
    list = NULL;
  }
  last.list = list;
  last.left = AGAIN;
  drop(before);
}

/* The same models once more, if they all live; NULL: to be found anew. */
static PyObject *remembered(void) {
  PyObject *list = last.list && last.left && !models_sought ? py.PyList_New(0) : NULL;
  bool all = list != NULL;
  for (Py_ssize_t i = 0; all && i < py.PyObject_Size(last.list); i++) {
    PyObject *kept = py.PyList_GetItem(last.list, i);
    PyObject *model = py.PyObject_CallFunctionObjArgs(py.PyTuple_GetItem(kept, 0), NULL);
    PyObject *pair = model && model != py._Py_NoneStruct ? py.Py_BuildValue("(OO)", model, py.PyTuple_GetItem(kept, 1)) : NULL;
    all = pair && py.PyList_Append(list, pair) == 0;
    drop(pair);
    drop(model);
  }
  py.PyErr_Clear();
  if (all) {
    last.left--;
    return list;
  }
  drop(list);
  return NULL;
}

PyObject *models_now(void) {
  PyObject *list = module_watched();
  if (!list && tensor_ready() && !(list = remembered()) && (list = found_at_work()))
    remember(list);
  py.PyErr_Clear();
  if (list)
    models_sought = false; /* until there is another optimizer */
  return list;
}
