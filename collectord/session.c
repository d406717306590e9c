#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../proto/store_abi.h"
#include "cirron_gen.h"
#include "clock.h"
#include "log.h"
#include "session_state.h"
#include "text.h"

#define MAX_ARGV 64
#define MAX_ATTRIBUTES 64
#define MAX_WAITS 2000u             /* of a ring for another one, in visits */
#define MAX_RING_BYTES (2ull << 30) /* of a session: 1,024 threads of 1 MiB, and what they need for bursts */
#define MAX_ROUNDS 64               /* before a commit; a process changes rings once or twice in that time */

static struct text_bytes bytes(const ProtobufCBinaryData *data) {
  return (struct text_bytes){data->data, data->len};
}

/* NULL for an empty one. */
static int copy(const ProtobufCBinaryData *data, const char **out) {
  *out = NULL;
  if (!data->len)
    return 0;
  *out = text_utf8(bytes(data));
  return *out ? 0 : -ENOMEM;
}

static char *argv_json(const Cirron__Hello *hello) {
  char *text = NULL;
  size_t len;
  FILE *out = open_memstream(&text, &len);
  if (!out)
    return NULL;
  fputc('[', out);
  for (size_t i = 0; i < hello->n_argv && i < MAX_ARGV; i++) {
    fputs(i ? "," : "", out);
    text_json_string(out, bytes(&hello->argv[i]));
  }
  fputc(']', out);
  return fclose(out) == 0 ? text : (free(text), NULL);
}

static char *attributes_json(const Cirron__Hello *hello) {
  char *text = NULL;
  size_t len;
  FILE *out = open_memstream(&text, &len);
  if (!out)
    return NULL;
  fputc('{', out);
  for (size_t i = 0; i < hello->n_attributes && i < MAX_ATTRIBUTES; i++) {
    fputs(i ? "," : "", out);
    text_json_string(out, bytes(&hello->attributes[i]->name));
    fputc(':', out);
    text_json_string(out, bytes(&hello->attributes[i]->value));
  }
  fputc('}', out);
  return fclose(out) == 0 ? text : (free(text), NULL);
}

static int fill_row(struct session *s, const Cirron__Hello *hello, const struct session_peer *peer) {
  struct session_row *row = &s->row;
  row->prefix = hello->session;
  row->pid = hello->pid ? (int64_t)hello->pid : peer->pid;
  row->ppid = hello->ppid;
  row->uid = peer->uid;
  row->rank = hello->rank < 0 ? -1 : hello->rank;
  row->local_rank = hello->local_rank < 0 ? -1 : hello->local_rank;
  row->world_size = hello->world_size < 0 ? -1 : hello->world_size;
  row->start_ns = ingest_wall(&s->ingest, hello->start_monotonic_ns);
  row->argv_json = argv_json(hello);
  row->attrs_json = attributes_json(hello);
  if (!row->argv_json || !row->attrs_json || copy(&hello->host, &row->host) || copy(&hello->exe, &row->exe) ||
      copy(&hello->cwd, &row->cwd) || copy(&hello->python_version, &row->python_version) ||
      copy(&hello->run_id, &row->run_id) || copy(&hello->agent_version, &row->agent_version))
    return -ENOMEM;
  return 0;
}

static int map_segment(uint64_t prefix, int fd, struct mapping *out) {
  struct mapping m;
  int err = mapping_open(fd, SEGMENT_BYTES, &m);
  if (err)
    return err;
  struct ring_segment h;
  memcpy(&h, m.memory, sizeof h);
  if (h.magic != SEGMENT_MAGIC || h.abi_major != RING_ABI_MAJOR || h.bytes != SEGMENT_BYTES || h.session != prefix) {
    mapping_close(&m);
    return -EPROTO;
  }
  *out = m;
  return 0;
}

/* The session is in the store: goes on where the collector that began it stopped. */
static int take_over(struct session *s, struct store *store) {
  struct session_state state;
  int64_t uid = 0, pid = 0;
  int err = store_session_owner(store, s->sid, &uid, &pid);
  if (!err && (uid != s->row.uid || pid != s->row.pid))
    return -EALREADY; /* whoever found out the prefix must not write into somebody else's session */
  if (!err)
    err = store_session_read(store, s->sid, &state);
  if (err)
    return err;
  s->added = true;
  s->state_dirty = true; /* it may not be called running any more */
  s->ingest.spans = state.spans;
  s->ingest.marks_stored = state.marks;
  s->ingest.last_ns = state.last_ns;
  return ingest_take_over(&s->ingest, store, s->sid);
}

/* What map_segment finds, but ours and empty. */
static int make_segment(uint64_t prefix, struct mapping *out) {
  int err = mapping_own(SEGMENT_BYTES, out);
  if (err)
    return err;
  *(struct ring_segment *)out->memory = (struct ring_segment){
      .magic = SEGMENT_MAGIC,
      .abi_major = RING_ABI_MAJOR,
      .abi_minor = RING_ABI_MINOR,
      .bytes = SEGMENT_BYTES,
      .session = prefix,
      .names_used = sizeof(uint32_t),
  };
  return 0;
}

int session_new(const Cirron__Hello *hello, const struct session_peer *peer, int segment_fd, struct store *store,
                struct session **out) {
  if (!hello->session || hello->abi_major != RING_ABI_MAJOR)
    return -EPROTO;
  struct session *s = calloc(1, sizeof *s);
  if (!s)
    return -ENOMEM;
  s->prefix = hello->session;
  s->pid = peer->pid;
  s->pidfd = -1;
  s->exit.code = -1;
  s->by_messages = segment_fd < 0;
  int err = s->by_messages ? make_segment(s->prefix, &s->segment) : map_segment(s->prefix, segment_fd, &s->segment);
  if (err)
    goto fail;
  if (s->by_messages && process_maps_range(s->pid, hello->segment_address, SEGMENT_BYTES) == PROCESS_MAPS)
    s->segment_address = hello->segment_address;
  struct ingest_origin origin = {
      .anchor_monotonic_ns = hello->anchor_monotonic_ns,
      .anchor_realtime_ns = hello->anchor_realtime_ns,
      .start_monotonic_ns = hello->start_monotonic_ns,
      .rank = hello->rank < 0 ? -1 : hello->rank,
      .main_tid = hello->pid,
  };
  err = ingest_init(&s->ingest, s->segment.memory, &origin, store);
  if (err || (err = fill_row(s, hello, peer)))
    goto fail;
  err = store_session_find(store, s->prefix, &s->sid);
  if (err == -ENOENT)
    err = 0;
  else if (!err)
    err = take_over(s, store);
  if (err)
    goto fail;
  *out = s;
  return 0;
fail:
  session_free(s);
  return err;
}

int session_new_orphan(const struct running_session *left, struct session **out) {
  struct session *s = calloc(1, sizeof *s);
  if (!s)
    return -ENOMEM;
  s->phase = SESSION_ORPHAN;
  s->prefix = left->prefix;
  s->pid = (pid_t)left->pid;
  s->pidfd = -1;
  s->exit.code = -1;
  s->sid = left->sid;
  s->added = true;
  *out = s;
  return 0;
}

void session_free(struct session *session) {
  if (!session)
    return;
  struct session_row *row = &session->row;
  const char *texts[] = {row->host,           row->exe,    row->argv_json,     row->cwd,
                         row->python_version, row->run_id, row->agent_version, row->attrs_json};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    free((char *)texts[i]);
  for (size_t i = 0; i < session->ring_count; i++) {
    ring_reader_close(session->rings[i]);
    free(session->rings[i]);
  }
  free(session->rings);
  snapshots_free(session);
  ingest_fini(&session->ingest);
  mapping_close(&session->segment);
  if (session->pidfd >= 0)
    close(session->pidfd);
  free(session);
}

bool session_same(const struct session *session, const Cirron__Hello *hello, const struct session_peer *peer) {
  return session->pid == peer->pid && session->row.uid == (int64_t)peer->uid && hello->session == session->prefix;
}

enum process_mapping session_mapped(const struct session *session, bool any) {
  if (session->by_messages)
    return session->segment_address ? process_maps_range(session->pid, session->segment_address, SEGMENT_BYTES)
                                    : PROCESS_UNKNOWN;
  return process_mapping(session->pid, any ? 0 : session->segment.ino);
}

int session_resume(struct session *session, int segment_fd) {
  bool by_messages = segment_fd < 0;
  if (session->by_messages && by_messages)
    return 0;
  if (session->by_messages || (by_messages && session->ring_count))
    return -EPROTO;
  struct mapping now;
  int err = by_messages ? make_segment(session->prefix, &now) : map_segment(session->prefix, segment_fd, &now);
  if (err)
    return err;
  session->by_messages = by_messages;
  mapping_close(&session->segment);
  session->segment = now;
  session->ingest.names.segment = now.memory;
  return 0;
}

struct ring_reader *session_ring(const struct session *s, uint32_t ring_no) {
  for (size_t i = 0; i < s->ring_count; i++)
    if (s->rings[i]->ring_no == ring_no)
      return s->rings[i];
  return NULL;
}

static int ring_room(struct session *s) {
  if (s->ring_count < s->ring_room)
    return 0;
  size_t room = s->ring_room ? s->ring_room * 2 : 4;
  struct ring_reader **rings = realloc(s->rings, room * sizeof(struct ring_reader *));
  if (!rings)
    return -ENOMEM;
  s->rings = rings;
  s->ring_room = room;
  return 0;
}

static bool too_many(const struct session *s, size_t bytes, size_t max_rings) {
  return s->ring_count >= max_rings || s->ring_bytes + bytes > MAX_RING_BYTES;
}

int session_add_ring(struct session *session, struct ring_reader *reader, size_t max_rings) {
  if (too_many(session, reader->mapping.bytes, max_rings))
    return -EMFILE;
  int err = ring_room(session);
  if (err)
    return err;
  session->rings[session->ring_count++] = reader;
  session->ring_bytes += reader->mapping.bytes;
  return 0;
}

int session_attach(struct session *session, int fd, uint32_t ring_no, uint32_t cells, size_t max_rings, struct store *store) {
  struct ring_reader *known = session_ring(session, ring_no);
  if (known)
    return ring_reader_move(known, fd, cells, session->prefix);
  if (too_many(session, RING_BYTES((size_t)cells), max_rings))
    return -EMFILE;
  struct ring_reader *reader = calloc(1, sizeof *reader);
  if (!reader)
    return -ENOMEM;
  int err = ring_reader_open(fd, ring_no, cells, session->prefix, reader);
  uint64_t tail = 0;
  if (!err && session->added)
    err = store_ring_tail_get(store, session->sid, ring_no, &tail);
  if (!err && session->added)
    ring_reader_seek(reader, tail);
  if (!err)
    err = session_add_ring(session, reader, max_rings);
  if (err) {
    ring_reader_close(reader);
    free(reader);
  }
  return err;
}

void session_end(struct session *session, bool became_other) {
  if (session->phase == SESSION_ENDED)
    return;
  if (session->phase == SESSION_LIVE || session->phase == SESSION_AWAY)
    session->end_ns = ingest_wall(&session->ingest, clock_monotonic_ns());
  session->phase = SESSION_ENDED;
  session->became_other = became_other;
  session->state_dirty = true;
  if (!became_other && session->pidfd >= 0 && process_ended(session->pidfd))
    session->exit = process_exit_status(session->pidfd, session->pid);
}

/* Has what this ring's writer wrote into another one before not been read yet? No honest one makes us wait for long: the other ring
 * was made first, though it may be handed over second. */
static bool must_wait(const struct session *s, const struct ring_reader *r, const struct ring_after *after) {
  const struct ring_reader *other = session_ring(s, after->ring_no);
  return other != r && r->waited < MAX_WAITS && (!other || other->next < after->position);
}

/* Takes records up to the head that was seen, at most *cap, which is left at how many fewer there were. *waits: it ended at one whose
 * time has not come. */
static int take(struct session *s, struct ring_reader *r, struct store *store, unsigned *cap, bool patient, bool *waits) {
  static struct ring_record record; /* too big for the stack of a handler; one thread only */
  *waits = false;
  for (; *cap && ring_reader_peek(r, r->head, &record); --*cap) {
    if (record.type == RING_AFTER) {
      *waits = patient && must_wait(s, r, &record.after);
      if (*waits)
        return 0;
      r->waited = 0;
    }
    int err = ingest_record(&s->ingest, store, &record, r->tid);
    if (err)
      return err;
    ring_reader_consume(r, &record);
  }
  return 0;
}

/* The quota holds as long as the process is there to keep the rest. */
static bool limited(struct session *s) {
  return quota_is_set(s->quota) && s->phase != SESSION_ENDED;
}

static void visit(struct session *s) {
  if (limited(s))
    quota_visit(s->quota, &s->used, clock_monotonic_ns());
}

static int take_within(struct session *s, struct ring_reader *r, struct store *store, unsigned cap, bool patient, bool *waits) {
  if (!limited(s))
    return take(s, r, store, &cap, patient, waits);
  uint64_t from = r->next;
  unsigned allowed = quota_allows(s->quota, &s->used, cap), left = allowed;
  int err = take(s, r, store, &left, patient, waits);
  if (quota_taken(s->quota, &s->used, allowed - left, (r->next - from) * RING_CELL, r->next < r->head))
    log_limited(LOG_QUOTA, "session", 0,
                "pid %d sends more than max-rate or max-session-bytes: the process drops and counts the rest", (int)s->pid);
  return err;
}

static bool usable(struct session *s, struct ring_reader *r) {
  if (r->jumps > RING_READER_MAX_JUMPS)
    return false;
  if (ring_reader_look(r) == 0)
    return true;
  log_limited(LOG_BAD_RECORD, "ring", 0, "pid %d, ring %u: its positions make no sense, it is not read any more", (int)s->pid,
              r->ring_no);
  return false;
}

static enum session_fill fill_of(const struct ring_reader *r) {
  uint64_t unread = r->head - r->next;
  if (r->head - r->released > r->cells / 2)
    return SESSION_URGENT;
  return unread > r->cells / 4 ? SESSION_FILLING : unread > r->cells / 64 ? SESSION_QUIET : SESSION_CALM;
}

int session_drain(struct session *session, struct store *store, unsigned cap, enum session_fill *fill) {
  visit(session);
  bool over = limited(session) && quota_over(&session->used);
  for (size_t i = 0; i < session->ring_count; i++) {
    struct ring_reader *r = session->rings[i];
    if (!usable(session, r))
      continue;
    enum session_fill full = fill_of(r);
    if (full > *fill && !over)
      *fill = full;
    bool waits;
    int err = take_within(session, r, store, cap, true, &waits);
    if (err)
      return err;
    r->waited += waits;
  }
  return 0;
}

/* One turn of each ring, up to the heads that were seen. *waits: some stopped at a RING_AFTER; *some: at least one went on. */
static int take_round(struct session *s, struct store *store, bool patient, bool *waits, bool *some) {
  *waits = *some = false;
  for (size_t i = 0; i < s->ring_count; i++) {
    struct ring_reader *r = s->rings[i];
    uint64_t from = r->next;
    bool stopped;
    int err = r->jumps > RING_READER_MAX_JUMPS ? 0 : take_within(s, r, store, UINT32_MAX, patient, &stopped);
    if (err)
      return err;
    *some |= r->next != from;
    *waits |= r->next < r->head;
  }
  return 0;
}

/* Takes all there is, in as many rounds as rings wait for each other. A process that is gone hands over nothing more to wait for. */
static int take_all(struct session *s, struct store *store) {
  visit(s);
  for (size_t i = 0; i < s->ring_count; i++)
    (void)usable(s, s->rings[i]); /* take_round looks at its jumps */
  bool waits = true, some = true;
  int err = 0;
  for (int round = 0; !err && waits && some && round < MAX_ROUNDS; round++)
    err = take_round(s, store, true, &waits, &some);
  if (!err && waits && s->phase == SESSION_ENDED)
    err = take_round(s, store, false, &waits, &some);
  return err;
}

/* Looks at the open tables first and at the heads after: a span that has left its table by then has its record below the head. */
static int look_at_open(struct session *s, struct store *store) {
  struct ring_open *open = malloc((s->ring_count ? s->ring_count : 1) * RING_OPEN_SLOTS * sizeof *open);
  if (!open)
    return -ENOMEM;
  size_t n = 0;
  for (size_t i = 0; i < s->ring_count; i++)
    n += ring_reader_open_spans(s->rings[i], open + n);
  int err = ingest_open_spans(&s->ingest, store, open, n);
  free(open);
  return err;
}

/* Ranks as the process has them by now: spawned workers set them late, but before their first span. */
static void look_at_ranks(struct session *s) {
  const struct ring_segment *segment = s->segment.memory;
  const int32_t *from[] = {&segment->rank, &segment->local_rank, &segment->world_size};
  int64_t *to[] = {&s->row.rank, &s->row.local_rank, &s->row.world_size};
  if (!__atomic_load_n(&segment->ranks_known, __ATOMIC_ACQUIRE))
    return;
  for (int i = 0; i < 3; i++) {
    int64_t now = __atomic_load_n(from[i], __ATOMIC_RELAXED);
    if (now < 0)
      now = -1;
    if (now == *to[i])
      continue;
    *to[i] = now;
    s->ranks_dirty = true;
  }
  s->ingest.rank = s->row.rank;
}

int session_collect(struct session *session, struct store *store) {
  snapshots_look(session, clock_monotonic_ns());
  if (!session->segment.memory || session->end_done)
    return 0;
  look_at_ranks(session);
  int err = look_at_open(session, store);
  if (!err)
    err = take_all(session, store);
  if (!err && session->phase == SESSION_ENDED)
    err = ingest_end(&session->ingest, store);
  if (!err)
    err = ingest_prepare(&session->ingest);
  if (err)
    return err;
  session->end_done = session->phase == SESSION_ENDED;
  return 0;
}

bool session_dirty(const struct session *session) {
  if (session->phase == SESSION_ORPHAN)
    return false;
  return session->state_dirty || session->ranks_dirty || !session->added || ingest_dirty(&session->ingest) ||
         snapshots_dirty(session) || session_state_changed(session);
}

static int write_tails(struct session *s, struct store *store) {
  int err = 0;
  for (size_t i = 0; !err && i < s->ring_count; i++)
    if (s->rings[i]->next != s->rings[i]->released)
      err = store_ring_tail(store, s->sid, s->rings[i]->ring_no, s->rings[i]->next);
  return err;
}

int session_write(struct session *session, struct store *store) {
  int err = session->sid ? 0 : store_session_add(store, &session->row, &session->sid);
  if (!err && session->ranks_dirty)
    err = store_session_ranks(store, session->sid, session->row.rank, session->row.local_rank, session->row.world_size);
  if (!err && session->segment.memory)
    err = ingest_write(&session->ingest, store, session->sid);
  if (!err)
    err = write_tails(session, store);
  if (!err)
    err = snapshots_write(session, store);
  return err ? err : session_state_write(session, store);
}

void session_committed(struct session *session) {
  session->added = true;
  session->state_dirty = session->ranks_dirty = false;
  if (session->segment.memory)
    ingest_committed(&session->ingest);
  snapshots_committed(session);
  for (size_t i = 0; i < session->ring_count; i++)
    ring_reader_release(session->rings[i], session->rings[i]->next);
  session->owes = session->by_messages;
}

void session_undone(struct session *session) {
  if (!session->added)
    session->sid = 0;
  snapshots_undone(session);
  session->state_dirty = true; /* `written` holds numbers that are not in the store */
}

bool session_over(const struct session *session) {
  return session->phase == SESSION_ENDED && !session->state_dirty && session->added &&
         (session->abandoned || snapshots_over(session));
}
