/* Less detail where recording costs more than CIRRON_MAX_OVERHEAD allows.
 *
 * The agent's own cost (cost.h) is looked at about once a second. Over the bound twice in a row, the next kind of detail that there is
 * is left out, to the end of the process: it does not come back, so that one run is not a mixture that changes all the time.
 *
 *   1. CPU time of spans
 *   2. forward spans of nested modules (as CIRRON_MODULE_DEPTH=1), fetch spans of a loader's workers
 *   3. forward spans
 *   4. backward spans
 *
 * Steps, epochs, evaluation passes, data_load, optimizer_step and what the script makes itself always stay: the rules of steps rest on
 * them. Each time a mark `cirron.shed` says what is missing from then on.
 */
#ifndef CIRRON_SHED_H
#define CIRRON_SHED_H

#include <stdbool.h>

enum shed_level { SHED_NOTHING, SHED_CPU_TIME, SHED_NESTED, SHED_FORWARDS, SHED_BACKWARDS };

/* What is left out now: this and the levels before it. */
extern _Atomic unsigned shed_level;

static inline bool shed_is(enum shed_level level) {
  return __builtin_expect(__atomic_load_n((unsigned *)&shed_level, __ATOMIC_RELAXED) >= level, 0);
}

/* Once, when the settings are read. */
void shed_start(void);
void shed_forget(void); /* in the child of a fork: with all detail again */

/* The look at what was spent up to now, by the clock `now_ns`; for tests. Returns true when there is less detail from now on. */
bool shed_look(unsigned long long now_ns, unsigned long long spent_ns);

#endif
