/* See snapshot.h. */
#include "snapshot.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "cost.h"
#include "link.h"
#include "loop.h"
#include "segment.h"
#include "session.h"
#include "sink.h"
#include "snapshot_area.h"
#include "snapshot_blob.h"
#include "snapshot_entries.h"
#include "snapshot_list.h"
#include "snapshot_models.h"
#include "snapshot_own.h"
#include "snapshot_zero.h"
#include "spool_snapshot.h"

#define MS 1000000ull
/* Reading here what takes less than this costs the training less than waiting for somebody to be woken and to read it. */
#define OWN_NS 300000u
#define OWN_BYTES_A_NS 8u   /* what is read here in a nanosecond, */
#define OWN_TENSOR_NS 300u  /* and what each tensor takes besides */
#define DEAR_NS 1000000000u /* when so much was spent on them, and more than */
#define DEAR_PART 50u       /* this part of the session, the next epoch is left out */

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
  bool busy;     /* listing or waiting: code of the script may come back here */
  bool refused;  /* this session's tensors cannot be read from outside */
  bool at_exit;  /* Python will call us before it ends */
  bool raw;      /* the one that is due has raw tensors */
  bool in_place; /* gradients are changed where they are: they are read first, otherwise last */
  struct due due;
  bool spool_waits;       /* the spool has not got the present one yet */
  uint64_t last_epoch;    /* span of the last one that was taken */
  uint64_t number;        /* of the last request */
  uint32_t torn;          /* entries of it */
  uint64_t steps, wanted; /* updates seen; what the segment said last */
  struct snapshot_counts counts;
} snap;

struct snapshot_counts snapshot_counts(void) {
  return snap.counts;
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

/* --- its end ------------------------------------------------------------------------------------------------------------- */

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
    zero_observe(NULL);
  } else {
    list_look_tensors();
  }
  snap.torn += entries_flag_torn(area, what, done);
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
  uint32_t want = entries_half(area, what).to;
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

/* They are changed where they are, while they are read. */
static void gradients_filled(void) {
  snap.in_place = true;
  snapshot_fence(SNAPSHOT_READS_GRADIENTS);
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
    entries_text(items, count);
  uint32_t entries = entries_write(items, count, snap.in_place);
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
    snap.torn += entries_flag_torn(area, SNAPSHOT_READS_GRADIENTS, area->count);
    snap.torn += entries_flag_torn(area, SNAPSHOT_READS_WEIGHTS, area->count);
    settle(area);
    snap.counts.own_ns += area->read_ns;
  } else {
    zero_observe(gradients ? gradients_filled : NULL);
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
