#include "snapshot.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cirron_gen.h"
#include "log.h"
#include "pass.h"
#include "reader.h"
#include "session.h"
#include "snapshot_rows.h"

#define SETTLE_NS 2000000000ull /* then it is kept as it is */
#define ROWS_A_COMMIT 2000u     /* of a session: the others wait meanwhile */

static bool is_gone(const struct session *s) {
  return s->phase == SESSION_ENDED;
}

static int state_of(const struct pass *p) {
  return atomic_load_explicit(&p->state, memory_order_acquire);
}

/* ---- what comes ---- */

int snapshots_area(struct session *session, int fd, uint64_t bytes) {
  struct area *area, *now = session->snapshots.area;
  struct stat st;
  if (now && now->mapping.bytes == bytes && fstat(fd, &st) == 0 && st.st_dev == now->mapping.dev &&
      st.st_ino == now->mapping.ino)
    return 0; /* said again, on another connection */
  int err = area_open(fd, bytes, session->prefix, &area);
  if (err)
    return err;
  area_unref(session->snapshots.area);
  session->snapshots.area = area;
  return 0;
}

static void append(struct snapshots *all, struct pass *p) {
  struct pass **last = &all->first;
  while (*last)
    last = &(*last)->next;
  *last = p;
  all->count++;
}

static void drop(struct snapshots *all, struct pass *p) {
  struct pass **link = &all->first;
  while (*link != p)
    link = &(*link)->next;
  *link = p->next;
  all->count--;
  reader_let_go(all->reader, p);
}

/* Said before; or it is in the store, or of another time. */
static bool is_known(const struct snapshots *all, uint64_t number) {
  const struct snapshot_area *head = area_head(all->area);
  if (__atomic_load_n(&head->stored, __ATOMIC_ACQUIRE) >= number || __atomic_load_n(&head->number, __ATOMIC_ACQUIRE) != number)
    return true;
  for (const struct pass *p = all->first; p; p = p->next)
    if (p->number == number)
      return true;
  return false;
}

/* Nobody waits for those any more that are not read yet. */
static void replace_earlier(struct snapshots *all) {
  for (struct pass *p = all->first; p; p = p->next)
    if (p->area && state_of(p) != PASS_READ && p->area == all->area) {
      p->replaced = true;
      atomic_store(&p->stop, true);
    }
}

int snapshots_request(struct session *session, uint64_t number, int folder) {
  struct snapshots *all = &session->snapshots;
  int err = 0;
  bool known = all->area && is_known(all, number);
  if (!all->area || !number || known || all->count >= PASS_MAX) {
    if (all->count >= PASS_MAX && !known)
      log_limited(LOG_SNAPSHOT, "snapshot", 0, "pid %d: %zu snapshots wait for the store, one is left out", (int)session->pid,
                  all->count);
    if (folder >= 0)
      close(folder);
    return all->area && number ? 0 : -EPROTO;
  }
  replace_earlier(all);
  struct pass *p;
  bool ours = session->row.uid == (int64_t)geteuid() && session->pid > 0 && !all->refused;
  err = pass_new(all->area, number, session->prefix, ours ? session->pid : 0, ours ? session->pidfd : -1, folder, &p);
  if (err)
    return err;
  append(all, p);
  p->own = __atomic_load_n(&area_head(all->area)->flags, __ATOMIC_RELAXED) & SNAPSHOT_OWN;
  if (!p->own)
    reader_take(all->reader, p);
  return 0;
}

int snapshots_sent(struct session *session, const Cirron__SnapshotSent *sent) {
  struct snapshots *all = &session->snapshots;
  if (!sent->number)
    return -EPROTO;
  if (all->sent && all->sent->number != sent->number) { /* the rest of it got lost with an earlier connection */
    pass_free(all->sent);
    all->sent = NULL;
  }
  if (!all->sent && !sent->head)
    return 0; /* it began before us; it will come again, or not */
  if (!all->sent)
    all->sent = pass_new_sent(sent->number, session->prefix);
  if (!all->sent)
    return -ENOMEM;
  int err = pass_sent_add(all->sent, sent);
  if (!err && !sent->last)
    return 0;
  if (!err && all->count < PASS_MAX) {
    atomic_store(&all->sent->state, PASS_READ);
    append(all, all->sent);
  } else {
    log_limited(LOG_SNAPSHOT, "snapshot", err, "pid %d: a snapshot is left out", (int)session->pid);
    if (!all->first)
      all->sent_stored = sent->number; /* it would not be otherwise a second time */
    pass_free(all->sent);
  }
  all->sent = NULL;
  return err == -ENOMEM ? 0 : err;
}

/* ---- what becomes of it ---- */

/* What the process said of this request, unless another one lies there by now. */
static void look_at_verdict(struct pass *p) {
  const struct snapshot_area *head = area_head(p->area);
  uint64_t settled = __atomic_load_n(&head->settled, __ATOMIC_ACQUIRE);
  if (settled < p->number)
    return;
  p->settled = true;
  if (settled != p->number || __atomic_load_n(&head->number, __ATOMIC_ACQUIRE) != p->number)
    return;
  p->torn_from = head->torn_from;
  p->wait_ns = head->wait_ns;
  for (uint32_t i = 0; i < p->head.count; i++)
    p->entries[i].flags |= area_entries(p->area)[i].flags & SNAPSHOT_TORN;
}

/* Its memory could not be read, or it says that it will do that itself. */
static void is_refused(struct session *s, struct pass *p) {
  if (p->refused && !s->snapshots.refused)
    log_limited(LOG_SNAPSHOT, "snapshot", -p->refused, "the memory of pid %d cannot be read: it computes its snapshots itself",
                (int)s->pid);
  s->snapshots.refused |= p->refused != 0;
  p->refused = 0;
  p->own = true;
  atomic_store(&p->state, PASS_WAITS);
}

/* It will not be read any more, and not because its process is gone: we are about to go. */
static bool is_interrupted(const struct session *s, const struct pass *p) {
  return p->at < p->head.count && !p->own && !p->gone && !p->replaced && !is_gone(s);
}

static void read_through(struct session *s, struct pass *p, uint64_t now_ns) {
  if (!p->since_ns) {
    p->since_ns = now_ns;
    if (p->blob_error && !p->own)
      log_limited(LOG_BLOB, "snapshot", -p->blob_error, "pid %d: tensors cannot be written to its folder; statistics are kept",
                  (int)s->pid);
  }
  if (p->area && !p->settled) {
    look_at_verdict(p);
    if (p->settled && p->again)
      p->written = p->committed = 0;
  }
  bool due = p->settled || is_gone(s) || p->gone || p->replaced || (!p->again && now_ns - p->since_ns >= SETTLE_NS);
  p->ready = due && !is_interrupted(s, p);
}

/* False: it is gone. */
static bool look_at(struct session *s, struct pass *p, uint64_t now_ns) {
  struct snapshots *all = &s->snapshots;
  int state = state_of(p);
  if (state == PASS_QUEUED && is_gone(s))
    atomic_store(&p->stop, true);
  if (state == PASS_QUEUED)
    return true;
  if (state == PASS_WAITS) {
    bool finished = __atomic_load_n(&area_head(p->area)->finished, __ATOMIC_ACQUIRE) >= p->number;
    if (finished || is_gone(s) || p->replaced)
      reader_take(all->reader, p);
    return true;
  }
  if (p->error) {
    log_limited(LOG_SNAPSHOT, "snapshot", p->error, "pid %d: a snapshot cannot be taken", (int)s->pid);
    area_set_finished(p->area, p->number);
    area_set_stored(p->area, p->number);
    drop(all, p);
    return false;
  }
  if (!p->own && (p->refused || p->head.flags & SNAPSHOT_OWN))
    is_refused(s, p);
  else
    read_through(s, p, now_ns);
  return true;
}

void snapshots_look(struct session *session, uint64_t now_ns) {
  struct snapshots *all = &session->snapshots;
  all->awaits = all->ready = false;
  for (struct pass *p = all->first, *next; p; p = next) {
    next = p->next;
    if (!look_at(session, p, now_ns))
      continue;
    all->ready |= p->ready;
    all->awaits |= !p->ready && !p->again;
  }
}

/* ---- to the store ---- */

bool snapshots_dirty(const struct session *session) {
  return session->snapshots.ready;
}

static int write_pass(struct session *s, struct pass *p, struct store *store, uint32_t *room) {
  int err = 0;
  for (; !err && *room && p->written < p->head.count; p->written++) {
    if (p->again && !snapshot_row_torn(p, p->written))
      continue;
    err = snapshot_row_write(s, p, p->written, store);
    --*room;
  }
  if (!err && p->written == p->head.count) {
    p->torn = 0;
    for (uint32_t i = 0; i < p->head.count; i++)
      p->torn += snapshot_row_torn(p, i);
    err = snapshot_rows_end(s, p, store);
    p->all = !err;
  }
  return err;
}

int snapshots_write(struct session *session, struct store *store) {
  uint32_t room = ROWS_A_COMMIT;
  int err = 0;
  for (struct pass *p = session->snapshots.first; !err && room && p; p = p->next)
    if (p->ready)
      err = write_pass(session, p, store, &room);
  return err;
}

void snapshots_committed(struct session *session) {
  struct snapshots *all = &session->snapshots;
  for (struct pass *p = all->first, *next; p; p = next) {
    next = p->next;
    p->committed = p->written;
    if (!p->all)
      continue;
    p->all = p->ready = false;
    p->again = true;
    if (p->area && !p->settled && !is_gone(session) && !p->gone && !p->replaced)
      continue;
    if (p->area)
      area_set_stored(p->area, p->number);
    else
      all->sent_stored = p->number;
    drop(all, p);
  }
  all->ready = false;
  for (const struct pass *p = all->first; p; p = p->next)
    all->ready |= p->ready;
}

void snapshots_undone(struct session *session) {
  for (struct pass *p = session->snapshots.first; p; p = p->next) {
    p->written = p->committed;
    p->all = false;
  }
}

bool snapshots_next_told(struct session *session, uint64_t *number) {
  struct snapshots *all = &session->snapshots;
  *number = all->sent_stored;
  bool is_news = all->sent_told != all->sent_stored;
  all->sent_told = all->sent_stored;
  return is_news;
}

bool snapshots_over(const struct session *session) {
  return !session->snapshots.first;
}

void snapshots_free(struct session *session) {
  struct snapshots *all = &session->snapshots;
  while (all->first)
    drop(all, all->first);
  pass_free(all->sent);
  all->sent = NULL;
  area_unref(all->area);
  all->area = NULL;
}
