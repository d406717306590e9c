#include "clock.h"

#include <time.h>
#include <unistd.h>

static uint64_t read_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_monotonic_ns(void) {
  return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void) {
  return (int64_t)read_ns(CLOCK_REALTIME);
}

int64_t clock_wall_of_ticks(uint64_t ticks) {
  long hz = sysconf(_SC_CLK_TCK);
  int64_t since_boot = (int64_t)read_ns(CLOCK_BOOTTIME);
  return clock_wall_ns() - since_boot +
         (int64_t)(ticks / (uint64_t)hz * 1000000000u + ticks % (uint64_t)hz * (1000000000u / (uint64_t)hz));
}
