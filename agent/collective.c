/* See collective.h.
 *
 * An operation is known by the function that the script calls, and its group by name and address; nothing of either is kept
 * alive. Names of operations with their groups are the spans' `module`, so that they are seen while the operation lasts. Operations that
 * consist of others (all_gather_object) count once. What is read of a call are Python objects and attributes that torch answers in C;
 * no tensor's content, and nothing that would wait for a device.
 */
#include "collective.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "framework.h"
#include "hot.h"
#include "names.h"
#include "observe.h"
#include "py.h"
#include "scope.h"
#include "session.h"
#include "torch.h"

#define MODULE "torch.distributed.distributed_c10d"
#define GROUPS 64u /* that one process is in; operations of more have no number */
#define LABEL 96u  /* a group's name and ranks */
#define OPS_MAX 64u
#define TENSORS_MAX 256 /* in one call's list; of more, the bytes are not added up */

enum op_flag {
  OP_PAIR = 1,      /* between two ranks: has no number in its group */
  OP_SETUP = 2,     /* makes groups: none either */
  OP_ASYNC = 4,     /* returns before it is done, always */
  OP_LIST = 8,      /* its data is a list of tensors */
  OP_OBJECT = 16,   /* its data are any objects, whose size is not known */
  OP_LONG_NAME = 32 /* its group is the argument `process_group` */
};

struct op {
  const char *text;
  unsigned no;
  int data, group, async; /* positions of these arguments, or -1: there is none */
  const char *data_name;
  unsigned flags;
  const char *to; /* OP_PAIR: "to" or "from", its argument 1 is the other rank */
};

struct group {
  const void *address; /* for comparison only */
  char name[48];       /* as torch has it, cut */
  char label[LABEL];   /* the same on all of its ranks; of the default group empty */
  uint64_t calls;
};

/* Entries are made and changed by whoever holds the GIL. The first is the default group. */
static struct group groups[GROUPS];
static unsigned group_count;

static __thread bool under_way; /* on this thread: operations inside are parts of the outermost */

static PyObject *interned(PyObject **kept, const char *text) {
  if (unlikely(!*kept))
    *kept = py.PyUnicode_InternFromString(text);
  return *kept;
}

/* object.name, or NULL without an error. */
static PyObject *attribute(PyObject *object, PyObject *name) {
  PyObject *value = name ? py.PyObject_GetAttr(object, name) : NULL;
  if (!value)
    py.PyErr_Clear();
  return value;
}

static PyObject *attribute_of_module(const char *module, const char *name) {
  PyObject *m = py_module(module), *value = m ? py.PyObject_GetAttrString(m, name) : NULL;
  if (!value)
    py.PyErr_Clear();
  if (m)
    py.Py_DecRef(m);
  return value;
}

static void drop(PyObject *object) {
  if (object)
    py.Py_DecRef(object);
}

/* --- bytes --------------------------------------------------------------------------------------------------------------- */

/* Only of plain tensors, and where no mode of the script sees what is asked of them: all else may run its code. */
static struct {
  void *tensor, *parameter;
  PyObject *modes; /* torch._C._len_torch_function_stack, or NULL */
  bool known;
} plain;

COLD static void plain_find(void) {
  PyObject *tensor = attribute_of_module("torch", "Tensor"), *parameter = attribute_of_module("torch.nn", "Parameter");
  plain.tensor = tensor;
  plain.parameter = parameter;
  plain.modes = attribute_of_module("torch._C", "_len_torch_function_stack");
  plain.known = tensor != NULL;
  drop(tensor); /* both live as long as torch does */
  drop(parameter);
}

static long long whole_number(PyObject *taken) {
  int overflow = 0;
  long long value = taken ? py.PyLong_AsLongLongAndOverflow(taken, &overflow) : -1;
  py.PyErr_Clear();
  drop(taken);
  return overflow ? -1 : value;
}

static bool modes_active(void) {
  return plain.modes && whole_number(py.PyObject_CallFunctionObjArgs(plain.modes, NULL)) != 0;
}

/* -1: not known. */
static long long tensor_bytes(PyObject *tensor) {
  static PyObject *nbytes;
  void *type = py_type(tensor);
  if (type != plain.tensor && type != plain.parameter)
    return -1;
  PyObject *name = interned(&nbytes, "nbytes");
  long long bytes = whole_number(name ? py.PyObject_GetAttr(tensor, name) : NULL);
  if (bytes >= 0)
    return bytes;
  long long count = whole_number(py.PyObject_CallMethod(tensor, "numel", NULL)); /* torch before 2.1 has no nbytes */
  long long each = whole_number(py.PyObject_CallMethod(tensor, "element_size", NULL));
  return count < 0 || each < 0 ? -1 : count * each;
}

static long long list_bytes(PyObject *list) {
  if (py_type(list) != py.PyList_Type)
    return -1;
  long long sum = 0;
  Py_ssize_t n = py.PyObject_Size(list);
  for (Py_ssize_t i = 0; i < n && n <= TENSORS_MAX; i++) {
    PyObject *tensor = py.PyList_GetItem(list, i);
    long long bytes = tensor ? tensor_bytes(tensor) : -1;
    if (bytes < 0)
      return -1;
    sum += bytes;
  }
  py.PyErr_Clear();
  return n > TENSORS_MAX ? -1 : sum;
}

/* Of what this rank gives, or where it only receives, of what it gets. */
static long long data_bytes(const struct observe_call *call, const struct op *op) {
  if (op->data < 0 || (op->flags & OP_OBJECT))
    return -1;
  PyObject *name = (size_t)op->data < call->nargs ? NULL : py.PyUnicode_InternFromString(op->data_name);
  PyObject *data = observe_arg(call, (size_t)op->data, name);
  py.PyErr_Clear();
  drop(name);
  if (unlikely(!plain.known))
    plain_find();
  if (!data || !plain.known || modes_active())
    return -1;
  return op->flags & OP_LIST ? list_bytes(data) : tensor_bytes(data);
}

/* --- groups -------------------------------------------------------------------------------------------------------------- */

/* A name of torch's making, without what JSON would write otherwise and without blanks. */
static void name_copy(char *out, size_t room, const char *from) {
  size_t n = 0;
  for (; from[n] && n + 1 < room; n++) {
    unsigned char c = (unsigned char)from[n];
    out[n] = (char)(c <= ' ' || c > '~' || c == '"' || c == '\\' ? '_' : c);
  }
  out[n] = 0;
}

/* What torch calls the group; false: it is none, or this process is not in it. Before torch 2.1 only its table knows. */
static bool group_name(PyObject *group, char out[48]) {
  static PyObject *key;
  PyObject *name = attribute(group, interned(&key, "group_name")), *table = NULL;
  if (!name && (table = attribute_of_module(MODULE, "_pg_names")))
    name = py.PyObject_GetItem(table, group);
  const char *text = name && py_type(name) == py.PyUnicode_Type ? py.PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  if (text)
    name_copy(out, 48, text);
  py.PyErr_Clear();
  drop(name);
  drop(table);
  return text != NULL;
}

/* New reference or NULL. */
static PyObject *default_group(void) {
  PyObject *member = attribute_of_module(MODULE, "GroupMember");
  PyObject *world = member ? py.PyObject_GetAttrString(member, "WORLD") : NULL;
  if (!world)
    py.PyErr_Clear();
  drop(member);
  return world;
}

static bool group_is_default(const PyObject *group) {
  PyObject *world = default_group();
  drop(world); /* for comparison only */
  return world == group;
}

/* "0-3,8" of the keys of a dict, which torch has in the order of ranks. False: no room, or not known. */
static bool ranks_text(PyObject *ranks, char *out, size_t room) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  long long first = -2, last = -2;
  size_t len = 0;
  for (bool more = true; more;) {
    more = py.PyDict_Next(ranks, &at, &key, &value) != 0;
    long long rank = -2;
    if (more && (rank = py.PyLong_AsLong(key)) < 0)
      return py.PyErr_Clear(), false;
    if (more && first >= 0 && rank == last + 1) {
      last = rank;
      continue;
    }
    int n = first < 0       ? 0
            : first == last ? snprintf(out + len, room - len, len ? ",%lld" : "%lld", first)
                            : snprintf(out + len, room - len, len ? ",%lld-%lld" : "%lld-%lld", first, last);
    if (n < 0 || (size_t)n >= room - len)
      return false;
    len += (size_t)n;
    first = last = rank;
  }
  return len > 0;
}

/* "2[0,4]", or "2[64 ranks]" of many that do not follow one another. */
static void group_label(PyObject *group, const char *name, char out[LABEL]) {
  char text[LABEL - 52];
  PyObject *table = attribute_of_module(MODULE, "_pg_group_ranks");
  PyObject *ranks = table ? py.PyObject_GetItem(table, group) : NULL;
  bool dict = ranks && py_type(ranks) == py.PyDict_Type;
  if (dict && !ranks_text(ranks, text, sizeof text))
    snprintf(text, sizeof text, "%lld ranks", (long long)py.PyDict_Size(ranks));
  py.PyErr_Clear();
  drop(table);
  drop(ranks);
  if (dict)
    snprintf(out, LABEL, "%s[%s]", name, text);
  else
    snprintf(out, LABEL, "%s", name);
}

COLD static struct group *group_new(PyObject *group, const char *name) {
  char label[LABEL] = "";
  bool world = group_is_default(group);
  if (!world)
    group_label(group, name, label);
  struct group *g = NULL;
  for (unsigned i = 0; i < group_count && !g; i++)
    if (strcmp(groups[i].label, label) == 0)
      g = &groups[i]; /* the same as before at another address: its numbers go on */
  if (!g && group_count < GROUPS) {
    g = &groups[group_count++];
    g->calls = 0;
  }
  if (!g)
    return NULL;
  g->address = group;
  memcpy(g->name, name, strlen(name) + 1);
  memcpy(g->label, label, strlen(label) + 1);
  return g;
}

/* NULL: not one of ours. */
static struct group *group_of(const struct observe_call *call, const struct op *op) {
  static PyObject *key, *long_key;
  static struct group unknown = {.label = "?"};
  if (group_count == 0)
    group_count = 1;
  PyObject *name_of_it = op->flags & OP_LONG_NAME ? interned(&long_key, "process_group") : interned(&key, "group");
  PyObject *group = op->group < 0 ? NULL : observe_arg(call, (size_t)op->group, name_of_it);
  py.PyErr_Clear();
  if (!group || group == py._Py_NoneStruct)
    return &groups[0];
  char name[48];
  if (!group_name(group, name))
    return NULL;
  for (unsigned i = 0; i < group_count; i++)
    if (groups[i].address == group && strcmp(groups[i].name, name) == 0)
      return &groups[i];
  struct group *g = group_new(group, name);
  return g ? g : &unknown;
}

/* --- the span ------------------------------------------------------------------------------------------------------------ */

static int other_rank(const struct observe_call *call, const struct op *op) {
  static PyObject *destination, *source;
  PyObject *name = op->to && *op->to == 't' ? interned(&destination, "dst") : interned(&source, "src");
  PyObject *rank = op->to ? observe_arg(call, 1, name) : NULL;
  py.PyErr_Clear();
  if (!rank || py_type(rank) != py.PyLong_Type)
    return -1;
  py.Py_IncRef(rank);
  long long value = whole_number(rank);
  return value >= 0 && value < INT32_MAX ? (int)value : -1;
}

COLD static uint32_t label_new(struct scope *scope, const struct op *op, const struct group *group, int peer, uintptr_t key) {
  char text[48 + LABEL], to[32] = "";
  if (peer >= 0)
    snprintf(to, sizeof to, " %s %d", op->to, peer);
  snprintf(text, sizeof text, "%s%s%s%s", op->text, to, *group->label ? " " : "", group->label);
  return name_of_class(scope_names(scope), text, key);
}

/* "all_reduce", "all_reduce 2[0,4]", "recv from 3" */
static uint32_t label_id(struct scope *scope, const struct op *op, const struct group *group, int peer) {
  uintptr_t number = group >= groups && group < groups + GROUPS ? (uintptr_t)(group - groups) : GROUPS;
  uintptr_t key = ((number * OPS_MAX + op->no + 1) | (uintptr_t)(peer + 1) << 24) * 0x9e3779b97f4a7c15u; /* no two the same */
  uint32_t id = name_known(scope_names(scope), key);
  return likely(id != 0) ? id : label_new(scope, op, group, peer, key);
}

static bool is_async(const struct observe_call *call, const struct op *op) {
  static PyObject *key;
  if (op->async < 0)
    return op->flags & OP_ASYNC;
  const PyObject *async = observe_arg(call, (size_t)op->async, interned(&key, "async_op"));
  py.PyErr_Clear();
  return async == (PyObject *)py._Py_TrueStruct;
}

/* What the end has to know. */
enum { SCOPE, /* 0: framework_same_stack */ SPAN, ID, OP, GROUP, BYTES_AND_ASYNC };

static bool enter(struct observe_call *call, const struct op *op) {
  if (under_way || torch_off())
    return false;
  struct group *group = group_of(call, op);
  if (!group)
    return false;
  int64_t number =
      op->flags & (OP_PAIR | OP_SETUP) || group < groups || group >= groups + GROUPS ? SPAN_NO_INDEX : (int64_t)group->calls++;
  long long bytes = data_bytes(call, op);
  bool async = is_async(call, op);
  int peer = other_rank(call, op);
  struct scope *scope = scope_get();
  if (!scope)
    return false;
  uint32_t label = label_id(scope, op, group, peer);
  struct span *span = scope_push_of(scope, SPAN_COLLECTIVE, name_id(NAME_COLLECTIVE), number, scope_clock(scope), label, 0);
  under_way = true;
  call->state[SCOPE] = scope;
  call->state[SPAN] = span;
  call->state[ID] = span ? (void *)(uintptr_t)span->id : NULL;
  call->state[OP] = (void *)(uintptr_t)op;
  call->state[GROUP] = group;
  call->state[BYTES_AND_ASYNC] = (void *)((uintptr_t)(bytes + 1) << 1 | async);
  return true;
}

static void leave(struct observe_call *call, PyObject *result) {
  struct scope *scope = call->state[SCOPE];
  struct span *span = call->state[SPAN];
  under_way = false;
  if (!framework_same_stack(call))
    return;
  if (!span || !scope_holds(scope, span, (uint64_t)(uintptr_t)call->state[ID]))
    return;
  const struct op *op = call->state[OP];
  const struct group *group = call->state[GROUP];
  uintptr_t more = (uintptr_t)call->state[BYTES_AND_ASYNC];
  char attrs[LABEL + 128], bytes[40] = "";
  if (more >> 1)
    snprintf(bytes, sizeof bytes, ",\"bytes\":%llu", (unsigned long long)(more >> 1) - 1);
  int len = snprintf(attrs, sizeof attrs, "{\"op\":\"%s\",\"group\":\"%s\"%s%s}", op->text,
                     *group->label ? group->label : "world", bytes, more & 1 ? ",\"async\":true" : "");
  span->attrs = attrs;
  span->attrs_len = len > 0 && (size_t)len < sizeof attrs ? (uint32_t)len : 0;
  scope_pop(scope, span, scope_clock(scope), result ? 0 : framework_exception(scope));
}

/* --- the operations ------------------------------------------------------------------------------------------------------ */

/* X(function, data, its name, group, async_op, flags, to or from): positions in the signature, the same from torch 1.13 to 2.13. */
#define OPS(X)                                                                                                                 \
  X(all_reduce, 0, "tensor", 2, 3, 0, NULL)                                                                                    \
  X(all_reduce_coalesced, 0, "tensors", 2, 3, OP_LIST, NULL)                                                                   \
  X(broadcast, 0, "tensor", 2, 3, 0, NULL)                                                                                     \
  X(reduce, 0, "tensor", 3, 4, 0, NULL)                                                                                        \
  X(all_gather, 1, "tensor", 2, 3, 0, NULL)                                                                                    \
  X(all_gather_single, 1, "input_tensor", 2, 3, 0, NULL)                                                                       \
  X(all_gather_into_tensor, 1, "input_tensor", 2, 3, 0, NULL)                                                                  \
  X(_all_gather_base, 1, "input_tensor", 2, 3, 0, NULL)                                                                        \
  X(all_gather_coalesced, 1, "input_tensor_list", 2, 3, OP_LIST, NULL)                                                         \
  X(gather, 0, "tensor", 3, 4, 0, NULL)                                                                                        \
  X(scatter, 0, "tensor", 3, 4, 0, NULL)                                                                                       \
  X(reduce_scatter, 1, "input_list", 3, 4, OP_LIST, NULL)                                                                      \
  X(reduce_scatter_single, 1, "input", 3, 4, 0, NULL)                                                                          \
  X(reduce_scatter_tensor, 1, "input", 3, 4, 0, NULL)                                                                          \
  X(_reduce_scatter_base, 1, "input", 3, 4, 0, NULL)                                                                           \
  X(all_to_all, 1, "input_tensor_list", 2, 3, OP_LIST, NULL)                                                                   \
  X(all_to_all_single, 1, "input", 4, 5, 0, NULL)                                                                              \
  X(barrier, -1, NULL, 0, 1, 0, NULL)                                                                                          \
  X(monitored_barrier, -1, NULL, 0, -1, 0, NULL)                                                                               \
  X(all_gather_object, 1, NULL, 2, -1, OP_OBJECT, NULL)                                                                        \
  X(gather_object, 0, NULL, 3, -1, OP_OBJECT, NULL)                                                                            \
  X(broadcast_object_list, 0, NULL, 2, -1, OP_OBJECT, NULL)                                                                    \
  X(scatter_object_list, 1, NULL, 3, -1, OP_OBJECT, NULL)                                                                      \
  X(send, 0, "tensor", 2, -1, OP_PAIR, "to")                                                                                   \
  X(recv, 0, "tensor", 2, -1, OP_PAIR, "from")                                                                                 \
  X(isend, 0, "tensor", 2, -1, OP_PAIR | OP_ASYNC, "to")                                                                       \
  X(irecv, 0, "tensor", 2, -1, OP_PAIR | OP_ASYNC, "from")                                                                     \
  X(send_object_list, 0, NULL, 2, -1, OP_PAIR | OP_OBJECT, "to")                                                               \
  X(recv_object_list, 0, NULL, 2, -1, OP_PAIR | OP_OBJECT, "from")                                                             \
  X(batch_isend_irecv, -1, NULL, -1, -1, OP_PAIR | OP_ASYNC, NULL)                                                             \
  X(new_group, -1, NULL, -1, -1, OP_SETUP, NULL)

enum {
#define X(name, ...) NO_##name,
  OPS(X)
#undef X
      NO_INIT,
  NO_SYNC_BUFFERS,
  NO_SYNC_MODULE,
  OPS_COUNT
};
static_assert(OPS_COUNT < OPS_MAX, "the keys of labels tell them apart");

#define X(name, data_at, its_name, group_at, async_at, what, to_or_from)                                                       \
  static bool enter_##name(struct observe_call *call) {                                                                        \
    static const struct op op = {#name, NO_##name, data_at, group_at, async_at, its_name, what, to_or_from};                   \
    return enter(call, &op);                                                                                                   \
  }
OPS(X)
#undef X

/* A script may give its rank to torch alone, and not to its environment. */
static void leave_init(struct observe_call *call, PyObject *result) {
  leave(call, result);
  PyObject *world = result ? default_group() : NULL;
  if (!world)
    return;
  long long rank = whole_number(py.PyObject_CallMethod(world, "rank", NULL));
  long long size = whole_number(py.PyObject_CallMethod(world, "size", NULL));
  py.Py_DecRef(world);
  if (rank >= 0 && size > rank && size < INT32_MAX)
    session_told_ranks((int)rank, (int)size);
}

static bool enter_init(struct observe_call *call) {
  static const struct op op = {"init_process_group", NO_INIT, -1, -1, -1, NULL, OP_SETUP, NULL};
  return enter(call, &op);
}

/* What DistributedDataParallel does by itself and in Python: sending its buffers about before a forward, and all of the module when
 * it is made. */
static bool enter_sync_module(struct observe_call *call) {
  static const struct op op = {"sync_module_states", NO_SYNC_MODULE, -1, 1, -1, NULL, OP_LONG_NAME, NULL};
  return enter(call, &op);
}

static bool enter_sync_buffers(struct observe_call *call) {
  static const struct op op = {"sync_buffers", NO_SYNC_BUFFERS, -1, 0, -1, NULL, 0, NULL};
  static PyObject *key;
  PyObject *group = call->nargs ? attribute(call->args[0], interned(&key, "process_group")) : NULL;
  if (!group)
    return false;
  struct observe_call of_group = {.args = &group, .nargs = 1};
  bool entered = enter(&of_group, &op);
  memcpy(call->state, of_group.state, sizeof call->state);
  py.Py_DecRef(group);
  return entered;
}

/* In all blocks of an overhead check: a number that one rank leaves out would be another operation's. */
#define PROBE(of, function, way, end)                                                                                          \
  { .module = of, .qualname = function, .direct = true, .apart = true, .pace = OBSERVE_ALWAYS, .enter = way, .leave = end }

/* Versions have more of them and less. */
#define OP_PROBE(function, way)                                                                                                \
  {                                                                                                                            \
    .module = MODULE, .qualname = function, .optional = true, .direct = true, .apart = true, .pace = OBSERVE_ALWAYS,           \
    .enter = way, .leave = leave                                                                                               \
  }

static const struct probe probes[] = {
#define X(name, ...) OP_PROBE(#name, enter_##name),
    OPS(X)
#undef X
        PROBE(MODULE, "init_process_group", enter_init, leave_init),
    PROBE("torch.distributed.utils", "_sync_module_states", enter_sync_module, leave),
    PROBE("torch.nn.parallel.distributed", "DistributedDataParallel._sync_buffers", enter_sync_buffers, leave),
};

void collective_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
}

void collective_forget(void) {
  under_way = false;
  group_count = 0; /* entries are filled anew; only the default group's is taken as it is */
  groups[0].calls = 0;
  groups[0].address = NULL;
}
