/* See segment.h.
 *
 * The table from bytes to ids is private memory: open addressing, an id in each place, 0 where it is free. It never forgets, so
 * looking a known name up takes no lock; adding one does. The first entry of the names is an empty one, because id 0 means "none".
 */
#include "segment.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "fd.h"
#include "hot.h"
#include "utf8.h"

#define SEGMENT_NAME "cirron-segment"
#define TABLE_PLACES (1u << 17)
#define TABLE_BYTES (TABLE_PLACES * sizeof(uint32_t))
#define TABLE_MAX_NAMES (TABLE_PLACES / 8 * 7) /* probing gets long beyond; the names area is full before, but for tiny names */
#define SPINS 100

static struct {
  struct ring_segment *shm;
  _Atomic uint32_t *table;
  uint32_t used; /* bytes of the names area; as names_used, but ours alone */
  uint32_t names;
  struct owned_fd owned;
} segment = {.owned = {.fd = -1}};

HOT_DATA static unsigned generation; /* grows with each segment */

static atomic_flag names_lock = ATOMIC_FLAG_INIT; /* protects adding a name, and moving the segment; a leaf */

static void lock_names(void) {
  for (unsigned spins = 0; atomic_flag_test_and_set_explicit(&names_lock, memory_order_acquire);)
    if (++spins % SPINS == 0)
      sched_yield();
}

static void unlock_names(void) {
  atomic_flag_clear_explicit(&names_lock, memory_order_release);
}

void segment_forget(void) {
  atomic_flag_clear(&names_lock); /* a thread of the parent that is not here may have held it */
  fd_drop(&segment.owned);
  if (segment.shm)
    munmap(segment.shm, SEGMENT_BYTES);
  if (segment.table)
    munmap((void *)segment.table, TABLE_BYTES);
  segment.shm = NULL;
  segment.table = NULL;
}

static void *private_memory(size_t bytes, int kind) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void header_init(struct ring_segment *shm, uint64_t session) {
  shm->abi_major = RING_ABI_MAJOR;
  shm->abi_minor = RING_ABI_MINOR;
  shm->bytes = SEGMENT_BYTES;
  shm->session = session;
  shm->names_used = sizeof(uint32_t);
  __atomic_store_n(&shm->magic, SEGMENT_MAGIC, __ATOMIC_RELEASE);
}

static int open_segment(uint64_t session, bool may_share) {
  segment_forget();
  void *table = private_memory(TABLE_BYTES, MAP_PRIVATE), *memory;
  if (!table)
    return -ENOMEM;
  struct owned_fd owned;
  if (!may_share || fd_memory(SEGMENT_NAME, SEGMENT_BYTES, false, &memory, &owned) < 0) {
    owned = OWNED_FD_NONE;
    memory = private_memory(SEGMENT_BYTES, MAP_SHARED); /* a mapping of its own, by which the collector knows us again */
    if (!memory) {
      munmap(table, TABLE_BYTES);
      return -ENOMEM;
    }
  }
  header_init(memory, session);
  segment.shm = memory;
  segment.table = table;
  segment.used = sizeof(uint32_t);
  segment.names = 0;
  segment.owned = owned;
  generation++;
  return 0;
}

int segment_open(uint64_t session) {
  return open_segment(session, true);
}

int segment_open_private(uint64_t session) {
  return open_segment(session, false);
}

int segment_renew(void) {
  if (!segment.shm || segment.owned.fd < 0)
    return -ENOTSUP;
  lock_names();
  size_t used = SEGMENT_NAMES_OFFSET + segment.used;
  int r = fd_memory_renew(SEGMENT_NAME, SEGMENT_BYTES, used, false, segment.shm, &segment.owned);
  unlock_names();
  return r;
}

static uint32_t hash(const char *text, size_t len) {
  uint64_t h = 0xcbf29ce484222325u; /* FNV-1a, then its high bits mixed in */
  for (size_t i = 0; i < len; i++)
    h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
  return (uint32_t)(h ^ h >> 32);
}

static char *names_area(void) {
  return (char *)segment.shm + SEGMENT_NAMES_OFFSET;
}

static bool entry_is(uint32_t id, const char *text, size_t len) {
  size_t offset = (size_t)id * 4 + sizeof(uint32_t);
  uint32_t entry_len;
  memcpy(&entry_len, names_area() + offset - sizeof(uint32_t), sizeof(entry_len));
  return entry_len == len && offset + len <= SEGMENT_NAMES_BYTES && memcmp(names_area() + offset, text, len) == 0;
}

/* The id, or 0 and in *place where it would have to go. */
static uint32_t look_up(const char *text, size_t len, uint32_t *place) {
  uint32_t at = hash(text, len) % TABLE_PLACES;
  for (;; at = (at + 1) % TABLE_PLACES) {
    uint32_t id = atomic_load_explicit(&segment.table[at], memory_order_acquire);
    if (id == 0) {
      *place = at;
      return 0;
    }
    if (entry_is(id, text, len))
      return id;
  }
}

static uint32_t add_name(const char *text, size_t len, uint32_t place) {
  uint32_t offset = segment.used, length = (uint32_t)len;
  uint32_t bytes = (uint32_t)(sizeof(length) + len + 3) & ~3u;
  if (segment.names >= TABLE_MAX_NAMES || bytes > SEGMENT_NAMES_BYTES - offset) {
    __atomic_fetch_add(&segment.shm->dropped_names, 1, __ATOMIC_RELAXED);
    return 0;
  }
  memcpy(names_area() + offset, &length, sizeof(length));
  memcpy(names_area() + offset + sizeof(length), text, len);
  segment.used = offset + bytes;
  segment.names++;
  __atomic_store_n(&segment.shm->names_used, segment.used, __ATOMIC_RELEASE);
  atomic_store_explicit(&segment.table[place], offset / 4, memory_order_release);
  return offset / 4;
}

uint32_t segment_name(const char *text, size_t len) {
  if (!segment.shm)
    return 0;
  len = utf8_cut(text, len, NAME_MAX_BYTES);
  uint32_t place, id = look_up(text, len, &place);
  if (id)
    return id;
  lock_names();
  id = look_up(text, len, &place); /* another thread may have been first */
  if (!id)
    id = add_name(text, len, place);
  unlock_names();
  return id;
}

const char *segment_text(uint32_t id, size_t *len) {
  if (!segment.shm || id == 0)
    return NULL;
  size_t used = __atomic_load_n(&segment.shm->names_used, __ATOMIC_ACQUIRE), at = (size_t)id * 4 + sizeof(uint32_t);
  uint32_t length;
  if (used > SEGMENT_NAMES_BYTES || at > used)
    return NULL;
  memcpy(&length, names_area() + at - sizeof length, sizeof length);
  if (length > used - at)
    return NULL;
  *len = length;
  return names_area() + at;
}

struct ring_segment *segment_get(void) {
  return segment.shm;
}

int segment_fd(void) {
  return fd_ours(&segment.owned) ? segment.owned.fd : -1;
}

unsigned segment_generation(void) {
  return generation;
}
