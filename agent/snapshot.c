/* See snapshot.h. */
#include "snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cost.h"
#include "link.h"
#include "loop.h"
#include "observe.h"
#include "segment.h"
#include "session.h"
#include "sink.h"
#include "snapshot_area.h"
#include "snapshot_blob.h"
#include "snapshot_list.h"
#include "snapshot_models.h"
#include "snapshot_own.h"
#include "spool_snapshot.h"

#define MS 1000000ull
#define MODELS_NAMED 64u
/* Reading here what takes less than this costs the training less than waiting for somebody to be woken and to read it. */
#define OWN_NS 300000u
#define OWN_BYTES_A_NS 8u   /* what is read here in a nanosecond, */
#define OWN_TENSOR_NS 300u  /* and what each tensor takes besides */
#define DEAR_NS 1000000000u /* when so much was spent on them, and more than */
#define DEAR_PART 50u       /* this part of the session, the next epoch is left out */
#define GRADIENT_SUFFIX ".grad"
#define NAME_ROOM 1280 /* a name that is cut, and the suffix */

HOT_DATA unsigned snapshot_reads;
HOT_DATA bool snapshot_due;

struct due {
  uint64_t span;
  int64_t epoch, step;
  enum snapshot_reason reason;
};

static struct {
  enum env_snapshots mode;
  double sample_rate;
  bool busy;            /* listing or waiting: code of the script may come back here */
  bool refused;         /* this session's tensors cannot be read from outside */
  bool at_exit;         /* Python will call us before it ends */
  bool meanwhile;       /* zero_grad is observed */
  bool lets_go;         /* zero_grad() drops gradients, it does not fill them */
  bool gradients_first; /* in the present request */
  bool raw;             /* the one that is due has raw tensors */
  bool in_place;        /* gradients are changed where they are: they are read first, otherwise last */
  struct due due;
  bool spool_waits;       /* the spool has not got the present one yet */
  uint64_t last_epoch;    /* span of the last one that was taken */
  uint64_t number;        /* of the last request */
  uint32_t torn;          /* entries of it */
  uint64_t steps, wanted; /* updates seen; what the segment said last */
  uint32_t at_model[MODELS_NAMED];
  struct snapshot_counts counts;
} snap;

struct snapshot_counts snapshot_counts(void) {
  return snap.counts;
}

/* --- zero_grad, while it matters ----------------------------------------------------------------------------------------- */

/* A gradient that is let go of is no matter: we hold it. One that is filled with zeros is. */
static bool zero_enter(struct observe_call *call) {
  static PyObject *name;
  if (!name)
    name = py.PyUnicode_InternFromString("set_to_none");
  PyObject *given = observe_arg(call, 1, name);
  if (given ? given != py._Py_TrueStruct : !snap.lets_go) {
    snap.in_place = true;
    snapshot_fence(SNAPSHOT_READS_GRADIENTS);
  }
  return false;
}

static const struct probe meanwhile[] = {
    {.module = "torch.optim.optimizer", .qualname = "Optimizer.zero_grad", .direct = true, .enter = zero_enter},
    {.module = "torch.nn.modules.module", .qualname = "Module.zero_grad", .direct = true, .enter = zero_enter},
};

/* Does zero_grad() let go of gradients where nothing is said? From PyTorch 2.0 on. */
static bool lets_go(void) {
  PyObject *module = py_module("torch.optim.optimizer"),
           *class = module ? py.PyObject_GetAttrString(module, "Optimizer") : NULL;
  PyObject *function = class ? py.PyObject_GetAttrString(class, "zero_grad") : NULL;
  PyObject *defaults = function ? py.PyObject_GetAttrString(function, "__defaults__") : NULL;
  bool is = defaults && (void *)py_type(defaults) == py.PyTuple_Type && py.PyTuple_Size(defaults) == 1 &&
            py.PyTuple_GetItem(defaults, 0) == py._Py_TrueStruct;
  PyObject *owned[] = {defaults, function, class, module};
  for (unsigned i = 0; i < 4; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  py.PyErr_Clear();
  return is;
}

static void observe_zero(bool on) {
  if (snap.meanwhile == on)
    return;
  snap.meanwhile = on;
  snap.lets_go = lets_go();
  for (unsigned i = 0; i < sizeof meanwhile / sizeof *meanwhile; i++)
    observe_meanwhile(&meanwhile[i], on);
}

/* --- what is due --------------------------------------------------------------------------------------------------------- */

static void epoch_over(const struct span *span) {
  bool asked = snapshot_due && snap.due.reason != SNAPSHOT_EPOCH; /* that is not forgotten for an epoch */
  if (snap.mode == ENV_SNAPSHOTS_OFF || span->id == snap.last_epoch || asked)
    return;
  snap.due = (struct due){span->id, span->index, loop_last_step, SNAPSHOT_EPOCH};
  snapshot_due = true;
}

static bool asked_for(void) {
  const struct ring_segment *segment = segment_get();
  uint64_t wanted = segment ? __atomic_load_n(&segment->snapshot_wanted, __ATOMIC_RELAXED) : 0;
  bool is = wanted != snap.wanted;
  snap.wanted = wanted;
  return is;
}

static void stepped(const struct span *step) {
  bool every = session_env.snapshot_steps && ++snap.steps % session_env.snapshot_steps == 0;
  bool asked = asked_for();
  if ((!every && !asked) || snap.mode == ENV_SNAPSHOTS_OFF)
    return;
  snap.due = (struct due){step->id, SPAN_NO_INDEX, step->index, asked ? SNAPSHOT_COMMAND : SNAPSHOT_STEPS};
  snapshot_due = true;
}

/* --- the request --------------------------------------------------------------------------------------------------------- */

static const char *area_name_of(const struct list_item *item, char *room, bool gradient, size_t *len) {
  size_t n = item->name_len < SNAPSHOT_NAME_MAX ? item->name_len : SNAPSHOT_NAME_MAX;
  memcpy(room, list_text() + item->name, n);
  if (gradient) {
    memcpy(room + n, GRADIENT_SUFFIX, sizeof GRADIENT_SUFFIX - 1);
    n += sizeof GRADIENT_SUFFIX - 1;
  }
  *len = n;
  return room;
}

static uint32_t put_text(uint32_t at) {
  return at ? snapshot_area_put_name(list_text() + at, strlen(list_text() + at)) : 0;
}

/* Names and shapes of all, which stay from one request to the next. */
static void write_text(struct list_item *items, uint32_t count) {
  char room[NAME_ROOM];
  size_t len;
  for (uint32_t m = 0; m < list_models(); m++)
    snap.at_model[m] = snapshot_area_put_name(list_model(m), strlen(list_model(m)));
  for (uint32_t i = 0; i < count; i++) {
    struct list_item *item = &items[i];
    const char *name = area_name_of(item, room, false, &len);
    item->at_name = snapshot_area_put_name(name, len);
    name = area_name_of(item, room, true, &len);
    item->at_grad = snapshot_area_put_name(name, len);
    item->at_shape = snapshot_area_put_dims(list_dims() + item->dims, item->ndim);
    item->at_strides =
        item->contiguous ? SNAPSHOT_CONTIGUOUS : snapshot_area_put_dims(list_dims() + item->dims + item->ndim, item->ndim);
    item->at_dtype_name = put_text(item->dtype_name);
    item->at_reason = put_text(item->reason);
  }
  snapshot_area_text_keep();
}

static struct snapshot_entry entry_of(const struct list_item *item) {
  return (struct snapshot_entry){
      .address = item->address,
      .name = item->at_name,
      .shape = item->at_shape,
      .strides = item->at_strides,
      .model = snap.at_model[item->model],
      .reason = item->at_reason,
      .dtype_name = item->at_dtype_name,
      .dtype = item->dtype,
      .ndim = item->ndim,
      .flags = item->flags,
  };
}

static struct snapshot_entry gradient_entry(const struct list_item *item) {
  struct snapshot_entry entry = entry_of(item);
  entry.name = item->at_grad;
  entry.address = item->grad_address;
  entry.flags |= SNAPSHOT_GRADIENT;
  if (!item->odd)
    return entry;
  const struct tensor_facts *facts = &item->odd->facts;
  entry.shape = snapshot_area_put_dims(facts->shape, facts->ndim);
  entry.strides = facts->contiguous ? SNAPSHOT_CONTIGUOUS : snapshot_area_put_dims(facts->strides, facts->ndim);
  entry.dtype = (uint8_t)facts->dtype;
  entry.ndim = facts->ndim;
  entry.flags = facts->flags | SNAPSHOT_GRADIENT;
  entry.reason = facts->reason[0] ? snapshot_area_put_name(facts->reason, strlen(facts->reason)) : 0;
  entry.dtype_name = facts->dtype_name[0] ? snapshot_area_put_name(facts->dtype_name, strlen(facts->dtype_name)) : 0;
  return entry;
}

/* Where the entries of a kind are, in the order in which they are read. */
struct half {
  uint32_t from, to;
};

static struct half half_of(const struct snapshot_area *area, unsigned what) {
  uint32_t weights = area->count - area->gradients, first = snap.gradients_first ? area->gradients : weights;
  bool is_first = (what == SNAPSHOT_READS_GRADIENTS) == snap.gradients_first;
  return is_first ? (struct half){0, first} : (struct half){first, area->count};
}

static uint32_t write_kind(const struct list_item *items, uint32_t count, bool gradients, uint32_t n) {
  struct snapshot_entry *to = snapshot_area_entries();
  for (uint32_t i = 0; i < count; i++)
    if (!gradients)
      to[n++] = entry_of(&items[i]);
    else if (items[i].has_grad)
      to[n++] = gradient_entry(&items[i]);
  return n;
}

/* Returns how many. */
static uint32_t write_entries(const struct list_item *items, uint32_t count) {
  snap.gradients_first = snap.in_place;
  uint32_t n = write_kind(items, count, snap.gradients_first, 0);
  return write_kind(items, count, !snap.gradients_first, n);
}

/* --- its end ------------------------------------------------------------------------------------------------------------- */

/* Of this kind: what was changed while it was read, was not read in time, or belongs to a model that went before it was. */
static void flag_torn(const struct snapshot_area *area, unsigned what, uint32_t done) {
  struct snapshot_entry *entries = snapshot_area_entries();
  struct half half = half_of(area, what);
  uint32_t count, unused, at = half.from;
  const struct list_item *items = list_items(&count, &unused);
  bool gradients = what == SNAPSHOT_READS_GRADIENTS;
  for (uint32_t i = 0; i < count && at < half.to; i++) {
    if (gradients && !items[i].has_grad)
      continue;
    bool torn = (gradients ? items[i].grad_torn : items[i].torn) || at >= done || at >= list_model_done(items[i].model);
    if (torn) {
      entries[at].flags |= SNAPSHOT_TORN;
      snap.torn++;
    }
    at++;
  }
}

static bool is_read(const struct snapshot_area *area) {
  return __atomic_load_n(&area->finished, __ATOMIC_ACQUIRE) == area->number;
}

/* The spool has a copy of its own, if there is one. */
static void to_spool(const struct snapshot_area *area) {
  struct spool_snapshot *copy = sink_wants_snapshots() ? spool_snapshot_copy(area, blob_uri()) : NULL;
  if (copy)
    (void)sink_snapshot(copy);
}

/* One that waited until it was known which files there are. */
static void spool_late(void) {
  const struct snapshot_area *area = snapshot_area_get();
  if (snap.spool_waits && area)
    to_spool(area);
  snap.spool_waits = false;
}

/* All is said of the request. */
static void settle(struct snapshot_area *area) {
  area->torn = snap.torn;
  snap.counts.torn += snap.torn;
  __atomic_store_n(&area->settled, area->number, __ATOMIC_RELEASE);
  snap.spool_waits = (area->flags & SNAPSHOT_BLOBS) && !is_read(area); /* it is not known yet whether there are files */
  if (!snap.spool_waits)
    to_spool(area);
  list_let_go();
}

/* Nobody reads entries of this kind any more, or what is read from now on counts as torn: `done` were. */
static void settle_half(struct snapshot_area *area, unsigned what, uint32_t done) {
  if (what == SNAPSHOT_READS_GRADIENTS) {
    list_look_gradients();
    observe_zero(false);
  } else {
    list_look_tensors();
  }
  flag_torn(area, what, done);
  if (what == SNAPSHOT_READS_GRADIENTS)
    list_let_go_gradients();
  snapshot_reads &= ~what;
  if (!snapshot_reads)
    settle(area);
}

/* Waits for so many entries. False: the session is another one by now. */
static bool wait_for(struct snapshot_area *area, uint32_t want) {
  unsigned generation = snapshot_area_generation();
  uint64_t began = clock_system(), patience = session_env.snapshot_wait_ms * MS, now = began;
  uint64_t until = began + (patience > area->wait_ns ? patience - area->wait_ns : 0);
  while (__atomic_load_n(&area->done, __ATOMIC_ACQUIRE) < want && now < until && !is_read(area)) {
    if (__atomic_load_n(&area->refused, __ATOMIC_RELAXED) || !link_connected())
      break;
    snapshot_area_waits(true);
    void *thread = py.PyEval_SaveThread();
    (void)snapshot_area_wait(area, want, until);
    py.PyEval_RestoreThread(thread);
    if (generation != snapshot_area_generation() || !snapshot_area_get())
      return false;
    snapshot_area_waits(false);
    now = clock_system();
    link_tick(now); /* it may be that nobody has been told yet */
  }
  area->wait_ns += clock_system() - began;
  snap.counts.wait_ns += clock_system() - began;
  return true;
}

/* After a wait: where there is nobody to read it, it is read here, as far as it is still what was listed. False: the session is another
 * one by now. */
static bool conclude(struct snapshot_area *area, uint32_t want, uint32_t *done) {
  *done = __atomic_load_n(&area->done, __ATOMIC_ACQUIRE);
  bool refused = __atomic_load_n(&area->refused, __ATOMIC_ACQUIRE) != 0;
  if (*done >= want || (is_read(area) && !refused) || (!refused && link_connected()))
    return true;
  snap.refused |= refused;
  snap.counts.own++;
  if (snapshot_reads & SNAPSHOT_READS_GRADIENTS)
    list_look_gradients();
  if (snapshot_reads & SNAPSHOT_READS_WEIGHTS)
    list_look_tensors();
  bool same = own_read(*done);
  *done = area->count;
  return same;
}

/* False: the session is another one by now, and so may be whoever is busy. */
static bool wait_half(unsigned what) {
  struct snapshot_area *area = snapshot_area_get();
  uint32_t done;
  if (!(snapshot_reads & what))
    return true;
  uint32_t want = half_of(area, what).to;
  if (!wait_for(area, want) || !conclude(area, want, &done))
    return false;
  settle_half(area, what, done);
  return true;
}

/* A refusal that came when nobody waited for it any more: the request is brought to its end. */
static void give_up(struct snapshot_area *area) {
  struct snapshot_result *results = snapshot_area_results();
  snap.refused = true;
  for (uint32_t i = __atomic_load_n(&area->done, __ATOMIC_ACQUIRE); i < area->count; i++)
    results[i] = (struct snapshot_result){.error = ECANCELED};
  area->flags |= SNAPSHOT_OWN;
  __atomic_store_n(&area->finished, area->number, __ATOMIC_RELEASE);
}

void snapshot_wait(unsigned what) {
  PyObject *type, *value, *trace;
  if (snap.busy || !snapshot_area_get() || !py_in_main())
    return;
  int saved = errno;
  struct cost_timing cost = cost_rare();
  snap.busy = true;
  py.PyErr_Fetch(&type, &value, &trace);
  bool same = !(what & SNAPSHOT_READS_GRADIENTS) || wait_half(SNAPSHOT_READS_GRADIENTS);
  same = same && (!(what & SNAPSHOT_READS_WEIGHTS) || wait_half(SNAPSHOT_READS_WEIGHTS));
  py.PyErr_Restore(type, value, trace);
  if (same)
    snap.busy = false;
  cost_end(&cost);
  errno = saved;
}

/* What is added to gradients that the tensors still have is added in place. */
void snapshot_wait_to_add(void) {
  PyObject *type, *value, *trace;
  if (snap.busy || !py_in_main())
    return;
  snap.busy = true;
  py.PyErr_Fetch(&type, &value, &trace);
  bool in_use = list_gradients_in_use();
  py.PyErr_Restore(type, value, trace);
  snap.busy = false;
  snap.in_place |= in_use;
  if (in_use)
    snapshot_wait(SNAPSHOT_READS_GRADIENTS);
}

/* --- taking it ----------------------------------------------------------------------------------------------------------- */

static PyObject *finish_at_exit(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  snapshot_finish();
  py.Py_IncRef(py._Py_NoneStruct);
  return py._Py_NoneStruct;
}

/* The tensors are gone when the interpreter has ended. */
static void register_exit(void) {
  static struct py_method method = {"snapshot_finish", finish_at_exit, PY_METH_NOARGS, NULL};
  if (snap.at_exit)
    return;
  PyObject *atexit = py.PyImport_ImportModule("atexit"), *function = py.PyCFunction_NewEx(&method, NULL, NULL);
  PyObject *done = atexit && function ? py.PyObject_CallMethod(atexit, "register", "O", function) : NULL;
  snap.at_exit = done != NULL;
  PyObject *owned[] = {done, function, atexit};
  for (unsigned i = 0; i < 3; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  py.PyErr_Clear();
}

/* What all tensors take in files. */
static uint64_t raw_bytes(const struct list_item *items, uint32_t count) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < count; i++)
    bytes += (uint64_t)items[i].elements * tensor_size((enum tensor_dtype)items[i].dtype) * (items[i].has_grad ? 2 : 1) *
             (items[i].flags & SNAPSHOT_COMPLEX ? 2 : 1);
  return bytes;
}

static bool is_small(const struct list_item *items, uint32_t count, uint32_t gradients) {
  return raw_bytes(items, count) / OWN_BYTES_A_NS + (uint64_t)(count + gradients) * OWN_TENSOR_NS < OWN_NS;
}

static bool open_blobs(const struct due *due, const struct list_item *items, uint32_t count) {
  blob_close();
  if (!snap.raw)
    return false;
  int r = blob_open(session_get()->prefix, due->span, raw_bytes(items, count));
  if (r == 0)
    snapshot_area_folder(blob_folder(), blob_uri());
  snap.counts.blobs += r == 0;
  snap.counts.blob_failures += r < 0;
  snap.counts.blobs_removed = blob_removed();
  return r == 0;
}

static void write_request(struct snapshot_area *area, const struct due *due, uint32_t count, uint32_t gradients, uint64_t began,
                          bool blobs) {
  uint64_t now = clock_system();
  area->span = due->span;
  area->first_record = session_take_ids(count);
  area->ts_ns = began;
  area->epoch = due->epoch;
  area->step = due->step;
  area->count = count;
  area->gradients = gradients;
  area->reason = due->reason;
  area->flags = (snap.mode == ENV_SAMPLED ? SNAPSHOT_SAMPLED : 0) | (blobs ? SNAPSHOT_BLOBS : 0);
  area->list_ns = now - began;
  area->refused = 0;
  area->read_ns = area->wait_ns = 0;
  area->blobs = 0;
  area->blob_error = 0;
  area->torn_from = SNAPSHOT_WHOLE;
  area->torn = snap.torn = 0;
  __atomic_store_n(&area->done, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&area->number, ++snap.number, __ATOMIC_RELEASE);
  snap.counts.list_ns += now - began;
}

static bool is_on(void) {
  return snap.mode != ENV_SNAPSHOTS_OFF && !session_env.overhead_check;
}

/* Not now. What somebody asked for stays due. */
static void skip(const struct due *due) {
  snap.counts.skipped++;
  if (due->reason != SNAPSHOT_COMMAND || snapshot_due)
    return;
  snap.due = *due;
  snapshot_due = true;
}

/* Is somebody still at the one before? */
static bool is_taken(void) {
  const struct snapshot_area *area = snapshot_area_get();
  return area && !is_read(area) && link_connected();
}

/* Is there anybody to take it for? */
static bool is_of_use(void) {
  return link_connected() || link_starting() || sink_wants_snapshots();
}

/* Epochs of some milliseconds, of a large model: nobody wants to pay for a look at each of them. What is asked for by name is never left
 * out. */
static bool is_too_dear(const struct due *due) {
  const struct snapshot_counts *n = &snap.counts;
  uint64_t spent = n->wait_ns + n->list_ns + n->own_ns, age = clock_system() - session_get()->start_ns;
  return due->reason == SNAPSHOT_EPOCH && snap.mode == ENV_STATS && spent > DEAR_NS && spent > age / DEAR_PART;
}

static void take(const struct due *due) {
  uint32_t count, gradients;
  uint64_t began = clock_system(), prefix = session_get()->prefix;
  int r = list_make();
  if (r < 0 || !session_get() || session_get()->prefix != prefix) {
    snap.counts.skipped += r != -ENOENT;
    list_let_go();
    return;
  }
  struct list_item *items = list_items(&count, &gradients);
  bool shared = !session_get()->by_messages, small = is_small(items, count, gradients);
  bool own = small || snap.refused || !shared || !link_connected() || list_own();
  r = snapshot_area_take(prefix, count + gradients, list_area_text(), list_text_number(), shared);
  if (r == -EBUSY && !link_connected()) { /* they wait for a collector that may never come */
    snapshot_area_give_up_oldest();
    r = snapshot_area_take(prefix, count + gradients, list_area_text(), list_text_number(), shared);
  }
  if (r < 0) {
    skip(due);
    list_let_go();
    return;
  }
  struct snapshot_area *area = snapshot_area_get();
  snapshot_area_text_begin();
  if (r > 0)
    write_text(items, count);
  uint32_t entries = write_entries(items, count);
  write_request(area, due, entries, gradients, began, open_blobs(due, items, count));
  snap.counts.taken++;
  snap.counts.tensors += entries;
  if (due->reason == SNAPSHOT_EPOCH)
    snap.last_epoch = due->span;
  snapshot_reads = SNAPSHOT_READS_WEIGHTS | (gradients ? SNAPSHOT_READS_GRADIENTS : 0);
  if (own) {
    snap.counts.own += !small;
    if (!own_read(0))
      return;
    snapshot_reads = 0;
    flag_torn(area, SNAPSHOT_READS_GRADIENTS, area->count);
    flag_torn(area, SNAPSHOT_READS_WEIGHTS, area->count);
    settle(area);
    snap.counts.own_ns += area->read_ns;
  } else {
    observe_zero(gradients > 0);
  }
  register_exit();
  link_snapshot();
  if (snapshot_reads)
    list_sample(); /* while the reader begins */
}

void snapshot_take(void) {
  PyObject *type, *value, *trace;
  if (snap.busy || !py_in_main())
    return;
  snapshot_due = false;
  struct due due = snap.due;
  if (!is_on() || !session_get() || session_is_worker())
    return;
  int saved = errno;
  struct cost_timing cost = cost_rare();
  uint64_t prefix = session_get()->prefix;
  if (snapshot_reads)
    snapshot_wait(SNAPSHOT_READS_ALL);
  if (snap.busy || !is_on() || !session_get() || session_get()->prefix != prefix) { /* what others did meanwhile */
    cost_end(&cost);
    errno = saved;
    return;
  }
  spool_late();
  snap.busy = true;
  py.PyErr_Fetch(&type, &value, &trace);
  link_tick(clock_system());
  snap.raw = blob_wanted(snap.mode, snap.sample_rate); /* whether or not it is left out: the same epochs in each run */
  struct snapshot_area *area = snapshot_area_get();
  if (area && !is_read(area) && !snapshot_reads && __atomic_load_n(&area->refused, __ATOMIC_ACQUIRE))
    give_up(area);
  if (is_taken() || is_too_dear(&due))
    skip(&due);
  else if (is_of_use())
    take(&due);
  py.PyErr_Restore(type, value, trace);
  snap.busy = false;
  cost_end(&cost);
  errno = saved;
}

void snapshot_poll(void) {
  const struct snapshot_area *area = snapshot_area_get();
  if (area && is_read(area) && !__atomic_load_n(&area->refused, __ATOMIC_RELAXED))
    snapshot_wait(SNAPSHOT_READS_ALL);
}

void snapshot_finish(void) {
  snapshot_check();
  snapshot_fence(SNAPSHOT_READS_ALL);
  struct snapshot_area *area = snapshot_area_get();
  if (snap.spool_waits && !snap.busy && area && py_in_main()) {
    snap.busy = true;
    bool same = wait_for(area, SNAPSHOT_WHOLE); /* for the files */
    if (same) {
      snap.busy = false;
      spool_late();
    }
  }
}

/* --- settings ------------------------------------------------------------------------------------------------------------ */

void snapshot_seek(void) {
  models_sought = is_on();
}

void snapshot_set(const struct snapshot_settings *settings) {
  snap.mode = settings->mode;
  snap.sample_rate = settings->sample_rate;
  blob_folder_set(settings->folder);
  snapshot_seek();
}

void snapshot_start(void) {
  snap.mode = session_env.snapshots;
  snap.sample_rate = session_env.sample_rate;
  snapshot_seek();
  loop_epoch_over = epoch_over;
  loop_stepped = stepped;
}

void snapshot_forget(void) {
  snapshot_reads = 0;
  snapshot_due = false;
  snap.busy = snap.refused = snap.spool_waits = false;
  snap.last_epoch = snap.number = snap.steps = snap.wanted = 0;
  snap.counts = (struct snapshot_counts){0};
  snapshot_area_forget();
  blob_close();
  list_forget();
  models_forget();
  snapshot_seek();
}
