/* Where what is kept (keep.h) goes in this process, besides the collector: the spool's files, and lines that Python prints.
 *
 * Nothing goes anywhere before sink_set. From then on each sink reads the logs on from where it was; what was overwritten before it came by
 * is lost for it and counted. The spool is written by whichever thread of the job comes by when it is due (link_also), so much at a
 * time; lines need Python and are only announced here.
 */
#ifndef CIRRON_SINK_H
#define CIRRON_SINK_H

#include <stdbool.h>
#include <stdint.h>

struct sink_settings {
  bool spool, lines;
  const char *folder; /* of the spool; copied */
  uint64_t interval_ns, max_bytes;
};

/* Begins, or goes on with other settings. A change of folder concerns what is not written yet. Keeps errno. Any thread. */
void sink_set(const struct sink_settings *settings);

/* Writes all there is. Waits for a thread that is writing, 1 s at most. Any thread; keeps errno. */
void sink_flush(void);

/* Are there lines to be printed (module_sink.c)? Set when they are due, cleared by who prints. */
extern _Atomic bool sink_lines_due;

/* A snapshot for the spool, which takes it over; false: there is no spool, or it has too many that are not written yet (counted). Any
 * thread. */
struct spool_snapshot;
bool sink_wants_snapshots(void);
bool sink_snapshot(struct spool_snapshot *snapshot);

struct sink_counts {
  const char *folder; /* NULL: there is no spool */
  uint64_t bytes, removed, failures;
  uint64_t lost_bytes; /* of records that made way before they were written */
  uint64_t snapshots_lost;
  uint64_t latency_ns; /* how long the last writing took */
};
struct sink_counts sink_counts(void);

/* In the child of a fork: goes on with the same settings, from its own beginning. Only async-signal-safe work. */
void sink_forget(void);

#endif
