/* Which versions of the frameworks were tested, which one is here, and which of the functions that we observe it lacks.
 *
 * A version is what the package itself says in __version__ once its own body has run; nothing is imported, asked or called for it.
 * Of one that was not tested what fits is observed all the same. One line on stderr says so when there is something to record, a mark
 * (FRAMEWORK_MARK) in the store and ci.health() say what does not fit.
 *
 * With the main interpreter's GIL, but where it is said.
 */
#ifndef CIRRON_VERSIONS_H
#define CIRRON_VERSIONS_H

#include <stdbool.h>

#include "observe.h"
#include "scope.h"

#define VERSION_TEXT_MAX 32
#define VERSION_MISSING_MAX 24 /* functions that are named; of more only the number is known */

struct version {
  const char *package;
  const char *from, *to;         /* tested: "4.41", "5.24" */
  char text[VERSION_TEXT_MAX];   /* "5.24.0"; empty: it does not say, or not yet */
  bool untested;                 /* it is known, and not between the two */
  unsigned observed;             /* functions that are observed */
  unsigned missing_count, named; /* named: of them, the first are here */
  const struct probe *missing[VERSION_MISSING_MAX];
};

/* The packages themselves become part of the probe tables, and observe.c and scope.c tell us what they find and begin. */
void versions_start(void);

/* Something of the package is used that is observed without a probe. */
void versions_used(const char *package);

/* The package at place i of our list; *more is false where there is none, and the result NULL where it was not met. Good until other
 * code runs. */
const struct version *versions_at(unsigned i, bool *more);

/* Is there anything to say: not tested, or something missing? */
bool version_is_odd(const struct version *version);

/* In the child of a fork: its store has no marks yet. */
void versions_forget(void);

#endif
