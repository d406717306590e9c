/* The clocks of collectord, in nanoseconds. Any thread. */
#ifndef CIRRON_CLOCK_H
#define CIRRON_CLOCK_H

#include <stdint.h>

uint64_t clock_monotonic_ns(void);
int64_t clock_wall_ns(void);

/* Wall-clock time of a moment given as ticks since boot (field 22 of a stat file), by the wall clock as it is now. */
int64_t clock_wall_of_ticks(uint64_t ticks);

#endif
