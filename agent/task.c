/* See task.h. What is observed is the creation of tasks: before the first, nobody is asked whose turn it is, and a program without
 * asyncio pays for one look at a pointer.
 *
 * From then on the running loop's current task is looked up at each turn, in the dictionary that asyncio itself uses. Which loop runs
 * on a thread is known by its run_forever; it is only asked for where one of another make was met, since that costs a system
 * call before 3.12. A task is entered in a table when it is created, or when it is met first: one that was created where we do not see
 * it begins in what its thread has open around the loop. A weak reference tells of its end. Threads that others start, also by
 * to_thread, begin with nothing open.
 *
 * Threads: with the GIL all of this is serial, but that a garbage collection may run where an object is made; without it a lock
 * protects the table.
 */
#include "task.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "glibc.h"
#include "observe.h"
#include "py.h"
#include "scope.h"
#include "session.h"

struct task {
  const void *object; /* for comparison only */
  const PyObject *reference;
  struct scope_turn turn;
  struct task *next_object, *next_reference; /* in the same slot of the table */
};

#define LEAST_SLOTS 64u

static struct table {
  struct task **by_object, **by_reference;
  size_t slots, count;
} table;

/* asyncio's own, held for ever. Set before scope_chooser is. */
static struct {
  PyCFunction running; /* the running loop of the calling thread, or None; new reference */
  PyObject *running_self;
  PyObject *tasks;     /* the dictionary of current tasks by loop, before 3.14 */
  py_fastcall current; /* the current task of a loop, since; new reference */
  PyObject *current_self;
} asyncio;

/* The loop whose run_forever is under way on this thread, borrowed. */
static __thread PyObject *loop_here;
static _Atomic bool other_loops; /* there are some whose run_forever we do not see */

/* Where the task begins that is being created on this thread: an eager one runs before it is handed out. */
static __thread struct place {
  uint64_t parent; /* 0: none is */
  bool in_epoch;
} creating;

static _Atomic bool locked;

static void lock(void) {
  while (py.free_threaded && atomic_exchange_explicit(&locked, true, memory_order_acquire))
    sched_yield();
}

static void unlock(void) {
  if (py.free_threaded)
    atomic_store_explicit(&locked, false, memory_order_release);
}

/* --- the table ----------------------------------------------------------------------------------------------------------- */

static size_t slot_of(const void *pointer, size_t slots) {
  return ((uintptr_t)pointer >> 4) * 0x9e3779b97f4a7c15u >> 32 & (slots - 1);
}

static void table_link(struct table *t, struct task *task) {
  struct task **object = &t->by_object[slot_of(task->object, t->slots)];
  struct task **reference = &t->by_reference[slot_of(task->reference, t->slots)];
  task->next_object = *object;
  task->next_reference = *reference;
  *object = *reference = task;
}

static bool table_grow(void) {
  size_t slots = table.slots ? 2 * table.slots : LEAST_SLOTS;
  struct table bigger = {.slots = slots, .count = table.count};
  bigger.by_object = calloc(2 * slots, sizeof *bigger.by_object);
  if (!bigger.by_object)
    return false;
  bigger.by_reference = bigger.by_object + slots;
  for (size_t i = 0; i < table.slots; i++)
    for (struct task *next, *task = table.by_object[i]; task; task = next) {
      next = task->next_object;
      table_link(&bigger, task);
    }
  free(table.by_object);
  table = bigger;
  return true;
}

static struct task *find(const void *object) {
  struct task *task = table.slots ? table.by_object[slot_of(object, table.slots)] : NULL;
  while (task && task->object != object)
    task = task->next_object;
  return task;
}

static struct task *find_locked(const void *object) {
  lock();
  struct task *task = find(object);
  unlock();
  return task;
}

static struct task *take_out(const PyObject *reference) {
  struct task **at = table.slots ? &table.by_reference[slot_of(reference, table.slots)] : NULL;
  while (at && *at && (*at)->reference != reference)
    at = &(*at)->next_reference;
  struct task *task = at ? *at : NULL;
  if (!task)
    return NULL;
  *at = task->next_reference;
  for (at = &table.by_object[slot_of(task->object, table.slots)]; *at != task;)
    at = &(*at)->next_object;
  *at = task->next_object;
  table.count--;
  return task;
}

/* A task is gone. The reference was ours; it lives until this call has returned. */
static PyObject *ended(PyObject *self, PyObject *reference) {
  (void)self;
  lock();
  struct task *task = take_out(reference);
  unlock();
  if (task) {
    scope_turn_end(&task->turn);
    free(task);
    py.Py_DecRef(reference);
  }
  py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

static PyObject *reference_to(PyObject *object) {
  static struct py_method method = {"task_ended", ended, PY_METH_O, NULL};
  static PyObject *callback; /* of an interpreter that is gone: works still, having no `self` */
  if (!callback)
    callback = py.PyCFunction_NewEx(&method, NULL, NULL);
  PyObject *reference = callback ? py.PyWeakref_NewRef(object, callback) : NULL;
  if (!reference)
    py.PyErr_Clear();
  return reference;
}

static bool table_put(struct task *task) {
  if (table.count >= table.slots && !table_grow())
    return false;
  table_link(&table, task);
  table.count++;
  return true;
}

/* Enters a task, if it is not there. NULL: no memory, or no weak reference can be made. Leaves no error behind, needs that none is
 * set. */
static struct task *enter(PyObject *object, struct place place) {
  PyObject *reference = reference_to(object); /* may run anything */
  struct task *task = reference ? malloc(sizeof *task) : NULL;
  if (task)
    *task = (struct task){.object = object,
                          .reference = reference,
                          .turn = {.serial = scope_new_serial(), .parent = place.parent, .in_epoch = place.in_epoch}};
  lock();
  struct task *known = find(object);
  bool put = !known && task && table_put(task);
  unlock();
  if (put)
    return task;
  free(task);
  if (reference)
    py.Py_DecRef(reference);
  return known;
}

static void moved(uint64_t from, uint64_t parent) {
  lock();
  for (size_t i = 0; i < table.slots; i++)
    for (struct task *task = table.by_object[i]; task; task = task->next_object)
      if (task->turn.parent == from)
        task->turn.parent = parent;
  unlock();
}

/* --- whose turn it is ---------------------------------------------------------------------------------------------------- */

static PyObject *ask_loop(void) { /* borrowed: it runs, so its run_forever holds it; or NULL */
  PyObject *loop = asyncio.running(asyncio.running_self, NULL);
  if (loop)
    py.Py_DecRef(loop);
  return loop == py._Py_NoneStruct ? NULL : loop;
}

static PyObject *running_loop(void) {
  if (loop_here || !atomic_load_explicit(&other_loops, memory_order_relaxed))
    return loop_here;
  return ask_loop();
}

/* An error that is set stays: none of this looks at it. */
static PyObject *task_of(PyObject *loop) { /* borrowed: it runs, so its loop holds it */
  if (asyncio.tasks)
    return py.PyDict_GetItemWithError(asyncio.tasks, loop);
  PyObject *task = asyncio.current(asyncio.current_self, &loop, 1, NULL);
  if (task)
    py.Py_DecRef(task);
  return task == py._Py_NoneStruct ? NULL : task;
}

static PyObject *current_task(void) {
  PyObject *loop = running_loop();
  return loop && py_in_main() ? task_of(loop) : NULL; /* in other interpreters asyncio is another one */
}

static struct place place_in(struct scope *scope) {
  struct place place = {.parent = SPAN_ROOT};
  if (scope)
    place.parent = scope_lend(scope, &place.in_epoch);
  return place;
}

/* A task that we did not see being created, or that runs while it is. */
static struct task *meet(PyObject *object, struct scope *own) {
  PyObject *type, *value, *trace;
  py.PyErr_Fetch(&type, &value, &trace);
  struct task *task = enter(object, creating.parent ? creating : place_in(own));
  py.PyErr_Restore(type, value, trace);
  return task;
}

static struct scope *choose(struct scope *own) {
  PyObject *object = current_task();
  if (!object)
    return own;
  struct task *task = find_locked(object);
  if (!task)
    task = meet(object, own);
  return task ? scope_turn(own, &task->turn) : own;
}

/* --- starting ------------------------------------------------------------------------------------------------------------ */

/* module.name if that is a function in C with these flags, held for ever; else NULL. */
static PyObject *c_function(PyObject *module, const char *name, int flags) {
  PyObject *function = module ? py.PyObject_GetAttrString(module, name) : NULL;
  if (function && (void *)py_type(function) == py.PyCFunction_Type && py.PyCFunction_GetFlags(function) == flags)
    return function;
  if (function)
    py.Py_DecRef(function);
  py.PyErr_Clear();
  return NULL;
}

static void find_current(PyObject *tasks) {
  if (!tasks)
    return;
  if (py.version >= 314) {
    PyObject *current = c_function(tasks, "current_task", PY_METH_FASTCALL | PY_METH_KEYWORDS);
    if (current) {
      asyncio.current_self = py.PyCFunction_GetSelf(current);
      asyncio.current = (py_fastcall)(void (*)(void))py.PyCFunction_GetFunction(current);
    }
    return;
  }
  PyObject *dict = py.PyObject_GetAttrString(tasks, "_current_tasks");
  if (dict && (void *)py_type(dict) == py.PyDict_Type) {
    asyncio.tasks = dict;
    return;
  }
  if (dict)
    py.Py_DecRef(dict);
  py.PyErr_Clear();
}

/* False: this asyncio is none that we know, tasks are not told apart. */
static bool start(void) {
  static const struct scope_chooser chooser = {choose, moved};
  static atomic_flag starting = ATOMIC_FLAG_INIT;
  if (atomic_load_explicit(&scope_chooser, memory_order_relaxed))
    return true;
  if (asyncio.running || atomic_flag_test_and_set(&starting))
    return false;
  PyObject *events = py_module("asyncio.events"), *tasks = py_module("asyncio.tasks");
  PyObject *running = c_function(events, "_get_running_loop", PY_METH_NOARGS);
  find_current(tasks);
  if (running) {
    asyncio.running_self = py.PyCFunction_GetSelf(running);
    asyncio.running = py.PyCFunction_GetFunction(running);
  }
  if (events)
    py.Py_DecRef(events);
  if (tasks)
    py.Py_DecRef(tasks);
  if (running && (asyncio.tasks || asyncio.current))
    atomic_store(&scope_chooser, &chooser);
  else
    env_debug("asyncio's tasks are not told apart");
  atomic_flag_clear(&starting);
  return atomic_load(&scope_chooser);
}

/* --- creation ------------------------------------------------------------------------------------------------------------ */

static bool create_enter(struct observe_call *call) {
  if (!session_env.enabled || session_is_worker() || !py_in_main() || !start())
    return false;
  if (!loop_here && !atomic_load_explicit(&other_loops, memory_order_relaxed) && ask_loop())
    atomic_store(&other_loops, true);
  call->state[0] = (void *)(uintptr_t)creating.parent;
  call->state[1] = (void *)(uintptr_t)creating.in_epoch;
  creating = place_in(scope_peek());
  call->state[2] = (void *)(uintptr_t)creating.parent;
  call->state[3] = (void *)(uintptr_t)creating.in_epoch;
  return true;
}

/* With nothing open here or around the loop, a task is as well placed when it is met. */
static bool is_nowhere(struct place place) {
  const struct scope *own = scope_own();
  return place.parent == SPAN_ROOT && !(own && scope_depth(own)) && running_loop();
}

static void create_leave(struct observe_call *call, PyObject *result) {
  struct place place = {(uint64_t)(uintptr_t)call->state[2], call->state[3] != NULL};
  creating = (struct place){(uint64_t)(uintptr_t)call->state[0], call->state[1] != NULL};
  if (result && !find_locked(result) && !is_nowhere(place))
    (void)enter(result, place);
}

/* Given a task, it hands that out again. */
static void ensure_leave(struct observe_call *call, PyObject *result) {
  bool same = call->nargs && call->args[0] == result;
  create_leave(call, same ? NULL : result);
}

static bool run_enter(struct observe_call *call) {
  if (call->nargs == 0 || !py_in_main())
    return false;
  call->state[0] = loop_here;
  loop_here = call->args[0];
  return true;
}

static void run_leave(struct observe_call *call, PyObject *result) {
  (void)result;
  loop_here = call->state[0];
}

#define CREATES(in, function, after)                                                                                           \
  { .module = (in), .qualname = (function), .direct = true, .pace = OBSERVE_ALWAYS, .enter = create_enter, .leave = (after) }

/* Their create_task is what all loops of asyncio's own come to. Those of others are not written in Python, but it is mostly the rest that
 * calls them. */
static const struct probe probes[] = {
    {.module = "asyncio.base_events",
     .qualname = "BaseEventLoop.run_forever",
     .direct = true,
     .pace = OBSERVE_ALWAYS,
     .enter = run_enter,
     .leave = run_leave},
    CREATES("asyncio.base_events", "BaseEventLoop.create_task", create_leave),
    CREATES("asyncio.tasks", "create_task", create_leave),
    CREATES("asyncio.tasks", "ensure_future", ensure_leave),
    CREATES("asyncio.tasks", "_ensure_future", ensure_leave),
    CREATES("asyncio.taskgroups", "TaskGroup.create_task", create_leave),
};

void task_add_probes(void) {
  observe_add(probes, sizeof probes / sizeof probes[0]);
}

/* Nothing is freed: this has to be safe at any point. */
void task_forget(void) {
  table = (struct table){0};
  atomic_store(&locked, false);
}

void task_interpreter_ends(void) {
  atomic_store(&scope_chooser, NULL);
  memset(&asyncio, 0, sizeof asyncio);
  loop_here = NULL;
  creating = (struct place){0};
  task_forget();
}
