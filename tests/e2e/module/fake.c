/* What the `cirron` module stands on, made for tests: keeps the stacks of open spans and writes every event into one text, which the
 * test script takes by ctypes. No ring, no segment, no collector; the real ones are tested with the real agent.
 *
 * fake_take()       the events since the last call, one a line:
 *                     push ID KIND NAME INDEX PARENT | pop ID EXCEPTION ATTRS | mark SPAN NAME TYPE VALUE KIND ATTRS | deep | refused
 * fake_session(n)   as after a fork: another session, all stacks and names are new
 * fake_off(bool)    tracing off
 * fake_snapshots(), fake_sample_rate()  what profile() asked for
 * fake_refuses(bool)  no new session after one was closed
 * fake_frameworks()   what profile() has chosen, as bits
 * fake_limit(n)     how many spans trace() shows
 * fake_watched()    the list that module_watched() gives, by ctypes.PyDLL; () for NULL
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/attach.h"
#include "agent/clock.h"
#include "agent/frameworks.h"
#include "agent/init.h"
#include "agent/keep.h"
#include "agent/keep_moves.h"
#include "agent/link.h"
#include "agent/loop.h"
#include "agent/module_watch.h"
#include "agent/observe.h"
#include "agent/py.h"
#include "agent/ring_writer.h"
#include "agent/scope.h"
#include "agent/segment.h"
#include "agent/session.h"
#include "agent/shed.h"
#include "agent/sink.h"
#include "agent/snapshot.h"
#include "agent/versions.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_NAMES 4096

EXPORT const char *fake_take(void);
EXPORT void fake_session(unsigned long prefix);
EXPORT void fake_off(int off);
EXPORT int fake_snapshots(void);
EXPORT double fake_sample_rate(void);
EXPORT void fake_refuses(int refuses);
EXPORT unsigned fake_frameworks(void);
EXPORT void fake_quiet(int quiet);
EXPORT PyObject *fake_watched(void);
EXPORT void fake_limit(unsigned spans);

struct scope {
  unsigned depth;
  uint64_t generation, serial;
  struct scope *next; /* of all that were made */
  struct span pool[SCOPE_MAX_DEPTH];
};

struct env session_env;
_Atomic unsigned shed_level;
_Atomic uint64_t link_due_ns;
static struct session session = {.prefix = 0xabcdef0000000001};
static unsigned generation = 1;
static uint64_t next_id = 1, last_serial;
static bool off, quiet, refuses;
static unsigned frameworks = ENV_FRAMEWORKS_ALL;
static char *names[MAX_NAMES];
static size_t name_lens[MAX_NAMES];
static uint32_t name_count = 1;
static char *text, *taken;
static size_t text_len, text_size;
static struct ring_segment segment;
static struct scope *_Atomic all;
static __thread struct scope *mine; /* never freed: a test is short */
static pthread_key_t key;
static volatile char busy; /* free-threaded interpreters call us at the same time */

static void lock(void) {
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
    ;
}

static void unlock(void) {
  __atomic_clear(&busy, __ATOMIC_RELEASE);
}

static void add(const char *bytes, size_t len) {
  if (text_len + len + 1 > text_size) {
    text_size = 2 * (text_len + len + 1);
    text = realloc(text, text_size);
  }
  memcpy(text + text_len, bytes, len);
  text_len += len;
  text[text_len] = 0;
}

static void add_escaped(const char *bytes, size_t len) { /* so that a line stays one, and zero bytes are seen */
  for (size_t i = 0; i < len; i++) {
    char code[8];
    unsigned char c = (unsigned char)bytes[i];
    if (c <= ' ' || c == '\\' || c == 0x7f)
      add(code, (size_t)sprintf(code, "\\x%02x", c));
    else
      add(bytes + i, 1);
  }
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  int len = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  add(line, (size_t)len);
}

const char *fake_take(void) {
  free(taken);
  taken = text ? text : strdup("");
  text = NULL;
  text_len = text_size = 0;
  return taken;
}

void fake_session(unsigned long prefix) {
  session.prefix = prefix;
  generation++;
  next_id = 1;
  name_count = 1;
}

int agent_resume(void) {
  if (refuses)
    return -EBUSY;
  session_env.enabled = true;
  off = false;
  fake_session(session.prefix + 1);
  return 0;
}

void fake_refuses(int to) {
  refuses = to != 0;
}

void frameworks_choose(unsigned bits) {
  frameworks = bits;
}

bool frameworks_allow(const char *module) {
  (void)module;
  return frameworks & (ENV_TORCH | ENV_TRANSFORMERS);
}

const char *frameworks_name(unsigned i) {
  return i == 0 ? "torch" : NULL;
}

unsigned fake_frameworks(void) {
  return frameworks;
}

void fake_off(int to) {
  off = to != 0;
}

void fake_quiet(int to) {
  quiet = to != 0;
}

PyObject *fake_watched(void) {
  PyObject *list = module_watched();
  return list ? list : py.Py_BuildValue("()");
}

/* --- session, segment, link --- */

bool session_ensure(void) {
  return true;
}

const struct session *session_get(void) {
  return off || !session_env.enabled ? NULL : &session;
}

uint64_t scope_now(void) {
  return clock_system();
}

uint64_t scope_clock(struct scope *scope) {
  (void)scope;
  return clock_system();
}

struct env_ranks session_ranks(void) {
  return env_ranks();
}

const struct session *session_seen(void) {
  return &session;
}

/* Snapshots: what profile() asked for is noted, none is ever due. */
bool snapshot_due;
unsigned snapshot_reads;
static struct snapshot_settings snapshots;

void snapshot_take(void) {
}

void snapshot_wait(unsigned what) {
  (void)what;
}

void snapshot_finish(void) {
}

void snapshot_set(const struct snapshot_settings *settings) {
  snapshots = *settings;
}

int fake_snapshots(void) {
  return (int)snapshots.mode;
}

double fake_sample_rate(void) {
  return snapshots.sample_rate;
}

struct snapshot_counts snapshot_counts(void) {
  return (struct snapshot_counts){0};
}

_Atomic bool sink_lines_due;
int (*_Atomic observe_after)(void);

void sink_set(const struct sink_settings *settings) {
  (void)settings;
}

void sink_flush(void) {
}

struct sink_counts sink_counts(void) {
  return (struct sink_counts){0};
}

/* Nothing is kept here: trace() is tested with the real agent. */
_Atomic bool keep_on;

bool keep_start(void) {
  return true;
}

size_t keep_read(enum keep_log log, uint64_t *pos, void *buf, size_t size, uint64_t *lost) {
  (void)log, (void)pos, (void)buf, (void)size, (void)lost;
  return 0;
}

const struct keep_record *keep_next(const void *buf, size_t bytes, size_t *at) {
  (void)buf, (void)bytes, (void)at;
  return NULL;
}

void keep_moves_apply(void *buf, size_t bytes, size_t from) {
  (void)buf, (void)bytes, (void)from;
}

uint64_t keep_head(enum keep_log log) {
  (void)log;
  return 0;
}

static uint64_t limit = KEEP_MAX_SPANS;

void fake_limit(unsigned spans) {
  limit = spans;
}

void keep_limit_set(uint64_t spans) {
  limit = spans;
}

uint64_t keep_limit(void) {
  return limit;
}

size_t keep_shown(const void *buf, size_t bytes) {
  (void)buf, (void)bytes;
  return 0;
}

void versions_used(const char *package) {
  (void)package;
}

const struct version *versions_at(unsigned i, bool *more) {
  (void)i;
  *more = false;
  return NULL;
}

struct keep_counts keep_counts(void) {
  return (struct keep_counts){0};
}

const char *segment_text(uint32_t id, size_t *len) {
  *len = id < name_count ? name_lens[id] : 0;
  return id && id < name_count ? names[id] : NULL;
}

void session_close(void) {
  say("close\n");
  off = true;
}

struct ring *session_rings(void) {
  return NULL;
}

unsigned segment_generation(void) {
  return generation;
}

struct ring_segment *segment_get(void) {
  return &segment;
}

uint32_t segment_name(const char *bytes, size_t len) {
  lock();
  uint32_t id = 1;
  while (id < name_count && !(name_lens[id] == len && memcmp(names[id], bytes, len) == 0))
    id++;
  if (id == name_count && id < MAX_NAMES) {
    free(names[id]);
    names[id] = malloc(len + 1);
    memcpy(names[id], bytes, len);
    name_lens[id] = len;
    name_count++;
  }
  unlock();
  return id;
}

int link_connected(void) {
  return 0;
}

void link_flush(uint64_t patience_ns, void (*nap)(const struct timespec *time)) {
  (void)patience_ns;
  (void)nap;
  say("tick\n");
}

bool attach_late(void) {
  return false;
}

bool attach_done(void) {
  return false; /* so PyInit_cirron looks for the interpreter itself */
}

/* --- scope --- */

static void thread_ended(void *scope) {
  ((struct scope *)scope)->depth = 0;
}

__attribute__((constructor)) static void begin(void) {
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "8", 1);
  setenv("CIRRON_RUN_ID", "run7", 1);
  env_read(&session_env);
  pthread_key_create(&key, thread_ended);
}

bool session_span_open(uint64_t id) {
  for (const struct scope *s = all; s; s = s->next)
    for (unsigned i = 0; i < s->depth; i++)
      if (s->pool[i].id == id)
        return true;
  return false;
}

static struct scope *make(void) {
  struct scope *s = calloc(1, sizeof *s);
  lock();
  s->next = all;
  all = s;
  unlock();
  pthread_setspecific(key, s);
  return s;
}

struct scope *scope_get(void) {
  if (off || !session_env.enabled)
    return NULL;
  if (!mine)
    mine = make();
  if (mine->generation != generation) {
    mine->depth = 0;
    mine->generation = generation;
    mine->serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
  }
  return mine;
}

struct scope *scope_peek(void) {
  return mine && mine->generation == generation ? scope_get() : NULL;
}

struct scope *scope_of(const struct span *span) {
  return (struct scope *)((char *)(span - span->place) - offsetof(struct scope, pool));
}

uint64_t scope_serial(const struct scope *scope) {
  return scope->serial;
}

uint64_t scope_thread(void) {
  return mine && mine->generation == generation ? mine->serial : 0;
}

unsigned scope_depth(const struct scope *scope) {
  return scope->depth;
}

struct span *scope_top(struct scope *scope) {
  return scope->depth ? &scope->pool[scope->depth - 1] : NULL;
}

struct span *scope_below(struct scope *scope, const struct span *span) {
  ptrdiff_t i = span - scope->pool;
  return i > 0 && i < (ptrdiff_t)scope->depth ? &scope->pool[i - 1] : NULL;
}

bool scope_holds(struct scope *scope, const struct span *span, uint64_t id) {
  return span >= scope->pool && span < scope->pool + scope->depth && span->id == id;
}

struct span *scope_push(struct scope *scope, enum span_kind kind, uint32_t name, int64_t index, uint64_t start_ns) {
  if (scope->depth == SCOPE_MAX_DEPTH - 1) {
    lock();
    say("deep\n");
    unlock();
    segment.dropped_depth++;
    return NULL;
  }
  struct span *below = scope_top(scope), *s = &scope->pool[scope->depth++];
  *s = (struct span){
      .place = (uint8_t)(s - scope->pool), .kind = (uint8_t)kind, .name = name, .index = index, .start_ns = start_ns};
  s->id = __atomic_add_fetch(&next_id, 1, __ATOMIC_RELAXED);
  s->parent = below ? below->id : SPAN_ROOT;
  if (quiet)
    return s;
  lock();
  say("push %" PRIu64 " %d ", s->id, kind);
  add_escaped(names[name], name_lens[name]);
  if (index == SPAN_NO_INDEX)
    say(" - %" PRIu64 "\n", s->parent);
  else
    say(" %" PRId64 " %" PRIu64 "\n", index, s->parent);
  unlock();
  return s;
}

void loop_pop(struct scope *scope, struct span *span, uint64_t end_ns, uint32_t exception) {
  struct span *s;
  (void)end_ns;
  do {
    s = scope_top(scope);
    scope->depth--;
    if (quiet)
      continue;
    lock();
    const char *left_by = s == span && exception ? names[exception] : "-";
    say("pop %" PRIu64 " %.*s ", s->id, s == span && exception ? (int)name_lens[exception] : 1, left_by);
    add_escaped(s->attrs ? s->attrs : "-", s->attrs ? s->attrs_len : 1);
    say("\n");
    unlock();
  } while (s != span);
}

void scope_move(struct scope *scope, uint64_t from, uint64_t since_ns, uint64_t parent) {
  for (unsigned i = 0; i < scope->depth; i++)
    if (scope->pool[i].parent == from && scope->pool[i].start_ns >= since_ns)
      scope->pool[i].parent = parent;
  say("move %" PRIu64 " %" PRIu64 "\n", from, parent);
}

void scope_close_below(struct scope *scope, struct span *span, uint64_t end_ns) {
  (void)end_ns;
  (void)scope; /* its place is not used again: enough here */
  say("below %" PRIu64 "\n", span->id);
  span->id = 0;
}

void scope_mark(struct scope *scope, uint32_t name, const struct scope_value *value, bool summary, const char *attrs,
                size_t len) {
  struct span *top = scope_top(scope);
  if (quiet)
    return;
  lock();
  say("mark %" PRIu64 " ", top ? top->id : (uint64_t)SPAN_ROOT);
  add_escaped(names[name], name_lens[name]);
  if (value->type == MARK_FLOAT)
    say(" float %.17g", value->f);
  else if (value->type == MARK_STRING)
    say(" string ");
  else
    say(" %s %" PRId64, value->type == MARK_INT ? "int" : "bool", value->i);
  if (value->type == MARK_STRING)
    add_escaped(value->text, value->text_len);
  say(" %s ", summary ? "summary" : "point");
  add_escaped(attrs ? attrs : "-", attrs ? len : 1);
  say("\n");
  unlock();
}

void scope_refused_mark(void) {
  segment.refused_marks++;
  lock();
  say("refused\n");
  unlock();
}
