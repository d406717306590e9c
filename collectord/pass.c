#include "pass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint64_t held;

int pass_hold(struct pass *pass, uint64_t bytes) {
  if (pass->bytes + bytes > PASS_SMALL_BYTES && atomic_load(&held) + bytes > PASS_ALL_BYTES)
    return -ENOMEM;
  atomic_fetch_add(&held, bytes);
  pass->bytes += bytes;
  return 0;
}

static struct pass *make(uint64_t number, uint64_t prefix) {
  struct pass *p = calloc(1, sizeof *p);
  if (!p)
    return NULL;
  p->number = number;
  p->prefix = prefix;
  p->pidfd = p->directory = -1;
  p->torn_from = SNAPSHOT_WHOLE;
  return p;
}

int pass_new(struct area *area, uint64_t number, uint64_t prefix, pid_t pid, int pidfd, int directory, struct pass **out) {
  struct pass *p = make(number, prefix);
  if (!p) {
    if (directory >= 0)
      close(directory);
    return -ENOMEM;
  }
  p->area = area_ref(area);
  p->pid = pid;
  p->pidfd = pidfd >= 0 ? fcntl(pidfd, F_DUPFD_CLOEXEC, 0) : -1;
  p->directory = directory;
  *out = p;
  return 0;
}

struct pass *pass_new_sent(uint64_t number, uint64_t prefix) {
  struct pass *p = make(number, prefix);
  if (p)
    p->own = p->copied = p->settled = true;
  return p;
}

void pass_free(struct pass *pass) {
  if (!pass)
    return;
  atomic_fetch_sub(&held, pass->bytes);
  area_unref(pass->area);
  if (pass->pidfd >= 0)
    close(pass->pidfd);
  if (pass->directory >= 0)
    close(pass->directory);
  free(pass->entries);
  free(pass->results);
  free(pass->text);
  free(pass->blob_uri);
  free(pass);
}

static uint64_t larger(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* How far into the text the entries can reach: the rest of it is not looked at, for it may be large and never have been written. */
static uint64_t text_reach(const struct pass *p) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < p->head.count; i++) {
    const struct snapshot_entry *e = &p->entries[i];
    const uint32_t names[] = {e->name, e->model, e->reason, e->dtype_name};
    for (int n = 0; n < 4; n++)
      end = larger(end, names[n] ? (uint64_t)names[n] + sizeof(uint32_t) + SNAPSHOT_NAME_MAX : 0);
    uint64_t dims = (uint64_t)e->ndim * sizeof(int64_t);
    end = larger(end, e->ndim ? e->shape + dims : 0);
    end = larger(end, e->ndim && e->strides != SNAPSHOT_CONTIGUOUS ? e->strides + dims : 0);
  }
  return end < p->area->text_bytes ? end : p->area->text_bytes;
}

static bool name_fits(const struct pass *p, uint32_t offset) {
  uint32_t len;
  if (!offset)
    return true;
  if (offset % 4 || p->text_bytes < sizeof len || offset > p->text_bytes - sizeof len)
    return false;
  memcpy(&len, p->text + offset, sizeof len);
  return len <= SNAPSHOT_NAME_MAX && len <= p->text_bytes - sizeof len - offset;
}

static bool numbers_fit(const struct pass *p, uint32_t offset, uint8_t ndim) {
  size_t bytes = ndim * sizeof(int64_t);
  return !ndim || (offset % 8 == 0 && bytes <= p->text_bytes && offset <= p->text_bytes - bytes);
}

static bool entry_fits(const struct pass *p, const struct snapshot_entry *e) {
  return e->ndim <= TENSOR_MAX_DIMS && e->dtype < TENSOR_DTYPES && name_fits(p, e->name) && name_fits(p, e->model) &&
         name_fits(p, e->reason) && name_fits(p, e->dtype_name) && numbers_fit(p, e->shape, e->ndim) &&
         (e->strides == SNAPSHOT_CONTIGUOUS || numbers_fit(p, e->strides, e->ndim));
}

bool pass_check(const struct pass *pass) {
  const struct snapshot_area *h = &pass->head;
  if (h->gradients > h->count || h->reason < SNAPSHOT_EPOCH || h->reason > SNAPSHOT_COMMAND)
    return false;
  for (uint32_t i = 0; pass->entries && i < h->count; i++)
    if (!entry_fits(pass, &pass->entries[i]))
      return false;
  return true;
}

int pass_copy(struct pass *pass) {
  const struct area *a = pass->area;
  (void)__atomic_load_n(&area_head(a)->number, __ATOMIC_ACQUIRE); /* what is before it is there */
  memcpy(&pass->head, area_head(a), sizeof pass->head);
  if (pass->head.number != pass->number || pass->head.count > a->entries)
    return -EPROTO;
  size_t count = pass->head.count ? pass->head.count : 1;
  int err = pass_hold(pass, count * (sizeof *pass->entries + sizeof *pass->results));
  if (err)
    return err;
  pass->entries = calloc(count, sizeof *pass->entries);
  pass->results = calloc(count, sizeof *pass->results);
  if (!pass->entries || !pass->results)
    return -ENOMEM;
  memcpy(pass->entries, area_entries(a), pass->head.count * sizeof *pass->entries);
  pass->text_bytes = text_reach(pass);
  err = pass_hold(pass, pass->text_bytes);
  if (err)
    return err;
  pass->text = malloc(pass->text_bytes ? pass->text_bytes : 1);
  if (!pass->text)
    return -ENOMEM;
  memcpy(pass->text, area_text(a), pass->text_bytes);
  pass->copied = true;
  return pass_check(pass) ? 0 : -EPROTO;
}

void pass_copy_results(struct pass *pass) {
  const struct area *a = pass->area;
  struct snapshot_area now;
  uint32_t done = __atomic_load_n(&area_head(a)->done, __ATOMIC_ACQUIRE);
  bool finished = __atomic_load_n(&area_head(a)->finished, __ATOMIC_ACQUIRE) >= pass->number;
  memcpy(&now, area_head(a), sizeof now);
  pass->at = finished || done > pass->head.count ? pass->head.count : done;
  memcpy(pass->results, area_results(a), pass->at * sizeof *pass->results);
  pass->head.flags = now.flags; /* it may have begun to compute itself */
  pass->read_ns = finished ? now.read_ns : pass->read_ns;
  pass->blobs = finished ? now.blobs & 3 : 0;
  pass->blob_error = finished && now.blob_error > 0 ? now.blob_error : 0;
}

struct pass_text pass_text(const struct pass *pass, uint32_t offset) {
  uint32_t len;
  if (!offset)
    return (struct pass_text){"", 0};
  memcpy(&len, pass->text + offset, sizeof len);
  return (struct pass_text){pass->text + offset + sizeof len, len};
}

void pass_view(const struct pass *pass, uint32_t i, struct pass_view *out) {
  const struct snapshot_entry *e = &pass->entries[i];
  bool complex = e->flags & SNAPSHOT_COMPLEX, strided = e->ndim && e->strides != SNAPSHOT_CONTIGUOUS;
  memcpy(out->shape, pass->text + e->shape, e->ndim * sizeof *out->shape);
  for (uint8_t d = 0; strided && d < e->ndim; d++) {
    int64_t stride;
    memcpy(&stride, pass->text + e->strides + d * sizeof stride, sizeof stride);
    out->strides[d] = complex ? (int64_t)((uint64_t)stride * 2) : stride;
  }
  out->shape[e->ndim] = 2;
  out->strides[e->ndim] = 1;
  out->view = (struct tensor_view){
      .address = e->address,
      .dtype = (enum tensor_dtype)e->dtype,
      .ndim = (uint32_t)e->ndim + complex,
      .shape = out->shape,
      .strides = strided ? out->strides : NULL,
  };
}

bool pass_readable(const struct pass *pass, uint32_t i) {
  const struct snapshot_entry *e = &pass->entries[i];
  return e->dtype != TENSOR_NONE && !e->reason;
}
