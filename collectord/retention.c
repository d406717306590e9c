#include "retention.h"

#include <errno.h>
#include <event2/event.h>

#include "clock.h"
#include "log.h"
#include "store.h"

#define LOOK_MS 5000 /* between two rounds */
#define NEXT_MS 10   /* between two transactions of a round: the drain's come in between */
#define SHRINK_PAGES 256
#define DAY_NS (86400ll * 1000000000ll)

static void again(struct retention *r, long ms) {
  struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  if (event_add(r->timer, &tv) != 0)
    log_line("retention", 0, "a timer cannot be set");
}

/* Has the oldest to go? 0: *out has; -ENOENT: no. */
static int choose(struct retention *r, struct store_oldest *out) {
  int64_t used = 0;
  if (!r->keep_days && !r->max_bytes)
    return -ENOENT;
  int err = r->max_bytes ? store_used(r->store, &used) : 0;
  bool full = r->max_bytes && used > (int64_t)r->max_bytes;
  if (!err)
    err = store_oldest(r->store, out);
  if (err == -ENOENT && full && !r->told) {
    log_line("retention", 0, "the store has %lld MB, more than max-db-bytes, and no session that has ended",
             (long long)(used >> 20));
    r->told = true;
  }
  r->told = r->told && full;
  if (err)
    return err;
  bool old = r->keep_days && out->ended_ns < clock_wall_ns() - (int64_t)r->keep_days * DAY_NS;
  return old || full ? 0 : -ENOENT;
}

/* One transaction. *busy: there is more to do in this round. */
static int erase_more(struct retention *r, bool *busy) {
  int err = store_erase_some(r->store, &r->erasing);
  if (!err)
    err = store_commit(r->store);
  *busy = true;
  return err;
}

static int begin_next(struct retention *r, bool *busy) {
  struct store_oldest oldest;
  int err = choose(r, &oldest);
  if (err == -ENOENT) {
    *busy = false;
    return 0;
  }
  if (!err)
    err = store_erase(r->store, oldest.sid);
  if (!err)
    err = store_commit(r->store);
  if (err)
    return err;
  r->sessions++;
  r->spans += oldest.spans;
  *busy = r->erasing = true;
  return 0;
}

static int end_round(struct retention *r, bool *busy) {
  int64_t left = 0, used = 0;
  int err = store_shrink(r->store, SHRINK_PAGES, &left);
  *busy = !err && left > 0;
  if (err || *busy || !r->sessions)
    return err;
  err = store_used(r->store, &used);
  log_line("retention", 0, "removed %lld session%s that had ended, with %lld spans; the store has %lld MB now",
           (long long)r->sessions, r->sessions == 1 ? "" : "s", (long long)r->spans, (long long)(used >> 20));
  r->sessions = r->spans = 0;
  return err;
}

static void beat(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  struct retention *r = arg;
  bool busy = true;
  if (store_dirty(r->store)) { /* the drain's transaction: it is over soon */
    again(r, NEXT_MS);
    return;
  }
  int err = r->erasing ? erase_more(r, &busy) : begin_next(r, &busy);
  if (!err && !busy)
    err = end_round(r, &busy);
  if (err) {
    store_rollback(r->store);
    if (err != -EBUSY)
      log_limited(LOG_STORE, "retention", err, "nothing can be removed from the store");
  }
  if (!err && busy)
    again(r, NEXT_MS);
  else if (err || r->keep_days || r->max_bytes)
    again(r, LOOK_MS);
}

int retention_init(struct retention *retention) {
  retention->timer = evtimer_new(retention->base, beat, retention);
  if (!retention->timer)
    return -ENOMEM;
  retention->erasing = true; /* looks for what was left */
  again(retention, NEXT_MS);
  return 0;
}

void retention_fini(struct retention *retention) {
  if (retention->timer)
    event_free(retention->timer);
  retention->timer = NULL;
}
