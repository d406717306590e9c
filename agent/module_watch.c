/* watch(model): which models are to be looked at.
 *
 * They are kept for each interpreter, in its own dictionary, so that they outlast the module's import and end with the interpreter.
 * There: id(model) -> (weak reference, name). A model that dies leaves its entry behind until the next call here; another one at
 * the same address takes the entry over.
 */
#include "module_watch.h"

#include "module_wrap.h"
#include "module_wrong.h"

#define KEY "cirron.watched"

/* The table, borrowed; NULL without an error if there is none, or with one if that is not known or it was to be made. */
static PyObject *table_get(bool make) {
  PyObject *all = py.PyInterpreterState_GetDict(py.PyInterpreterState_Get());
  PyObject *table = all ? py_dict_get(all, KEY) : NULL;
  if (table || !all || !make || py.PyErr_Occurred())
    return table;
  PyObject *made = py.PyDict_New();
  table = made && py.PyDict_SetItemString(all, KEY, made) == 0 ? made : NULL;
  module_drop(made); /* `all` holds it */
  return table;
}

/* The model of an entry: new reference, or NULL without an error: it is dead. */
static PyObject *entry_model(PyObject *entry) {
  PyObject *model = py.PyObject_CallFunctionObjArgs(py.PyTuple_GetItem(entry, 0), NULL);
  if (model && model != py._Py_NoneStruct)
    return model;
  module_drop(model);
  py.PyErr_Clear();
  return NULL;
}

static PyObject *entry_name(PyObject *entry) {
  return py.PyTuple_GetItem(entry, 1);
}

/* The living of a table as a list of (model, name), the dead taken out of it. NULL with an error. */
static PyObject *living(PyObject *table) {
  PyObject *items = py.PyDict_Items(table), *list = items ? py.PyList_New(0) : NULL;
  Py_ssize_t n = list ? py.PyObject_Size(items) : 0;
  int bad = list ? 0 : -1;
  for (Py_ssize_t i = 0; i < n && !bad; i++) {
    PyObject *item = py.PyList_GetItem(items, i), *entry = py.PyTuple_GetItem(item, 1), *model = entry_model(entry);
    PyObject *pair = model ? py.Py_BuildValue("(OO)", model, entry_name(entry)) : NULL;
    if (model)
      bad = pair ? py.PyList_Append(list, pair) : -1;
    else if (py.PyDict_DelItem(table, py.PyTuple_GetItem(item, 0)) < 0)
      py.PyErr_Clear(); /* another thread was first */
    module_drop(pair);
    module_drop(model);
  }
  module_drop(items);
  if (!bad)
    return list;
  module_drop(list);
  return NULL;
}

/* --- names --- */

/* Has another model than `model` this name? */
static bool is_taken(PyObject *list, PyObject *model, PyObject *name) {
  for (Py_ssize_t i = 0; i < py.PyObject_Size(list); i++) {
    PyObject *pair = py.PyList_GetItem(list, i);
    if (py.PyTuple_GetItem(pair, 0) != model && py.PyUnicode_Compare(py.PyTuple_GetItem(pair, 1), name) == 0)
      return true;
  }
  return false;
}

static PyObject *name_before(PyObject *list, PyObject *model) {
  for (Py_ssize_t i = 0; i < py.PyObject_Size(list); i++) {
    PyObject *pair = py.PyList_GetItem(list, i);
    if (py.PyTuple_GetItem(pair, 0) == model)
      return py.PyTuple_GetItem(pair, 1);
  }
  return NULL;
}

/* The one it has, else its class's, with a number if that is taken. New reference, or NULL with an error. */
static PyObject *name_default(PyObject *list, PyObject *model) {
  PyObject *name = name_before(list, model);
  if (name) {
    py.Py_IncRef(name);
    return name;
  }
  const char *class = py_class_name(model);
  name = py.PyUnicode_FromFormat("%s", class);
  for (unsigned n = 2; name && is_taken(list, model, name); n++) {
    py.Py_DecRef(name);
    name = py.PyUnicode_FromFormat("%s#%u", class, n);
  }
  return name;
}

/* --- what is watched ----------------------------------------------------------------------------------------------------- */

/* What a framework trains. Apart from the table, as its name is not to be in the way of one that the script gives. */
static PyObject *found; /* a weak reference, or NULL */

static int add_found(PyObject *list) {
  PyObject *model = py.PyObject_CallFunctionObjArgs(found, NULL);
  if (!model)
    return -1;
  bool is_new = model != py._Py_NoneStruct && !name_before(list, model);
  PyObject *name = is_new ? name_default(list, model) : NULL, *pair = name ? py.Py_BuildValue("(OO)", model, name) : NULL;
  int r = !is_new ? 0 : pair ? py.PyList_Append(list, pair) : -1;
  module_drop(pair);
  module_drop(name);
  module_drop(model);
  return r;
}

void module_watch_found(PyObject *model) {
  PyObject *reference = model && model != py._Py_NoneStruct ? py.PyWeakref_NewRef(model, NULL) : NULL, *before = found;
  py.PyErr_Clear();
  found = reference;
  module_drop(before);
}

static PyObject *watched(void) {
  PyObject *table = table_get(false), *list = table ? living(table) : NULL;
  if (!found || !py_in_main() || py.PyErr_Occurred())
    return list;
  list = list ? list : py.PyList_New(0);
  if (list && add_found(list) < 0)
    py.PyErr_Clear(); /* then without it */
  return list;
}

PyObject *module_watched(void) {
  PyObject *type, *value, *trace;
  py.PyErr_Fetch(&type, &value, &trace);
  PyObject *list = watched();
  if (list && py.PyObject_Size(list) == 0) {
    py.Py_DecRef(list);
    list = NULL;
  }
  py.PyErr_Restore(type, value, trace); /* clears ours */
  return list;
}

/* --- watch(model, name=None) --- */

static PyObject *name_given(PyObject *list, PyObject *model, PyObject *name) {
  const struct module_given given = {.who = "watch", .name = "name", .value = name};
  if (is_taken(list, model, name))
    return module_wrong_value(&given, "a name that no other watched model has");
  py.Py_IncRef(name);
  return name;
}

#define MODEL "one model, an object that can be weakly referenced such as a torch.nn.Module, or None"

static PyObject *wrong_model(PyObject *model) {
  const struct module_given given = {.who = "watch", .name = "model", .value = model};
  return module_wrong_type(&given, module_is(model, py.PyType_Type) ? MODEL " (no class: make an object of it first)" : MODEL);
}

/* NULL with an error: something that no weak reference can be made of would be kept alive by us. */
static PyObject *refer(PyObject *model) {
  PyObject *reference = module_is(model, py.PyType_Type) ? NULL : py.PyWeakref_NewRef(model, NULL);
  if (reference || !module_swallow())
    return reference;
  return wrong_model(model);
}

static int check_name(PyObject *model, PyObject *name) {
  const struct module_given given = {.who = "watch", .name = "name", .value = name};
  if (name == py._Py_NoneStruct)
    return 0;
  if (!module_is(name, py.PyUnicode_Type))
    return (void)module_wrong_type(&given, "a string or None"), -1;
  if (model == py._Py_NoneStruct)
    return (void)module_wrong_type(&given, "None where model is None"), -1;
  if (py.PyUnicode_CompareWithASCIIString(name, "") == 0)
    return (void)module_wrong_value(&given, "a string with at least one character"), -1;
  return 0;
}

static int remember(PyObject *model, PyObject *reference, PyObject *given) {
  PyObject *table = table_get(true), *list = table ? living(table) : NULL, *name = NULL;
  if (list)
    name = given == py._Py_NoneStruct ? name_default(list, model) : name_given(list, model, given);
  PyObject *key = name ? py.PyLong_FromVoidPtr(model) : NULL;
  PyObject *entry = key ? py.Py_BuildValue("(OO)", reference, name) : NULL;
  int r = entry ? py.PyDict_SetItem(table, key, entry) : -1;
  module_drop(entry);
  module_drop(key);
  module_drop(name);
  module_drop(list);
  return r;
}

PyObject *module_watch(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"model", "name", NULL};
  PyObject *model, *name = py._Py_NoneStruct;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:watch", names, &model, &name) || check_name(model, name) < 0)
    return NULL;
  if (model == py._Py_NoneStruct) {
    PyObject *table = table_get(false);
    if (table)
      py.PyDict_Clear(table);
    if (py_in_main())
      module_watch_found(NULL);
    return py.PyErr_Occurred() ? NULL : module_none();
  }
  const struct wrapped *w = module_wrapped(py.PyModule_GetState(module), model);
  model = w ? w->inner : model;
  PyObject *reference = refer(model);
  int r = reference ? remember(model, reference, name) : -1;
  module_drop(reference);
  return r < 0 ? NULL : module_none();
}
