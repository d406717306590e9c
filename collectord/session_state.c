#include "session_state.h"

#include <stdio.h>
#include <string.h>

#include "../proto/store_abi.h"
#include "session.h"

/* Reasons for which something a script did is not in the store; names, which cost no record, come last. */
enum loss { LOSS_RING, LOSS_MARKS, LOSS_DEPTH, LOSS_REFUSED, LOSS_RINGS, LOSS_DAMAGED, LOSS_NAMES, LOSSES };
static const char *const loss_names[LOSSES] = {"ring", "marks", "depth", "refused_marks", "rings", "damaged", "names"};

static void count_losses(const struct session *s, uint64_t *loss, struct session_state *out) {
  loss[LOSS_DAMAGED] = s->ingest.damaged;
  for (size_t i = 0; i < s->ring_count; i++) {
    struct ring_counters c = ring_reader_counters(s->rings[i]);
    out->emitted_spans += (int64_t)(c.emitted_spans & INT64_MAX);
    out->emitted_marks += (int64_t)(c.emitted_marks & INT64_MAX);
    loss[LOSS_RING] += c.dropped_spans;
    loss[LOSS_MARKS] += c.dropped_marks;
    loss[LOSS_DAMAGED] += s->rings[i]->bad;
  }
  const struct ring_segment *segment = s->segment.memory;
  loss[LOSS_DEPTH] = __atomic_load_n(&segment->dropped_depth, __ATOMIC_RELAXED);
  loss[LOSS_REFUSED] = __atomic_load_n(&segment->refused_marks, __ATOMIC_RELAXED);
  loss[LOSS_RINGS] = __atomic_load_n(&segment->dropped_rings, __ATOMIC_RELAXED);
  loss[LOSS_NAMES] = __atomic_load_n(&segment->dropped_names, __ATOMIC_RELAXED);
  out->overhead_ns = (int64_t)(__atomic_load_n(&segment->overhead_ns, __ATOMIC_RELAXED) & INT64_MAX);
}

/* The numbers as they are now; `json` (may be NULL) gets what was lost, without reasons that did not happen. */
static void numbers(const struct session *s, struct session_state *out, char *json, size_t len) {
  uint64_t loss[LOSSES] = {0}, total = 0;
  count_losses(s, loss, out);
  size_t used = 0;
  if (json)
    used = (size_t)snprintf(json, len, "{");
  for (int i = 0; i < LOSSES; i++) {
    uint64_t n = loss[i] & INT64_MAX;
    if (json && n)
      used +=
          (size_t)snprintf(json + used, len - used, "%s\"%s\":%llu", used > 1 ? "," : "", loss_names[i], (unsigned long long)n);
    if (i != LOSS_NAMES)
      total += n;
  }
  if (json)
    snprintf(json + used, len - used, "}");
  out->dropped_total = (int64_t)(total & INT64_MAX);
  out->spans = s->ingest.spans;
  out->marks = s->ingest.marks_stored;
  out->last_ns = s->ingest.last_ns;
}

static const char *final_state(const struct session *s) {
  if (s->exit.known && s->exit.signal && !s->became_other)
    return SESSION_KILLED;
  if (s->goodbye || s->became_other || s->exit.known)
    return SESSION_FINISHED;
  return SESSION_LOST;
}

/* Left by a collector that died, and its process never came back: all but the state stays as it is. */
static int write_orphan(struct session *s, struct store *store) {
  struct session_state state;
  int err = store_session_read(store, s->sid, &state);
  if (err)
    return err;
  state.state = SESSION_LOST;
  if (s->exit.known) {
    state.exit_code = s->exit.code;
    state.exit_signal = s->exit.signal;
  }
  return store_session_update(store, s->sid, &state);
}

int session_state_write(struct session *session, struct store *store) {
  if (!session->segment.memory)
    return write_orphan(session, store);
  char json[512];
  struct session_state state = {.state = SESSION_RUNNING, .exit_code = -1};
  numbers(session, &state, json, sizeof json);
  if (session->phase == SESSION_ENDED) {
    state.state = final_state(session);
    state.end_ns = session->end_ns > state.last_ns ? session->end_ns : state.last_ns;
    if (!session->became_other && session->exit.known) {
      state.exit_code = session->exit.code;
      state.exit_signal = session->exit.signal;
    }
  }
  state.dropped_json = json;
  int err = store_session_update(store, session->sid, &state);
  if (err)
    return err;
  session->written = state;
  session->written.dropped_json = session->written.state = NULL; /* were only ours for this call */
  return 0;
}

bool session_state_changed(const struct session *session) {
  if (!session->segment.memory)
    return false;
  struct session_state now = {0};
  const struct session_state *was = &session->written;
  numbers(session, &now, NULL, 0);
  return now.emitted_spans != was->emitted_spans || now.emitted_marks != was->emitted_marks ||
         now.dropped_total != was->dropped_total || now.overhead_ns != was->overhead_ns || now.last_ns != was->last_ns;
}
