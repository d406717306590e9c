/* See module_cirron.h.
 *
 * Functions such as scope() do not depend on the object, so the class has the module's own: a built-in function is no descriptor
 * and stays what it is when it is looked up in an object.
 */
#include "module_cirron.h"

#include "module_settings.h"

struct cirron {
  PyObject *layer; /* what it was given */
  PyObject *user;  /* the layer of ~/.cirron/config.toml, as it was when this was made */
};

static const char *const fields[] = {
    "api_key",        "api_endpoint",   "workspace_id",          "output_dir",  "snapshots",
    "sample_rate",    "flush_interval", "spool_max_bytes",       "ingest_path", "load_warn_bytes",
    "load_max_bytes", "output",         "trace_buffer_max_spans"};
#define FIELDS (sizeof fields / sizeof fields[0])

static struct cirron *cirron_of(PyObject *self) {
  return module_body(self);
}

PyObject *module_cirron_layer(PyObject *cirron) {
  return cirron_of(cirron)->layer;
}

PyObject *module_cirron_beneath(PyObject *cirron) {
  return module_settings_beneath(cirron_of(cirron)->user);
}

/* Takes over `layer`; NULL passes an error on. */
static PyObject *make(PyTypeObject *type, PyObject *layer) {
  PyObject *user = layer ? module_settings_user() : NULL;
  PyObject *self = user ? py.PyType_GenericAlloc(type, 0) : NULL;
  if (self) {
    *cirron_of(self) = (struct cirron){.layer = layer, .user = user};
    return self;
  }
  module_drop(user);
  module_drop(layer);
  return NULL;
}

static PyObject *cirron_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  char *names[FIELDS + 1] = {0};
  PyObject *v[FIELDS] = {0}, *layer = py.PyDict_New();
  for (size_t i = 0; i < FIELDS; i++)
    names[i] = (char *)fields[i];
  int r = layer && py.PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOOOOOOOOOO:Cirron", names, &v[0], &v[1], &v[2], &v[3],
                                                  &v[4], &v[5], &v[6], &v[7], &v[8], &v[9], &v[10], &v[11], &v[12])
              ? 0
              : -1;
  for (size_t i = 0; i < FIELDS && r == 0; i++)
    r = module_setting_put(layer, "Cirron", fields[i], v[i]);
  if (r == 0)
    return make(type, layer);
  module_drop(layer);
  return NULL;
}

static void cirron_dealloc(PyObject *self) {
  module_drop(cirron_of(self)->layer);
  module_drop(cirron_of(self)->user);
  module_free_object(self, false);
}

/* Given, else what holds where nothing is. */
static PyObject *get_field(PyObject *self, void *name) {
  PyObject *value = py_dict_get(cirron_of(self)->layer, name), *beneath = NULL;
  if (!value && !py.PyErr_Occurred()) {
    beneath = module_cirron_beneath(self);
    value = beneath ? py_dict_get(beneath, name) : NULL;
  }
  if (value)
    py.Py_IncRef(value);
  module_drop(beneath);
  return value;
}

static PyObject *profile(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *module = py.PyObject_GetAttrString(self, "__cirron__");
  PyObject *handle = module ? module_profile_of(module, self, args, kwargs) : NULL;
  module_drop(module);
  return handle;
}

static int add_functions(PyObject *module, PyObject *type) {
  static const char *const names[] = {"scope", "mark", "epochs", "batches", "wrap", "trace"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    PyObject *function = py.PyObject_GetAttrString(module, names[i]);
    int r = function ? py.PyObject_SetAttrString(type, names[i], function) : -1;
    module_drop(function);
    if (r < 0)
      return -1;
  }
  return 0;
}

int module_cirron_type(PyObject *module, PyObject **place) {
  static struct py_method methods[] = {
      {"profile", MODULE_CALL(profile), PY_METH_VARARGS | PY_METH_KEYWORDS,
       "profile($self, /, config=None, *, frameworks=None, snapshots=None, sample_rate=None,\n"
       "        flush_interval=None, enabled=True, path=None, output=None)\n--\n\n"
       "The same as cirron.profile(), with this object's settings beneath the arguments."},
      {0},
  };
  static struct module_getset members[FIELDS + 1];
  static struct py_slot slots[] = {
      {SLOT_NEW, cirron_new},
      {SLOT_DEALLOC, cirron_dealloc},
      {SLOT_METHODS, methods},
      {SLOT_GETSET, members},
      {SLOT_DOC, "Cirron(*, api_key=None, api_endpoint=None, workspace_id=None, output_dir=None, snapshots=None,\n"
                 "       sample_rate=None, flush_interval=None, spool_max_bytes=None, ingest_path=None,\n"
                 "       load_warn_bytes=None, load_max_bytes=None, output=None, trace_buffer_max_spans=None)\n--\n\n"
                 "Settings of one's own, all by name. What is not given is taken from CIRRON_..., from [default]\n"
                 "of ~/.cirron/config.toml, and from what is built in. profile() of it uses them."},
      {0, NULL},
  };
  for (size_t i = 0; i < FIELDS; i++)
    members[i] =
        (struct module_getset){.name = fields[i], .get = get_field, .doc = "What holds.", .closure = (void *)fields[i]};
  PyObject *type = module_type("cirron.Cirron", sizeof(struct cirron), 0, slots);
  return module_add_type(module, "Cirron", type, place) < 0 ? -1 : add_functions(module, type);
}

PyObject *module_default(PyObject *module) {
  struct module_state *state = py.PyModule_GetState(module);
  if (state->cirron)
    return state->cirron;
  PyObject *made = make((PyTypeObject *)state->cirron_type, py.PyDict_New());
  if (state->cirron) /* a warning's handler has called us */
    module_drop(made);
  else
    state->cirron = made;
  return state->cirron;
}

PyObject *module_get_default(PyObject *module, PyObject *unused) {
  (void)unused;
  PyObject *made = module_default(module);
  if (made)
    py.Py_IncRef(made);
  return made;
}
