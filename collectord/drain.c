#include "drain.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/time.h>

#include "clock.h"
#include "log.h"

#define MS 1000000ull
#define IDLE_NS (20 * MS) /* nothing came for IDLE_BEATS looks: a full ring is still far */
#define IDLE_BEATS 20u
#define CALM_NS (10 * MS) /* at this rate a ring is full in 640 ms; a hundred times the rate has room, too */
#define QUIET_NS (5 * MS)
#define BUSY_NS (1 * MS)
#define AWAIT_NS (1000 * MS) /* only sessions without memory: a look now and then */
#define COMMIT_NS (250 * MS)
#define RETRY_NS (1000 * MS)

#define VISIT_RECORDS 4096u      /* of one ring, before the next has its turn */
#define WAL_LARGE (256ll << 20)  /* checkpoints keep it below a fourth of that, unless a reader is in their way */
#define MAX_PENDING (512u << 10) /* rows in memory that are not committed, all sessions together: commit early */

static void arm(struct event *timer, uint64_t ns) {
  struct timeval tv = {.tv_sec = (time_t)(ns / (1000 * MS)), .tv_usec = (suseconds_t)(ns % (1000 * MS) / 1000)};
  if (event_add(timer, &tv) != 0)
    log_line("drain", 0, "a timer cannot be set");
}

/* Is the error about one session's data, not about the store? */
static bool is_about_session(int err) {
  return err == -EINVAL || err == -EPROTO || err == -ERANGE || err == -EOVERFLOW || err == -EEXIST;
}

static void undo(struct drain *d) {
  store_rollback(d->store);
  for (struct session *s = d->roster->first; s; s = s->next)
    session_undone(s);
}

static void failed(struct drain *d, int err) {
  undo(d);
  log_limited(LOG_STORE, "store", err, "cannot be written; what comes in is kept in the rings as long as there is room");
  d->failing = true;
  d->retry_ns = clock_monotonic_ns() + RETRY_NS;
}

/* Nothing of it can be kept, whatever we try: the others must not suffer. */
static void give_up(struct drain *d, struct session *s, int err) {
  undo(d);
  log_line("session", err, "pid %d: its data cannot be stored, it is not followed any more", (int)s->pid);
  if (s->phase != SESSION_ENDED)
    session_end(s, false);
  s->added = true; /* session_over: to be let go by forget_over */
  s->state_dirty = false;
  s->abandoned = true;
}

/* Sessions whose end is committed. */
static void forget_over(struct drain *d) {
  for (struct session *s = d->roster->first, *next; s; s = next) {
    next = s->next;
    if (!session_over(s))
      continue;
    if (s->connection)
      d->forget(d->forget_arg, s);
    roster_remove(d->roster, s);
  }
}

static int write_all(struct drain *d, struct session **culprit, bool *any) {
  for (struct session *s = d->roster->first; s; s = s->next) {
    *culprit = s;
    int err = s->abandoned ? 0 : session_collect(s, d->store);
    if (!err && !s->abandoned && session_dirty(s)) {
      *any = s->in_write = true;
      err = session_write(s, d->store);
    }
    if (err)
      return err;
  }
  *culprit = NULL;
  return *any ? store_commit(d->store) : 0;
}

/* One transaction. 0: committed, or there was nothing to commit. */
static int commit(struct drain *d) {
  struct session *culprit = NULL;
  bool any = false;
  for (struct session *s = d->roster->first; s; s = s->next)
    s->in_write = false;
  int err = write_all(d, &culprit, &any);
  d->last_commit_ns = clock_monotonic_ns();
  if (err && culprit && is_about_session(err)) {
    give_up(d, culprit, err);
    d->urgent = true; /* the others at once */
    return 0;
  }
  if (err) {
    failed(d, err);
    return err;
  }
  if (d->failing && any)
    log_line("store", 0, "can be written again");
  d->failing = false;
  if (any && store_wal_bytes(d->store) > WAL_LARGE)
    log_limited(LOG_WAL, "store", 0,
                "its write-ahead log has %lld MB: a program that has the store open keeps it from being emptied",
                (long long)(store_wal_bytes(d->store) >> 20));
  for (struct session *s = d->roster->first; s; s = s->next)
    if (s->in_write)
      session_committed(s);
  return 0;
}

/* What came so far, of all sessions. */
static int64_t taken(const struct drain *d) {
  int64_t sum = 0;
  for (const struct session *s = d->roster->first; s; s = s->next)
    sum += s->ingest.spans + s->ingest.marks_stored;
  return sum;
}

/* Takes what is in the rings. True: a commit should not wait. */
static bool take(struct drain *d, enum session_fill *fill) {
  size_t pending = 0;
  int64_t before = taken(d);
  uint64_t now = clock_monotonic_ns();
  bool ready = false;
  for (struct session *s = d->roster->first; s; s = s->next) {
    snapshots_look(s, now);
    ready |= s->snapshots.ready;
    d->awaited |= s->snapshots.awaits || s->snapshots.ready;
    if (!s->segment.memory || s->phase == SESSION_ENDED)
      continue;
    int err = session_drain(s, d->store, VISIT_RECORDS, fill);
    if (err && is_about_session(err)) {
      give_up(d, s, err);
      return true;
    }
    if (err) {
      failed(d, err);
      return false;
    }
    pending += ingest_pending(&s->ingest);
  }
  d->idle_beats = taken(d) == before ? d->idle_beats + 1 : 0;
  return *fill == SESSION_URGENT || pending > MAX_PENDING || ready;
}

/* Where the processes can not see it themselves. */
static void acknowledge(struct drain *d) {
  for (struct session *s = d->roster->first; s; s = s->next)
    if (s->owes && s->connection)
      d->roster->acknowledge(s);
}

static void rest(struct drain *d, enum session_fill fill) {
  bool alive = d->roster->first != NULL;
  if (d->idle_timer && alive)
    event_del(d->idle_timer);
  if (d->idle_timer && !alive && !event_pending(d->idle_timer, EV_TIMEOUT, NULL))
    arm(d->idle_timer, d->idle_exit_ns);
  if (!alive)
    return;
  if (d->urgent && !d->failing)
    arm(d->timer, 0);
  else if (d->failing)
    arm(d->timer, RETRY_NS / 4);
  else
    arm(d->timer, !d->roster->mapped           ? AWAIT_NS
                  : fill > SESSION_QUIET       ? BUSY_NS
                  : fill == SESSION_QUIET      ? QUIET_NS
                  : d->awaited                 ? QUIET_NS
                  : d->idle_beats < IDLE_BEATS ? CALM_NS
                                               : IDLE_NS);
}

static void beat(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  struct drain *d = arg;
  uint64_t now = clock_monotonic_ns();
  enum session_fill fill = SESSION_CALM;
  d->awaited = false;
  roster_check(d->roster, now);
  if (d->failing && now < d->retry_ns) {
    rest(d, fill);
    return;
  }
  bool soon = !d->failing && take(d, &fill);
  bool due = d->failing ? now >= d->retry_ns : soon || d->urgent || now - d->last_commit_ns >= COMMIT_NS;
  if (due) {
    d->urgent = false;
    (void)commit(d); /* has logged what failed */
  }
  forget_over(d);
  acknowledge(d);
  rest(d, fill);
}

static void is_idle(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  struct drain *d = arg;
  if (!d->roster->first)
    d->idle(d->idle_arg);
}

int drain_init(struct drain *drain) {
  drain->timer = evtimer_new(drain->base, beat, drain);
  drain->idle_timer = drain->idle_exit_ns ? evtimer_new(drain->base, is_idle, drain) : NULL;
  if (!drain->timer || (drain->idle_exit_ns && !drain->idle_timer))
    return -ENOMEM;
  rest(drain, SESSION_CALM);
  return 0;
}

void drain_fini(struct drain *drain) {
  if (drain->timer)
    event_free(drain->timer);
  if (drain->idle_timer)
    event_free(drain->idle_timer);
  drain->timer = drain->idle_timer = NULL;
}

void drain_wake(void *arg, bool urgent) {
  struct drain *d = arg;
  d->urgent = d->urgent || urgent;
  if (!d->timer)
    return;
  if (urgent || !event_pending(d->timer, EV_TIMEOUT, NULL))
    arm(d->timer, urgent && !d->failing ? 0 : BUSY_NS);
  if (d->idle_timer)
    event_del(d->idle_timer);
}

/* Not all rows of a snapshot go into one transaction. */
static bool more(const struct drain *d) {
  bool more = false;
  for (const struct session *s = d->roster->first; s; s = s->next)
    more |= !s->abandoned && snapshots_dirty(s);
  return more;
}

int drain_all(struct drain *drain) {
  int err;
  do {
    drain->urgent = false;
    err = commit(drain);
  } while (!err && (drain->urgent || more(drain))); /* without the session that could not be stored; snapshots' rows */
  forget_over(drain);
  return err;
}
