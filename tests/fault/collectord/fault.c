/* Preloaded into collectord by faults.py: makes calls fail on order.
 *
 * The orders lie in a shared file that FAULT_FILE names, so that they can be given while the program runs:
 *
 *   u64 kind | u64 skip | u64 fail | u64 err | u64 seen | u64 failed
 *
 * Of the calls of this kind the next `skip` go through, the `fail` after them fail with errno `err`. `seen` and `failed` count them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { NONE, MALLOC, WRITE, SYNC, MMAP, ACCEPT, RECVMSG, EPOLL, OPEN, READ };

struct orders {
  _Atomic uint64_t kind, skip, fail, err, seen, failed;
};

static struct orders *orders;

static void *next(const char *name) {
  return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULT_FILE");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0)
    return;
  void *at = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  orders = at == MAP_FAILED ? NULL : at;
}

static bool fails(enum kind kind) {
  if (!orders || atomic_load(&orders->kind) != kind)
    return false;
  uint64_t seen = atomic_fetch_add(&orders->seen, 1), skip = atomic_load(&orders->skip);
  if (seen < skip || seen - skip >= atomic_load(&orders->fail))
    return false;
  atomic_fetch_add(&orders->failed, 1);
  errno = (int)atomic_load(&orders->err);
  return true;
}

/* The original of the interposed function, looked up once; malloc's own first, because dlsym may need it. */
#define REAL(name)                                                                                                             \
  static __typeof__(name) *real;                                                                                               \
  if (!real)                                                                                                                   \
  real = (__typeof__(name) *)next(#name)

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t n) {
  return fails(MALLOC) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
  return fails(MALLOC) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
  return fails(MALLOC) ? NULL : __libc_realloc(p, n);
}

ssize_t write(int fd, const void *p, size_t n) {
  REAL(write);
  struct stat st; /* not the pipe by which libevent tells itself of signals */
  return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fd > 2 && fails(WRITE) ? -1 : real(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  REAL(pwrite);
  return fails(WRITE) ? -1 : real(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at) {
  REAL(pwrite64);
  return fails(WRITE) ? -1 : real(fd, p, n, at);
}

int ftruncate(int fd, off_t n) {
  REAL(ftruncate);
  return fails(WRITE) ? -1 : real(fd, n);
}

int fsync(int fd) {
  REAL(fsync);
  return fails(SYNC) ? -1 : real(fd);
}

int fdatasync(int fd) {
  REAL(fdatasync);
  return fails(SYNC) ? -1 : real(fd);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
  REAL(mmap);
  return fails(MMAP) ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset) {
  REAL(mmap64);
  return fails(MMAP) ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags) {
  REAL(accept4);
  return fails(ACCEPT) ? -1 : real(fd, address, len, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags) {
  REAL(recvmsg);
  return fails(RECVMSG) ? -1 : real(fd, msg, flags);
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout) {
  REAL(epoll_wait);
  return fails(EPOLL) ? -1 : real(fd, events, max, timeout);
}

int epoll_ctl(int fd, int op, int what, struct epoll_event *event) {
  REAL(epoll_ctl);
  return fails(EPOLL) ? -1 : real(fd, op, what, event);
}

int open(const char *path, int flags, ...) {
  REAL(open);
  __builtin_va_list args;
  __builtin_va_start(args, flags);
  mode_t mode = __builtin_va_arg(args, mode_t);
  __builtin_va_end(args);
  return fails(OPEN) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  REAL(open64);
  __builtin_va_list args;
  __builtin_va_start(args, flags);
  mode_t mode = __builtin_va_arg(args, mode_t);
  __builtin_va_end(args);
  return fails(OPEN) ? -1 : real(path, flags, mode);
}

ssize_t pread(int fd, void *p, size_t n, off_t at) {
  REAL(pread);
  return fails(READ) ? -1 : real(fd, p, n, at);
}

ssize_t pread64(int fd, void *p, size_t n, off64_t at) {
  REAL(pread64);
  return fails(READ) ? -1 : real(fd, p, n, at);
}
