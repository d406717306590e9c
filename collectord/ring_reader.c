#include "ring_reader.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define CLEAR_CELLS 4096u

static struct ring_header *header(const struct ring_reader *r) {
  return r->mapping.memory;
}

static const uint8_t *cell_at(const struct ring_reader *r, uint64_t position) {
  return (const uint8_t *)r->mapping.memory + RING_CELLS_OFFSET + (position & (r->cells - 1)) * RING_CELL;
}

/* The compiler must not read the shared cell a second time after we have looked at the copy. */
static void copy_cell(const struct ring_reader *r, uint64_t position, void *out) {
  const volatile uint64_t *from = (const volatile uint64_t *)cell_at(r, position);
  uint64_t words[RING_CELL / 8];
  for (unsigned i = 0; i < RING_CELL / 8; i++)
    words[i] = from[i];
  memcpy(out, words, RING_CELL);
}

static bool possible(uint32_t ring_no, uint32_t cells) {
  return cells >= RING_MIN_CELLS && cells <= RING_MAX_CELLS && !(cells & (cells - 1)) && ring_no;
}

int ring_reader_open(int fd, uint32_t ring_no, uint32_t cells, uint64_t session, struct ring_reader *out) {
  if (!possible(ring_no, cells))
    return -EPROTO;
  struct ring_reader r = {.ring_no = ring_no, .cells = cells};
  int err = mapping_open(fd, RING_BYTES(cells), &r.mapping);
  if (err)
    return err;
  struct ring_header h;
  memcpy(&h, r.mapping.memory, sizeof h);
  if (h.magic != RING_MAGIC || h.abi_major != RING_ABI_MAJOR || h.cells != cells || h.open_slots != RING_OPEN_SLOTS ||
      h.ring_no != ring_no || h.session != session) {
    mapping_close(&r.mapping);
    return -EPROTO;
  }
  *out = r;
  ring_reader_seek(out, 0);
  return 0;
}

int ring_reader_make(uint32_t ring_no, uint32_t cells, uint64_t session, uint64_t position, struct ring_reader *out) {
  if (!possible(ring_no, cells))
    return -EPROTO;
  struct ring_reader r = {
      .ring_no = ring_no,
      .cells = cells,
      .next = position,
      .released = position,
      .base = position,
      .head = position,
      .own = true,
      .cleared = position,
  };
  int err = mapping_own(RING_BYTES(cells), &r.mapping);
  if (err)
    return err;
  *header(&r) = (struct ring_header){
      .magic = RING_MAGIC,
      .abi_major = RING_ABI_MAJOR,
      .abi_minor = RING_ABI_MINOR,
      .cells = cells,
      .open_slots = RING_OPEN_SLOTS,
      .ring_no = ring_no,
      .session = session,
      .head = position,
      .tail = position,
  };
  *out = r;
  return 0;
}

void ring_reader_close(struct ring_reader *reader) {
  mapping_close(&reader->mapping);
}

int ring_reader_move(struct ring_reader *reader, int fd, uint32_t cells, uint64_t session) {
  struct ring_reader now;
  int err = ring_reader_open(fd, reader->ring_no, cells, session, &now);
  if (err)
    return err;
  if (cells != reader->cells) {
    ring_reader_close(&now);
    return -EPROTO;
  }
  mapping_close(&reader->mapping);
  reader->mapping = now.mapping;
  reader->released = reader->base = now.released;
  return 0;
}

/* Which thread wrote what we go on with, when its RING_THREAD was read by a collector before us: open slots keep the thread that
 * used them last, and the first record of a ring that is not yet round is still there. */
static uint32_t guess_tid(const struct ring_reader *r) {
  const volatile struct ring_open *open = (const void *)((const uint8_t *)r->mapping.memory + RING_OPEN_OFFSET);
  uint32_t tid = 0;
  uint64_t latest = 0;
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++)
    if (open[i].tid && open[i].start_ns >= latest) {
      latest = open[i].start_ns;
      tid = open[i].tid;
    }
  struct ring_thread first;
  copy_cell(r, 0, &first);
  return tid ? tid : first.type == RING_THREAD ? first.tid : 0;
}

void ring_reader_seek(struct ring_reader *reader, uint64_t tail) {
  uint64_t shared = __atomic_load_n(&header(reader)->tail, __ATOMIC_ACQUIRE);
  reader->next = tail > shared ? tail : shared;
  reader->released = reader->base = shared;
  reader->head = reader->next;
  if (reader->next)
    reader->tid = guess_tid(reader);
}

int ring_reader_look(struct ring_reader *reader) {
  uint64_t head = __atomic_load_n(&header(reader)->head, __ATOMIC_ACQUIRE);
  /* Nobody honest writes over what was not released. In other memory (ring_reader_move) `base` is what a stranger says: what was not
   * read either is never more than a ring's length. */
  if (head >= reader->head && head - reader->base <= reader->cells && head - reader->next <= reader->cells) {
    reader->head = head;
    return 0;
  }
  reader->bad++;
  reader->head = reader->next = reader->base = head;
  return ++reader->jumps > RING_READER_MAX_JUMPS ? -EPROTO : 0;
}

/* Appends the text cells from `first` on. False: they are not what the record promised. */
static bool read_text(const struct ring_reader *r, uint64_t first, unsigned count, struct ring_record *out) {
  for (unsigned i = 0; i < count; i++) {
    struct ring_text cell;
    copy_cell(r, first + i, &cell);
    if (cell.type != RING_TEXT || cell.used > RING_TEXT_BYTES)
      return false;
    memcpy(out->text + out->text_len, cell.text, cell.used);
    out->text_len += cell.used;
    if (out->type == RING_MARK && i < out->mark.value_cells)
      out->value_len = out->text_len;
  }
  return true;
}

static unsigned text_cells(const struct ring_record *record) {
  return record->type == RING_SPAN ? record->span.text_cells : record->type == RING_MARK ? record->mark.text_cells : 0;
}

/* One cell that is no record. The text that follows an unknown record belongs to it and is passed without a count. */
static void skip(struct ring_reader *r, uint8_t type, bool *in_unknown) {
  if (type != RING_TEXT || !*in_unknown)
    r->bad++;
  *in_unknown = true;
  r->next++;
}

bool ring_reader_peek(struct ring_reader *reader, uint64_t limit, struct ring_record *out) {
  bool in_unknown = false;
  while (reader->next < limit) {
    copy_cell(reader, reader->next, &out->span);
    out->value_len = out->text_len = 0;
    out->text_bad = false;
    unsigned text = text_cells(out);
    out->cells = 1 + text;
    if (out->type == RING_THREAD) {
      reader->tid = out->thread.tid;
      reader->next++;
      in_unknown = false;
      continue;
    }
    if (out->type != RING_SPAN && out->type != RING_MARK && out->type != RING_MOVE && out->type != RING_AFTER) {
      skip(reader, out->type, &in_unknown);
      continue;
    }
    if (out->cells > limit - reader->next) {
      skip(reader, out->type, &in_unknown);
      continue;
    }
    if (!read_text(reader, reader->next + 1, text, out)) {
      out->value_len = out->text_len = 0;
      out->text_bad = true;
      out->cells = 1; /* whatever follows speaks for itself */
      reader->bad++;
    }
    return true;
  }
  return false;
}

void ring_reader_consume(struct ring_reader *reader, const struct ring_record *record) {
  reader->next += record->cells;
}

/* Memory that nobody needs before the ring comes round again is not to be held by us for each thread of each process. */
static void clear(struct ring_reader *r) {
  if (r->released - r->cleared < CLEAR_CELLS || r->released != __atomic_load_n(&header(r)->head, __ATOMIC_RELAXED))
    return;
  (void)madvise((uint8_t *)r->mapping.memory + RING_CELLS_OFFSET, (size_t)r->cells * RING_CELL, MADV_DONTNEED);
  r->cleared = r->released;
}

void ring_reader_release(struct ring_reader *reader, uint64_t tail) {
  if (tail == reader->released)
    return;
  reader->released = reader->base = tail;
  __atomic_store_n(&header(reader)->tail, tail, __ATOMIC_RELEASE);
  if (reader->own)
    clear(reader);
}

size_t ring_reader_open_spans(const struct ring_reader *reader, struct ring_open *out) {
  struct ring_open *slots = (void *)((uint8_t *)reader->mapping.memory + RING_OPEN_OFFSET);
  size_t n = 0;
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++) {
    uint64_t id = __atomic_load_n(&slots[i].id, __ATOMIC_ACQUIRE);
    if (!id)
      continue;
    const volatile uint64_t *from = (const volatile uint64_t *)&slots[i];
    uint64_t words[RING_CELL / 8];
    for (unsigned w = 0; w < RING_CELL / 8; w++)
      words[w] = from[w];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    memcpy(&out[n], words, sizeof out[n]);
    if (out[n].id == id && __atomic_load_n(&slots[i].id, __ATOMIC_RELAXED) == id)
      n++;
  }
  return n;
}

struct ring_counters ring_reader_counters(const struct ring_reader *reader) {
  const struct ring_header *h = header(reader);
  return (struct ring_counters){
      .emitted_spans = __atomic_load_n(&h->emitted_spans, __ATOMIC_RELAXED),
      .emitted_marks = __atomic_load_n(&h->emitted_marks, __ATOMIC_RELAXED),
      .dropped_spans = __atomic_load_n(&h->dropped_spans, __ATOMIC_RELAXED),
      .dropped_marks = __atomic_load_n(&h->dropped_marks, __ATOMIC_RELAXED),
      .dropped_moves = __atomic_load_n(&h->dropped_moves, __ATOMIC_RELAXED),
  };
}
