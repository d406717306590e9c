#include "area.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_ours(const struct snapshot_area *h, uint64_t bytes, uint64_t prefix) {
  return h->magic == SNAPSHOT_MAGIC && h->abi == SNAPSHOT_ABI && h->session == prefix && h->entries &&
         h->entries <= SNAPSHOT_MAX_ENTRIES && h->text_bytes <= SNAPSHOT_MAX_TEXT && h->bytes == bytes &&
         SNAPSHOT_BYTES(h->entries, h->text_bytes) <= bytes;
}

int area_open(int fd, uint64_t bytes, uint64_t prefix, struct area **out) {
  if (bytes < SNAPSHOT_PAGE || bytes > SNAPSHOT_BYTES(SNAPSHOT_MAX_ENTRIES, SNAPSHOT_MAX_TEXT) + SNAPSHOT_PAGE)
    return -EMSGSIZE;
  struct area *a = calloc(1, sizeof *a);
  if (!a)
    return -ENOMEM;
  struct snapshot_area head;
  int err = mapping_open(fd, bytes, &a->mapping);
  if (!err) {
    memcpy(&head, a->mapping.memory, sizeof head);
    err = is_ours(&head, bytes, prefix) ? 0 : -EPROTO;
  }
  if (err) {
    mapping_close(&a->mapping);
    free(a);
    return err;
  }
  atomic_init(&a->refs, 1);
  a->entries = head.entries;
  a->text_bytes = head.text_bytes;
  *out = a;
  return 0;
}

struct area *area_ref(struct area *area) {
  atomic_fetch_add(&area->refs, 1);
  return area;
}

void area_unref(struct area *area) {
  if (!area || atomic_fetch_sub(&area->refs, 1) != 1)
    return;
  mapping_close(&area->mapping);
  free(area);
}

/* Who waits for anything waits at `done`. */
static void wake(const struct area *area) {
  (void)syscall(SYS_futex, &area_head(area)->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); /* of a page that is there */
}

void area_set_done(const struct area *area, uint32_t done, bool wakes) {
  __atomic_store_n(&area_head(area)->done, done, __ATOMIC_RELEASE);
  if (wakes)
    wake(area);
}

void area_set_finished(const struct area *area, uint64_t number) {
  __atomic_store_n(&area_head(area)->finished, number, __ATOMIC_RELEASE);
  wake(area);
}

void area_set_stored(const struct area *area, uint64_t number) {
  if (__atomic_load_n(&area_head(area)->stored, __ATOMIC_RELAXED) >= number)
    return;
  __atomic_store_n(&area_head(area)->stored, number, __ATOMIC_RELEASE);
  wake(area);
}

void area_set_refused(const struct area *area, int error) {
  __atomic_store_n(&area_head(area)->refused, error, __ATOMIC_RELEASE);
  wake(area);
}
