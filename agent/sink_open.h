/* Which open spans a batch of the spool tells of: each of them once, so that a process that is killed leaves behind what was under way. */
#ifndef CIRRON_SINK_OPEN_H
#define CIRRON_SINK_OPEN_H

#include "open.h"

struct sink_open {
  struct open_span *spans; /* by id; `quiet` ones are not news */
  size_t count;
};

/* What is open now, the root included. Before the closed spans of the batch are read. */
struct sink_open sink_open_read(void);

static inline bool sink_open_root_is_news(const struct sink_open *open) {
  return open->count && open->spans[0].span.id == SPAN_ROOT && !open->spans[0].quiet;
}

/* Those that are closed in this copy of the log (keep.h) are no news. */
void sink_open_settle(const struct sink_open *open, const void *log, size_t bytes);

/* The batch is written. */
void sink_open_told(const struct sink_open *open);

/* Nothing was told yet: another session. Only async-signal-safe work. */
void sink_open_forget(void);

#endif
