/* See ring_writer.h and proto/ring_abi.h.
 *
 * The hot path is in the header; here is the making of a ring, text, and what happens when it seems full. No lock, no system call,
 * no page fault: the memory is populated when the ring is made.
 */
#include "ring_writer.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "fd.h"
#include "utf8.h"

#define RING_NAME "cirron-ring"
/* So many rings are made of memory that is there at once, so that no span meets a page fault. With hundreds of threads that would be
 * hundreds of MiB, most of them never used. */
#define PREFAULTED 16
#define HURRY_PART 8u
#define CELL_WORDS (RING_CELL / sizeof(uint64_t))

typedef uint64_t __attribute__((may_alias)) word_t;

/* Copies a cell, from word `first` on. Word by word, because the caller has just written it so: wider loads would wait until those
 * stores have left the processor's store buffer. */
static inline void copy_words(void *to, const void *from, unsigned first) {
#pragma GCC unroll 8
  for (unsigned i = first; i < CELL_WORDS; i++)
    __atomic_store_n((word_t *)to + i, ((const word_t *)from)[i], __ATOMIC_RELAXED);
}

static size_t ring_bytes(const struct ring *ring) {
  return RING_BYTES((size_t)ring->mask + 1);
}

static void ring_place(struct ring *ring, void *memory) {
  ring->shm = memory;
  ring->open = (struct ring_open *)((char *)memory + RING_OPEN_OFFSET);
  ring->cells = (uint8_t *)memory + RING_CELLS_OFFSET;
}

static void header_init(struct ring_header *shm, uint64_t session, uint32_t ring_no, uint32_t cells) {
  shm->abi_major = RING_ABI_MAJOR;
  shm->abi_minor = RING_ABI_MINOR;
  shm->cells = cells;
  shm->open_slots = RING_OPEN_SLOTS;
  shm->ring_no = ring_no;
  shm->session = session;
  __atomic_store_n(&shm->magic, RING_MAGIC, __ATOMIC_RELEASE);
}

/* Where records have to be sent, the writer looks up after each part of the ring that it fills, not only when it is full: what it
 * takes for the reader's tail lags behind. */
static uint64_t hurry_cells(const struct ring *ring) {
  return ((uint64_t)ring->mask + 1) / HURRY_PART;
}

static uint64_t seen_for_hurry(const struct ring *ring, uint64_t tail) {
  uint64_t size = (uint64_t)ring->mask + 1, seen = ring->head + hurry_cells(ring) + RING_RESERVED - size;
  return tail - seen < size ? seen : tail;
}

static bool fits(uint32_t cells) {
  return cells >= RING_MIN_CELLS && cells <= RING_MAX_CELLS && !(cells & (cells - 1));
}

int ring_open(uint64_t session, uint32_t ring_no, uint32_t cells, struct ring *out) {
  if (!fits(cells))
    return -EINVAL;
  void *memory;
  struct owned_fd owned;
  if (fd_memory(RING_NAME, RING_BYTES(cells), ring_no <= PREFAULTED, &memory, &owned) < 0) {
    owned = OWNED_FD_NONE;
    memory = mmap(NULL, RING_BYTES(cells), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return -errno;
  }
  header_init(memory, session, ring_no, cells);
  *out = (struct ring){.mask = cells - 1, .ring_no = ring_no, .fd = owned.fd, .dev = owned.dev, .ino = owned.ino};
  ring_place(out, memory);
  return 0;
}

int ring_open_spare(uint64_t session, uint32_t ring_no, uint32_t cells, struct ring *out) {
  if (!fits(cells))
    return -EINVAL;
  void *memory;
  struct owned_fd owned;
  int r = fd_memory(RING_NAME, RING_BYTES(cells), false, &memory, &owned);
  if (r < 0)
    return r;
  header_init(memory, session, ring_no, cells);
  *out =
      (struct ring){.mask = cells - 1, .ring_no = ring_no, .fd = owned.fd, .dev = owned.dev, .ino = owned.ino, .spare = true};
  ring_place(out, memory);
  return 0;
}

int ring_open_private(uint64_t session, uint32_t ring_no, uint32_t cells, bool spare, void (*hurry)(void), struct ring *out) {
  if (!fits(cells))
    return -EINVAL;
  /* Shared, though with nobody: the child of a fork must not cost the parent a page fault for each page it writes next. */
  int flags = MAP_SHARED | MAP_ANONYMOUS | (ring_no <= PREFAULTED && !spare ? MAP_POPULATE : 0);
  void *memory = mmap(NULL, RING_BYTES(cells), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED)
    return -errno;
  header_init(memory, session, ring_no, cells);
  *out = (struct ring){.mask = cells - 1, .ring_no = ring_no, .fd = -1, .spare = spare, .hurry = hurry};
  ring_place(out, memory);
  out->tail_seen = seen_for_hurry(out, 0);
  return 0;
}

void ring_release_cells(struct ring *ring) {
  int saved = errno;
  (void)madvise(ring->cells, ((size_t)ring->mask + 1) * RING_CELL, MADV_REMOVE); /* refused: it stays in use, that is all */
  errno = saved;
}

void ring_unmap(struct ring *ring) {
  struct owned_fd owned = {.fd = ring->fd, .dev = ring->dev, .ino = ring->ino};
  fd_drop(&owned);
  ring->fd = -1;
  if (ring->shm)
    munmap(ring->shm, ring_bytes(ring));
  ring->shm = NULL;
  ring->open = NULL;
  ring->cells = NULL;
}

void ring_part(struct ring *ring) {
  struct owned_fd owned = {.fd = ring->fd, .dev = ring->dev, .ino = ring->ino};
  if (ring->fd < 0)
    return;
  ring->fd = -1;
  ring->parted = true;
  fd_drop(&owned);
}

static size_t used_bytes(const struct ring *ring) {
  return ring->head <= ring->mask ? RING_CELLS_OFFSET + (size_t)ring->head * RING_CELL : ring_bytes(ring);
}

void ring_renew_now(struct ring *ring) {
  int saved = errno;
  struct owned_fd owned = {.fd = ring->fd, .dev = ring->dev, .ino = ring->ino};
  bool populate = ring->ring_no <= PREFAULTED && !ring->spare;
  if (fd_memory_renew(RING_NAME, ring_bytes(ring), used_bytes(ring), populate, ring->shm, &owned) < 0)
    fd_drop(&owned); /* recorded on, but no collector can have it any more */
  ring->fd = owned.fd;
  ring->dev = owned.dev;
  ring->ino = owned.ino;
  ring->parted = false;
  __atomic_store_n(&ring->renew, false, __ATOMIC_RELEASE);
  errno = saved;
}

void ring_renew(struct ring *ring) {
  int saved = errno;
  if (ring->parted && fd_many(RING_WAITING))
    __atomic_store_n(&ring->renew, false, __ATOMIC_RELEASE); /* the link asks once more when fewer wait */
  else
    ring_renew_now(ring);
  errno = saved;
}

bool ring_make_room(struct ring *ring, unsigned cells, bool structural) {
  uint64_t size = (uint64_t)ring->mask + 1, need = cells + (structural ? 0 : RING_RESERVED);
  uint64_t tail = __atomic_load_n(&ring->shm->tail, __ATOMIC_ACQUIRE);
  if (ring->head - tail > size) /* no reader of ours left it like this: counts as full */
    return false;
  ring->tail_seen = tail;
  void (*hurry)(void) = __atomic_load_n(&ring->hurry, __ATOMIC_RELAXED);
  if (hurry) {
    if (ring->head - __atomic_load_n(&ring->sent.cells, __ATOMIC_RELAXED) >= hurry_cells(ring))
      hurry();
    ring->tail_seen = seen_for_hurry(ring, tail);
  }
  return ring->head - tail + need <= size;
}

unsigned ring_text_cells(size_t len) {
  size_t cells = len / RING_TEXT_BYTES + (len % RING_TEXT_BYTES != 0);
  return cells < RING_TEXT_MAX_CELLS ? (unsigned)cells : RING_TEXT_MAX_CELLS;
}

static uint8_t *cell_at(struct ring *ring, uint64_t index) {
  return ring->cells + (index & ring->mask) * RING_CELL;
}

static void put_text(struct ring *ring, uint64_t index, const char *text, size_t len) {
  for (size_t done = 0; done < len; index++) {
    size_t used = len - done < RING_TEXT_BYTES ? len - done : RING_TEXT_BYTES;
    struct ring_text cell = {.type = RING_TEXT, .used = (uint16_t)used};
    memcpy(cell.text, text + done, used);
    memcpy(cell_at(ring, index), &cell, sizeof(cell));
    done += used;
  }
}

#define TEXT_MAX_BYTES ((size_t)RING_TEXT_MAX_CELLS * RING_TEXT_BYTES)

/* How much of the two texts is kept: *a_len and *b_len are shortened, or become 0. Returns the cells of a in *a_cells and those of
 * both as result. */
static unsigned plan_text(uint8_t type, const char *a, size_t *a_len, const char *b, size_t *b_len, unsigned *a_cells) {
  if (!a || (type != RING_SPAN && type != RING_MARK))
    *a_len = 0;
  if (!b || type != RING_MARK)
    *b_len = 0;
  if (type == RING_MARK)
    *a_len = utf8_cut(a, *a_len, TEXT_MAX_BYTES);
  else if (*a_len > TEXT_MAX_BYTES)
    *a_len = 0;
  *a_cells = ring_text_cells(*a_len);
  if (*b_len > (RING_TEXT_MAX_CELLS - *a_cells) * (size_t)RING_TEXT_BYTES)
    *b_len = 0;
  return *a_cells + ring_text_cells(*b_len);
}

bool ring_append(struct ring *ring, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len,
                 bool structural) {
  uint8_t type = *(const uint8_t *)cell;
  unsigned a_cells = 0, text_cells = 0;
  if (unlikely(a_len | b_len))
    text_cells = plan_text(type, a, &a_len, b, &b_len, &a_cells);

  ring_check_renew(ring);
  if (!ring_has_room(ring, 1 + text_cells, structural))
    return false;
  uint8_t *at = cell_at(ring, ring->head);
  copy_words(at, cell, 0);
  if (type == RING_SPAN || type == RING_MARK)
    at[offsetof(struct ring_span, text_cells)] = (uint8_t)text_cells;
  if (type == RING_MARK)
    at[offsetof(struct ring_mark, value_cells)] = (uint8_t)a_cells;
  if (unlikely(text_cells)) {
    put_text(ring, ring->head + 1, a, a_len);
    put_text(ring, ring->head + 1 + a_cells, b, b_len);
  }
  ring->head += 1 + text_cells;
  __atomic_store_n(&ring->shm->head, ring->head, __ATOMIC_RELEASE);
  return true;
}

bool ring_put(struct ring *ring, const void *cell, const char *a, size_t a_len, const char *b, size_t b_len, bool structural) {
  uint8_t type = *(const uint8_t *)cell;
  ring_count_emitted(ring->shm, type);
  bool done = ring_append(ring, cell, a, a_len, b, b_len, structural);
  if (!done)
    ring_count_dropped(ring->shm, type);
  return done;
}

static_assert(offsetof(struct ring_span, text_cells) == offsetof(struct ring_mark, text_cells), "one place for both");

int ring_find_slot(const struct ring *ring) {
  for (unsigned i = 0; i < RING_OPEN_SLOTS; i++) {
    unsigned slot = (ring->slot_hint + i) % RING_OPEN_SLOTS;
    if (__atomic_load_n(&ring->open[slot].id, __ATOMIC_RELAXED) == 0)
      return (int)slot;
  }
  return -1;
}
