#include "reader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "ahead.h"
#include "blob.h"
#include "clock.h"
#include "process.h"

#define BUFFER_BYTES (16u << 20) /* what fits is fetched once: most tensors of most models */
#define SLICE_BYTES (16u << 20)  /* of one pass, before the next has its turn */
#define SLICE_ENTRIES 1024
#define REPEATED_MAX (1ll << 28) /* numbers */
#define WAKE_BYTES (1u << 20)    /* read since the process was woken to look how far it is */
#define HANG_S 5                 /* what a thread gets to come to its end */

struct line { /* passes that wait for a thread */
  struct pass *first, **last;
  pthread_t thread;
  bool started, end; /* end: its thread ends when the line is empty */
};

struct reader {
  pthread_mutex_t lock; /* protects lines, stop and the passes' let_go and queued; nothing else is taken while it is held */
  pthread_cond_t changed;
  struct line read, sync;
  atomic_bool stop;
  void *buffer;
  struct ahead *ahead; /* or NULL: no memory, so one is read after the other */
};

struct reading {
  struct reader *reader; /* or NULL */
  struct pass *pass;
  void *buffer;
  size_t buffer_bytes;
  struct ahead *ahead; /* or NULL: no memory */
  uint32_t entry;      /* that is read */
  uint64_t bytes;      /* in this turn, */
  uint64_t woken;      /* and of them when the process was woken last */
};

static bool is_over(const struct reading *r) {
  return atomic_load_explicit(&r->pass->stop, memory_order_relaxed) ||
         (r->reader && atomic_load_explicit(&r->reader->stop, memory_order_relaxed));
}

/* ---- one tensor ---- */

static const void *fetch(void *arg, uint64_t address, size_t bytes, void *buffer, int *error) {
  struct reading *r = arg;
  const void *there = r->ahead ? ahead_find(r->ahead, r->entry, bytes) : NULL;
  if (there && address == r->pass->entries[r->entry].address)
    return there;
  for (size_t got = 0; got < bytes;) {
    if (is_over(r)) {
      *error = -ECANCELED;
      return NULL;
    }
    struct iovec local = {(char *)buffer + got, bytes - got};
    struct iovec remote = {(void *)(uintptr_t)(address + got), bytes - got}; /* NOLINT(performance-no-int-to-ptr): another's */
    ssize_t n = process_vm_readv(r->pass->pid, &local, 1, &remote, 1, 0);
    if (n <= 0) {
      *error = n < 0 ? -errno : -EFAULT;
      return NULL;
    }
    got += (size_t)n;
  }
  r->bytes += bytes;
  return buffer;
}

static int sink(void *arg, const void *data, size_t bytes) {
  struct reading *r = arg;
  blob_put(r->pass, data, bytes);
  return 0;
}

/* A view may show the same memory many times over: so much of that is read, or everybody would wait for one tensor without end. */
static bool repeats_too_much(const struct tensor_view *view) {
  int64_t numbers = tensor_elements(view), span = 1;
  if (!view->strides || numbers <= REPEATED_MAX)
    return false;
  for (uint32_t d = 0; d < view->ndim; d++) {
    int64_t stride = view->strides[d], reach;
    if (stride == INT64_MIN || __builtin_mul_overflow(view->shape[d] - 1, stride < 0 ? -stride : stride, &reach) ||
        __builtin_add_overflow(span, reach, &span))
      return false; /* more than there can be: it ends where the memory does */
  }
  return numbers > span;
}

/* 0: *result is there, be it an error; a negative errno: reading has to end. */
static int read_one(struct reading *r, uint32_t i, struct snapshot_result *result) {
  struct pass *p = r->pass;
  *result = (struct snapshot_result){0};
  if (!pass_readable(p, i)) {
    result->error = ENODATA;
    return 0;
  }
  struct pass_view view;
  pass_view(p, i, &view);
  struct tensor_source source = {.fetch = fetch, .fetch_arg = r, .buffer = r->buffer, .buffer_bytes = r->buffer_bytes};
  if (blob_begin(p, i)) {
    source.sink = sink;
    source.sink_arg = r;
  }
  r->entry = i;
  bool here = r->ahead && i >= r->ahead->from && i < r->ahead->to; /* and the process lived when they were read */
  int err = repeats_too_much(&view.view) ? -EFBIG : tensor_read(&view.view, &source, &result->stats);
  if (!here && (p->pidfd < 0 || process_ended(p->pidfd)))
    err = -ESRCH;
  if (err == -ESRCH || err == -EPERM || err == -EACCES || err == -ENOSYS || err == -ECANCELED)
    return err;
  if (err)
    *result = (struct snapshot_result){.error = -err};
  if (blob_end(p, err))
    result->flags = SNAPSHOT_IN_BLOB;
  return 0;
}

static void put_result(struct reading *r, uint32_t i, const struct snapshot_result *result) {
  struct pass *p = r->pass;
  bool wake = r->bytes - r->woken >= WAKE_BYTES;
  p->results[i] = *result;
  area_results(p->area)[i] = *result;
  p->at = i + 1;
  area_set_done(p->area, p->at, wake);
  r->woken = wake ? r->bytes : r->woken;
}

/* The next small ones together. -ESRCH: the process is gone, and it may be another's memory that was read. */
static int read_ahead(struct reading *r) {
  struct pass *p = r->pass;
  if (!r->ahead || p->at < r->ahead->to)
    return 0;
  r->bytes += ahead_read(r->ahead, p, p->at);
  if (r->ahead->to == p->at || (p->pidfd >= 0 && !process_ended(p->pidfd)))
    return 0;
  r->ahead->to = p->at;
  return -ESRCH;
}

/* ---- one pass ---- */

/* What a collector before us read stays; it may have changed since. */
static void take_up(struct pass *p) {
  pass_copy_results(p);
  p->resumed = p->at > 0;
}

static bool may_read(const struct pass *p) {
  return p->pid > 0 && p->pidfd >= 0;
}

static void ended(struct pass *p, int err) {
  p->gone = err == -ESRCH;
  if (err != -EPERM && err != -EACCES && err != -ENOSYS)
    return;
  p->refused = -err;
  area_set_refused(p->area, p->refused);
}

/* Has the process begun to compute itself, because it lost sight of us? Then what it says counts. */
static bool is_its_own(const struct pass *p) {
  return __atomic_load_n(&area_head(p->area)->flags, __ATOMIC_ACQUIRE) & SNAPSHOT_OWN;
}

/* As far as one turn goes. True: there is more to read. */
static bool read_some(struct reading *r) {
  struct pass *p = r->pass;
  uint64_t from = clock_monotonic_ns();
  int err = is_over(r) ? -ECANCELED : 0;
  for (uint32_t n = 0; !err && p->at < p->head.count && n < SLICE_ENTRIES && r->bytes < SLICE_BYTES; n++) {
    struct snapshot_result result;
    uint32_t i = p->at;
    err = read_ahead(r);
    if (!err)
      err = read_one(r, i, &result);
    if (!err && is_its_own(p)) /* what was read just now may have been changed by then */
      err = -ECANCELED;
    if (!err)
      put_result(r, i, &result);
  }
  if (is_its_own(p)) {
    p->head.flags |= SNAPSHOT_OWN;
    return false;
  }
  area_set_done(p->area, p->at, true);
  p->read_ns += clock_monotonic_ns() - from;
  if (err)
    ended(p, err);
  return !err && p->at < p->head.count;
}

/* The first turn. False: there is nothing to read. */
static bool begin(struct pass *p) {
  p->begun = true;
  if (!p->copied)
    p->error = pass_copy(p);
  if (p->error)
    return false;
  if (p->own || p->head.flags & SNAPSHOT_OWN) {
    pass_copy_results(p);
    return false;
  }
  take_up(p);
  if (p->at < p->head.count && !may_read(p)) {
    ended(p, -EPERM);
    return false;
  }
  if (p->head.flags & SNAPSHOT_BLOBS && p->at < p->head.count)
    blob_open(p);
  return p->at < p->head.count;
}

/* All that was to be done is. */
static void finish(struct pass *p) {
  bool whole = p->at == p->head.count && !p->refused && !p->error;
  if (!p->own && p->copied && !p->error)
    blob_close(p, whole);
  if (p->directory >= 0 && p->copied && !p->error)
    blob_find_uri(p);
  if (p->own || !whole || p->head.flags & SNAPSHOT_OWN)
    return;
  struct snapshot_area *head = area_head(p->area);
  if (__atomic_load_n(&head->finished, __ATOMIC_ACQUIRE) >= p->number)
    return;
  head->read_ns = p->read_ns;
  head->blobs = p->blobs;
  head->blob_error = p->blob_error;
  area_set_finished(p->area, p->number);
}

static void give_back(struct reader *r, struct pass *p) {
  if (r)
    pthread_mutex_lock(&r->lock);
  bool let_go = p->let_go;
  if (!let_go)
    atomic_store_explicit(&p->state, PASS_READ, memory_order_release);
  if (r)
    pthread_mutex_unlock(&r->lock);
  if (let_go)
    pass_free(p);
}

/* ---- the threads ---- */

static void put(struct line *line, struct pass *p) {
  p->queued = NULL;
  *line->last = p;
  line->last = &p->queued;
}

static struct pass *get(struct line *line) {
  struct pass *p = line->first;
  if (!p)
    return NULL;
  line->first = p->queued;
  if (!line->first)
    line->last = &line->first;
  return p;
}

static struct pass *next(struct reader *r, struct line *line) {
  struct pass *p;
  pthread_mutex_lock(&r->lock);
  while (!(p = get(line)) && !line->end)
    pthread_cond_wait(&r->changed, &r->lock);
  pthread_mutex_unlock(&r->lock);
  return p;
}

static void pass_on(struct reader *r, struct line *line, struct pass *p) {
  pthread_mutex_lock(&r->lock);
  put(line, p);
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
}

static void turn(struct reader *r, struct pass *p) {
  struct reading reading = {.reader = r, .pass = p, .buffer = r->buffer, .buffer_bytes = BUFFER_BYTES, .ahead = r->ahead};
  if (r->ahead)
    r->ahead->from = r->ahead->to = 0; /* of another pass, perhaps */
  bool more = p->begun || begin(p);
  if (more && read_some(&reading)) {
    pass_on(r, &r->read, p);
    return;
  }
  if (blob_is_open(p)) {
    pass_on(r, &r->sync, p);
    return;
  }
  finish(p);
  give_back(r, p);
}

static void *work(void *arg) {
  struct reader *r = arg;
  struct pass *p;
  while ((p = next(r, &r->read)))
    turn(r, p);
  return NULL;
}

static void *work_sync(void *arg) {
  struct reader *r = arg;
  struct pass *p;
  while ((p = next(r, &r->sync))) {
    finish(p);
    give_back(r, p);
  }
  return NULL;
}

/* Signals are for the thread of the event loop. */
static int start(struct line *line, void *(*does)(void *), struct reader *r) {
  if (line->started)
    return 0;
  sigset_t all, before;
  sigfillset(&all);
  int rc = pthread_sigmask(SIG_SETMASK, &all, &before);
  if (rc)
    return -rc;
  rc = pthread_create(&line->thread, NULL, does, r);
  line->started = rc == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* worked the other way */
  return -rc;
}

int reader_new(struct reader **out) {
  struct reader *r = calloc(1, sizeof *r);
  if (!r)
    return -ENOMEM;
  pthread_mutex_init(&r->lock, NULL); /* neither fails on Linux */
  pthread_cond_init(&r->changed, NULL);
  r->read.last = &r->read.first;
  r->sync.last = &r->sync.first;
  *out = r;
  return 0;
}

/* All of it, here. Where no thread can be had the process is asked to compute itself. */
static void take_here(struct reader *r, struct pass *p, int error) {
  struct reading reading = {
      .reader = r, .pass = p, .buffer = error ? NULL : malloc(TENSOR_BUFFER_MIN), .buffer_bytes = TENSOR_BUFFER_MIN};
  bool more = begin(p);
  if (more && !reading.buffer)
    ended(p, -ENOSYS);
  while (more && reading.buffer) {
    reading.bytes = reading.woken = 0;
    more = read_some(&reading);
  }
  finish(p);
  free(reading.buffer);
  give_back(NULL, p);
}

void reader_take(struct reader *reader, struct pass *pass) {
  atomic_store(&pass->state, PASS_QUEUED);
  pass->begun = false;
  int err = 0;
  bool here = !reader || reader->read.end;
  if (!here) {
    if (!reader->buffer) {
      reader->buffer = malloc(BUFFER_BYTES);
      reader->ahead = malloc(sizeof *reader->ahead);
    }
    err = reader->buffer ? start(&reader->read, work, reader) : -ENOMEM;
    err = err ? err : start(&reader->sync, work_sync, reader);
  }
  if (here || err)
    take_here(reader, pass, err);
  else
    pass_on(reader, &reader->read, pass);
}

void reader_let_go(struct reader *reader, struct pass *pass) {
  atomic_store(&pass->stop, true);
  bool busy = false;
  if (reader) {
    pthread_mutex_lock(&reader->lock);
    busy = atomic_load(&pass->state) == PASS_QUEUED;
    pass->let_go = busy;
    pthread_mutex_unlock(&reader->lock);
  }
  if (!busy)
    pass_free(pass);
}

static bool join(struct line *line) {
  struct timespec until;
  if (!line->started)
    return true;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += HANG_S;
  line->started = pthread_timedjoin_np(line->thread, NULL, &until) != 0;
  return !line->started;
}

/* The thread comes to its end when it has given back what is in its line: each of them at once, once `stop` is set. */
static bool end(struct reader *r, struct line *line) {
  pthread_mutex_lock(&r->lock);
  line->end = true;
  pthread_cond_broadcast(&r->changed);
  pthread_mutex_unlock(&r->lock);
  return join(line);
}

bool reader_stop(struct reader *reader) {
  if (!reader)
    return true;
  atomic_store(&reader->stop, true);
  bool ended_read = end(reader, &reader->read); /* first: it passes on to the other */
  return end(reader, &reader->sync) && ended_read;
}

void reader_free(struct reader *reader) {
  if (!reader)
    return;
  pthread_cond_destroy(&reader->changed);
  pthread_mutex_destroy(&reader->lock);
  free(reader->buffer);
  free(reader->ahead);
  free(reader);
}
