/* See shed.h. */
#include "shed.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cost.h"
#include "hot.h"
#include "scope.h"
#include "segment.h"
#include "session.h"

#define WINDOW_NS 1000000000ull
#define WINDOWS 2u /* in a row over the bound, before something is left out */

HOT_DATA _Atomic unsigned shed_level;

static struct {
  unsigned long long begun_ns, spent_ns; /* of the present window */
  unsigned over;                         /* windows in a row */
  unsigned ppm;                          /* share of the time in the last of them */
} window;

static atomic_flag looking = ATOMIC_FLAG_INIT; /* protects the above; never waited for */

static struct {
  enum env_cpu_time cpu_time;
  unsigned module_depth;
  bool workers;
} asked; /* the settings as they were */

static const char *const missing[] = {
    [SHED_CPU_TIME] = "CPU time of spans",
    [SHED_NESTED] = "forward spans of nested modules, fetch spans",
    [SHED_FORWARDS] = "forward spans",
    [SHED_BACKWARDS] = "backward spans",
};

/* Is there anything of this level to leave out? */
static bool has(unsigned level) {
  switch (level) {
  case SHED_CPU_TIME:
    return session_env.cpu_time != ENV_CPU_OFF;
  case SHED_NESTED:
    return session_env.module_depth > 1 || session_env.workers;
  default:
    return true;
  }
}

static void leave_out(unsigned level) {
  if (level == SHED_CPU_TIME)
    session_env.cpu_time = ENV_CPU_OFF;
  if (level == SHED_NESTED) {
    session_env.module_depth = 1;
    session_env.workers = false;
  }
  shed_level = level;
}

static bool next_level(void) {
  unsigned level = shed_level + 1;
  while (level <= SHED_BACKWARDS && !has(level))
    level++;
  if (level > SHED_BACKWARDS)
    return false;
  leave_out(level);
  return true;
}

bool shed_look(unsigned long long now_ns, unsigned long long spent_ns) {
  unsigned long long past = now_ns - window.begun_ns, spent = spent_ns - window.spent_ns;
  bool first = window.begun_ns == 0;
  if (!first && past < WINDOW_NS)
    return false;
  window.begun_ns = now_ns;
  window.spent_ns = spent_ns;
  if (first)
    return false;
  double share = (double)spent / (double)past;
  window.over = share * 100 > session_env.max_overhead ? window.over + 1 : 0;
  if (window.over < WINDOWS)
    return false;
  window.over = 0;
  window.ppm = (unsigned)(share * 1e6);
  return next_level();
}

static void say(struct scope *scope) {
  char attrs[96];
  const char *text = missing[shed_level];
  struct scope_value value = {.type = MARK_STRING, .text = text, .text_len = strlen(text)};
  int n = snprintf(attrs, sizeof attrs, "{\"level\":%u,\"cost_ppm\":%u}", shed_level, window.ppm);
  scope_mark(scope, segment_name(SHED_MARK, strlen(SHED_MARK)), &value, false, attrs, (size_t)n);
}

static void watch(void) {
  struct scope *scope = scope_peek();
  struct ring_segment *segment = segment_get();
  if (!scope || !segment || atomic_flag_test_and_set(&looking))
    return;
  if (shed_look(clock_system(), __atomic_load_n(&segment->overhead_ns, __ATOMIC_RELAXED)))
    say(scope);
  atomic_flag_clear(&looking);
}

void shed_start(void) {
  asked.cpu_time = session_env.cpu_time;
  asked.module_depth = session_env.module_depth;
  asked.workers = session_env.workers;
  if (session_env.max_overhead > 0)
    cost_watch = watch;
}

void shed_forget(void) {
  session_env.cpu_time = asked.cpu_time;
  session_env.module_depth = asked.module_depth;
  session_env.workers = asked.workers;
  shed_level = SHED_NOTHING;
  memset(&window, 0, sizeof window);
  atomic_flag_clear(&looking);
}
