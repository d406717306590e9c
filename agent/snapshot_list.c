/* See snapshot_list.h.
 *
 * All tensors are held from the listing on, so that somebody can read them, but no longer than their model lives: then they are looked at
 * for the last time.
 */
#include "snapshot_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/snapshot_abi.h"
#include "snapshot.h"
#include "snapshot_area.h"
#include "snapshot_models.h"
#include "snapshot_pairs.h"
#include "snapshot_sample.h"
#include "snapshot_values.h"
#include "snapshot_walk.h"

#define MODELS_MAX 64u

struct model {
  PyObject *reference; /* weak, or NULL: an optimizer's tensors */
  uint32_t from, to;   /* its items */
  uint32_t done;       /* when it went: how many entries had been read by then; UINT32_MAX: it lives */
  char name[256];
};

static struct {
  struct list_item *items;
  uint32_t count, room, gradients;
  struct model models[MODELS_MAX];
  uint32_t model_count;
  char *text;
  size_t text_len, text_room, names_len;
  int64_t *dims;
  uint32_t dims_count, dims_room;
  size_t text_base;
  uint32_t dims_base; /* of both, when all was described for the first time */
  uint64_t text_number, names_hash;
  bool is_new, own, several;
} list;

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

/* --- what is kept in them ------------------------------------------------------------------------------------------------ */

static bool text_room(size_t more) {
  while (list.text_len + more > list.text_room) {
    size_t larger = list.text_room ? 2 * list.text_room : 4096;
    char *moved = larger <= UINT32_MAX ? realloc(list.text, larger) : NULL;
    if (!moved)
      return false;
    list.text = moved;
    list.text_room = larger;
  }
  return true;
}

/* A text that ends with 0; 0: an empty one, or no memory. */
static uint32_t text_add(const char *text) {
  size_t len = strlen(text) + 1;
  if (len == 1 || !text_room(len))
    return 0;
  uint32_t at = (uint32_t)list.text_len;
  memcpy(list.text + at, text, len);
  list.text_len += len;
  return at;
}

static uint32_t dims_add(const int64_t *dims, unsigned n) {
  while (list.dims_count + n > list.dims_room) {
    uint32_t larger = list.dims_room ? 2 * list.dims_room : 256;
    int64_t *moved = realloc(list.dims, larger * sizeof *moved);
    if (!moved)
      return UINT32_MAX;
    list.dims = moved;
    list.dims_room = larger;
  }
  memcpy(list.dims + list.dims_count, dims, n * sizeof *dims);
  list.dims_count += n;
  return list.dims_count - n;
}

static void let_go_gradient(struct list_item *item) {
  PyObject *grad = item->grad;
  free(item->odd);
  item->odd = NULL;
  item->grad = NULL;
  drop(grad);
}

static void let_go_item(struct list_item *item) {
  PyObject *tensor = item->held ? item->tensor : NULL;
  let_go_gradient(item);
  item->held = false;
  drop(tensor);
}

void list_let_go_gradients(void) {
  for (uint32_t i = 0; i < list.count; i++)
    if (list.items[i].grad)
      let_go_gradient(&list.items[i]);
}

void list_let_go(void) {
  for (uint32_t i = 0; i < list.count; i++)
    let_go_item(&list.items[i]);
}

static void forget_models(void) {
  for (uint32_t i = 0; i < list.model_count; i++) {
    PyObject *reference = list.models[i].reference;
    list.models[i].reference = NULL;
    drop(reference);
  }
  list.model_count = 0;
}

void list_forget(void) { /* references stay with the copies of what they are of */
  list.count = list.gradients = list.model_count = 0;
}

/* --- facts --------------------------------------------------------------------------------------------------------------- */

/* All of an item but its name. False: no memory. */
static bool describe(struct list_item *item, const struct tensor_facts *facts, PyObject *tensor) {
  item->type = py_type(tensor);
  item->body = facts->reason[0] || facts->flags ? NULL : tensor_body(tensor);
  item->body_hash = item->body ? tensor_body_hash(item->body) : 0;
  item->address = facts->address;
  item->elements = facts->elements;
  item->version = facts->version;
  item->dtype_is = facts->dtype_is;
  item->dtype = (uint8_t)facts->dtype;
  item->ndim = facts->ndim;
  item->flags = facts->flags;
  item->contiguous = facts->contiguous;
  item->dims = dims_add(facts->shape, facts->ndim);
  if (item->dims != UINT32_MAX && !facts->contiguous && dims_add(facts->strides, facts->ndim) == UINT32_MAX)
    item->dims = UINT32_MAX;
  item->dtype_name = text_add(facts->dtype_name);
  item->reason = text_add(facts->reason);
  return item->dims != UINT32_MAX;
}

/* The tensor is where it was, and as it was as far as can be told quickly. */
static bool same_as_before(const struct list_item *item, PyObject *tensor) {
  uint64_t address;
  int64_t elements;
  if (item->body)
    return tensor_body(tensor) == item->body && tensor_body_hash(item->body) == item->body_hash &&
           tensor_address(tensor) == item->address;
  return item->type == py_type(tensor) && !item->reason && item->address && tensor_where(tensor, &address, &elements) &&
         address == item->address && elements == item->elements && (!item->contiguous || tensor_plain(tensor, item->dtype_is));
}

/* Has it the sizes, strides and type of its tensor? PyTorch sees to it that it is of the same shape. */
static bool is_like(const struct list_item *item, PyObject *grad) {
  const void *body = item->body ? tensor_body(grad) : NULL;
  if (item->reason || item->flags || !tensor_is_exact(grad))
    return false;
  return (body && tensor_bodies_like(body, item->body)) || (item->contiguous && tensor_plain(grad, item->dtype_is));
}

static void ask_gradient(struct list_item *item, PyObject *tensor) {
  uint64_t address;
  PyObject *grad = tensor_is(tensor) ? tensor_grad(tensor) : NULL;
  item->grad = grad;
  item->has_grad = grad != NULL;
  if (!grad)
    return;
  list.gradients++;
  if (is_like(item, grad) && (address = tensor_address(grad))) {
    item->grad_address = address;
    item->grad_version = tensor_version(grad);
    return;
  }
  py.PyErr_Clear();
  item->odd = malloc(sizeof *item->odd);
  if (!item->odd) { /* no memory: it is left out */
    let_go_gradient(item);
    item->has_grad = false;
    list.gradients--;
    return;
  }
  values_facts(grad, &item->odd->facts);
  item->grad_address = item->odd->facts.address;
  item->grad_version = item->odd->facts.version;
}

/* --- numbers that only this process can read ------------------------------------------------------------------------------ */

PyObject *list_values(const struct list_item *item, bool gradient, struct tensor_facts *facts) {
  PyObject *object = gradient ? item->grad : item->held ? item->tensor : NULL;
  if (!object)
    return NULL;
  py.Py_IncRef(object);
  PyObject *guard = tensor_unheard(), *values = values_of(object, facts);
  tensor_heard(guard);
  py.Py_DecRef(object);
  return values;
}

/* --- the memory's pace ---------------------------------------------------------------------------------------------------- */

#define AHEAD 12u /* items */

/* Tensors and what PyTorch knows of them lie all over the memory, and ten thousand of them in no cache: what is asked soon is fetched
 * by now. Where that has moved since, to fetch from there does no harm; to read there would. */
static void look_ahead(uint32_t i) {
  const struct list_item *item = &list.items[i + AHEAD];
  if (i + AHEAD >= list.count || !item->body)
    return;
  __builtin_prefetch(item->tensor);
  tensor_body_fetch(item->body);
}

/* --- is it as it was? ----------------------------------------------------------------------------------------------------- */

/* The tensor's numbers lie where they did, and nothing that PyTorch counts has changed them. */
static bool is_untouched(PyObject *tensor, uint64_t address, uint64_t version) {
  if (address && tensor_is_exact(tensor) && tensor_address(tensor) == address)
    return version == UINT64_MAX || tensor_version(tensor) == version;
  struct tensor_facts facts; /* there may be a part of it that is read */
  return tensor_facts(tensor, &facts) && !facts.reason[0] && facts.address == address &&
         (facts.version == version || (facts.flags & SNAPSHOT_SPARSE)); /* each look at its values is a tensor of its own */
}

static uint64_t sample_item(const struct list_item *item, uint64_t address) {
  const int64_t *shape = list.dims + item->dims;
  if (item->reason || item->flags)
    return 0;
  return snapshot_sample(address, tensor_size((enum tensor_dtype)item->dtype), item->ndim, shape,
                         item->contiguous ? NULL : shape + item->ndim);
}

static uint64_t sample_gradient(const struct list_item *item) {
  if (!item->odd)
    return sample_item(item, item->grad_address);
  const struct tensor_facts *facts = &item->odd->facts;
  if (facts->reason[0] || (facts->flags & SNAPSHOT_COMPLEX))
    return 0;
  return snapshot_sample(facts->address, tensor_size(facts->dtype), facts->ndim, facts->shape,
                         facts->contiguous ? NULL : facts->strides);
}

/* One that is held. Where the script has put another one in its place, it is still what it was. */
static void look_at(struct list_item *item) {
  if (item->reason || !tensor_is(item->tensor))
    return; /* not to be told */
  item->torn = !is_untouched(item->tensor, item->address, item->version) ||
               (item->sampled && sample_item(item, item->address) != item->sample);
  py.PyErr_Clear();
}

static void look_at_gradient(struct list_item *item) {
  if (item->grad && !(item->odd && item->odd->facts.reason[0]))
    item->grad_torn = !is_untouched(item->grad, item->grad_address, item->grad_version) ||
                      (item->sampled && sample_gradient(item) != item->grad_sample);
  py.PyErr_Clear();
}

/* --- models -------------------------------------------------------------------------------------------------------------- */

/* A model goes: what was not read of it by now never is. */
static PyObject *model_gone(PyObject *self, PyObject *reference) {
  (void)self;
  const struct snapshot_area *area = snapshot_area_get();
  for (uint32_t i = 0; i < list.model_count; i++) {
    struct model *m = &list.models[i];
    if (m->reference != reference)
      continue;
    m->done = area && snapshot_reads ? __atomic_load_n(&area->done, __ATOMIC_ACQUIRE) : 0;
    PyObject *guard = tensor_unheard();
    for (uint32_t k = m->from; k < m->to && k < list.count; k++) {
      if (snapshot_reads & SNAPSHOT_READS_GRADIENTS)
        look_at_gradient(&list.items[k]);
      if ((snapshot_reads & SNAPSHOT_READS_WEIGHTS) && list.items[k].held)
        look_at(&list.items[k]);
    }
    tensor_heard(guard);
    for (uint32_t k = m->from; k < m->to && k < list.count; k++)
      let_go_item(&list.items[k]);
  }
  py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

static PyObject *reference_to(PyObject *model) {
  static struct py_method method = {"model_gone", model_gone, PY_METH_O, NULL};
  static PyObject *callback;
  if (!callback)
    callback = py.PyCFunction_NewEx(&method, NULL, NULL);
  PyObject *reference = callback ? py.PyWeakref_NewRef(model, callback) : NULL;
  py.PyErr_Clear();
  return reference;
}

/* Walks one model; a prefix where there are several. */
static void add_model(struct walk *walk, struct model *m, PyObject *model) {
  char prefix[sizeof m->name + 2] = "";
  if (list.several)
    snprintf(prefix, sizeof prefix, "%s.", m->name);
  m->from = walk->count;
  walk_hash(walk, m->name);
  walk_hash(walk, prefix);
  if (pairs_is_keras(model) || !walk_module(walk, model, prefix))
    pairs_add(walk, model, prefix);
  m->to = walk->count;
  m->reference = (void *)py_type(model) == py.PyList_Type ? NULL : reference_to(model);
  m->done = UINT32_MAX;
}

static void add_models(struct walk *walk, PyObject *models) {
  Py_ssize_t n = py.PyObject_Size(models);
  list.several = n > 1;
  for (Py_ssize_t i = 0; i < n && list.model_count < MODELS_MAX; i++) {
    PyObject *pair = py.PyList_GetItem(models, i), *name = py.PyTuple_GetItem(pair, 1);
    Py_ssize_t len = 0;
    const char *text = py.PyUnicode_AsUTF8AndSize(name, &len);
    struct model *m = &list.models[list.model_count];
    *m = (struct model){0};
    snprintf(m->name, sizeof m->name, "%s", text ? text : "?");
    py.PyErr_Clear();
    add_model(walk, m, py.PyTuple_GetItem(pair, 0));
    list.model_count++;
  }
}

/* --- the list ------------------------------------------------------------------------------------------------------------ */

static uint32_t model_at(uint32_t item) {
  for (uint32_t i = 0; i < list.model_count; i++)
    if (item < list.models[i].to)
      return i;
  return 0;
}

/* Were these the tensors of the last listing, too? Then their names are the same, and there is less to ask. */
static bool is_same_list(const struct walk *walk) {
  bool grown = list.text_len > 2 * list.text_base + (1u << 16) || list.dims_count > 2 * list.dims_base + (1u << 13);
  if (walk->count != list.count || walk->names_hash != list.names_hash || grown) /* what is asked anew is described anew */
    return false;
  for (uint32_t i = 0; i < list.count; i++)
    if (list.items[i].tensor != walk->found[i] || list.items[i].model != model_at(i))
      return false;
  return true;
}

/* Names of all, and nothing else. */
static int begin_anew(const struct walk *walk) {
  if (walk->count > list.room) {
    struct list_item *moved = realloc(list.items, walk->count * sizeof *moved);
    if (!moved)
      return -ENOMEM;
    list.items = moved;
    list.room = walk->count;
  }
  list.count = 0;
  list.text_len = list.dims_count = 0;
  if (!text_room(walk->text_len + 1))
    return -ENOMEM;
  memcpy(list.text, walk->text, walk->text_len);
  list.names_len = walk->text_len;
  list.text_len = walk->text_len + (walk->text_len == 0); /* 0 stands for no text */
  for (uint32_t i = 0; i < walk->count; i++)
    list.items[i] = (struct list_item){.name = walk->name[i], .name_len = walk->name_len[i]};
  list.count = walk->count;
  list.names_hash = walk->names_hash;
  return 0;
}

static int ask(struct list_item *item, PyObject *tensor, bool known) {
  struct tensor_facts facts;
  item->tensor = tensor;
  item->torn = item->grad_torn = item->sampled = false;
  if (known && same_as_before(item, tensor)) {
    item->version = tensor_version(tensor);
  } else {
    list.is_new = true;
    values_facts(tensor, &facts);
    if (!describe(item, &facts, tensor))
      return -ENOMEM;
  }
  ask_gradient(item, tensor);
  list.own |= item->reason && item->dtype != TENSOR_NONE && strcmp(list.text + item->reason, "meta") != 0;
  return 0;
}

static int ask_all(struct walk *walk, bool known) {
  int r = known ? 0 : begin_anew(walk);
  list.is_new = !known;
  list.own = false;
  list.gradients = 0;
  for (uint32_t i = 0; i < walk->count && !r; i++) {
    list.items[i].model = model_at(i);
    if (known)
      look_ahead(i);
    r = ask(&list.items[i], walk->found[i], known);
    list.items[i].held = !r;
    if (!r)
      py.Py_IncRef(walk->found[i]);
  }
  list.text_number += list.is_new;
  if (!known) {
    list.text_base = list.text_len;
    list.dims_base = list.dims_count;
  }
  return r;
}

int list_make(void) {
  struct walk walk;
  list_let_go();
  forget_models();
  PyObject *models = models_now();
  if (!models)
    return -ENOENT;
  walk_init(&walk, false);
  add_models(&walk, models);
  bool known = is_same_list(&walk);
  if (!known && !walk.failed) {
    walk_fini(&walk);
    forget_models();
    walk_init(&walk, true);
    add_models(&walk, models);
  }
  PyObject *guard = tensor_unheard();
  bool collects =
      py.PyGC_Disable && py.PyGC_Disable(); /* else all those gradients are a reason to look through everything there is */
  int r = walk.failed ? -ENOMEM : walk.count == 0 ? -ENOENT : ask_all(&walk, known);
  if (collects)
    (void)py.PyGC_Enable(); /* cannot fail */
  tensor_heard(guard);
  if (r) {
    list_let_go();
    list.count = 0;
    forget_models();
  }
  walk_fini(&walk);
  py.Py_DecRef(models);
  py.PyErr_Clear();
  return r;
}

struct list_item *list_items(uint32_t *count, uint32_t *gradients) {
  *count = list.count;
  *gradients = list.gradients;
  return list.items;
}

uint64_t list_text_number(void) {
  return list.text_number;
}

const char *list_text(void) {
  return list.text;
}

const int64_t *list_dims(void) {
  return list.dims;
}

const char *list_model(uint32_t model) {
  return list.models[model].name;
}

uint32_t list_model_done(uint32_t model) {
  return list.models[model].done;
}

uint32_t list_models(void) {
  return list.model_count;
}

bool list_own(void) {
  return list.own;
}

size_t list_area_text(void) {
  size_t bytes = 64;
  for (uint32_t i = 0; i < list.count; i++) {
    const struct list_item *item = &list.items[i];
    bytes += 2 * SNAPSHOT_TEXT_OF_NAME(item->name_len + 8) + 2 * SNAPSHOT_TEXT_OF_DIMS(2 * item->ndim) + 256;
  }
  for (uint32_t i = 0; i < list.model_count; i++)
    bytes += SNAPSHOT_TEXT_OF_NAME(sizeof list.models[i].name);
  return bytes;
}

/* --- what became of it --------------------------------------------------------------------------------------------------- */

void list_sample(void) {
  for (uint32_t i = 0; i < list.count; i++) {
    struct list_item *item = &list.items[i];
    item->sample = sample_item(item, item->address);
    item->grad_sample = item->grad ? sample_gradient(item) : 0;
    item->sampled = true;
  }
}

void list_look_tensors(void) {
  PyObject *guard = tensor_unheard();
  for (uint32_t i = 0; i < list.count; i++) {
    look_ahead(i);
    if (list.items[i].held)
      look_at(&list.items[i]);
  }
  tensor_heard(guard);
}

void list_look_gradients(void) {
  PyObject *guard = tensor_unheard();
  for (uint32_t i = 0; i < list.count; i++)
    look_at_gradient(&list.items[i]);
  tensor_heard(guard);
}

bool list_gradients_in_use(void) {
  PyObject *guard = tensor_unheard();
  bool in_use = false;
  for (uint32_t i = 0; i < list.count && !in_use; i++) {
    const struct list_item *item = &list.items[i];
    PyObject *grad = item->grad && item->held && tensor_is(item->tensor) ? tensor_grad(item->tensor) : NULL;
    in_use = grad && grad == item->grad;
    drop(grad);
  }
  tensor_heard(guard);
  return in_use;
}
