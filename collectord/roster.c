#include "roster.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

#include "batch.h"
#include "cirron_gen.h"
#include "clock.h"
#include "log.h"

/* How long a process that a dead collector left behind may take to find us: its agent tries again every 5 s at least. */
#define ORPHAN_WAIT_NS 60000000000ull
/* How often a process without a connection is looked at: has it become another program? */
#define AWAY_LOOK_NS 1000000000ull
/* And once more so soon when it looks as if: a process that is just ending may let go of its memory a moment before. */
#define SECOND_LOOK_NS 100000000ull
/* A process that ended without a connection, and did not say goodbye, may have made one last, which waits to be accepted. */
#define LAST_WORDS_NS 500000000ull
/* A session begins after its process. Clocks and ticks are not that exact. */
#define MAX_OF_PROCESS 8u
#define START_SLACK_NS 2000000000ll

static void unwatch(struct session *s) {
  if (s->watch)
    event_free(s->watch);
  s->watch = NULL;
}

static void end(struct roster *roster, struct session *s, bool became_other) {
  unwatch(s);
  session_end(s, became_other);
  roster->notify(roster->notify_arg, true);
}

/* The process is no more. What it said last, a ring perhaps, may not have been read yet. */
static void end_process(struct roster *roster, struct session *s) {
  if (s->connection)
    roster->flush(s);
  if (s->phase != SESSION_ENDED)
    end(roster, s, false);
}

static struct session *by_pidfd(struct roster *roster, int pidfd) {
  struct session *s = roster->first;
  while (s && s->pidfd != pidfd)
    s = s->next;
  return s;
}

static void process_has_ended(evutil_socket_t pidfd, short what, void *arg) {
  (void)what;
  struct session *s = by_pidfd(arg, (int)pidfd);
  if (!s)
    return;
  if ((s->connection || s->goodbye) && !process_status_hidden(s->pid)) {
    end_process(arg, s);
    return;
  }
  if (s->phase == SESSION_LIVE) /* its parent will hardly take longer than last words do; then the pidfd knows (Linux 6.15) */
    s->phase = SESSION_AWAY;
  unwatch(s);
  s->deadline_ns = clock_monotonic_ns() + LAST_WORDS_NS;
}

static void watch(struct roster *roster, struct session *s) {
  if (s->pidfd < 0)
    return;
  s->watch = event_new(roster->base, s->pidfd, EV_READ, process_has_ended, roster);
  if (s->watch && event_add(s->watch, NULL) == 0)
    return;
  log_line("roster", 0, "pid %d: its end cannot be watched", (int)s->pid);
  unwatch(s);
}

static void add(struct roster *roster, struct session *s) {
  s->next = roster->first;
  roster->first = s;
  roster->count++;
  roster->mapped += s->segment.memory != NULL;
  roster->notify(roster->notify_arg, false);
}

static int found_running(const struct running_session *left, void *arg) {
  struct roster *roster = arg;
  struct session *s;
  int err = session_new_orphan(left, &s);
  if (err)
    return err;
  int64_t began;
  bool lives = process_start_wall(s->pid, &began) == 0 && began <= left->start_ns + START_SLACK_NS;
  if (lives) {
    int fd = process_open(s->pid);
    s->pidfd = fd >= 0 ? fd : -1;
    watch(roster, s);
  }
  s->deadline_ns = clock_monotonic_ns() + (lives ? ORPHAN_WAIT_NS : LAST_WORDS_NS);
  add(roster, s);
  return 0;
}

int roster_take_stock(struct roster *roster) {
  return store_sessions_running(roster->store, found_running, roster);
}

static struct session *find(struct roster *roster, uint64_t prefix) {
  struct session *s = roster->first;
  while (s && s->prefix != prefix)
    s = s->next;
  return s;
}

/* A process has one session at a time. If it begins another, the program it was before is over (exec). */
static void end_of_earlier(struct roster *roster, const struct session_peer *peer, uint64_t prefix) {
  for (struct session *s = roster->first; s; s = s->next)
    if (peer->pid && s->pid == peer->pid && s->prefix != prefix && s->segment.memory && s->phase != SESSION_ENDED &&
        session_mapped(s, false) == PROCESS_MAPS_NOT)
      end(roster, s, true);
}

static int make(struct roster *roster, const Cirron__Hello *hello, const struct session_peer *peer, int socket, int segment_fd,
                struct session **out) {
  struct session *s;
  int err = session_new(hello, peer, segment_fd, roster->store, &s);
  if (err)
    return err;
  int pidfd = process_open_peer(socket, peer->pid);
  s->pidfd = pidfd >= 0 ? pidfd : -1;
  s->quota = &roster->quota;
  s->snapshots.reader = roster->reader;
  watch(roster, s);
  add(roster, s);
  *out = s;
  return 0;
}

/* Sessions of a process that lives. An honest one has one, and for a moment the one before. */
static size_t of_process(const struct roster *roster, pid_t pid) {
  size_t n = 0;
  for (const struct session *s = roster->first; s; s = s->next)
    n += pid && s->pid == pid && s->segment.memory && s->phase != SESSION_ENDED;
  return n;
}

/* Those that said goodbye and whose process has ended, which we would hear of next: when we were kept from looking, many sessions of one
 * process come at once. */
static void end_the_dead(struct roster *roster, pid_t pid) {
  for (struct session *s = roster->first; s; s = s->next)
    if (s->pid == pid && s->goodbye && !s->connection && s->phase != SESSION_ENDED && s->pidfd >= 0 && process_ended(s->pidfd))
      end(roster, s, false);
}

/* Sessions of a user whose process may still be there. */
static size_t of_user(const struct roster *roster, uid_t uid) {
  size_t n = 0;
  for (const struct session *s = roster->first; s; s = s->next)
    n += s->segment.memory && s->phase != SESSION_ENDED && s->row.uid == (int64_t)uid;
  return n;
}

uint64_t roster_held(const struct roster *roster) {
  uint64_t sum = 0;
  for (const struct session *s = roster->first; s; s = s->next)
    sum += batch_held(s);
  return sum;
}

int roster_hello(struct roster *roster, const Cirron__Hello *hello, const struct session_peer *peer, int socket, int segment_fd,
                 struct session **out) {
  struct session *known = find(roster, hello->session), *orphan = NULL;
  if (known && known->phase == SESSION_ORPHAN) {
    orphan = known;
    known = NULL;
  }
  if (known) {
    if (known->phase == SESSION_ENDED || !session_same(known, hello, peer))
      return -EALREADY;
    int err = session_resume(known, segment_fd);
    if (err)
      return err;
    known->phase = SESSION_LIVE;
    known->seems_other = false;
    if (!known->watch)
      watch(roster, known);
    *out = known;
    return 0;
  }
  if (roster->count - (orphan != NULL) >= roster->max_sessions)
    return -EBUSY;
  if (of_process(roster, peer->pid) >= MAX_OF_PROCESS)
    end_the_dead(roster, peer->pid);
  if (of_process(roster, peer->pid) >= MAX_OF_PROCESS)
    return -EDQUOT;
  end_of_earlier(roster, peer, hello->session);
  if (of_user(roster, peer->uid) >= roster->max_user_sessions)
    return -EDQUOT;
  int err = make(roster, hello, peer, socket, segment_fd, out);
  if (!err && orphan) /* it has found us, and is a session like any other */
    roster_remove(roster, orphan);
  return err;
}

/* Is the process still the program that talked to us? Any memory of an agent will do: a script that closes all descriptors makes it
 * move to new ones (agent/fd.c), of which we hear only with its next Hello. After a goodbye its memory may go before it does. */
static void look_at_process(struct roster *roster, struct session *s) {
  if (s->pidfd < 0) { /* nobody will tell us about its end */
    end(roster, s, false);
    return;
  }
  bool other = !s->goodbye && session_mapped(s, true) == PROCESS_MAPS_NOT && !process_ended(s->pidfd);
  if (other && s->seems_other)
    end(roster, s, true);
  else if (other)
    s->deadline_ns = clock_monotonic_ns() + SECOND_LOOK_NS;
  s->seems_other = other;
}

void roster_connection_lost(struct roster *roster, struct session *session) {
  session->connection = NULL;
  if (session->phase != SESSION_LIVE)
    return;
  session->phase = SESSION_AWAY;
  session->deadline_ns = clock_monotonic_ns() + AWAY_LOOK_NS;
  look_at_process(roster, session);
}

void roster_check(struct roster *roster, uint64_t now_ns) {
  for (struct session *s = roster->first; s; s = s->next) {
    if ((s->phase != SESSION_AWAY && s->phase != SESSION_ORPHAN) || now_ns < s->deadline_ns)
      continue; /* most: without a system call, at every beat */
    bool ended = s->pidfd >= 0 && process_ended(s->pidfd);
    if (s->phase == SESSION_AWAY && !ended) {
      s->deadline_ns = now_ns + AWAY_LOOK_NS;
      look_at_process(roster, s);
    } else {
      end(roster, s, false);
    }
  }
}

void roster_check_ended(struct roster *roster) {
  for (struct session *s = roster->first; s; s = s->next)
    if (s->phase != SESSION_ENDED && s->pidfd >= 0 && process_ended(s->pidfd))
      end_process(roster, s);
}

void roster_remove(struct roster *roster, struct session *session) {
  struct session **link = &roster->first;
  while (*link != session)
    link = &(*link)->next;
  *link = session->next;
  roster->count--;
  roster->mapped -= session->segment.memory != NULL;
  unwatch(session);
  session_free(session);
}

void roster_fini(struct roster *roster) {
  while (roster->first)
    roster_remove(roster, roster->first);
}
