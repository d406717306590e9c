/* See snapshot_walk.h. */
#include "snapshot_walk.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 200
#define NAME_ROOM 4096 /* bytes of a name; deeper ones are cut */
#define PLAIN_KNOWN 64 /* classes whose ways were looked at */

void walk_init(struct walk *walk, bool names) {
  *walk = (struct walk){.names = names};
}

void walk_fini(struct walk *walk) {
  for (uint32_t i = 0; i < walk->count; i++)
    py.Py_DecRef(walk->found[i]);
  free(walk->found);
  free(walk->name);
  free(walk->name_len);
  free(walk->text);
  free(walk->seen);
  *walk = (struct walk){0};
}

/* --- what was met -------------------------------------------------------------------------------------------------------- */

static uint32_t place_of(const uintptr_t *seen, uint32_t room, uintptr_t address) {
  uint32_t at = (uint32_t)((address >> 4) * 0x9e3779b1u) & (room - 1);
  while (seen[at] && seen[at] != address)
    at = (at + 1) & (room - 1);
  return at;
}

bool walk_has(const struct walk *walk, const void *address) {
  return walk->seen && walk->seen[place_of(walk->seen, walk->seen_room, (uintptr_t)address)] != 0;
}

static bool seen_grow(struct walk *walk) {
  uint32_t room = walk->seen_room ? 2 * walk->seen_room : 256;
  uintptr_t *larger = calloc(room, sizeof *larger);
  if (!larger)
    return false;
  for (uint32_t i = 0; i < walk->seen_room; i++)
    if (walk->seen[i])
      larger[place_of(larger, room, walk->seen[i])] = walk->seen[i];
  free(walk->seen);
  walk->seen = larger;
  walk->seen_room = room;
  return true;
}

/* True: for the first time. */
static bool meet(struct walk *walk, const void *address) {
  if (2 * walk->seen_count >= walk->seen_room && !seen_grow(walk)) {
    walk->failed = true;
    return false;
  }
  uintptr_t *place = &walk->seen[place_of(walk->seen, walk->seen_room, (uintptr_t)address)];
  if (*place)
    return false;
  *place = (uintptr_t)address;
  walk->seen_count++;
  return true;
}

static bool grow(void **array, uint32_t room, size_t size) {
  void *larger = realloc(*array, room * size);
  if (larger)
    *array = larger;
  return larger != NULL;
}

static bool room_for_one(struct walk *walk, size_t text) {
  if (walk->count == walk->room) {
    uint32_t room = walk->room ? 2 * walk->room : 64;
    if (!grow((void **)&walk->found, room, sizeof *walk->found) ||
        (walk->names && (!grow((void **)&walk->name, room, sizeof *walk->name) ||
                         !grow((void **)&walk->name_len, room, sizeof *walk->name_len))))
      return false;
    walk->room = room;
  }
  while (walk->names && walk->text_len + text > walk->text_room) {
    size_t larger = walk->text_room ? 2 * walk->text_room : 4096;
    char *moved = larger <= UINT32_MAX ? realloc(walk->text, larger) : NULL;
    if (!moved)
      return false;
    walk->text = moved;
    walk->text_room = larger;
  }
  return true;
}

void walk_add(struct walk *walk, PyObject *object, const char *name, size_t len) {
  if (walk->failed || !meet(walk, object))
    return;
  if (!room_for_one(walk, len)) {
    walk->failed = true;
    return;
  }
  py.Py_IncRef(object);
  walk->found[walk->count] = object;
  if (walk->names) {
    walk->name[walk->count] = (uint32_t)walk->text_len;
    walk->name_len[walk->count] = (uint32_t)len;
    memcpy(walk->text + walk->text_len, name, len);
    walk->text_len += len;
  }
  walk->count++;
}

/* --- names --- */

static void hash(struct walk *walk, uint64_t what) {
  walk->names_hash = (walk->names_hash ^ what) * 0x9e3779b97f4a7c15u;
  walk->names_hash ^= walk->names_hash >> 29;
}

void walk_hash(struct walk *walk, const char *text) {
  for (; *text; text++)
    hash(walk, (unsigned char)*text);
  hash(walk, 0);
}

/* --- modules ------------------------------------------------------------------------------------------------------------- */

static PyObject *interned(const char *text, PyObject **kept) {
  if (!*kept)
    *kept = py.PyUnicode_InternFromString(text);
  return *kept;
}

/* The object's own dictionary under this name, borrowed; NULL: there is none. */
static PyObject *own_dict(PyObject *dict, PyObject *name) {
  PyObject *value = name ? py.PyDict_GetItemWithError(dict, name) : NULL;
  bool is = value && ((void *)py_type(value) == py.PyDict_Type || py.PyType_IsSubtype(py_type(value), py.PyDict_Type));
  py.PyErr_Clear();
  return is ? value : NULL;
}

struct name {
  char text[NAME_ROOM];
  size_t len;
};

/* Adds a part; the length before it. */
static size_t name_push(struct name *name, PyObject *key, bool dot) {
  size_t before = name->len;
  Py_ssize_t len = 0;
  const char *text = py.PyUnicode_AsUTF8AndSize(key, &len);
  if (!text) { /* a lone surrogate */
    py.PyErr_Clear();
    text = "?";
    len = 1;
  }
  size_t room = sizeof name->text - name->len - 1, n = (size_t)len < room ? (size_t)len : room;
  memcpy(name->text + name->len, text, n);
  name->len += n;
  if (dot && name->len < sizeof name->text)
    name->text[name->len++] = '.';
  return before;
}

static void parameters_of(struct walk *walk, PyObject *parameters, struct name *name) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  while (py.PyDict_Next(parameters, &at, &key, &value)) {
    if (value == py._Py_NoneStruct)
      continue;
    size_t before = name->len;
    hash(walk, (uintptr_t)key); /* the dictionary's own object */
    if (walk->names)
      before = name_push(name, key, false);
    walk_add(walk, value, name->text, name->len);
    name->len = before;
  }
}

static void descend(struct walk *walk, PyObject *module, struct name *name, unsigned depth) {
  static PyObject *parameters_name, *modules_name;
  if (depth == DEPTH_MAX || !meet(walk, module))
    return;
  PyObject *dict = py.PyObject_GenericGetDict(module, NULL);
  if (!dict) {
    py.PyErr_Clear();
    return;
  }
  PyObject *parameters = own_dict(dict, interned("_parameters", &parameters_name));
  if (parameters)
    parameters_of(walk, parameters, name);
  else
    walk->odd = true; /* a scripted module keeps them elsewhere */
  PyObject *modules = own_dict(dict, interned("_modules", &modules_name)), *key, *child;
  if (modules)
    py.Py_IncRef(modules);
  for (Py_ssize_t at = 0; modules && py.PyDict_Next(modules, &at, &key, &child);) {
    if (child == py._Py_NoneStruct)
      continue;
    size_t before = name->len;
    hash(walk, (uintptr_t)key);
    if (walk->names)
      before = name_push(name, key, true);
    descend(walk, child, name, depth + 1);
    hash(walk, 1); /* the end of it */
    name->len = before;
  }
  if (modules)
    py.Py_DecRef(modules);
  py.Py_DecRef(dict);
}

/* --- classes ------------------------------------------------------------------------------------------------------------- */

/* type.name is torch.nn.Module's own. */
static bool same_function(PyObject *type, PyObject *module_class, const char *name) {
  PyObject *of_type = py.PyObject_GetAttrString(type, name), *of_module = py.PyObject_GetAttrString(module_class, name);
  bool same = of_type && of_type == of_module;
  py.PyErr_Clear();
  if (of_type)
    py.Py_DecRef(of_type);
  if (of_module)
    py.Py_DecRef(of_module);
  return same;
}

static bool class_lists_plainly(PyObject *type) {
  PyObject *torch_module = py_module("torch.nn.modules.module");
  PyObject *module_class = torch_module ? py.PyObject_GetAttrString(torch_module, "Module") : NULL;
  bool plain = module_class && (void *)py_type(module_class) == py.PyType_Type &&
               py.PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)module_class) &&
               same_function(type, module_class, "named_parameters") && same_function(type, module_class, "named_modules") &&
               same_function(type, module_class, "_named_members");
  py.PyErr_Clear();
  if (module_class)
    py.Py_DecRef(module_class);
  if (torch_module)
    py.Py_DecRef(torch_module);
  return plain;
}

/* Classes that were looked at, by a number that changes with them. */
static bool is_plain(PyObject *module) {
  static struct {
    uintptr_t class;
    bool plain;
  } known[PLAIN_KNOWN];
  uintptr_t key = py_class_key(module);
  unsigned at = (unsigned)(key >> 7) % PLAIN_KNOWN;
  if (known[at].class != key) {
    known[at].plain = class_lists_plainly((PyObject *)py_type(module));
    known[at].class = key;
  }
  return known[at].plain;
}

static void forget_since(struct walk *walk, uint32_t count) {
  while (walk->count > count)
    py.Py_DecRef(walk->found[--walk->count]);
  memset(walk->seen, 0, walk->seen_room * sizeof *walk->seen);
  walk->seen_count = 0;
  for (uint32_t i = 0; i < count; i++)
    (void)meet(walk, walk->found[i]); /* there was room for it before */
}

bool walk_module(struct walk *walk, PyObject *module, const char *prefix) {
  static struct name name; /* under the GIL, which nothing here gives up */
  uint32_t before = walk->count;
  if (!is_plain(module))
    return false;
  size_t len = strlen(prefix);
  name.len = len < sizeof name.text / 2 ? len : sizeof name.text / 2;
  memcpy(name.text, prefix, name.len);
  walk->odd = false;
  descend(walk, module, &name, 0);
  if (walk->odd)
    forget_since(walk, before);
  return !walk->odd;
}
