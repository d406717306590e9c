/* See fd.h. Linux calls are made by number where libc's wrapper is younger than the systems the agent has to load on. */
#include "fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FD_HIGH 200 /* above what scripts count, dup2 to or look at with small tables */

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

static bool fd_identity(int fd, uint64_t *dev, uint64_t *ino) {
  struct stat st;
  if (syscall(SYS_fstat, fd, &st) != 0)
    return false;
  *dev = st.st_dev;
  *ino = st.st_ino;
  return true;
}

int fd_own(int fd, struct owned_fd *out) {
  int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_HIGH);
  if (high >= 0) { /* refused where the limit of descriptors is lower: the number it has must do */
    close(fd);
    fd = high;
  }
  struct owned_fd owned = {.fd = fd};
  if (!fd_identity(fd, &owned.dev, &owned.ino)) {
    int err = errno;
    close(fd);
    return -err;
  }
  *out = owned;
  return 0;
}

bool fd_ours(const struct owned_fd *owned) {
  uint64_t dev, ino;
  return owned->fd >= 0 && fd_identity(owned->fd, &dev, &ino) && dev == owned->dev && ino == owned->ino;
}

void fd_drop(struct owned_fd *owned) {
  if (fd_ours(owned))
    close(owned->fd);
  *owned = OWNED_FD_NONE;
}

static int memory_create(const char *name) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = (int)syscall(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
    fd = (int)syscall(SYS_memfd_create, name, flags);
  return fd < 0 ? -errno : fd;
}

int fd_memory(const char *name, size_t bytes, bool populate, void **out, struct owned_fd *owned) {
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
