/* See fd.h. Linux calls are made by number where libc's wrapper is younger than the systems the agent has to load on. */
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FD_HIGH 200 /* above what scripts count, dup2 to or look at with small tables */
#define FD_MANY 64  /* that are kept although they may never be needed again */
#define FD_FEW 128  /* a job that may have no more needs them all itself */

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 2u
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

static _Atomic unsigned kept; /* descriptors of ours, lost ones included until somebody notices */

static bool fd_identity(int fd, uint64_t *dev, uint64_t *ino) {
  struct stat st;
  if (syscall(SYS_fstat, fd, &st) != 0)
    return false;
  *dev = st.st_dev;
  *ino = st.st_ino;
  return true;
}

/* The lowest number that ours have, or a negative errno: then there is none to spare. */
static int fd_lowest(rlim_t *limit) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0)
    return -errno;
  if (files.rlim_cur < FD_FEW)
    return -EMFILE;
  *limit = files.rlim_cur;
  return *limit < 2 * FD_HIGH ? (int)(*limit / 2) : FD_HIGH;
}

bool fd_many(unsigned more) {
  rlim_t limit = 0;
  int lowest = fd_lowest(&limit);
  if (lowest < 0)
    return true;
  rlim_t most = (limit - (rlim_t)lowest) / 8;
  return atomic_load_explicit(&kept, memory_order_relaxed) >= (most < FD_MANY ? most : FD_MANY) + more;
}

bool fd_none(void) {
  rlim_t limit;
  return fd_lowest(&limit) < 0;
}

int fd_own(int fd, struct owned_fd *out) {
  rlim_t limit = 0;
  int lowest = fd_lowest(&limit);
  int high = lowest < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, lowest);
  int err = lowest < 0 ? -lowest : errno;
  struct owned_fd owned = {.fd = high};
  close(fd); /* the low number is the script's: it would notice, and may need it */
  if (high < 0)
    return -err;
  if (!fd_identity(high, &owned.dev, &owned.ino)) {
    err = errno;
    close(high);
    return -err;
  }
  *out = owned;
  atomic_fetch_add_explicit(&kept, 1, memory_order_relaxed);
  return 0;
}

bool fd_ours(const struct owned_fd *owned) {
  uint64_t dev, ino;
  return owned->fd >= 0 && fd_identity(owned->fd, &dev, &ino) && dev == owned->dev && ino == owned->ino;
}

void fd_drop(struct owned_fd *owned) {
  if (fd_ours(owned))
    close(owned->fd);
  if (owned->fd >= 0)
    atomic_fetch_sub_explicit(&kept, 1, memory_order_relaxed);
  *owned = OWNED_FD_NONE;
}

/* Going over the limit of file sizes is a signal that ends the job, unless it ignores that one. */
bool fd_size_allowed(size_t bytes) {
  struct rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

static int memory_create(const char *name) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = (int)syscall(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
    fd = (int)syscall(SYS_memfd_create, name, flags);
  return fd < 0 ? -errno : fd;
}

int fd_memory(const char *name, size_t bytes, bool populate, void **out, struct owned_fd *owned) {
  if (!fd_size_allowed(bytes))
    return -EFBIG;
  int fd = memory_create(name);
  if (fd < 0)
    return fd;
  void *mapped = MAP_FAILED;
  if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (populate ? MAP_POPULATE : 0), fd, 0);
  if (mapped == MAP_FAILED) {
    int err = errno;
    close(fd);
    return -err;
  }
  int r = fd_own(fd, owned);
  if (r < 0) {
    munmap(mapped, bytes);
    return r;
  }
  *out = mapped;
  return 0;
}

int fd_memory_renew(const char *name, size_t bytes, size_t used, bool populate, void *at, struct owned_fd *owned) {
  struct owned_fd fresh;
  void *copy;
  int r = fd_memory(name, bytes, populate, &copy, &fresh);
  if (r < 0)
    return r;
  memcpy(copy, at, used);
  if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    r = -errno;
    munmap(copy, bytes);
    fd_drop(&fresh);
    return r;
  }
  fd_drop(owned);
  *owned = fresh;
  return 0;
}
