/* Log lines on stderr: "collectord: component: text". Only the thread of the event loop uses it.
 *
 * log_limited is for what a client can provoke at will: one line each LOG_PAUSE_NS per kind, which also says how many were left out.
 */
#ifndef CIRRON_LOG_H
#define CIRRON_LOG_H

#define LOG_PAUSE_NS 10000000000ull

enum log_kind {
  LOG_REFUSED_PEER,
  LOG_BAD_MESSAGE,
  LOG_LIMIT,
  LOG_QUOTA,
  LOG_BAD_RECORD,
  LOG_STORE,
  LOG_WAL,
  LOG_ROLLUPS,
  LOG_ACCEPT,
  LOG_TEXTS,
  LOG_LOOP,
  LOG_SNAPSHOT,
  LOG_BLOB,
  LOG_KINDS
};

/* `err` is a negative errno whose text is appended, or 0. */
void log_line(const char *component, int err, const char *format, ...) __attribute__((format(printf, 3, 4)));
void log_limited(enum log_kind kind, const char *component, int err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Lets the next line of this kind through, whenever it comes: what was wrong is right again. */
void log_reset(enum log_kind kind);

#endif
