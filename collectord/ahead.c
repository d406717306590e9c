#include "ahead.h"

#include <sys/uio.h>

/* How many bytes, if it is one of those; else SIZE_MAX. */
static size_t small(const struct pass *pass, uint32_t i) {
  const struct snapshot_entry *e = &pass->entries[i];
  struct pass_view view;
  if (!pass_readable(pass, i) || e->ndim > 8)
    return SIZE_MAX;
  pass_view(pass, i, &view);
  int64_t count = view.view.strides ? -1 : tensor_elements(&view.view);
  size_t bytes = count < 0 || count > AHEAD_TENSOR_BYTES ? SIZE_MAX : (size_t)count * tensor_size(view.view.dtype);
  return bytes <= AHEAD_TENSOR_BYTES ? bytes : SIZE_MAX;
}

size_t ahead_read(struct ahead *ahead, const struct pass *pass, uint32_t from) {
  struct iovec local = {ahead->bytes, 0}, remote[AHEAD_ENTRIES];
  uint32_t n = 0;
  ahead->from = ahead->to = from;
  for (size_t bytes; n < AHEAD_ENTRIES && from + n < pass->head.count && (bytes = small(pass, from + n)) != SIZE_MAX; n++) {
    if (local.iov_len + bytes > AHEAD_BYTES)
      break;
    remote[n] = (struct iovec){(void *)(uintptr_t)pass->entries[from + n].address,
                               bytes}; /* NOLINT(performance-no-int-to-ptr): another's */
    ahead->at[n] = local.iov_len;
    local.iov_len += bytes;
  }
  ahead->at[n] = local.iov_len;
  ssize_t got = n < 2 ? -1 : process_vm_readv(pass->pid, &local, 1, remote, n, 0);
  for (uint32_t i = 0; i < n && got >= 0 && ahead->at[i + 1] <= (size_t)got; i++)
    ahead->to = from + i + 1;
  return got > 0 ? (size_t)got : 0;
}

const void *ahead_find(const struct ahead *ahead, uint32_t entry, size_t bytes) {
  if (entry < ahead->from || entry >= ahead->to)
    return NULL;
  size_t at = ahead->at[entry - ahead->from];
  return ahead->at[entry - ahead->from + 1] - at == bytes ? ahead->bytes + at : NULL;
}
