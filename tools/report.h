/* The facts of a report: gathered once (report_facts.c, report_marks.c), then told as text or as JSON. */
#ifndef CIRRON_REPORT_H
#define CIRRON_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/ring_abi.h"
#include "cli.h"
#include "first_bad.h"
#include "moment.h"
#include "overhead.h"
#include "pick.h"

enum report_phase { REPORT_DATA, REPORT_FORWARD, REPORT_BACKWARD, REPORT_OPTIMIZER, REPORT_OTHER, REPORT_PHASES };

#define REPORT_NO_INDEX INT64_MIN

struct report_step {
  bool found;
  uint64_t span;
  int64_t index, epoch_index; /* or REPORT_NO_INDEX */
  int64_t start_ns, duration_ns;
  int64_t phase_ns[REPORT_PHASES];
  bool error;
};

struct report_epoch {
  uint64_t span, parent;
  bool eval;
  int64_t index, start_ns, end_ns; /* end_ns 0: no end */
  int64_t duration_ns;             /* up to now, or the end of the process, where there is no end */
  int64_t steps, step_ns, data_ns, median_ns;
  int64_t evals, eval_ns; /* evaluation passes in it */
};

struct report_value { /* marks of one name that are numbers */
  char *name;
  size_t name_len;
  uint32_t id;
  int64_t count, finite;
  double first, last, min, max; /* min and max of the finite ones */
  int64_t bad_count;
  double bad; /* the first that is not finite */
  uint64_t bad_mark;
  int64_t bad_ts_ns;
  struct moment bad_at;
  bool has_good; /* before it, the latest that is */
  double good;
  uint64_t good_mark;
  int64_t good_ts_ns;
};

struct report_scope { /* spans of one name */
  char *name;
  size_t name_len;
  int kind;
  int64_t count, errors, total_ns, self_ns, min_ns, max_ns, median_ns;
};

struct report_open {   /* a span without an end; outermost first */
  char *name, *module; /* module may be NULL */
  size_t name_len, module_len;
  int kind;
  int64_t index, start_ns;
};

struct report_loss {
  char *reason;
  int64_t count;
};

struct report_error { /* spans of one name that an exception left */
  char *name;
  size_t name_len;
  int64_t count;
};

struct report_shed { /* detail that the agent left out from some moment on, because it cost too much */
  char *what;
  size_t what_len;
  int64_t ts_ns;
  double share; /* its own cost by then */
};

struct report_framework { /* of a version that was not tested, or without functions that should be observed */
  char *package, *version, *tested;
  bool in_range;
  int64_t observed;
  char **missing;
  size_t missing_count;
};

struct report_rank { /* of a job of several */
  const struct pick_session *session;
  int64_t steps, step_ns, data_ns;
};

struct report {
  const struct pick_session *session;
  const struct pick_session *sessions; /* all that were picked */
  size_t sessions_count;
  int64_t now_ns; /* end of the session, or of what is known of it */
  int64_t duration_ns;

  const char *unit; /* "step" or "batch": what is counted below */
  int64_t steps, step_ns, step_errors, median_ns;
  int64_t phase_ns[REPORT_PHASES];
  int64_t kinds[SPAN_KINDS];                 /* spans of each kind */
  int64_t first_data_ns;                     /* waited in the first step of each epoch */
  struct report_step first, median, slowest; /* slowest: after the first */
  int64_t first_start_ns, last_end_ns;       /* of steps; 0: none */

  struct report_epoch *epochs; /* training epochs and evaluation passes, by begin */
  size_t epochs_count, training_epochs, evals;
  int64_t before_ns, eval_ns, after_ns, between_ns; /* outside of steps */

  struct report_value *values;
  size_t values_count;
  int64_t other_marks; /* texts and truth values */
  struct report_scope *scopes;
  size_t scopes_count;

  struct report_open *open; /* the chain that was open in the thread that trains, or the main thread */
  size_t open_count;
  int64_t unfinished; /* spans without an end in all threads, without the root */
  struct report_loss *losses;
  size_t losses_count;
  int64_t lost;

  struct report_error *errors; /* most first */
  size_t errors_count;

  struct report_rank *ranks;
  size_t ranks_count;
  struct first_bad tensors; /* of snapshots; `passes` in it are all that there are */

  struct report_shed *sheds;
  size_t sheds_count;
  struct report_framework *frameworks;
  size_t frameworks_count;
  struct overhead overhead; /* of an overhead check */
};

void report_gather(const struct cli *cli, const struct pick_session *sessions, size_t count, const struct pick_session *session,
                   struct report *out);
void report_fini(struct report *report);

/* report_marks.c: fills values and other_marks, of out->session alone. */
void report_marks(const struct cli *cli, struct report *out);

/* Of the values the one that was not finite first; NULL: all were. */
const struct report_value *report_first_bad(const struct report *report);

/* In words: how it ended, or what it does now; whether all is there; how much is waited for data. Used by both forms. */
void report_say_ending(const struct report *report, bool utf8, struct buf *out);
void report_say_complete(const struct report *report, bool utf8, struct buf *out);
bool report_say_waiting(const struct report *report, struct buf *verdict, struct buf *hint); /* false: nothing is known */
/* What there is no telling of, and why. False: nothing. */
bool report_say_unseen(const struct report *report, struct buf *out);
/* "data_load"'s names for machines and people. */
const char *report_phase_name(enum report_phase phase, bool machine);
/* The phase that makes `step` slow against the median step, and by how much; REPORT_PHASES: none. */
enum report_phase report_culprit(const struct report *report, const struct report_step *step, int64_t *excess_ns);
bool report_complete(const struct report *report);

/* Returns 0 or a negative errno from writing to stdout. */
int report_text(const struct cli *cli, const struct report *report);
json_t *report_json(const struct report *report);

#endif
