/* See check.h. Everything here runs with the GIL held. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "loop.h"
#include "observe.h"
#include "observe_swap.h"
#include "observe_table.h"
#include "scope.h"
#include "segment.h"
#include "session.h"

#define BLOCK_NS 20000000ull /* a block is to last that long: many short pairs say more than few long ones, */
#define BLOCK_LEAST 4u       /* but for these numbers of updates */
#define BLOCK_MOST 100000u
#define REST 2u         /* updates after the begin of a pass that belong to no block: the pass shows what it is */
#define CALIBRATION 32u /* updates from which the length of blocks is taken */
#define LEAD_PART 4u    /* so much comes before a block and is left out: call sites and caches get used to the change */

/* RESTING, then once CALIBRATING, then LEADING and MEASURING in turns. */
enum phase { RESTING, CALIBRATING, LEADING, MEASURING };

static struct {
  const void *owner; /* the thread that trains */
  bool hopeless;     /* there are several */
  bool paused;       /* functions are not observed now */
  bool stepped;      /* there was an update since the last boundary */
  enum phase phase;
  unsigned updates, wanted;              /* in this phase, and when it ends */
  unsigned length;                       /* updates of a block; 0: not known yet */
  unsigned turn;                         /* of the block: on, off, off, on, ... */
  unsigned rested_pairs, rested_updates; /* since the last rest */
  uint64_t begun_ns;
  int64_t begun_cpu_ns; /* of the thread: says more than the time where the machine has other work */
  struct block {
    uint64_t ns;
    int64_t cpu_ns;
    unsigned steps;
  } off, on; /* of this pair */
} check;

static __thread unsigned updating; /* a subclass's step calls that of its base */

static void pause_set(bool paused) {
  if (check.paused == paused)
    return;
  check.paused = paused;
  observe_pause(paused);
}

static void enter(enum phase phase, unsigned wanted, uint64_t now) {
  check.phase = phase;
  check.updates = 0;
  check.wanted = wanted;
  check.begun_ns = now;
}

/* Something other than a step follows. Where there is never time for two pairs of blocks, they have to be shorter. */
static void rest(void) {
  pause_set(false);
  if (check.phase == RESTING)
    return;
  if (check.length && check.rested_pairs < 2 && check.rested_updates >= 6 * BLOCK_LEAST &&
      check.rested_updates / 6 < check.length)
    check.length = check.rested_updates / 6;
  check.rested_pairs = check.rested_updates = 0;
  check.turn &= ~1u; /* half a pair is none */
  enter(RESTING, REST, 0);
}

static void put_pair(struct scope *scope) {
  char attrs[320];
  double on = (double)check.on.ns / check.on.steps, off = (double)check.off.ns / check.off.steps;
  struct scope_value value = {.type = MARK_FLOAT, .f = on - off};
  int n = snprintf(attrs, sizeof attrs,
                   "{\"observed_ns\":%llu,\"observed_cpu_ns\":%lld,\"observed_steps\":%u,"
                   "\"unobserved_ns\":%llu,\"unobserved_cpu_ns\":%lld,\"unobserved_steps\":%u}",
                   (unsigned long long)check.on.ns, (long long)check.on.cpu_ns, check.on.steps,
                   (unsigned long long)check.off.ns, (long long)check.off.cpu_ns, check.off.steps);
  scope_mark(scope, segment_name(OVERHEAD_CHECK_MARK, strlen(OVERHEAD_CHECK_MARK)), &value, false, attrs, (size_t)n);
  check.rested_pairs++;
}

static void block_begin(uint64_t now) {
  unsigned lead = check.length / LEAD_PART;
  pause_set((check.turn & 3) == 1 || (check.turn & 3) == 2);
  enter(LEADING, lead < 2 ? 2 : lead, now);
}

static void block_end(struct scope *scope, uint64_t now) {
  *(check.paused ? &check.off : &check.on) =
      (struct block){now - check.begun_ns, scope_cpu_clock() - check.begun_cpu_ns, check.updates};
  if (check.turn & 1)
    put_pair(scope);
  check.turn++;
  block_begin(now);
}

static void calibrated(uint64_t now) {
  uint64_t each = (now - check.begun_ns) / check.updates, length = BLOCK_NS / (each ? each : 1) + 1;
  check.length = length < BLOCK_LEAST ? BLOCK_LEAST : length > BLOCK_MOST ? BLOCK_MOST : (unsigned)length;
  block_begin(now);
}

/* Between two steps, if there was one. A phase that cannot end here ends at a later one. */
static void boundary(struct scope *scope, const void *iterator) {
  bool due = check.stepped && check.updates >= check.wanted;
  check.stepped = false;
  if (!due || check.hopeless || (!check.paused && !loop_quiet(scope, iterator)))
    return;
  uint64_t now = clock_system();
  switch (check.phase) {
  case RESTING:
    if (check.length)
      block_begin(now);
    else
      enter(CALIBRATING, CALIBRATION, now);
    break;
  case CALIBRATING:
    calibrated(now);
    break;
  case LEADING:
    enter(MEASURING, check.length, now);
    check.begun_cpu_ns = scope_cpu_clock();
    check.begun_ns = clock_system();
    break;
  case MEASURING:
    block_end(scope, now);
    break;
  }
}

static void updated(void) {
  struct scope *scope = scope_peek();
  if (!check.owner)
    check.owner = &updating;
  if (check.owner != &updating) {
    check.hopeless = true;
    rest();
  }
  if (!scope || check.hopeless)
    return;
  check.updates++;
  check.rested_updates++;
  check.stepped = true;
  if (scope_loop(scope)->pass_count == 0 && scope_loop(scope)->run_count == 0)
    boundary(scope, NULL);
}

static void asked(const void *iterator) {
  struct scope *scope = scope_peek();
  if (scope && check.owner == &updating)
    boundary(scope, iterator);
}

static PyObject *check_call(PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  const struct probe *probe = observe_find(function);
  enum observe_pace pace = probe ? probe->pace : OBSERVE_NO_PACE;
  bool has_self = (nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET) > 0;
  if (pace == OBSERVE_PASS)
    rest();
  else if (pace == OBSERVE_REQUEST && has_self)
    asked(args[0]);
  unsigned around = updating;
  if (pace == OBSERVE_UPDATE)
    updating = around + 1;
  bool paused = check.paused && pace != OBSERVE_ALWAYS;
  PyObject *result = paused ? observe_original(function, args, nargsf, kwnames) : observe_run(function, args, nargsf, kwnames);
  if (pace == OBSERVE_UPDATE)
    updating = around;
  if (pace == OBSERVE_UPDATE && around == 0 && result)
    updated();
  if (pace == OBSERVE_REQUEST && !result) {
    rest();
    if (paused && has_self && py_exception_is_stop())
      loop_pass_end(args[0], true);
  }
  return result;
}

void check_start(void) {
  if (session_env.overhead_check && !py.free_threaded)
    observe_paced = check_call;
  check.wanted = REST;
}

void check_forget(void) {
  pause_set(false);
  memset(&check, 0, sizeof check);
  check.wanted = REST;
  updating = 0;
}
