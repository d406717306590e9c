/* See snapshot_tensor.h.
 *
 * Ten thousand tensors are asked at each epoch, so where a method of PyTorch is a C function it is called as one: the function behind
 * `tensor.data_ptr` is what CPython says it is (PyCFunction_GetFunction), for objects whose type is made from the one it was found on.
 */
#include "snapshot_tensor.h"

#include <stdio.h>
#include <string.h>

#include "../proto/snapshot_abi.h"
#include "hot.h"

typedef PyObject *(*with_keywords)(PyObject *self, PyObject *args, PyObject *kwargs);

/* An attribute that C code computes, as CPython describes it (PyGetSetDef). */
struct getset {
  const char *name;
  PyObject *(*get)(PyObject *self, void *closure);
  void *set;
  const char *doc;
  void *closure;
};

enum text { DATA_PTR, NUMEL, IS_CONTIGUOUS, VERSION, GRAD, DTYPE, SIZE, STRIDE, DEVICE, LAYOUT, CDATA, TEXTS };
static const char *const texts[TEXTS] = {"data_ptr", "numel",  "is_contiguous", "_version", "grad",  "dtype",
                                         "size",     "stride", "device",        "layout",   "_cdata"};

static struct {
  bool tried;
  PyTypeObject *base; /* torch.Tensor; NULL: not found. Kept alive, as the rest */
  PyTypeObject *parameter;
  PyObject *text[TEXTS], *no_args;
  PyCFunction data_ptr, numel;
  const struct getset *version, *grad, *dtype;
  int body_at; /* which word of a tensor's own, after the head, is the address of its body; -1: not known */
  with_keywords is_contiguous;
} torch;

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

/* Takes the reference. False: it is no whole number. */
static bool whole(PyObject *number, int64_t *out) {
  int overflow = 0;
  long long value = number ? py.PyLong_AsLongLongAndOverflow(number, &overflow) : -1;
  bool good = number && !overflow && !(value == -1 && py.PyErr_Occurred());
  if (!good)
    py.PyErr_Clear();
  drop(number);
  *out = value;
  return good;
}

/* The C function of a bound method of `tensor`, if it is one of this kind. */
static PyCFunction function_of(PyObject *tensor, PyObject *name, int flags) {
  PyObject *method = py.PyObject_GetAttr(tensor, name);
  PyCFunction function = NULL;
  if (method && (void *)py_type(method) == py.PyCFunction_Type && py.PyCFunction_GetFlags(method) == flags)
    function = py.PyCFunction_GetFunction(method);
  drop(method);
  py.PyErr_Clear();
  return function;
}

/* What is behind the descriptor that a class has under this name. Its fields are class, name, qualified name and this: the same from 3.8
 * to 3.15, and looked at before it is believed. */
static const struct getset *getset_of(PyObject *type, enum text name) {
  PyObject *descriptor = py.PyObject_GetAttr(type, torch.text[name]);
  const struct getset *found = NULL;
  if (descriptor && strcmp(py_class_name(descriptor), "getset_descriptor") == 0) {
    const void *const *fields = (const void *const *)((const char *)descriptor + py.header);
    const struct getset *g =
        py.PyType_IsSubtype((PyTypeObject *)type, (PyTypeObject *)fields[0]) && fields[1] == torch.text[name] ? fields[3]
                                                                                                              : NULL;
    found = g && strcmp(g->name, texts[name]) == 0 && g->get ? g : NULL;
  }
  py.PyErr_Clear();
  drop(descriptor); /* the class holds it */
  return found;
}

static PyObject *get(PyObject *tensor, const struct getset *getset, enum text name) {
  return getset ? getset->get(tensor, getset->closure) : py.PyObject_GetAttr(tensor, torch.text[name]);
}

static const void *word_of(const PyObject *tensor, int at) {
  return ((const void *const *)((const char *)tensor + py.header))[at];
}

/* Where a tensor has the address that PyTorch tells to whoever wants to know whether two of its objects are the same tensor. */
static int find_body(PyObject *tensor) {
  int64_t address;
  const Py_ssize_t *type = (const Py_ssize_t *)((const char *)py_type(tensor) + py.header + sizeof(Py_ssize_t));
  Py_ssize_t size = type[1]; /* as in observe_swap.c */
  if (!whole(py.PyObject_GetAttr(tensor, torch.text[CDATA]), &address) || address <= 0)
    return -1;
  for (int at = 0; at < 2; at++)
    if ((Py_ssize_t)py.header + (at + 1) * (Py_ssize_t)sizeof(void *) <= size &&
        (int64_t)(uintptr_t)word_of(tensor, at) == address)
      return at;
  return -1;
}

static bool find(PyObject *module) {
  PyObject *type = py.PyObject_GetAttrString(module, "Tensor"), *empty = py.PyObject_GetAttrString(module, "empty");
  PyObject *tensor = empty ? py.PyObject_CallMethod(module, "empty", "(i)", 0) : NULL;
  bool all = type && tensor && (torch.no_args = py.Py_BuildValue("()"));
  for (unsigned i = 0; i < TEXTS && all; i++)
    all = (torch.text[i] = py.PyUnicode_InternFromString(texts[i])) != NULL;
  if (all && (PyTypeObject *)type == py_type(tensor)) {
    torch.data_ptr = function_of(tensor, torch.text[DATA_PTR], PY_METH_NOARGS);
    torch.numel = function_of(tensor, torch.text[NUMEL], PY_METH_NOARGS);
    torch.is_contiguous =
        (with_keywords)(void (*)(void))function_of(tensor, torch.text[IS_CONTIGUOUS], PY_METH_VARARGS | PY_METH_KEYWORDS);
    torch.version = getset_of(type, VERSION);
    torch.grad = getset_of(type, GRAD);
    torch.dtype = getset_of(type, DTYPE);
    torch.body_at = find_body(tensor);
    torch.base = (PyTypeObject *)type;
    type = NULL;
    PyObject *module_of = py_module("torch.nn.parameter");
    torch.parameter = module_of ? (PyTypeObject *)py.PyObject_GetAttrString(module_of, "Parameter") : NULL;
    drop(module_of);
  }
  drop(tensor);
  drop(empty);
  drop(type);
  py.PyErr_Clear();
  return torch.base != NULL;
}

bool tensor_ready(void) {
  PyObject *module = torch.tried ? NULL : py_module("torch");
  if (module) {
    torch.tried = find(module); /* another thread may be importing it just now */
    py.Py_DecRef(module);
  }
  return torch.base != NULL;
}

static bool is_plain(PyObject *object) {
  PyTypeObject *type = py_type(object);
  return torch.base && (type == torch.base || type == torch.parameter || py.PyType_IsSubtype(type, torch.base));
}

bool tensor_is(PyObject *object) {
  return tensor_ready() && is_plain(object);
}

bool tensor_is_exact(PyObject *object) {
  return torch.base && (py_type(object) == torch.base || py_type(object) == torch.parameter);
}

/* --- bodies --------------------------------------------------------------------------------------------------------------- */

/* c10::TensorImpl of PyTorch 1.8 to 2.13 has 184 bytes and more: a table, a reference count, then what is compared here, of which sizes,
 * strides, number and type of the numbers come last. Where a version has something else there, bodies differ, and are asked. */
#define BODY_FROM 16u
#define BODY_LIKE 64u
#define BODY_TO 168u

const void *tensor_body(PyObject *tensor) {
  return torch.body_at >= 0 && tensor_is_exact(tensor) ? word_of(tensor, torch.body_at) : NULL;
}

uint64_t tensor_body_hash(const void *body) {
  uint64_t hash = 1, word;
  for (unsigned at = BODY_FROM; at < BODY_TO; at += sizeof word) {
    memcpy(&word, (const char *)body + at, sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash | 1;
}

bool tensor_bodies_like(const void *body, const void *other) {
  return memcmp((const char *)body + BODY_LIKE, (const char *)other + BODY_LIKE, BODY_TO - BODY_LIKE) == 0;
}

void tensor_body_fetch(const void *body) {
  for (unsigned at = 0; at < BODY_TO; at += 64)
    __builtin_prefetch((const char *)body + at);
}

/* --- unheard --- */

static PyObject *entered(const char *name) {
  PyObject *module = py_module("torch._C"), *guard = module ? py.PyObject_CallMethod(module, name, NULL) : NULL;
  PyObject *done = guard ? py.PyObject_CallMethod(guard, "__enter__", NULL) : NULL;
  if (guard && !done) {
    drop(guard);
    guard = NULL;
  }
  py.PyErr_Clear();
  drop(done);
  drop(module);
  return guard;
}

PyObject *tensor_unheard(void) {
  return tensor_ready() ? entered("DisableTorchFunction") : NULL;
}

void tensor_heard(PyObject *guard) {
  PyObject *type, *value, *trace;
  if (!guard)
    return;
  py.PyErr_Fetch(&type, &value, &trace);
  PyObject *none = py._Py_NoneStruct;
  drop(py.PyObject_CallMethod(guard, "__exit__", "(OOO)", none, none, none));
  py.PyErr_Restore(type, value, trace);
  drop(guard);
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

static PyObject *ask(PyObject *tensor, PyCFunction function, enum text name) {
  return function ? function(tensor, NULL) : py.PyObject_CallMethod(tensor, texts[name], NULL);
}

uint64_t tensor_address(PyObject *tensor) {
  int64_t at;
  return is_plain(tensor) && whole(ask(tensor, torch.data_ptr, DATA_PTR), &at) ? (uint64_t)at : 0;
}

bool tensor_where(PyObject *tensor, uint64_t *address, int64_t *elements) {
  int64_t at;
  if (!is_plain(tensor) || !whole(ask(tensor, torch.data_ptr, DATA_PTR), &at) ||
      !whole(ask(tensor, torch.numel, NUMEL), elements))
    return false;
  *address = (uint64_t)at;
  return true;
}

uint64_t tensor_version(PyObject *tensor) {
  int64_t version;
  return whole(get(tensor, torch.version, VERSION), &version) ? (uint64_t)version : UINT64_MAX;
}

PyObject *tensor_grad(PyObject *tensor) {
  PyObject *grad = get(tensor, torch.grad, GRAD);
  if (grad && grad != py._Py_NoneStruct && is_plain(grad))
    return grad;
  if (!grad)
    py.PyErr_Clear();
  drop(grad);
  return NULL;
}

static bool is_contiguous(PyObject *tensor) {
  PyObject *answer = torch.is_contiguous ? torch.is_contiguous(tensor, torch.no_args, NULL)
                                         : py.PyObject_CallMethod(tensor, texts[IS_CONTIGUOUS], NULL);
  bool is = answer == py._Py_TrueStruct;
  if (!answer)
    py.PyErr_Clear();
  drop(answer);
  return is;
}

bool tensor_plain(PyObject *tensor, const void *dtype_is) {
  if (!is_contiguous(tensor))
    return false;
  PyObject *dtype = get(tensor, torch.dtype, DTYPE);
  bool is = dtype == dtype_is;
  if (!dtype)
    py.PyErr_Clear();
  drop(dtype);
  return is;
}

/* --- all of it ----------------------------------------------------------------------------------------------------------- */

/* str(object.name) without what stands before its last dot. */
static void text_of(PyObject *object, const char *name, char *out, size_t size) {
  PyObject *value = py.PyObject_GetAttrString(object, name), *text = value ? py.PyObject_Str(value) : NULL;
  Py_ssize_t len;
  const char *utf8 = text ? py.PyUnicode_AsUTF8AndSize(text, &len) : NULL, *dot = utf8 ? strrchr(utf8, '.') : NULL;
  snprintf(out, size, "%s", dot ? dot + 1 : utf8 ? utf8 : "?");
  py.PyErr_Clear();
  drop(text);
  drop(value);
}

static bool dims_of(PyObject *tensor, enum text what, int64_t *out, uint8_t *ndim) {
  PyObject *tuple = py.PyObject_CallMethod(tensor, texts[what], NULL);
  Py_ssize_t n = tuple ? py.PyTuple_Size(tuple) : -1;
  bool good = n >= 0 && n <= TENSOR_MAX_DIMS;
  for (Py_ssize_t i = 0; i < n && good; i++) {
    PyObject *item = py.PyTuple_GetItem(tuple, i);
    py.Py_IncRef(item);
    good = whole(item, &out[i]);
  }
  if (good)
    *ndim = (uint8_t)n;
  py.PyErr_Clear();
  drop(tuple);
  return good;
}

static void dtype_of(PyObject *tensor, struct tensor_facts *out) {
  char name[sizeof out->dtype_name];
  PyObject *dtype = py.PyObject_GetAttr(tensor, torch.text[DTYPE]);
  out->dtype_is = dtype;
  py.PyErr_Clear();
  drop(dtype); /* the types of torch live as long as it does */
  text_of(tensor, texts[DTYPE], name, sizeof name);
  if (strcmp(name, "complex64") == 0 || strcmp(name, "complex128") == 0) {
    out->dtype = name[7] == '6' ? TENSOR_F32 : TENSOR_F64;
    out->flags |= SNAPSHOT_COMPLEX;
  }
  for (unsigned i = TENSOR_NONE + 1; i < TENSOR_DTYPES && out->dtype == TENSOR_NONE; i++)
    if (strcmp(name, tensor_dtype_name((enum tensor_dtype)i)) == 0)
      out->dtype = (enum tensor_dtype)i;
  if (out->dtype == TENSOR_NONE)
    snprintf(out->dtype_name, sizeof out->dtype_name, "%s", name);
}

/* Of a sparse tensor what is stored, of one that is spread over ranks the part that is here: new reference, or NULL. */
static PyObject *part_of(PyObject *tensor, const char *layout, uint8_t *flags) {
  PyObject *part = NULL;
  if (strncmp(layout, "sparse", 6) == 0) {
    PyObject *guard = entered("_DisableTorchDispatch"); /* nor does __torch_dispatch__ */
    part = py.PyObject_CallMethod(tensor, strcmp(layout, "sparse_coo") == 0 ? "_values" : "values", NULL);
    tensor_heard(guard);
    *flags |= SNAPSHOT_SPARSE;
  } else if (strcmp(py_class_name(tensor), "DTensor") == 0) {
    part = py.PyObject_GetAttrString(tensor, "_local_tensor");
  }
  if (!part)
    py.PyErr_Clear();
  if (part && !is_plain(part)) {
    py.Py_DecRef(part);
    part = NULL;
  }
  return part;
}

/* A tensor of another class may be a wrapper without memory of its own, whose data_ptr() is not 0 all the same but its offset in none. */
static bool has_memory(PyObject *tensor) {
  PyObject *storage = py.PyObject_CallMethod(tensor, "untyped_storage", NULL);
  int64_t at = 0;
  if (!storage) { /* an old PyTorch calls it otherwise */
    py.PyErr_Clear();
    storage = py.PyObject_CallMethod(tensor, "storage", NULL);
  }
  bool is = storage && whole(py.PyObject_CallMethod(storage, texts[DATA_PTR], NULL), &at) && at != 0;
  py.PyErr_Clear();
  drop(storage);
  return is;
}

static void strided(PyObject *tensor, struct tensor_facts *out) {
  char device[sizeof out->reason];
  uint8_t ndim;
  if (out->dtype == TENSOR_NONE) {
    snprintf(out->reason, sizeof out->reason, "%s", out->dtype_name);
    return;
  }
  text_of(tensor, texts[DEVICE], device, sizeof device);
  if (strcmp(device, "cpu") != 0) {
    snprintf(out->reason, sizeof out->reason, "%s", device);
    return;
  }
  out->contiguous = is_contiguous(tensor);
  if (!out->contiguous && (!dims_of(tensor, STRIDE, out->strides, &ndim) || ndim != out->ndim))
    snprintf(out->reason, sizeof out->reason, "no strides");
  else if (!tensor_where(tensor, &out->address, &out->elements) || (!out->address && out->elements) ||
           (out->elements && !tensor_is_exact(tensor) && !has_memory(tensor)))
    snprintf(out->reason, sizeof out->reason, "no memory");
}

/* Its shape comes with its first input; until then it is an empty one that forbids to ask. */
static bool has_no_shape_yet(PyObject *tensor) {
  return !tensor_is_exact(tensor) && strncmp(py_class_name(tensor), "Uninitialized", 13) == 0;
}

bool tensor_facts(PyObject *tensor, struct tensor_facts *out) {
  char layout[32];
  memset(out, 0, offsetof(struct tensor_facts, shape));
  out->version = UINT64_MAX;
  if (!tensor_is(tensor) || has_no_shape_yet(tensor) || !dims_of(tensor, SIZE, out->shape, &out->ndim))
    return false;
  text_of(tensor, texts[LAYOUT], layout, sizeof layout);
  dtype_of(tensor, out);
  PyObject *part = part_of(tensor, layout, &out->flags);
  if (part && !dims_of(part, SIZE, out->shape, &out->ndim))
    snprintf(out->reason, sizeof out->reason, "no shape");
  else if (part || strcmp(layout, "strided") == 0)
    strided(part ? part : tensor, out);
  else
    snprintf(out->reason, sizeof out->reason, "%s", layout);
  if (part && out->reason[0] == '\0')
    out->version = tensor_version(part);
  else if (out->reason[0] == '\0')
    out->version = tensor_version(tensor);
  drop(part);
  return true;
}

PyObject *tensor_to_host(PyObject *tensor) {
  PyObject *plain = py.PyObject_CallMethod(tensor, "detach", NULL);
  PyObject *host = plain ? py.PyObject_CallMethod(plain, "cpu", NULL) : NULL;
  drop(plain);
  if (!host)
    py.PyErr_Clear();
  return host;
}
