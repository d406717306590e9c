// links: agent/pump.c agent/pump_snapshot.c agent/snapshot_area.c agent/pack.c agent/pbwrite.c agent/segment.c agent/fd.c agent/ring_writer.c collectord/batch.c collectord/unpack.c collectord/ring_reader.c collectord/mapping.c agent/clock.c
/* The stream of messages from the agent's rings to a collector's: whatever the socket takes at a time, whenever either side lets go,
 * each record arrives once and in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pump.h"
#include "agent/ring_writer.h"
#include "agent/segment.h"
#include "agent/snapshot_area.h"
#include "collectord/batch.h"
#include "proto/cirron.pb-c.h"
#include "proto/link_abi.h"
#include "tests/support/batch_session.h"

#define PREFIX 0x0123456789abcdefull
#define CELLS RING_MIN_CELLS
#define RINGS 3u

/* The agent. */

static struct ring rings[RINGS];

struct ring *session_rings(void) {
  return &rings[0];
}

static unsigned hurried;

static void hurry(void) {
  hurried++;
}

/* The collector: its session and store. What is committed outlives it. */

static struct session *session;
static uint64_t stored[RINGS + 1], stored_head[RINGS + 1];

static bool goodbye;

/* What came of a snapshot. */
static struct {
  uint64_t number, span;
  uint32_t tensors, messages;
  int64_t epoch;
  bool last;
  char folder[64];
} shot;

static int on_snapshot(const Cirron__SnapshotSent *sent) {
  shot.messages++;
  shot.number = sent->number;
  assert_int_equal(sent->first, shot.tensors);
  assert_int_equal(sent->head != NULL, sent->first == 0);
  if (sent->head) {
    shot.span = sent->head->span;
    shot.epoch = sent->head->epoch;
    snprintf(shot.folder, sizeof shot.folder, "%.*s", (int)sent->head->folder.len, (const char *)sent->head->folder.data);
  }
  for (size_t i = 0; i < sent->n_tensors; i++) {
    const Cirron__SnapshotTensor *t = sent->tensors[i];
    char name[32];
    struct tensor_stats stats;
    snprintf(name, sizeof name, "layer.%u.weight", shot.tensors);
    assert_int_equal(t->name.len, strlen(name));
    assert_memory_equal(t->name.data, name, t->name.len);
    assert_true(t->n_shape == 2 && t->shape[0] == shot.tensors && t->shape[1] == 1000000);
    assert_int_equal(t->stats.len, sizeof stats);
    memcpy(&stats, t->stats.data, sizeof stats);
    assert_true(stats.count == shot.tensors && stats.mean == shot.tensors / 8.0);
    shot.tensors++;
  }
  shot.last = sent->last;
  return 0;
}

int store_ring_tail_get(struct store *store, int64_t sid, uint32_t ring_no, uint64_t *tail) {
  (void)store;
  (void)sid;
  *tail = stored[ring_no];
  return 0;
}

static void collector_start(void) {
  session = calloc(1, sizeof *session);
  session->rings = calloc(RINGS, sizeof *session->rings);
  session->by_messages = session->added = true;
  if (mapping_own(SEGMENT_BYTES, &session->segment) != 0)
    abort();
  ((struct ring_segment *)session->segment.memory)->names_used = 4;
}

static void collector_die(void) {
  for (size_t i = 0; i < session->ring_count; i++) {
    ring_reader_close(session->rings[i]);
    free(session->rings[i]);
  }
  mapping_close(&session->segment);
  free(session->rings);
  free(session);
  session = NULL;
}

static int collector_message(const uint8_t *data, size_t len) {
  Cirron__Envelope *e = cirron__envelope__unpack(NULL, len, data);
  int err = e ? 0 : -EBADMSG;
  assert_false(goodbye); /* nothing comes after it */
  if (e && e->body_case == CIRRON__ENVELOPE__BODY_SPAN_BATCH)
    err = batch_records(session, e->span_batch, RINGS, NULL);
  else if (e && e->body_case == CIRRON__ENVELOPE__BODY_INTERN)
    err = batch_names(session, e->intern);
  else if (e && e->body_case == CIRRON__ENVELOPE__BODY_COUNTERS)
    err = batch_counters(session, e->counters);
  else if (e && e->body_case == CIRRON__ENVELOPE__BODY_SNAPSHOT_SENT)
    err = on_snapshot(e->snapshot_sent);
  else if (e && e->body_case == CIRRON__ENVELOPE__BODY_GOODBYE)
    goodbye = true;
  else
    err = -EPROTO;
  if (e)
    cirron__envelope__free_unpacked(e, NULL);
  return err;
}

/* The socket between them. */

static uint8_t wire[1 << 20];
static size_t wire_len;

static void receive(void) {
  size_t at = 0;
  while (wire_len - at >= LINK_PREFIX_BYTES) {
    uint32_t len;
    memcpy(&len, wire + at, sizeof len);
    assert_true(len > 0 && len <= LINK_MAX_MESSAGE);
    if (wire_len - at < LINK_PREFIX_BYTES + len)
      break;
    assert_int_equal(collector_message(wire + at + LINK_PREFIX_BYTES, len), 0);
    at += LINK_PREFIX_BYTES + len;
  }
  memmove(wire, wire + at, wire_len - at);
  wire_len -= at;
}

/* Takes up to `bytes` of what is pending. True: all of it. */
static bool transfer(size_t bytes) {
  size_t len;
  const uint8_t *data = pump_pending(&len);
  size_t n = len < bytes ? len : bytes;
  memcpy(wire + wire_len, data, n);
  wire_len += n;
  pump_sent(n);
  receive();
  return n == len;
}

static void send_all(void) {
  for (bool through = false; !through;) {
    through = pump_fill();
    assert_true(transfer(SIZE_MAX));
  }
}

static void reconnect(void) {
  wire_len = 0;
  pump_restart();
  batch_tell_all(session);
}

static unsigned seen_open;

static uint64_t random_number(void) {
  static uint64_t x = 88172645463325252ull;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

/* Commits what has arrived, up to a record's end, and checks it: span ids of a ring count from 1. */
static void commit(bool all) {
  static struct ring_record record;
  for (size_t i = 0; i < session->ring_count; i++) {
    struct ring_reader *r = session->rings[i];
    assert_int_equal(ring_reader_look(r), 0);
    while ((all || random_number() % 50) && ring_reader_peek(r, r->head, &record)) {
      if (record.type == RING_SPAN) {
        assert_int_equal(record.span.id, ++stored_head[r->ring_no]);
        assert_int_equal(record.span.start_ns, record.span.id * 10);
        assert_int_equal(record.text_len, record.span.id % 5 ? 0 : 100);
        assert_int_equal(r->tid, 1000 * r->ring_no + record.span.id / 300);
      }
      ring_reader_consume(r, &record);
    }
    assert_int_equal(r->bad, 0);
    struct ring_open open[RING_OPEN_SLOTS]; /* nothing is open that has ended; more than one never is */
    size_t shown = ring_reader_open_spans(r, open);
    assert_true(shown <= 1);
    if (shown)
      assert_true(open[0].id > stored_head[r->ring_no]);
    seen_open += shown;
    stored[r->ring_no] = r->next;
    ring_reader_release(r, r->next);
  }
}

static void answer(void) {
  uint32_t ring_no;
  uint64_t position;
  while (batch_next_told(session, &ring_no, &position)) {
    Cirron__Committed committed = CIRRON__COMMITTED__INIT;
    Cirron__Envelope e = CIRRON__ENVELOPE__INIT;
    uint8_t message[64] = {0};
    committed.ring_no = ring_no;
    committed.position = position;
    e.body_case = CIRRON__ENVELOPE__BODY_COMMITTED;
    e.committed = &committed;
    message[0] = (uint8_t)cirron__envelope__pack(&e, message + LINK_PREFIX_BYTES);
    size_t len = LINK_PREFIX_BYTES + message[0], first = random_number() % len;
    assert_true(pump_heard(message, first)); /* in pieces */
    assert_true(pump_heard(message + first, len - first));
  }
}

static uint64_t made[RINGS];
static int16_t slots[RINGS]; /* of the span that comes next, which is open */

/* One more record of a ring; its thread changes now and then. */
static bool write_one(unsigned i) {
  char text[100];
  uint64_t id = made[i] + 1;
  memset(text, 'x', sizeof text);
  if (id % 300 == 0 || id == 1) {
    struct ring_thread thread = {.type = RING_THREAD, .tid = (uint32_t)(1000 * (i + 1) + id / 300)};
    if (!ring_append(&rings[i], &thread, NULL, 0, NULL, 0, true))
      return false;
  }
  struct ring_span span = {.type = RING_SPAN,
                           .id = id,
                           .parent = 1,
                           .start_ns = id * 10,
                           .end_ns = id * 10 + 5,
                           .index = SPAN_NO_INDEX,
                           .cpu_ns = SPAN_NO_TIME};
  bool done = ring_put(&rings[i], &span, text, id % 5 ? 0 : sizeof text, NULL, 0, false);
  if (done) {
    ring_close_slot(&rings[i], slots[i]);
    ring_claim_slot(&rings[i], &slots[i])->start_ns = id;
    ring_show_slot(&rings[i].open[slots[i]], id + 1);
  }
  made[i] += done;
  return done;
}

static int set_up(void **state) {
  (void)state;
  memset(rings, 0, sizeof rings);
  memset(made, 0, sizeof made);
  memset(stored, 0, sizeof stored);
  memset(stored_head, 0, sizeof stored_head);
  goodbye = false;
  hurried = seen_open = 0;
  for (unsigned i = 0; i < RINGS; i++)
    slots[i] = -1;
  if (segment_open_private(PREFIX) != 0)
    return -1;
  for (unsigned i = 0; i < RINGS; i++) {
    if (ring_open_private(PREFIX, i + 1, CELLS, false, hurry, &rings[i]) != 0)
      return -1;
    rings[i].next = i + 1 < RINGS ? &rings[i + 1] : NULL;
  }
  collector_start();
  reconnect();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  for (unsigned i = 0; i < RINGS; i++)
    ring_unmap(&rings[i]);
  collector_die();

  return 0;
}

static struct ring_header *theirs(unsigned i) {
  return session_ring(session, i + 1)->mapping.memory;
}

static void all_is_there_after_a_pass(void **state) {
  (void)state;
  uint32_t name = segment_name("a name", 6);
  struct ring_segment *segment = segment_get();
  segment->rank = 3, segment->ranks_known = 1, segment->refused_marks = 5, segment->overhead_ns = 77;
  int16_t slot;
  ring_claim_slot(&rings[0], &slot)->name = name;
  ring_show_slot(&rings[0].open[slot], 42);
  assert_true(write_one(0));
  send_all();
  struct ring_segment *copy = session->segment.memory;
  assert_int_equal(copy->names_used, segment->names_used);
  assert_memory_equal((char *)copy + SEGMENT_NAMES_OFFSET, (char *)segment + SEGMENT_NAMES_OFFSET, segment->names_used);
  assert_int_equal(copy->rank, 3);
  assert_int_equal(copy->refused_marks, 5);
  assert_int_equal(copy->overhead_ns, 77);
  struct ring_open open[RING_OPEN_SLOTS];
  assert_int_equal(ring_reader_open_spans(session_ring(session, 1), open), 2);
  assert_int_equal(open[0].id, 42);
  assert_int_equal(open[0].name, name);
  assert_int_equal(theirs(0)->emitted_spans, 1);
  ring_close_slot(&rings[0], slot);
  send_all();
  assert_int_equal(ring_reader_open_spans(session_ring(session, 1), open), 1);
}

static void nothing_new_is_not_sent(void **state) {
  (void)state;
  size_t len;
  assert_true(write_one(0));
  send_all();
  assert_true(pump_fill());
  pump_pending(&len);
  assert_int_equal(len, 0);
  segment_get()->overhead_ns = 1;
  assert_true(pump_fill());
  pump_pending(&len);
  assert_true(len > 0 && len < 32);
}

/* A full ring drops and counts; what is committed makes room, and nothing else does. */
static void full_until_it_is_committed(void **state) {
  (void)state;
  while (write_one(1))
    ;
  uint64_t fit = made[1];
  assert_true(hurried > 0);
  send_all();
  assert_false(write_one(1));
  commit(true);
  assert_false(write_one(1));
  answer();
  assert_true(write_one(1));
  send_all();
  assert_int_equal(theirs(1)->emitted_spans, fit + 1 + 3);
  assert_int_equal(theirs(1)->dropped_spans, 3);
}

static void the_writer_is_told_to_hurry(void **state) {
  (void)state;
  unsigned n = 0;
  while (!hurried && write_one(2))
    n++;
  assert_in_range(n, CELLS / 16, CELLS / 2);
  send_all();
  hurried = 0;
  for (unsigned i = 0; i < CELLS / 16; i++)
    assert_true(write_one(2));
  assert_int_equal(hurried, 0); /* all but these was sent */
}

static void goodbye_comes_last(void **state) {
  (void)state;
  for (int i = 0; i < 500; i++)
    write_one(0);
  for (bool through = false; !through;) {
    through = pump_fill();
    while (!transfer(777))
      ;
  }
  assert_true(pump_goodbye());
  while (!transfer(3))
    ;
  assert_true(goodbye);
  commit(true);
  assert_int_equal(stored_head[1], made[0]);
}

/* Everything at random: writes, sends of any size, commits, answers, lost connections, dead collectors. */
static void nothing_lost_nothing_doubled(void **state) {
  (void)state;
  char name[32];
  for (int round = 0; round < 40000; round++) {
    switch (random_number() % 8) {
    case 0:
    case 1:
    case 2:
      for (uint64_t n = random_number() % 60; n; n--)
        write_one((unsigned)(random_number() % RINGS));
      break;
    case 3:
    case 4:
      (void)pump_fill();
      (void)transfer(random_number() % 2 ? random_number() % 100 : 100000);
      break;
    case 5:
      commit(false);
      break;
    case 6:
      answer();
      break;
    default:
      if (random_number() % 10 == 0) {
        if (random_number() % 2) {
          collector_die();
          collector_start();
        }
        reconnect();
      } else if (random_number() % 20 == 0) {
        snprintf(name, sizeof name, "name %d", round);
        segment_name(name, strlen(name));
      }
    }
  }
  assert_true(seen_open > 1000);
  reconnect();
  send_all();
  commit(true);
  for (unsigned i = 0; i < RINGS; i++) {
    assert_true(made[i] > 5000);
    assert_int_equal(stored_head[i + 1], made[i]);
    assert_int_equal(theirs(i)->emitted_spans, made[i] + theirs(i)->dropped_spans);
    assert_int_equal(theirs(i)->dropped_spans, rings[i].shm->dropped_spans);
    assert_int_equal(rings[i].shm->emitted_spans, made[i] + theirs(i)->dropped_spans);
  }
}

static void says(bool right, const char *bytes, size_t len) {
  pump_restart();
  bool ok = true;
  for (size_t i = 0; ok && i < len; i++)
    ok = pump_heard((const uint8_t *)bytes + i, 1);
  assert_int_equal(ok, right);
}

static void a_collector_that_talks_nonsense(void **state) {
  (void)state;
  assert_true(write_one(0));
  send_all();
  says(false, "\0\0\0\0", 4);                            /* an empty message */
  says(false, "HTTP/1.1 400", 12);                       /* one of a GiB */
  says(true, "\7\0\0\0\x7a\5hello\4\0\0\0\x12\2xx", 19); /* of a newer one */
  says(true, "\x80\1\0\0", 4);                           /* a long one: passed over */
  says(false, "\6\0\0\0\x5a\4\x08\1\x10\x7f", 10);       /* what nobody has sent is committed */
  says(false, "\6\0\0\0\x5a\4\x08\x09\x10\1", 10);       /* there is no such ring */
  says(false, "\6\0\0\0\x5a\7\x08\1\x10\1", 10);         /* longer than its message */
  says(false, "\5\0\0\0\x5a\3\x08\1\x10", 9);            /* cut off */
  says(false, "\6\0\0\0\x5a\4\x0a\1\x10\1", 10);         /* bytes for a number */
  assert_int_equal(rings[0].shm->tail, 0);
  says(true, "\6\0\0\0\x5a\4\x08\1\x10\2", 10);
  assert_int_equal(rings[0].shm->tail, 2);
  says(true, "\6\0\0\0\x5a\4\x08\1\x10\1", 10); /* an old one */
  assert_int_equal(rings[0].shm->tail, 2);
  uint8_t noise[4096];
  for (int i = 0; i < 2000; i++) {
    for (size_t k = 0; k < sizeof noise; k++)
      noise[k] = (uint8_t)random_number();
    noise[2] = noise[3] = 0;
    pump_restart();
    (void)pump_heard(noise, sizeof noise);
  }
  assert_true(rings[0].shm->tail <= rings[0].shm->head);
}

static void a_message_of_any_length_is_passed_over(void **state) {
  (void)state;
  assert_true(write_one(0));
  send_all();
  for (uint32_t len = 55; len < 300; len++) {
    uint8_t bytes[400] = {(uint8_t)len, (uint8_t)(len >> 8), 0, 0, 0x7a};
    memcpy(bytes + LINK_PREFIX_BYTES + len, "\6\0\0\0\x5a\4\x08\1\x10\2", 10);
    rings[0].done = (struct ring_progress){0};
    rings[0].shm->tail = 0;
    pump_restart();
    assert_true(pump_heard(bytes, LINK_PREFIX_BYTES + len + 10));
    assert_int_equal(rings[0].shm->tail, 2);
  }
}

/* --- snapshots --- */

#define TENSORS 1000u

static struct snapshot_area *take_snapshot(uint64_t number) {
  assert_true(snapshot_area_take(PREFIX, TENSORS, TENSORS * 64, 1, false) >= 0);
  struct snapshot_area *area = snapshot_area_get();
  struct owned_fd none = OWNED_FD_NONE;
  snapshot_area_folder(&none, "file:///somewhere");
  snapshot_area_text_begin();
  for (uint32_t i = 0; i < TENSORS; i++) {
    char name[32];
    const int64_t shape[] = {i, 1000000};
    snprintf(name, sizeof name, "layer.%u.weight", i);
    snapshot_area_entries()[i] = (struct snapshot_entry){.name = snapshot_area_put_name(name, strlen(name)),
                                                         .shape = snapshot_area_put_dims(shape, 2),
                                                         .strides = SNAPSHOT_CONTIGUOUS,
                                                         .dtype = TENSOR_F32,
                                                         .ndim = 2};
    snapshot_area_results()[i] = (struct snapshot_result){.stats = {.count = i, .mean = i / 8.0}};
  }
  area->number = area->settled = number;
  area->count = TENSORS;
  area->span = 77;
  area->epoch = -5;
  area->blobs = 1;
  return area;
}

static void forget_shot(void) {
  memset(&shot, 0, sizeof shot);
}

static void a_snapshot_in_messages(void **state) {
  (void)state;
  struct snapshot_area *area = take_snapshot(3);
  area->settled = 0;
  forget_shot();
  send_all();
  assert_int_equal(shot.messages, 0); /* it is not said yet what became of it */
  area->settled = 3;
  assert_true(write_one(0));
  send_all();
  assert_true(shot.last && shot.number == 3 && shot.span == 77 && shot.epoch == -5);
  assert_int_equal(shot.tensors, TENSORS);
  assert_true(shot.messages > 20);
  assert_string_equal(shot.folder, "file:///somewhere");
  forget_shot();
  send_all();
  assert_int_equal(shot.messages, 0);
  snapshot_area_forget();
}

/* A collector that dies before it has it gets it again, one that has said so does not. */
static void a_snapshot_is_sent_until_it_is_stored(void **state) {
  (void)state;
  struct snapshot_area *area = take_snapshot(4);
  for (int i = 0; i < 2; i++) {
    forget_shot();
    pump_restart();
    send_all();
    assert_int_equal(shot.tensors, TENSORS);
  }
  assert_true(pump_heard((const uint8_t *)"\4\0\0\0\x5a\2\x10\4", 8)); /* Committed: ring 0, position 4 */
  assert_true(area->stored == 4);
  forget_shot();
  pump_restart();
  send_all();
  assert_int_equal(shot.messages, 0);
  snapshot_area_forget();
}

static void a_snapshot_is_asked_for(void **state) {
  (void)state;
  const uint8_t bytes[] = {15, 0, 0, 0, 0x4a, 13, 8, 1, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 9};
  assert_true(segment_get()->snapshot_wanted == 0);
  assert_true(pump_heard(bytes, sizeof bytes));
  assert_true(segment_get()->snapshot_wanted == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(all_is_there_after_a_pass),
      T(nothing_new_is_not_sent),
      T(full_until_it_is_committed),
      T(the_writer_is_told_to_hurry),
      T(goodbye_comes_last),
      T(nothing_lost_nothing_doubled),
      T(a_collector_that_talks_nonsense),
      T(a_message_of_any_length_is_passed_over),
      T(a_snapshot_in_messages),
      T(a_snapshot_is_sent_until_it_is_stored),
      T(a_snapshot_is_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
