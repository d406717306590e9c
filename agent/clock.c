/* See clock.h. */
#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SOURCE_FILE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
/* A look is off by up to 100 ns: over the first time that is 20 millionths. The rate is taken again and again, because the system's
 * clock is steered, but not over a time in which the machine may have slept unseen. */
#define RATE_LEAST_NS 5000000u
#define RATE_GOOD_NS 1000000000u
#define RATE_OLD_HORIZONS 400u
#define RATE_OLD_NS ((uint64_t)RATE_OLD_HORIZONS * CLOCK_HORIZON_NS) /* what a rate and that time make fits in 64 bits */
/* More than that between two looks is no steering: the machine slept, or goes on on another one. */
#define DRIFT_NS 2000u
#define DRIFT_PART 1024u
/* A look at both clocks that takes longer than that is tried again, or is none. */
#define LOOK_TICKS 1000u
#define LOOK_TICKS_MOST 8192u

static struct { uint64_t ticks, ns; } start;

uint64_t clock_system(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Both clocks at one instant: the tightest of a few bracketed readings, mostly the first. False: each was interrupted. */
static bool both(uint64_t *ticks, uint64_t *ns) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < 3 && best > LOOK_TICKS; i++) {
    uint64_t before = clock_ticks(), now = clock_system(), took = clock_ticks() - before;
    if (took < best) {
      best = took;
      *ns = now;
      *ticks = before + took / 2;
    }
  }
  return best <= LOOK_TICKS_MOST;
}

void clock_start(void) {
  (void)both(&start.ticks, &start.ns);
}

uint64_t clock_ticks_ns(uint64_t ticks) {
  uint64_t past_ns = clock_system() - start.ns, past = clock_ticks() - start.ticks;
  return past ? (uint64_t)((double)ticks * (double)past_ns / (double)past) : 0;
}

/* The kernel watches the counter: it takes another source where processors disagree or the pace changes. */
static bool counter_is_source(void) {
#ifdef __x86_64__
  char name[4] = "";
  int fd = open(SOURCE_FILE, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, name, sizeof name);
  if (fd >= 0)
    close(fd);
  return n == 4 && memcmp(name, "tsc\n", 4) == 0;
#else
  return false;
#endif
}

static bool counter_trusted(void) {
  static _Atomic int known; /* 0: not yet, 1: no, 2: yes */
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (!is) {
    int saved = errno;
    is = counter_is_source() ? 2 : 1;
    errno = saved;
    atomic_store_explicit(&known, is, memory_order_relaxed);
  }
  return is == 2;
}

/* Takes the rate anew from here on. Until it is known each reading is a look. */
static void begin(struct clock *c, uint64_t ticks, uint64_t ns) {
  *c = (struct clock){.last = c->last, .from_ticks = ticks, .from_ns = ns};
}

void clock_init(struct clock *clock) {
  *clock = (struct clock){0};
  uint64_t ticks = 0, ns = 0;
  if (counter_trusted() && both(&ticks, &ns))
    begin(clock, ticks, ns);
}

/* Has the counter gone another way than the system's clock since the last look? Nothing is concluded from one that is too old. */
static bool parted(const struct clock *c, uint64_t ticks, uint64_t ns) {
  if (ticks < c->ticks)
    return true;
  if (ns - c->ns > RATE_OLD_NS || (ticks - c->ticks) / RATE_OLD_HORIZONS > c->horizon)
    return false;
  uint64_t said = c->ns + ((ticks - c->ticks) * c->rate >> 32), allowed = DRIFT_NS + (ns - c->ns) / DRIFT_PART;
  return said > ns + allowed || ns > said + allowed;
}

static void rate_take(struct clock *c, uint64_t ticks, uint64_t ns) {
  uint64_t age = ns - c->from_ns;
  bool fresh = age <= RATE_OLD_NS;
  if (fresh && age >= (c->rate ? RATE_GOOD_NS : RATE_LEAST_NS) && ticks > c->from_ticks) {
    c->rate = (uint64_t)((double)age / (double)(ticks - c->from_ticks) * 4294967296.0);
    c->horizon = c->rate ? ((uint64_t)CLOCK_HORIZON_NS << 32) / c->rate : 0;
  }
  if (!fresh || age >= RATE_GOOD_NS) {
    c->from_ticks = ticks;
    c->from_ns = ns;
  }
}

uint64_t clock_look(struct clock *c) {
  uint64_t ticks = 0, ns = 0;
  if (!c->from_ns)
    return clock_system();
  if (both(&ticks, &ns)) {
    if (c->rate && parted(c, ticks, ns))
      begin(c, ticks, ns);
    rate_take(c, ticks, ns);
    c->ticks = ticks;
    c->ns = ns;
  }
  return c->last = ns > c->last ? ns : c->last;
}
