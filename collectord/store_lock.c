/* The lock of a store: a file beside it, locked with flock by the one collector that writes. It holds that collector's pid, for
 * people. The kernel gives the lock back however its holder ends; the file stays, which means nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_internal.h"

static int lock_file_open(const char *path, bool *created) {
  for (;;) { /* again if it went away between the two tries */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    *created = fd >= 0;
    if (fd >= 0 || errno != EEXIST)
      return fd >= 0 ? fd : -errno;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 || errno != ENOENT)
      return fd >= 0 ? fd : -errno;
  }
}

/* Is the file at `path` still the one we have locked? Its last holder may have taken it away in between. */
static bool same_file(const char *path, int fd) {
  struct stat ours, there;
  return !fstat(fd, &ours) && !stat(path, &there) && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

static long holder_read(int fd) {
  char text[24] = "";
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  long pid = n > 0 ? strtol(text, NULL, 10) : 0;
  return pid > 0 ? pid : 0;
}

static void holder_write(int fd) {
  char text[24];
  int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n)
    return; /* a full disk: only the message of the next one is poorer */
}

int store_lock_take(const char *lock_path, int *fd, bool *created, long *holder) {
  *holder = 0;
  for (;;) {
    bool fresh;
    int f = lock_file_open(lock_path, &fresh);
    if (f < 0)
      return f;
    if (flock(f, LOCK_EX | LOCK_NB)) {
      int rc = -errno;
      *holder = holder_read(f);
      (void)close(f); /* nothing was written */
      if (rc == -EINTR)
        continue;
      return rc;
    }
    if (!same_file(lock_path, f)) {
      (void)close(f); /* nothing was written */
      continue;
    }
    holder_write(f);
    *fd = f;
    *created = fresh;
    return 0;
  }
}

void store_lock_give(const char *lock_path, int fd, bool remove) {
  if (fd < 0)
    return;
  if (remove)
    (void)unlink(lock_path); /* a file that stays does no harm */
  (void)close(fd);           /* the pid in it is of no more use */
}
