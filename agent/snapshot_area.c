/* See snapshot_area.h. */
#include "snapshot_area.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "glibc.h"
#include "utf8.h"

#define AREA_NAME "cirron-snapshot"
#define AREAS 8u
#define BYTES_MAX (256ull << 20) /* of all but the first */
#define SPARE 4                  /* a new one has room for a quarter more than was asked for */
#define NAP_NS 5000000u
#define TEXT_BEGIN 8u /* no name is at 0 */

static struct area {
  struct snapshot_area *shm;
  size_t bytes;
  uint64_t text;       /* which one it holds; 0: none */
  uint32_t used, kept; /* bytes of text */
  unsigned generation;
  struct owned_fd owned, folder;
  char *uri;          /* of the folder, or NULL */
} areas[AREAS], *now; /* a descriptor is good where shm is */

static unsigned generations;
static unsigned waiting; /* threads, which look at the memory again when they wake */

static void drop(struct area *a) {
  if (!a->shm)
    return;
  fd_drop(&a->owned);
  fd_drop(&a->folder);
  free(a->uri);
  if (!waiting)
    munmap(a->shm, a->bytes);
  *a = (struct area){0};
}

void snapshot_area_forget(void) {
  for (unsigned i = 0; i < AREAS; i++)
    drop(&areas[i]);
  now = NULL;
  waiting = 0;
}

static void *private_memory(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static size_t up(size_t bytes) {
  return (bytes + SNAPSHOT_PAGE - 1) & ~(size_t)(SNAPSHOT_PAGE - 1);
}

/* Nothing in it is waited for. */
static bool is_free(const struct area *a) {
  return a->shm && __atomic_load_n(&a->shm->stored, __ATOMIC_ACQUIRE) == a->shm->number;
}

static bool fits(const struct area *a, uint32_t entries, size_t text_bytes, bool shared) {
  return a->shm->entries >= entries && a->shm->text_bytes >= text_bytes && shared == (a->owned.fd >= 0) &&
         (!shared || fd_ours(&a->owned));
}

static int make(struct area *a, uint64_t session, uint32_t entries, size_t text_bytes, bool shared) {
  uint32_t more = entries + entries / SPARE;
  size_t text = up(text_bytes + text_bytes / SPARE + TEXT_BEGIN);
  more = more < SNAPSHOT_MAX_ENTRIES ? more : SNAPSHOT_MAX_ENTRIES;
  text = text < SNAPSHOT_MAX_TEXT ? text : SNAPSHOT_MAX_TEXT;
  size_t bytes = up(SNAPSHOT_BYTES(more, text));
  struct owned_fd owned = OWNED_FD_NONE;
  void *memory = NULL;
  if (!shared || !fd_size_allowed(bytes) || fd_memory(AREA_NAME, bytes, false, &memory, &owned) < 0) {
    owned = OWNED_FD_NONE;
    memory = private_memory(bytes);
  }
  if (!memory)
    return -ENOMEM;
  drop(a);
  *a = (struct area){.shm = memory, .bytes = bytes, .generation = ++generations, .owned = owned, .folder = OWNED_FD_NONE};
  *a->shm = (struct snapshot_area){
      .abi = SNAPSHOT_ABI,
      .entries = more,
      .bytes = bytes,
      .text_bytes = bytes - SNAPSHOT_TEXT_OFFSET(more),
      .session = session,
  };
  __atomic_store_n(&a->shm->magic, SNAPSHOT_MAGIC, __ATOMIC_RELEASE);
  return 0;
}

/* A place for another one: unused, or free and too small. NULL: there is none, or they would be too much. */
static struct area *place(size_t bytes) {
  struct area *found = NULL;
  uint64_t sum = 0;
  for (unsigned i = 0; i < AREAS; i++) {
    sum += areas[i].bytes;
    if (!found && !areas[i].shm)
      found = &areas[i];
  }
  for (unsigned i = 0; i < AREAS; i++)
    if (is_free(&areas[i]))
      found = &areas[i]; /* in its place */
  return !found || (sum && sum - found->bytes + bytes > BYTES_MAX && sum != found->bytes) ? NULL : found;
}

static void let_go_folder(struct area *a) {
  fd_drop(&a->folder);
  free(a->uri);
  a->uri = NULL;
}

int snapshot_area_take(uint64_t session, uint32_t entries, size_t text_bytes, uint64_t text, bool shared) {
  struct area *a = now && is_free(now) && fits(now, entries, text_bytes, shared) ? now : NULL;
  if (entries > SNAPSHOT_MAX_ENTRIES || text_bytes > SNAPSHOT_MAX_TEXT)
    return -E2BIG;
  for (unsigned i = 0; i < AREAS && !a; i++)
    if (is_free(&areas[i]) && fits(&areas[i], entries, text_bytes, shared))
      a = &areas[i];
  if (!a) {
    a = place(SNAPSHOT_BYTES(entries, text_bytes));
    int r = a ? make(a, session, entries, text_bytes, shared) : -EBUSY;
    if (r < 0)
      return r;
  }
  let_go_folder(a);
  now = a;
  if (a->text == text)
    return 0;
  a->text = text;
  a->kept = TEXT_BEGIN;
  return 1;
}

void snapshot_area_give_up_oldest(void) {
  struct snapshot_asked asked;
  if (snapshot_area_asked(0, &asked))
    snapshot_area_stored(asked.area);
}

struct snapshot_area *snapshot_area_get(void) {
  return now ? now->shm : NULL;
}

struct snapshot_entry *snapshot_area_entries(void) {
  return (struct snapshot_entry *)((char *)now->shm + SNAPSHOT_ENTRIES_OFFSET);
}

struct snapshot_result *snapshot_area_results(void) {
  return (struct snapshot_result *)((char *)now->shm + SNAPSHOT_RESULTS_OFFSET(now->shm->entries));
}

char *snapshot_area_text(void) {
  return (char *)now->shm + SNAPSHOT_TEXT_OFFSET(now->shm->entries);
}

void snapshot_area_text_begin(void) {
  now->used = now->kept;
}

void snapshot_area_text_keep(void) {
  now->kept = now->used;
}

static uint32_t put(const void *data, size_t bytes, unsigned align) {
  uint32_t at = (now->used + align - 1) & ~(align - 1);
  memcpy(snapshot_area_text() + at, data, bytes);
  now->used = at + (uint32_t)bytes;
  return at;
}

uint32_t snapshot_area_put_name(const char *text, size_t len) {
  uint32_t length = (uint32_t)utf8_cut(text, len, SNAPSHOT_NAME_MAX);
  uint32_t at = put(&length, sizeof length, 4);
  put(text, length, 1);
  return at;
}

uint32_t snapshot_area_put_dims(const int64_t *dims, unsigned n) {
  return put(dims, n * sizeof *dims, 8);
}

void snapshot_area_folder(struct owned_fd *folder, const char *uri) {
  let_go_folder(now);
  now->uri = strdup(uri);
  now->folder = *folder;
  *folder = OWNED_FD_NONE;
}

int snapshot_area_folder_fd(void) {
  return fd_ours(&now->folder) ? now->folder.fd : -1;
}

bool snapshot_area_asked(uint64_t after, struct snapshot_asked *out) {
  const struct area *next = NULL;
  for (unsigned i = 0; i < AREAS; i++) {
    const struct area *a = &areas[i];
    if (a->shm && a->shm->number > after && !is_free(a) && (!next || a->shm->number < next->shm->number))
      next = a;
  }
  if (!next)
    return false;
  *out = (struct snapshot_asked){
      .area = next->shm,
      .fd = fd_ours(&next->owned) ? next->owned.fd : -1,
      .folder = fd_ours(&next->folder) ? next->folder.fd : -1,
      .generation = next->generation,
      .uri = next->uri,
  };
  return true;
}

void snapshot_area_stored(const struct snapshot_area *area) {
  for (unsigned i = 0; i < AREAS; i++)
    if (areas[i].shm == area)
      __atomic_store_n(&areas[i].shm->stored, areas[i].shm->number, __ATOMIC_RELEASE);
}

unsigned snapshot_area_generation(void) {
  return now ? now->generation : 0;
}

void snapshot_area_waits(bool begins) {
  if (begins)
    waiting++;
  else if (waiting)
    waiting--;
}

uint32_t snapshot_area_wait(struct snapshot_area *shm, uint32_t want, uint64_t until_ns) {
  uint32_t done = __atomic_load_n(&shm->done, __ATOMIC_ACQUIRE);
  uint64_t ns = clock_system();
  if (done >= want || ns >= until_ns || __atomic_load_n(&shm->finished, __ATOMIC_ACQUIRE) == shm->number)
    return __atomic_load_n(&shm->done, __ATOMIC_ACQUIRE);
  uint64_t left = until_ns - ns < NAP_NS ? until_ns - ns : NAP_NS;
  struct timespec nap = {.tv_sec = 0, .tv_nsec = (long)left};
  (void)syscall(SYS_futex, &shm->done, FUTEX_WAIT, done, &nap, NULL, 0); /* woken, changed, interrupted or late: all the same */
  return __atomic_load_n(&shm->done, __ATOMIC_ACQUIRE);
}
