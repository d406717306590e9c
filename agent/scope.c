#include "scope.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "glibc.h"
#include "hot.h"
#include "keep.h"
#include "link.h"
#include "loop.h"
#include "names.h"
#include "outlet.h"
#include "ring_writer.h"
#include "scope_own.h"
#include "segment.h"
#include "session.h"

#define ID_LOT 128
#define RETRY_NS 100000000ull
/* A call that outlives more sessions than these may find a stack where its own was; its spans have other ids. */
#define FORMER_MAX 8u

HOT_DATA _Atomic(const struct scope_chooser *) scope_chooser;

void (*scope_begun)(struct scope *scope);

static _Atomic uint64_t last_serial;
__thread struct thread *scope_mine;
HOT_DATA unsigned scope_generation;
static __thread uint64_t retry_ns; /* there was no ring for this thread; not before then again */
static pthread_key_t key;
static _Atomic bool key_made;

/* Held while a thread that ends closes what it has open, which needs no GIL: nobody may make away with the session meanwhile. */
static atomic_flag ending = ATOMIC_FLAG_INIT;

void scope_hold_ends(void) {
  while (atomic_flag_test_and_set_explicit(&ending, memory_order_acquire))
    sched_yield();
}

void scope_release_ends(void) {
  atomic_flag_clear_explicit(&ending, memory_order_release);
}

static void thread_close(struct thread *t) {
  scope_turns_end(t);
  loop_end_thread(&t->own, clock_now(&t->clock), false);
  outlet_end(&t->outlet);
  session_ring_give(t->ring);
}

/* All that are mapped; `ending` protects it. */
static struct thread *living;

static void thread_link(struct thread *t) {
  scope_hold_ends();
  t->next_living = living;
  t->living_link = &living;
  if (living)
    living->living_link = &t->next_living;
  living = t;
  scope_release_ends();
}

static void thread_unlink(struct thread *t) {
  scope_hold_ends();
  *t->living_link = t->next_living;
  if (t->next_living)
    t->next_living->living_link = t->living_link;
  scope_release_ends();
}

/* Whoever comes back to a stack of a session that has ended, from code that it has called, writes here: memory that nobody reads. */
bool scope_detach(void) {
  static struct ring nowhere;
  if (!nowhere.shm && ring_open_private(1, 1, RING_MIN_CELLS, false, NULL, &nowhere) != 0)
    return false;
  for (struct thread *t = living; t; t = t->next_living) {
    t->ring = &nowhere;
    outlet_init(&t->outlet, &nowhere, t->tid);
  }
  return true;
}

static void thread_free(struct thread *t) {
  thread_unlink(t);
  scope_turns_free(t);
  munmap(t, sizeof *t);
}

static void thread_ended(void *mine) {
  (void)mine; /* it is scope_mine */
  scope_hold_ends();
  struct thread *t = scope_thread_here();
  if (t)
    thread_close(t);
  scope_release_ends();
  t = scope_mine;
  scope_mine = NULL;
  for (struct thread *next; t; t = next) {
    next = t->former;
    thread_free(t);
  }
}

/* Interpreters with a lock each, and those without any, can come together here. */
static bool key_make(void) {
  static atomic_flag lock = ATOMIC_FLAG_INIT; /* protects the two above */
  if (atomic_load_explicit(&key_made, memory_order_acquire))
    return true;
  while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
    sched_yield();
  if (!atomic_load(&key_made))
    atomic_store_explicit(&key_made, pthread_key_create(&key, thread_ended) == 0, memory_order_release);
  atomic_flag_clear_explicit(&lock, memory_order_release);
  return key_made;
}

uint64_t scope_new_serial(void) {
  return atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
}

void scope_init(struct scope *s, struct thread *thread, uint64_t serial, uint64_t root) {
  s->thread = thread;
  s->serial = serial;
  s->root = root;
  s->free = (1ull << SCOPE_OPEN) - 1;
}

static struct thread *thread_new(void) {
  struct ring *ring = session_ring_take();
  if (!ring)
    return NULL;
  struct thread *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (t == MAP_FAILED) {
    session_ring_give(ring);
    return NULL;
  }
  t->generation = __atomic_load_n(&scope_generation, __ATOMIC_RELAXED);
  t->ring = ring;
  clock_init(&t->clock);
  scope_init(&t->own, t, scope_new_serial(), SPAN_ROOT);
  return t;
}

/* Of the thread's former ones those of long ago go. */
static void keep_former(struct thread *t) {
  t->former = scope_mine;
  for (unsigned i = 0; t && i < FORMER_MAX; i++)
    t = t->former;
  if (t && t->former) {
    thread_free(t->former); /* one more each time */
    t->former = NULL;
  }
}

COLD static struct thread *thread_make(void) {
  if (!session_ensure() || !key_make())
    return NULL;
  uint64_t now = clock_system();
  int saved = errno;
  struct thread *t = now < retry_ns ? NULL : thread_new();
  errno = saved;
  if (!t) { /* for want of memory, or because there are too many threads: not tried for each span */
    retry_ns = now < retry_ns ? retry_ns : now + RETRY_NS;
    __atomic_fetch_add(&segment_get()->dropped_rings, 1, __ATOMIC_RELAXED);
    return NULL;
  }
  t->tid = (uint32_t)syscall(SYS_gettid);
  struct ring_thread hello = {.type = RING_THREAD, .tid = t->tid, .ts_ns = now};
  ring_put(t->ring, &hello, NULL, 0, NULL, 0, true);
  outlet_init(&t->outlet, t->ring, t->tid);
  keep_former(t);
  thread_link(t);
  scope_mine = t;
  pthread_setspecific(key, t);
  if (scope_begun)
    scope_begun(&t->own);
  return t;
}

static inline struct scope *whose_turn(struct thread *t) {
  const struct scope_chooser *chooser = atomic_load_explicit(&scope_chooser, memory_order_acquire);
  return unlikely(chooser != NULL) ? chooser->choose(&t->own) : &t->own;
}

struct scope *scope_get(void) {
  struct thread *t = scope_thread_here();
  if (unlikely(!t))
    t = thread_make();
  return t ? whose_turn(t) : NULL;
}

struct scope *scope_peek(void) {
  struct thread *t = scope_thread_here();
  return t ? whose_turn(t) : NULL;
}

uint64_t scope_thread(void) {
  const struct thread *t = scope_thread_here();
  return t ? t->own.serial : 0;
}

struct scope *scope_of(const struct span *span) {
  return (struct scope *)((char *)(span - span->place) - offsetof(struct scope, pool));
}

struct scope *scope_own(void) {
  struct thread *t = scope_thread_here();
  return t ? &t->own : NULL;
}

uint64_t scope_serial(const struct scope *scope) {
  return scope->serial;
}

struct loop *scope_loop(struct scope *scope) {
  return &scope->loop;
}

struct name_cache *scope_names(struct scope *scope) {
  return &scope->thread->names;
}

HOT uint64_t scope_clock(struct scope *scope) {
  return clock_now(&scope->thread->clock);
}

uint64_t scope_now(void) {
  struct thread *t = scope_thread_here();
  return t ? clock_now(&t->clock) : clock_system();
}

struct span *scope_top(struct scope *scope) {
  return scope->depth ? scope->stack[scope->depth - 1] : NULL;
}

unsigned scope_depth(const struct scope *scope) {
  return scope->depth;
}

HOT static inline int place(const struct scope *scope, const struct span *span) {
  int i = (int)scope->depth - 1;
  while (i >= 0 && scope->stack[i] != span)
    i--;
  return i;
}

struct span *scope_below(struct scope *scope, const struct span *span) {
  int i = place(scope, span);
  return i > 0 ? scope->stack[i - 1] : NULL;
}

struct span *scope_above(struct scope *scope, const struct span *span) {
  int i = place(scope, span);
  return i >= 0 && i + 1 < (int)scope->depth ? scope->stack[i + 1] : NULL;
}

bool scope_is_above(struct scope *scope, const struct span *inner, const struct span *outer) {
  int i = place(scope, outer);
  return i >= 0 && place(scope, inner) > i;
}

COLD static struct span *find(struct scope *scope, enum span_kind kind) {
  for (unsigned i = scope->depth; i-- > 0;)
    if (scope->stack[i]->kind == kind)
      return scope->stack[i];
  return NULL;
}

HOT struct span *scope_find(struct scope *scope, enum span_kind kind) {
  return unlikely(scope->open[kind]) ? find(scope, kind) : NULL;
}

unsigned scope_count(const struct scope *scope, enum span_kind kind) {
  return scope->open[kind];
}

void scope_rename(struct scope *scope, struct span *span, enum span_kind kind, uint32_t name, int64_t index) {
  scope->open[span->kind]--;
  scope->open[kind]++;
  span->kind = (uint8_t)kind;
  span->name = name;
  span->index = index;
  scope_refresh(scope, span);
}

HOT bool scope_holds(struct scope *scope, const struct span *span, uint64_t id) {
  return place(scope, span) >= 0 && span->id == id;
}

int64_t scope_cpu_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Ids are taken from the process's counter in small lots: an atomic addition waits for all that was stored before it. */
HOT static uint64_t new_id(struct thread *t) {
  if (unlikely(t->next_id == t->end_id)) {
    outlet_tend(&t->outlet);
    t->next_id = session_take_ids(ID_LOT);
    t->end_id = t->next_id + ID_LOT;
  }
  return t->next_id++;
}

/* The slot's fields are stored straight from the span's: a copy built in between would be read back before it has settled. */
static inline void slot_fill(struct ring_open *entry, const struct span *s) {
  __atomic_store_n(&entry->parent, s->parent, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->start_ns, s->start_ns, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->index, s->index, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->name, s->name, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->module, s->module, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->kind, s->kind, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->flags, s->flags, __ATOMIC_RELEASE);
}

HOT static inline void show(struct scope *scope, struct span *s) {
  struct thread *t = scope->thread;
  struct ring_open *entry = ring_claim_slot(t->ring, &s->slot);
  if (unlikely(!entry))
    return;
  slot_fill(entry, s);
  __atomic_store_n(&entry->depth, (uint16_t)scope->depth, __ATOMIC_RELAXED);
  __atomic_store_n(&entry->tid, t->tid, __ATOMIC_RELAXED);
  ring_show_slot(entry, s->id);
}

HOT void scope_refresh(struct scope *scope, const struct span *s) {
  if (s->slot >= 0)
    slot_fill(&scope->thread->ring->open[s->slot], s);
}

HOT struct span *scope_push_of(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns,
                               uint32_t class, uint8_t flags) {
  if (unlikely(scope->depth == SCOPE_OPEN)) {
    __atomic_fetch_add(&segment_get()->dropped_depth, 1, __ATOMIC_RELAXED);
    return NULL;
  }
  unsigned at = (unsigned)__builtin_ctzll(scope->free);
  struct span *below = scope_top(scope), *s = &scope->pool[at];
  __asm__("" : "+r"(s)); /* or the compiler reckons it anew for each field */
  scope->free &= ~(1ull << at);
  if (below)
    below->has_children = true;
  /* One by one: clearing the whole of it first would cost a tenth of the span. */
  s->id = new_id(scope->thread);
  s->parent = below ? below->id : scope->root;
  s->start_ns = start_ns;
  s->index = index;
  s->cpu_ns = unlikely(session_env.cpu_time == ENV_CPU_ON) ? scope_cpu_clock() : SPAN_NO_TIME;
  s->cpu_end_ns = SPAN_NO_TIME;
  s->name = name;
  s->module = class;
  s->kind = (uint8_t)kind;
  s->flags = flags;
  s->has_children = false;
  s->place = (uint8_t)at;
  s->attrs = NULL;
  s->attrs_len = 0;
  s->owner = NULL;
  show(scope, s);
  scope->stack[scope->depth++] = s;
  scope->open[kind]++;
  scope->pushed_ns = start_ns;
  return s;
}

HOT struct span *scope_push(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns) {
  return scope_push_of(scope, kind, name, index, start_ns, 0, 0);
}

COLD static int64_t cpu_time(const struct span *s) {
  return (s->cpu_end_ns != SPAN_NO_TIME ? s->cpu_end_ns : scope_cpu_clock()) - s->cpu_ns;
}

static inline void fill(struct ring_span *record, const struct span *s, uint64_t end_ns, uint32_t exception) {
  *record = (struct ring_span){
      .type = RING_SPAN,
      .kind = s->kind,
      .flags = (uint8_t)((s->flags & ~SPAN_DOUBTFUL) | (exception ? SPAN_ERROR : 0)),
      .name = s->name,
      .id = s->id,
      .parent = s->parent,
      .start_ns = s->start_ns,
      .end_ns = end_ns < s->start_ns ? s->start_ns : end_ns,
      .index = s->index,
      .cpu_ns = likely(s->cpu_ns == SPAN_NO_TIME) ? SPAN_NO_TIME : cpu_time(s),
      .module = s->module,
      .exception = exception,
  };
}

/* With attributes, or where records are kept in this process, too: apart, but as quick. */
__attribute__((noinline)) static void put_more(struct thread *t, const struct span *s, uint64_t end_ns, uint32_t exception,
                                               bool structural) {
  struct ring_span record, *cell = s->attrs_len ? NULL : outlet_claim(&t->outlet, structural, s->start_ns);
  fill(&record, s, end_ns, exception);
  if (keep_wanted())
    keep_put(&record, t->tid, s->attrs, s->attrs_len, NULL, 0);
  if (s->attrs_len) {
    outlet_put(&t->outlet, &record, s->attrs, s->attrs_len, NULL, 0, structural, s->start_ns);
  } else if (cell) {
    *cell = record;
    ring_commit(t->outlet.ring);
  }
}

HOT static void put(struct scope *scope, const struct span *s, uint64_t end_ns, uint32_t exception) {
  struct thread *t = scope->thread;
  bool structural = s->kind >= SPAN_SESSION && s->kind <= SPAN_STEP;
  if (unlikely(s->attrs_len || keep_wanted())) {
    put_more(t, s, end_ns, exception, structural);
    return;
  }
  struct ring_span *record = outlet_claim(&t->outlet, structural, s->start_ns);
  if (unlikely(!record))
    return; /* no room in the ring, which is counted there */
  fill(record, s, end_ns, exception);
  ring_commit(t->outlet.ring);
}

COLD static void close_gap(struct scope *scope, unsigned at) {
  for (unsigned k = at; k < scope->depth; k++)
    scope->stack[k] = scope->stack[k + 1];
}

/* Forgets an open span whose record, if it has one, is written: frees its place. */
HOT static inline void drop(struct scope *scope, int i) {
  struct span *s = scope->stack[i];
  ring_close_slot(scope->thread->ring, s->slot);
  scope->free |= 1ull << s->place;
  scope->open[s->kind]--;
  scope->depth--;
  if (unlikely((unsigned)i != scope->depth))
    close_gap(scope, (unsigned)i);
}

HOT void scope_pop(struct scope *scope, struct span *span, uint64_t end_ns, uint32_t exception) {
  struct span *top;
  do {
    top = scope_top(scope);
    if (unlikely(!top))
      return;
    put(scope, top, end_ns, top == span ? exception : 0);
    loop_closed(&scope->loop, top, end_ns);
    drop(scope, (int)scope->depth - 1);
  } while (unlikely(top != span));
  if (unlikely(end_ns >= atomic_load_explicit(&link_due_ns, memory_order_relaxed)))
    link_tick(end_ns);
}

HOT void scope_close_below(struct scope *scope, struct span *span, uint64_t end_ns) {
  put(scope, span, end_ns, 0);
  loop_closed(&scope->loop, span, end_ns);
  if (scope->loop.step)
    scope->loop.step->has_children = true; /* what is above it */
  drop(scope, place(scope, span));
}

static void move_open(struct scope *scope, uint64_t from, uint64_t since_ns, uint64_t parent) {
  for (unsigned i = 0; i < scope->depth; i++) {
    struct span *s = scope->stack[i];
    if (s->parent == from && s->start_ns >= since_ns && s->id != parent) {
      s->parent = parent;
      scope_refresh(scope, s);
    }
  }
}

/* In stacks that were begun in `from`, too; and if that never was, in those that are still to be begun. */
static void move_turns(struct thread *t, uint64_t from, uint64_t since_ns, uint64_t parent) {
  const struct scope_chooser *chooser = atomic_load_explicit(&scope_chooser, memory_order_acquire);
  for (struct scope *s = t->turns; s; s = s->next) {
    move_open(s, from, since_ns, parent);
    if (since_ns == 0 && s->root == from)
      s->root = parent;
  }
  if (chooser && since_ns == 0)
    chooser->moved(from, parent);
}

void scope_move(struct scope *scope, uint64_t from, uint64_t since_ns, uint64_t parent) {
  struct thread *t = scope->thread;
  struct ring_move move = {.type = RING_MOVE, .span = from, .parent = parent, .since_ns = since_ns};
  outlet_put(&t->outlet, &move, NULL, 0, NULL, 0, true, 0);
  if (keep_wanted())
    keep_put(&move, t->tid, NULL, 0, NULL, 0);
  move_open(&t->own, from, since_ns, parent);
  move_turns(t, from, since_ns, parent);
}

struct span *scope_insert(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns,
                          uint64_t under) {
  unsigned at = scope->depth;
  while (at > 0 && scope->stack[at - 1]->start_ns > start_ns)
    at--;
  if ((at ? scope->stack[at - 1]->id : scope->root) != under || !scope_alone(scope, under, start_ns))
    return NULL;
  struct span *s = scope_push(scope, kind, name, index, start_ns);
  if (!s)
    return NULL;
  for (unsigned i = scope->depth - 1; i > at; i--)
    scope->stack[i] = scope->stack[i - 1];
  scope->stack[at] = s;
  s->parent = under;
  s->has_children = true;
  scope_refresh(scope, s);
  scope_move(scope, under, start_ns, s->id);
  return s;
}

void scope_replace(struct scope *scope, struct span *outer, struct span *inner) {
  scope_move(scope, outer->id, 0, inner->id);
  inner->parent = outer->parent;
  inner->start_ns = outer->start_ns;
  inner->has_children = true;
  drop(scope, place(scope, outer));
  scope_refresh(scope, inner);
}

void scope_dissolve(struct scope *scope, struct span *span) {
  if (span->has_children) {
    struct span *below = scope_below(scope, span);
    if (below)
      below->has_children = true;
    scope_move(scope, span->id, 0, span->parent);
  }
  drop(scope, place(scope, span));
}

void scope_mark(struct scope *scope, uint32_t name, const struct scope_value *value, bool summary, const char *attrs,
                size_t len) {
  scope_mark_of(scope, scope_innermost(scope), name, value, summary, attrs, len);
}

void scope_mark_of(struct scope *scope, uint64_t span, uint32_t name, const struct scope_value *value, bool summary,
                   const char *attrs, size_t len) {
  uint64_t now = scope_clock(scope);
  struct ring_mark record = {
      .type = RING_MARK,
      .value_type = (uint8_t)value->type,
      .flags = summary ? MARK_SUMMARY : 0,
      .name = name,
      .id = new_id(scope->thread),
      .span = span,
      .ts_ns = now,
  };
  if (value->type == MARK_FLOAT)
    record.value.f = value->f;
  else
    record.value.i = value->i;
  const char *text = value->type == MARK_STRING ? value->text : NULL;
  size_t text_len = text ? value->text_len : 0;
  outlet_put(&scope->thread->outlet, &record, text, text_len, attrs, len, false, UINT64_MAX);
  if (keep_wanted())
    keep_put(&record, scope->thread->tid, text, text_len, attrs, attrs ? len : 0);
  if (now >= atomic_load_explicit(&link_due_ns, memory_order_relaxed))
    link_tick(now);
}

void scope_refused_mark(void) {
  struct ring_segment *segment = segment_get();
  if (segment)
    __atomic_fetch_add(&segment->refused_marks, 1, __ATOMIC_RELAXED);
}

void scope_end_session(void) {
  struct thread *t = scope_thread_here();
  if (t)
    thread_close(t);
  __atomic_fetch_add(&scope_generation, 1, __ATOMIC_RELAXED);
}

void scope_forget(void) {
  scope_mine = NULL; /* the memory is a copy of the parent's, and small */
  retry_ns = 0;
  if (key_made)
    pthread_setspecific(key, NULL);
  living = NULL;
  scope_release_ends(); /* a thread that is not here may have held it */
}
