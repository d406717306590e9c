// links: agent/ring_writer.c agent/fd.c
/* The writer of a ring: exact counts, wrap-around, texts, reserved room, open slots, and a reader at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/ring_writer.h"

#define CELLS RING_MIN_CELLS
#define PLAIN_ROOM (CELLS - RING_RESERVED)

static int open_slot(struct ring *ring, const struct ring_open *entry) {
  int16_t slot;
  struct ring_open *to = ring_claim_slot(ring, &slot);
  if (!to)
    return slot;
  uint64_t *words = (uint64_t *)to;
  for (size_t i = 1; i < sizeof(*to) / sizeof(uint64_t); i++)
    __atomic_store_n(&words[i], ((const uint64_t *)entry)[i], __ATOMIC_RELAXED);
  ring_show_slot(to, entry->id);
  return slot;
}

static int open_ring(void **state) {
  struct ring *ring = calloc(1, sizeof(*ring));
  *state = ring;
  return ring ? ring_open(0x1122334455667788u, 3, CELLS, ring) : -1;
}

static int close_ring(void **state) {
  ring_unmap(*state);
  free(*state);
  return 0;
}

static bool put_span(struct ring *ring, uint64_t id, bool structural) {
  struct ring_span span = {
      .type = RING_SPAN, .id = id, .parent = id + 1, .start_ns = id + 2, .end_ns = id + 3, .text_cells = 99};
  return ring_put(ring, &span, NULL, 0, NULL, 0, structural);
}

static const void *cell(const struct ring *ring, uint64_t index) {
  return ring->cells + (index % CELLS) * RING_CELL;
}

/* Text of `n` cells from `index` on; returns its length. */
static size_t read_text(const struct ring *ring, uint64_t index, unsigned n, char *out) {
  size_t len = 0;
  for (unsigned i = 0; i < n; i++) {
    const struct ring_text *text = cell(ring, index + i);
    assert_int_equal(text->type, RING_TEXT);
    assert_true(text->used <= RING_TEXT_BYTES);
    memcpy(out + len, text->text, text->used);
    len += text->used;
  }
  return len;
}

static void consume(struct ring *ring) {
  __atomic_store_n(&ring->shm->tail, ring->shm->head, __ATOMIC_RELEASE);
}

static void header_and_seals(void **state) {
  struct ring *ring = *state;
  assert_true(ring->shm->magic == RING_MAGIC);
  assert_int_equal(ring->shm->abi_major, RING_ABI_MAJOR);
  assert_int_equal(ring->shm->cells, CELLS);
  assert_int_equal(ring->shm->open_slots, RING_OPEN_SLOTS);
  assert_int_equal(ring->shm->ring_no, 3);
  assert_true(ring->shm->session == 0x1122334455667788u);
  assert_true(ring->fd >= 200);
  assert_int_equal(fcntl(ring->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  assert_int_equal(fcntl(ring->fd, F_GET_SEALS) & seals, seals);
  struct stat st;
  assert_int_equal(fstat(ring->fd, &st), 0);
  assert_int_equal(st.st_size, RING_BYTES(CELLS));
  assert_int_equal(ftruncate(ring->fd, 0), -1);
  assert_int_equal(ftruncate(ring->fd, st.st_size * 2), -1);
}

static void bad_sizes_are_refused(void **state) {
  (void)state;
  struct ring ring = {.ring_no = 77};
  static const uint32_t bad[] = {0, 1, RING_MIN_CELLS / 2, RING_MIN_CELLS + 1, 3 * RING_MIN_CELLS, RING_MAX_CELLS * 2};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
    assert_int_equal(ring_open(1, 1, bad[i], &ring), -EINVAL);
  assert_int_equal(ring.ring_no, 77);
}

static void fills_then_drops_exactly(void **state) {
  struct ring *ring = *state;
  uint64_t stored = 0;
  for (uint64_t i = 1; i <= 3 * CELLS; i++)
    stored += put_span(ring, i, false);
  assert_int_equal(stored, PLAIN_ROOM);
  assert_int_equal(ring->shm->head, PLAIN_ROOM);
  assert_int_equal(ring->shm->emitted_spans, 3 * CELLS);
  assert_int_equal(ring->shm->dropped_spans, 3 * CELLS - PLAIN_ROOM);
}

static void reserved_cells_are_for_structure(void **state) {
  struct ring *ring = *state;
  while (put_span(ring, 1, false))
    ;
  unsigned structural = 0;
  while (put_span(ring, 2, true))
    structural++;
  assert_int_equal(structural, RING_RESERVED);
  assert_int_equal(ring->shm->head, CELLS);

  struct ring_move move = {.type = RING_MOVE, .span = 5, .parent = 6};
  assert_false(ring_put(ring, &move, NULL, 0, NULL, 0, true));
  assert_int_equal(ring->shm->dropped_moves, 1);
  struct ring_thread thread = {.type = RING_THREAD};
  assert_false(ring_put(ring, &thread, NULL, 0, NULL, 0, true));
  struct ring_mark mark = {.type = RING_MARK};
  assert_false(ring_put(ring, &mark, NULL, 0, NULL, 0, false));
  assert_int_equal(ring->shm->emitted_marks, 1);
  assert_int_equal(ring->shm->dropped_marks, 1);
  assert_int_equal(ring->shm->emitted_spans, ring->shm->head + ring->shm->dropped_spans);

  consume(ring);
  assert_true(ring_put(ring, &move, NULL, 0, NULL, 0, true));
  assert_memory_equal(cell(ring, CELLS), &move, RING_CELL);
}

static void wraps_around(void **state) {
  struct ring *ring = *state;
  for (uint64_t i = 0; i < 20 * CELLS; i++) {
    assert_true(put_span(ring, i, false));
    const struct ring_span *span = cell(ring, i);
    assert_int_equal(span->id, i);
    assert_int_equal(span->text_cells, 0);
    if (i % 700 == 0)
      consume(ring);
  }
  assert_int_equal(ring->shm->head, 20 * CELLS);
  assert_int_equal(ring->shm->dropped_spans, 0);
}

/* A reader that leaves nonsense in the tail costs records, nothing else. */
static void nonsense_tail_is_full(void **state) {
  struct ring *ring = *state;
  while (put_span(ring, 1, true))
    ;
  uint64_t head = ring->shm->head;
  static const uint64_t tails[] = {1, 2, 63, CELLS, UINT64_MAX / 2};
  for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
    ring->shm->tail = head + tails[i];
    assert_false(put_span(ring, 1, false));
    assert_false(put_span(ring, 1, true));
  }
  consume(ring);
  assert_true(put_span(ring, 1, false));
}

static void texts_follow_the_record(void **state) {
  struct ring *ring = *state;
  char value[400], attrs[200], out[RING_TEXT_MAX_CELLS * RING_TEXT_BYTES];
  memset(value, 'v', sizeof(value));
  memset(attrs, 'a', sizeof(attrs));
  for (int lap = 0; lap < 200; lap++) { /* so that texts cross the end of the ring too */
    size_t value_len = (size_t)lap * 2, attrs_len = (size_t)lap;
    uint64_t at = ring->head;
    struct ring_mark mark = {
        .type = RING_MARK, .value_type = MARK_STRING, .id = (uint64_t)lap, .text_cells = 7, .value_cells = 9};
    assert_true(ring_put(ring, &mark, value, value_len, attrs, attrs_len, false));
    const struct ring_mark *got = cell(ring, at);
    assert_int_equal(got->id, lap);
    assert_int_equal(got->value_cells, ring_text_cells(value_len));
    assert_int_equal(got->text_cells, ring_text_cells(value_len) + ring_text_cells(attrs_len));
    assert_int_equal(ring->shm->head, at + 1 + got->text_cells);
    unsigned value_cells = got->value_cells;
    assert_int_equal(read_text(ring, at + 1, value_cells, out), value_len);
    assert_memory_equal(out, value, value_len);
    assert_int_equal(read_text(ring, at + 1 + value_cells, got->text_cells - value_cells, out), attrs_len);
    assert_memory_equal(out, attrs, attrs_len);
    consume(ring);
  }
  struct ring_span span = {.type = RING_SPAN, .id = 1};
  uint64_t at = ring->head;
  assert_true(ring_put(ring, &span, attrs, 61, NULL, 0, false));
  assert_int_equal(((const struct ring_span *)cell(ring, at))->text_cells, 2);
}

static void text_needs_room_for_all_of_it(void **state) {
  struct ring *ring = *state;
  char attrs[600] = {0};
  while (ring->head < PLAIN_ROOM - 10)
    put_span(ring, 1, false);
  struct ring_span span = {.type = RING_SPAN};
  assert_false(ring_put(ring, &span, attrs, sizeof(attrs), NULL, 0, false)); /* 11 cells, 10 free */
  assert_int_equal(ring->shm->head, PLAIN_ROOM - 10);
  assert_int_equal(ring->shm->dropped_spans, 1);
  assert_true(ring_put(ring, &span, attrs, sizeof(attrs) - RING_TEXT_BYTES, NULL, 0, false));
  assert_int_equal(ring->shm->emitted_spans, PLAIN_ROOM - 10 + 2);
}

static void long_values_are_cut_at_a_character(void **state) {
  struct ring *ring = *state;
  static char text[20000], out[RING_TEXT_MAX_CELLS * RING_TEXT_BYTES];
  const size_t limit = sizeof(out);
  memset(text, 'x', sizeof(text));
  memcpy(text + limit - 2, "\xe2\x82\xac", 3); /* a character across the limit */
  struct ring_mark mark = {.type = RING_MARK, .value_type = MARK_STRING};
  assert_true(ring_put(ring, &mark, text, sizeof(text), "{}", 2, false));
  const struct ring_mark *got = cell(ring, 0);
  assert_int_equal(got->value_cells, RING_TEXT_MAX_CELLS);
  assert_int_equal(got->text_cells, RING_TEXT_MAX_CELLS); /* no room for the attributes: left out whole */
  assert_int_equal(read_text(ring, 1, got->value_cells, out), limit - 2);

  struct ring_span span = {.type = RING_SPAN};
  consume(ring);
  uint64_t at = ring->head;
  assert_true(ring_put(ring, &span, text, limit, NULL, 0, false));
  assert_int_equal(((const struct ring_span *)cell(ring, at))->text_cells, RING_TEXT_MAX_CELLS);
  consume(ring);
  at = ring->head;
  assert_true(ring_put(ring, &span, text, limit + 1, NULL, 0, false)); /* JSON is not cut */
  assert_int_equal(((const struct ring_span *)cell(ring, at))->text_cells, 0);

  consume(ring);
  memset(text, 0xbf, sizeof(text)); /* no UTF-8 at all */
  at = ring->head;
  assert_true(ring_put(ring, &mark, text, sizeof(text), NULL, 0, false));
  assert_int_equal(read_text(ring, at + 1, RING_TEXT_MAX_CELLS, out), limit);
}

static void text_cells_of_lengths(void **state) {
  (void)state;
  assert_int_equal(ring_text_cells(0), 0);
  assert_int_equal(ring_text_cells(1), 1);
  assert_int_equal(ring_text_cells(60), 1);
  assert_int_equal(ring_text_cells(61), 2);
  assert_int_equal(ring_text_cells(15300), 255);
  assert_int_equal(ring_text_cells(15301), 255);
  assert_int_equal(ring_text_cells(SIZE_MAX), 255);
}

static void slots_come_and_go(void **state) {
  struct ring *ring = *state;
  int slots[RING_OPEN_SLOTS];
  struct ring_open entry = {.parent = 4, .kind = SPAN_STEP, .tid = 9, .depth = 3};
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++) {
    entry.id = i + 1;
    slots[i] = open_slot(ring, &entry);
    assert_true(slots[i] >= 0);
    assert_memory_equal(&ring->open[slots[i]], &entry, sizeof(entry));
  }
  entry.id = 1000;
  assert_int_equal(open_slot(ring, &entry), -1);
  ring_close_slot(ring, -1);
  ring_close_slot(ring, RING_OPEN_SLOTS);
  ring_close_slot(ring, slots[100]);
  assert_int_equal(ring->open[slots[100]].id, 0);
  assert_int_equal(open_slot(ring, &entry), slots[100]);
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++)
    ring_close_slot(ring, slots[i]);
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++)
    assert_int_equal(ring->open[i].id, 0);
}

/* The warm path takes no page fault: also on the first lap. */
static void no_page_fault(void **state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* their own books fault */
#endif
  struct ring ring;
  struct rusage before, after;
  assert_int_equal(ring_open(1, 1, 16384, &ring), 0);
  struct ring_open entry = {.id = 1};
  put_span(&ring, 0, false);
  ring_close_slot(&ring, open_slot(&ring, &entry));
  assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
  for (uint64_t i = 0; i < 100000; i++) {
    entry.id = i + 1;
    int slot = open_slot(&ring, &entry);
    put_span(&ring, i, false);
    ring_close_slot(&ring, slot);
    if (i % 16000 == 0)
      consume(&ring);
  }
  assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
  assert_int_equal(after.ru_minflt - before.ru_minflt, 0);
  ring_unmap(&ring);
}

/* A reader in its own mapping, as collectord has it. Every record and every open entry is of one piece. */

struct reader {
  struct ring *ring;
  uint64_t read, torn, entries;
};

#define RACE_RECORDS 3000000u

static void read_cells(struct reader *reader, struct ring_header *shm, const uint8_t *cells) {
  uint64_t head = __atomic_load_n(&shm->head, __ATOMIC_ACQUIRE);
  for (uint64_t at = shm->tail; at < head; at++) {
    struct ring_span span;
    memcpy(&span, cells + (at % shm->cells) * RING_CELL, sizeof(span));
    reader->torn += span.id != at || span.parent != at + 1 || span.start_ns != at + 2 || span.end_ns != at + 3;
    reader->read++;
  }
  __atomic_store_n(&shm->tail, head, __ATOMIC_RELEASE);
}

static void read_slots(struct reader *reader, struct ring_open *open) {
  for (unsigned i = 0; i < 4; i++) {
    uint64_t words[8], *from = (uint64_t *)&open[i];
    words[0] = __atomic_load_n(&from[0], __ATOMIC_ACQUIRE);
    for (int w = 1; w < 8; w++)
      words[w] = __atomic_load_n(&from[w], __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (words[0] == 0 || __atomic_load_n(&from[0], __ATOMIC_RELAXED) != words[0])
      continue;
    reader->torn += words[1] != words[0] + 1 || words[2] != words[0] + 2;
    reader->entries++;
  }
}

static void *reader_run(void *arg) {
  struct reader *reader = arg;
  char *memory = mmap(NULL, RING_BYTES(CELLS), PROT_READ | PROT_WRITE, MAP_SHARED, reader->ring->fd, 0);
  struct ring_header *shm = (struct ring_header *)memory;
  while (reader->read < RACE_RECORDS) {
    read_cells(reader, shm, (uint8_t *)memory + RING_CELLS_OFFSET);
    read_slots(reader, (struct ring_open *)(memory + RING_OPEN_OFFSET));
  }
  munmap(memory, RING_BYTES(CELLS));
  return NULL;
}

static void reader_never_sees_a_torn_record(void **state) {
  struct ring *ring = *state;
  struct reader reader = {.ring = ring};
  pthread_t thread;
  uint64_t refused = 0;
  assert_int_equal(pthread_create(&thread, NULL, reader_run, &reader), 0);
  for (uint64_t i = 0; i < RACE_RECORDS; i++) {
    struct ring_open entry = {.id = i + 1, .parent = i + 2, .start_ns = i + 3};
    int slot = open_slot(ring, &entry);
    while (!put_span(ring, i, false)) {
      refused++;
      sched_yield();
    }
    ring_close_slot(ring, slot);
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(reader.torn, 0);
  assert_int_equal(reader.read, RACE_RECORDS);
  assert_int_equal(ring->shm->emitted_spans, RACE_RECORDS + refused);
  assert_int_equal(ring->shm->dropped_spans, refused);
}

static void renewed_after_its_descriptor_was_closed(void **state) {
  struct ring *ring = *state;
  struct ring_open entry = {.id = 42, .parent = 1};
  int slot = open_slot(ring, &entry);
  put_span(ring, 0, false);
  ino_t old = ring->ino;
  void *place = ring->shm;
  close(ring->fd);
  int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
  assert_int_equal(dup2(file, ring->fd), ring->fd); /* the script's own file at that number */
  int script_fd = ring->fd;

  __atomic_store_n(&ring->renew, true, __ATOMIC_RELEASE);
  errno = 1234;
  put_span(ring, 1, false);
  assert_int_equal(errno, 1234);
  assert_false(ring->renew);
  assert_ptr_equal(ring->shm, place);
  assert_true(ring->ino != old);
  assert_true(fcntl(script_fd, F_GETFD) >= 0); /* not closed */
  assert_int_equal(ring->shm->head, 2);
  assert_int_equal(ring->open[slot].id, 42);

  struct ring_header *shm = mmap(NULL, RING_BYTES(CELLS), PROT_READ, MAP_SHARED, ring->fd, 0);
  put_span(ring, 2, false);
  assert_int_equal(shm->head, 3); /* whoever gets the new descriptor sees what is written */
  munmap(shm, RING_BYTES(CELLS));
  close(script_fd);
  close(file);
}

static void without_memfd_it_is_private_memory(void **state) {
  (void)state;
  struct rlimit none = {0}, before;
  struct ring ring;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none.rlim_max = before.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  int r = ring_open(1, 1, CELLS, &ring);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_int_equal(r, 0);
  assert_int_equal(ring.fd, -1);
  assert_true(put_span(&ring, 1, false));
  ring_unmap(&ring);
  assert_null(ring.shm);
}

static void child_of_a_fork_unmaps(void **state) {
  struct ring *ring = *state;
  put_span(ring, 0, false);
  pid_t pid = fork();
  if (pid == 0) {
    int fd = ring->fd;
    ring_unmap(ring);
    _exit(fcntl(fd, F_GETFD) == -1 && !ring->shm ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_true(put_span(ring, 1, false));
  assert_int_equal(ring->shm->head, 2);
}

#define WITH_RING(test) cmocka_unit_test_setup_teardown(test, open_ring, close_ring)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_RING(header_and_seals),
      cmocka_unit_test(bad_sizes_are_refused),
      WITH_RING(fills_then_drops_exactly),
      WITH_RING(reserved_cells_are_for_structure),
      WITH_RING(wraps_around),
      WITH_RING(nonsense_tail_is_full),
      WITH_RING(texts_follow_the_record),
      WITH_RING(text_needs_room_for_all_of_it),
      WITH_RING(long_values_are_cut_at_a_character),
      cmocka_unit_test(text_cells_of_lengths),
      WITH_RING(slots_come_and_go),
      cmocka_unit_test(no_page_fault),
      WITH_RING(reader_never_sees_a_torn_record),
      WITH_RING(renewed_after_its_descriptor_was_closed),
      cmocka_unit_test(without_memfd_it_is_private_memory),
      WITH_RING(child_of_a_fork_unmaps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
