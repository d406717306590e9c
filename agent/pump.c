/* See pump.h. */
#include "pump.h"

#include <string.h>

#include "../proto/link_abi.h"
#include "../proto/span_batch.h"
#include "../proto/varint.h"
#include "pack.h"
#include "pbwrite.h"
#include "pump_snapshot.h"
#include "ring_writer.h"
#include "segment.h"
#include "session.h"

#define MESSAGE_MAX (LINK_PREFIX_BYTES + LINK_MAX_MESSAGE)
#define OUT_BYTES (4 * MESSAGE_MAX)
#define BATCH_REST 160u /* bytes of a SpanBatch beside its records, or its open spans */
#define NAMES_A_MESSAGE 8192u
#define LAST_CELLS 256 /* of a message that has the open spans, too */
#define LAST_OPEN_BYTES 8192u
#define TURN 4u         /* messages of one ring in a row: one that is written to without end must not keep the others waiting */
#define SWEEPS 16u      /* over all rings, in one pass */
#define HEARD_BYTES 64u /* longer messages are not for us, and passed over */

enum { /* field numbers of proto/cirron.proto */
       ENVELOPE_GOODBYE = 3,
       ENVELOPE_INTERN = 4,
       ENVELOPE_SPAN_BATCH = 5,
       ENVELOPE_COMMAND = 9,
       ENVELOPE_COUNTERS = 10,
       ENVELOPE_COMMITTED = 11,
       INTERN_OFFSET = 1,
       INTERN_NAMES = 2,
       BATCH_RING_NO = 1,
       BATCH_CELLS = 2,
       BATCH_POSITION = 3,
       BATCH_TID = 4,
       BATCH_COUNT = 5,
       BATCH_RECORDS = 6,
       BATCH_EMITTED_SPANS = 7,
       BATCH_EMITTED_MARKS = 8,
       BATCH_DROPPED_SPANS = 9,
       BATCH_DROPPED_MARKS = 10,
       BATCH_DROPPED_MOVES = 11,
       BATCH_SHOWS_OPEN = 12,
       BATCH_OPEN = 13,
       COUNTERS_RANK = 1,
       COUNTERS_LOCAL_RANK = 2,
       COUNTERS_WORLD_SIZE = 3,
       COUNTERS_RANKS_KNOWN = 4,
       COUNTERS_DROPPED_DEPTH = 5,
       COUNTERS_REFUSED_MARKS = 6,
       COUNTERS_DROPPED_NAMES = 7,
       COUNTERS_DROPPED_RINGS = 8,
       COUNTERS_OVERHEAD = 9,
       COMMITTED_RING_NO = 1,
       COMMITTED_POSITION = 2,
};

static_assert(PACK_ROOM + BATCH_REST <= LINK_MAX_MESSAGE, "a record of any kind is a message");
static_assert(BATCH_OPEN_MAX + BATCH_REST <= LINK_MAX_MESSAGE, "a full table of open spans is a message");

/* Under link.c's lock. Pages that are never used cost nothing. */
static struct {
  uint8_t out[OUT_BYTES];
  size_t at, len; /* what is to be sent: out[at] to out[len] */
  uint8_t heard[HEARD_BYTES];
  size_t heard_len;
  uint64_t pass_over; /* bytes of a message that is not for us */

  uint32_t names_sent, names_goal;
  uint64_t told; /* the segment's counters, as a hash */
  bool passing;
  bool spares;       /* the pass is at the spare rings, in which spans end that are open in others */
  struct ring *ring; /* the pass is here; NULL: it is through */
  unsigned turn;     /* messages of that ring */
  unsigned sweeps;   /* over all rings */
  bool more;         /* some had more than their turn */
  uint64_t goal;     /* its head after the last look at its open spans */
  size_t open_len;
  uint8_t open[BATCH_OPEN_MAX];
} pump;

static uint64_t hash(uint64_t h, const void *data, size_t len) {
  for (size_t i = 0; i < len; i++)
    h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
  return h;
}

#define HASH_BEGIN 0xcbf29ce484222325u /* never 0, which stands for nothing told yet: near enough */

void pump_restart(void) {
  pump.at = pump.len = pump.heard_len = 0;
  pump.pass_over = 0;
  pump.names_sent = pump.names_goal = 0;
  pump.told = 0;
  pump.passing = false;
  pump_snapshot_restart();
  for (struct ring *ring = session_rings(); ring; ring = ring->next) {
    ring->sent.spans = ring->done.spans;
    ring->sent.marks = ring->done.marks;
    ring->sent.tid = ring->done.tid;
    __atomic_store_n(&ring->sent.cells, ring->done.cells, __ATOMIC_RELAXED);
    ring->told = 0;
  }
}

/* Messages. */

static bool has_room(void) {
  if (pump.at == pump.len)
    pump.at = pump.len = 0;
  return OUT_BYTES - pump.len >= MESSAGE_MAX;
}

static struct pbwrite message_begin(void) {
  struct pbwrite pb;
  pbwrite_init(&pb, pump.out + pump.len + LINK_PREFIX_BYTES, LINK_MAX_MESSAGE);
  return pb;
}

static void message_seal(const struct pbwrite *pb) {
  size_t body = pbwrite_len(pb);
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    pump.out[pump.len + i] = (uint8_t)(body >> 8 * i);
  pump.len += LINK_PREFIX_BYTES + body;
}

static void message_end(struct pbwrite *pb, size_t begin) {
  pbwrite_end(pb, begin);
  message_seal(pb);
}

static void put_names(void) {
  const uint8_t *names = (const uint8_t *)segment_get() + SEGMENT_NAMES_OFFSET;
  uint32_t n = pump.names_goal - pump.names_sent;
  n = n < NAMES_A_MESSAGE ? n : NAMES_A_MESSAGE;
  struct pbwrite pb = message_begin();
  size_t begin = pbwrite_begin(&pb, ENVELOPE_INTERN);
  pbwrite_uint(&pb, INTERN_OFFSET, pump.names_sent);
  pbwrite_bytes(&pb, INTERN_NAMES, names + pump.names_sent, n);
  message_end(&pb, begin);
  pump.names_sent += n;
}

static void put_counters(void) {
  struct ring_segment *s = segment_get();
  bool known = __atomic_load_n(&s->ranks_known, __ATOMIC_ACQUIRE);
  struct pbwrite pb = message_begin();
  size_t begin = pbwrite_begin(&pb, ENVELOPE_COUNTERS);
  pbwrite_int(&pb, COUNTERS_RANK, known ? __atomic_load_n(&s->rank, __ATOMIC_RELAXED) : 0);
  pbwrite_int(&pb, COUNTERS_LOCAL_RANK, known ? __atomic_load_n(&s->local_rank, __ATOMIC_RELAXED) : 0);
  pbwrite_int(&pb, COUNTERS_WORLD_SIZE, known ? __atomic_load_n(&s->world_size, __ATOMIC_RELAXED) : 0);
  pbwrite_uint(&pb, COUNTERS_RANKS_KNOWN, known);
  pbwrite_uint(&pb, COUNTERS_DROPPED_DEPTH, __atomic_load_n(&s->dropped_depth, __ATOMIC_RELAXED));
  pbwrite_uint(&pb, COUNTERS_REFUSED_MARKS, __atomic_load_n(&s->refused_marks, __ATOMIC_RELAXED));
  pbwrite_uint(&pb, COUNTERS_DROPPED_NAMES, __atomic_load_n(&s->dropped_names, __ATOMIC_RELAXED));
  pbwrite_uint(&pb, COUNTERS_DROPPED_RINGS, __atomic_load_n(&s->dropped_rings, __ATOMIC_RELAXED));
  pbwrite_uint(&pb, COUNTERS_OVERHEAD, __atomic_load_n(&s->overhead_ns, __ATOMIC_RELAXED));
  uint64_t now = hash(HASH_BEGIN, pb.buf, pb.len);
  if (now == pump.told)
    return;
  pump.told = now;
  message_end(&pb, begin);
}

/* The counters of a ring are those of what was sent so far, not of what the writer is doing just now: emitted = sent + dropped, exactly,
 * at whatever moment the process dies. */
struct drops {
  uint64_t spans, marks, moves;
};

static struct drops drops_of(const struct ring *ring) {
  return (struct drops){
      .spans = __atomic_load_n(&ring->shm->dropped_spans, __ATOMIC_RELAXED),
      .marks = __atomic_load_n(&ring->shm->dropped_marks, __ATOMIC_RELAXED),
      .moves = __atomic_load_n(&ring->shm->dropped_moves, __ATOMIC_RELAXED),
  };
}

static void put_place(struct pbwrite *pb, const struct ring *ring) {
  pbwrite_uint(pb, BATCH_RING_NO, ring->ring_no);
  pbwrite_uint(pb, BATCH_CELLS, (uint64_t)ring->mask + 1);
  pbwrite_uint(pb, BATCH_POSITION, ring->sent.cells);
  pbwrite_uint(pb, BATCH_TID, ring->sent.tid);
}

static void put_drops(struct pbwrite *pb, const struct ring_progress *sent, const struct drops *d) {
  pbwrite_uint(pb, BATCH_EMITTED_SPANS, sent->spans + d->spans);
  pbwrite_uint(pb, BATCH_EMITTED_MARKS, sent->marks + d->marks);
  pbwrite_uint(pb, BATCH_DROPPED_SPANS, d->spans);
  pbwrite_uint(pb, BATCH_DROPPED_MARKS, d->marks);
  pbwrite_uint(pb, BATCH_DROPPED_MOVES, d->moves);
}

/* Records up to the goal, as many as fit beside `open_len` bytes. */
static struct ring_progress put_records(struct pbwrite *pb, const struct ring *ring, size_t open_len) {
  struct ring_progress to = ring->sent;
  size_t room = LINK_MAX_MESSAGE - BATCH_REST - open_len, records = pbwrite_begin(pb, BATCH_RECORDS);
  pb->len += pack_records(ring, pump.goal, pb->buf + pb->len, room, &to);
  pbwrite_end(pb, records);
  pbwrite_uint(pb, BATCH_COUNT, to.cells - ring->sent.cells);
  return to;
}

static void sent_to(struct ring *ring, const struct ring_progress *to) {
  ring->sent.spans = to->spans;
  ring->sent.marks = to->marks;
  ring->sent.tid = to->tid;
  __atomic_store_n(&ring->sent.cells, to->cells, __ATOMIC_RELAXED);
}

/* Of the open spans and the counters, what is told beside the records. */
static uint64_t hash_state(const struct drops *drops) {
  return hash(hash(HASH_BEGIN, drops, sizeof *drops), pump.open, pump.open_len);
}

static int64_t left(const struct ring *ring) {
  return (int64_t)(pump.goal - ring->sent.cells);
}

/* The next message of the ring. True: the rest of its records and the open spans that belong to them, together; or there is nothing new. */
static bool put_batch(struct ring *ring) {
  struct drops drops = drops_of(ring);
  uint64_t state = hash_state(&drops);
  bool last = left(ring) <= 0 || (left(ring) <= LAST_CELLS && pump.open_len <= LAST_OPEN_BYTES);
  if (left(ring) <= 0 && state == ring->told)
    return true;
  struct pbwrite pb = message_begin();
  size_t begin = pbwrite_begin(&pb, ENVELOPE_SPAN_BATCH);
  put_place(&pb, ring);
  size_t before = pb.len;
  struct ring_progress to = put_records(&pb, ring, last ? pump.open_len : 0);
  if (to.cells == ring->sent.cells && left(ring) > 0) { /* it is a long one */
    pb.len = before;
    to = put_records(&pb, ring, 0);
    last = false;
  }
  put_drops(&pb, &to, &drops);
  sent_to(ring, &to);
  last = last && left(ring) <= 0;
  if (last && state != ring->told) {
    pbwrite_uint(&pb, BATCH_SHOWS_OPEN, 1);
    pbwrite_bytes(&pb, BATCH_OPEN, pump.open, pump.open_len);
    ring->told = state;
  }
  message_end(&pb, begin);
  return last;
}

bool pump_goodbye(void) {
  if (!has_room())
    return false;
  struct pbwrite pb = message_begin();
  message_end(&pb, pbwrite_begin(&pb, ENVELOPE_GOODBYE)); /* reason 0 */
  return true;
}

/* The pass. */

/* What the next messages of the ring are to say. */
static void look(struct ring *ring) {
  pump.open_len = pack_open(ring, pump.open);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  pump.goal = __atomic_load_n(&ring->shm->head, __ATOMIC_ACQUIRE);
  pump.names_goal = __atomic_load_n(&segment_get()->names_used, __ATOMIC_ACQUIRE); /* after what uses them */
}

static struct ring *next_ring(struct ring *ring) {
  while (ring && ring->spare != pump.spares)
    ring = ring->next;
  if (ring || pump.spares)
    return ring;
  pump.spares = true;
  return next_ring(session_rings());
}

static void sweep(void);

static void come_to(struct ring *ring) {
  pump.ring = next_ring(ring);
  pump.turn = 0;
  if (pump.ring)
    look(pump.ring);
  else if (pump.more && pump.sweeps < SWEEPS)
    sweep();
}

static void sweep(void) {
  pump.sweeps++;
  pump.spares = pump.more = false;
  come_to(session_rings());
}

static void begin_pass(void) {
  pump.passing = true;
  pump.sweeps = 0;
  put_counters();
  sweep();
}

/* At most one message. */
static void step(void) {
  struct ring *ring = pump.ring;
  if (pump.names_sent < pump.names_goal) {
    put_names();
    return;
  }
  bool done = put_batch(ring);
  if (!done && ++pump.turn < TURN) {
    look(ring);
    return;
  }
  pump.more |= !done;
  come_to(ring->next);
}

/* After the records, which are of a bounded size. False: there is none. */
static bool put_snapshot(void) {
  if (!pump_snapshot_waits())
    return false;
  if (!has_room())
    return true;
  struct pbwrite pb = message_begin();
  pump_snapshot_put(&pb);
  message_seal(&pb);
  return true;
}

bool pump_fill(void) {
  while (has_room()) {
    if (!pump.passing)
      begin_pass();
    else if (pump.ring)
      step();
    if (!pump.ring && !put_snapshot()) {
      pump.passing = false;
      return true;
    }
  }
  return false;
}

bool pump_complete(void) {
  return !pump.passing && !pump.more;
}

const uint8_t *pump_pending(size_t *len) {
  *len = pump.len - pump.at;
  return pump.out + pump.at;
}

void pump_sent(size_t len) {
  pump.at += len;
}

/* What comes back. */

static bool committed(uint64_t ring_no, uint64_t position) {
  if (ring_no == 0) {
    pump_snapshot_stored(position);
    return true;
  }
  struct ring *ring = session_rings();
  while (ring && ring->ring_no != ring_no)
    ring = ring->next;
  if (!ring)
    return false;
  uint64_t ahead = position - ring->done.cells, head = __atomic_load_n(&ring->shm->head, __ATOMIC_ACQUIRE);
  if (ahead > head - ring->done.cells)
    return (int64_t)ahead < 0; /* heard before; or nobody can have committed it */
  struct ring_progress to = ring->done;
  if (!pack_walk(ring, position, &to))
    return false;
  ring->done = to;
  if ((int64_t)(to.cells - ring->sent.cells) > 0) { /* sent on an earlier connection */
    sent_to(ring, &to);
  }
  __atomic_store_n(&ring->shm->tail, to.cells, __ATOMIC_RELEASE);
  return true;
}

/* A Committed has only varints; what has anything else is of a newer collector and not for us. */
static bool on_committed(const uint8_t *p, const uint8_t *end) {
  uint64_t field[3] = {0}, tag, value;
  while (p < end) {
    p = varint_get(p, end, &tag);
    p = p && (tag & 7) == 0 ? varint_get(p, end, &value) : NULL;
    if (!p)
      return false;
    if (tag >> 3 <= COMMITTED_POSITION)
      field[tag >> 3] = value;
  }
  return committed(field[COMMITTED_RING_NO], field[COMMITTED_POSITION]);
}

/* The only one there is asks for a snapshot, by counting up: as a collector that shares memory does there. */
static bool on_command(const uint8_t *p, const uint8_t *end) {
  uint64_t tag, value;
  while (p < end) {
    p = varint_get(p, end, &tag);
    if (p && (tag & 7) == 1 && end - p >= 8) {
      p += 8;
      continue;
    }
    p = p && (tag & 7) == 0 ? varint_get(p, end, &value) : NULL;
    if (!p)
      return false;
  }
  __atomic_add_fetch(&segment_get()->snapshot_wanted, 1,
                     __ATOMIC_RELAXED); /* collectors that follow one another count anew each */
  return true;
}

static bool on_message(const uint8_t *p, size_t len) {
  const uint8_t *end = p + len;
  uint64_t tag, size;
  p = varint_get(p, end, &tag);
  if (!p || (tag != (ENVELOPE_COMMITTED << 3 | 2) && tag != (ENVELOPE_COMMAND << 3 | 2)))
    return p != NULL;
  bool command = tag >> 3 == ENVELOPE_COMMAND;
  p = varint_get(p, end, &size);
  return p && size == (uint64_t)(end - p) && (command ? on_command(p, end) : on_committed(p, end));
}

static uint32_t message_len(void) {
  uint32_t len = 0;
  for (unsigned i = 0; i < LINK_PREFIX_BYTES; i++)
    len |= (uint32_t)pump.heard[i] << 8 * i;
  return len;
}

/* What is in `heard` is a whole message, one to be passed over, or not all there yet. */
static bool take_message(void) {
  if (pump.heard_len < LINK_PREFIX_BYTES)
    return true;
  uint32_t len = message_len();
  if (len == 0 || len > LINK_MAX_MESSAGE)
    return false;
  if (len > HEARD_BYTES - LINK_PREFIX_BYTES) {
    pump.pass_over = len - (pump.heard_len - LINK_PREFIX_BYTES);
    pump.heard_len = 0;
    return true;
  }
  if (pump.heard_len < LINK_PREFIX_BYTES + len)
    return true;
  pump.heard_len = 0;
  return on_message(pump.heard + LINK_PREFIX_BYTES, len);
}

bool pump_heard(const uint8_t *data, size_t len) {
  bool right = true;
  while (right && len) {
    if (pump.pass_over) {
      size_t n = pump.pass_over < len ? (size_t)pump.pass_over : len;
      pump.pass_over -= n;
      data += n;
      len -= n;
      continue;
    }
    pump.heard[pump.heard_len++] = *data++;
    len--;
    right = take_message();
  }
  return right;
}
