/* The area of a session (proto/snapshot_abi.h), mapped. Its thread is that of the event loop and the one that reads tensors; whoever
 * holds a reference may use it, also when the session has a larger one by now, or is over.
 *
 * The traced process can change everything in it at any time: what decides about memory is copied first (pass.h). */
#ifndef CIRRON_AREA_H
#define CIRRON_AREA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../proto/snapshot_abi.h"
#include "mapping.h"

struct area {
  atomic_uint refs;
  struct mapping mapping;
  uint32_t entries; /* as checked; those in the memory may be others by now */
  uint64_t text_bytes;
};

/* Maps fd, which stays the caller's. -EPERM, -EMSGSIZE, -EPROTO: it is no area of this session. */
int area_open(int fd, uint64_t bytes, uint64_t prefix, struct area **out);
struct area *area_ref(struct area *area);
void area_unref(struct area *area); /* accepts NULL */

static inline struct snapshot_area *area_head(const struct area *area) {
  return area->mapping.memory;
}
static inline struct snapshot_entry *area_entries(const struct area *area) {
  return (struct snapshot_entry *)((char *)area->mapping.memory + SNAPSHOT_ENTRIES_OFFSET);
}
static inline struct snapshot_result *area_results(const struct area *area) {
  return (struct snapshot_result *)((char *)area->mapping.memory + SNAPSHOT_RESULTS_OFFSET(area->entries));
}
static inline const char *area_text(const struct area *area) {
  return (const char *)area->mapping.memory + SNAPSHOT_TEXT_OFFSET(area->entries);
}

/* What the process waits for; all are atomics, and who waits is woken, or comes to look by itself in some milliseconds. */
void area_set_done(const struct area *area, uint32_t done, bool wakes);
void area_set_finished(const struct area *area, uint64_t number);
void area_set_stored(const struct area *area, uint64_t number); /* a later one stays */
void area_set_refused(const struct area *area, int error);

#endif
