/* Fails one call that the agent makes to libc. Preloaded before it; calls of anybody else go through.
 *
 *   FAULT_CALL=mmap FAULT_N=3 FAULT_ERRNO=12 [FAULT_ON=1] FAULT_FIRED=PATH
 *
 * The third mmap of the agent in this process fails with ENOMEM (with FAULT_ON also all that follow), and PATH is made, so that
 * whoever counts N up knows when there was no N-th call any more. Calls by number have the name of the system call. The one call that
 * cannot be met here is the clone that starts a collector, which is no call of libc: a filter of the kernel refuses it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *call_name, *fired_path;
static long fail_at;
static bool fail_on;
static int fail_errno;
static _Atomic long calls;
static uintptr_t agent_from, agent_to;

static int agent_find(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size, (void)data;
  if (!strstr(info->dlpi_name, "libcirron_core"))
    return 0;
  for (size_t i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
      agent_from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      agent_to = agent_from + info->dlpi_phdr[i].p_memsz;
    }
  return 1;
}

static void fired(void) {
  long fd = fired_path ? syscall(SYS_open, fired_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
  if (fd >= 0)
    (void)syscall(SYS_close, fd);
}

/* Refuses clone(CLONE_VM | CLONE_VFORK) without a signal at its end, which only the agent uses. */
static void refuse_clone(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x4100, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 && fail_at == 1)
    fired();
}

__attribute__((constructor)) static void fail_load(void) {
  const char *n = getenv("FAULT_N"), *error = getenv("FAULT_ERRNO");
  call_name = getenv("FAULT_CALL");
  fired_path = getenv("FAULT_FIRED");
  fail_on = getenv("FAULT_ON") != NULL;
  fail_at = n ? atol(n) : 0;
  fail_errno = error ? atoi(error) : ENOMEM;
  if (call_name && strcmp(call_name, "clone") == 0)
    refuse_clone();
}

static bool fails(const char *name, const void *caller) {
  uintptr_t at = (uintptr_t)caller;
  if (call_name && !agent_to) /* not loaded yet */
    dl_iterate_phdr(agent_find, NULL);
  if (!call_name || at < agent_from || at >= agent_to || strcmp(name, call_name) != 0)
    return false;
  long n = ++calls;
  if (n != fail_at && !(fail_on && n > fail_at))
    return false;
  fired();
  errno = fail_errno;
  return true;
}

#define NEXT(name) ((__typeof(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(name) fails(#name, __builtin_return_address(0))

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
  return FAILS(mmap) ? MAP_FAILED : (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}

void *mremap(void *at, size_t from, size_t to, int flags, ...) {
  va_list args;
  va_start(args, flags);
  void *fixed = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
  va_end(args);
  return FAILS(mremap) ? MAP_FAILED : (void *)syscall(SYS_mremap, at, from, to, flags, fixed);
}

int madvise(void *at, size_t len, int advice) {
  return FAILS(madvise) ? -1 : (int)syscall(SYS_madvise, at, len, advice);
}

int ftruncate(int fd, off_t len) {
  return FAILS(ftruncate) ? -1 : NEXT(ftruncate)(fd, len);
}

int fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  long arg = va_arg(args, long);
  va_end(args);
  return FAILS(fcntl) ? -1 : NEXT(fcntl)(fd, command, arg);
}

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, int) : 0;
  va_end(args);
  return FAILS(open) ? -1 : NEXT(open)(path, flags, mode);
}

ssize_t read(int fd, void *buf, size_t size) {
  return FAILS(read) ? -1 : NEXT(read)(fd, buf, size);
}

int socket(int domain, int type, int protocol) {
  return FAILS(socket) ? -1 : NEXT(socket)(domain, type, protocol);
}

int connect(int fd, const struct sockaddr *to, socklen_t len) {
  return FAILS(connect) ? -1 : NEXT(connect)(fd, to, len);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len) {
  return FAILS(getsockopt) ? -1 : NEXT(getsockopt)(fd, level, name, value, len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  return FAILS(sendmsg) ? -1 : NEXT(sendmsg)(fd, message, flags);
}

ssize_t recv(int fd, void *buf, size_t size, int flags) {
  return FAILS(recv) ? -1 : NEXT(recv)(fd, buf, size, flags);
}

int mkdir(const char *path, mode_t mode) {
  return FAILS(mkdir) ? -1 : NEXT(mkdir)(path, mode);
}

char *getcwd(char *buf, size_t size) {
  return FAILS(getcwd) ? NULL : NEXT(getcwd)(buf, size);
}

int access(const char *path, int mode) {
  return FAILS(access) ? -1 : NEXT(access)(path, mode);
}

int pthread_key_create(unsigned *key, void (*destroy)(void *)) {
  return FAILS(pthread_key_create)
             ? fail_errno
             : ((int (*)(unsigned *, void (*)(void *)))dlsym(RTLD_NEXT, "pthread_key_create"))(key, destroy);
}

int pthread_setspecific(unsigned key, const void *value) {
  return FAILS(pthread_setspecific) ? fail_errno
                                    : ((int (*)(unsigned, const void *))dlsym(RTLD_NEXT, "pthread_setspecific"))(key, value);
}

extern void *__libc_malloc(size_t size);
void *malloc(size_t size) {
  return FAILS(malloc) ? NULL : __libc_malloc(size);
}

static const char *number_name(long number) {
  switch (number) {
  case SYS_memfd_create:
    return "memfd_create";
  case SYS_fstat:
    return "fstat";
  case SYS_newfstatat:
    return "newfstatat";
  case SYS_getrandom:
    return "getrandom";
  case SYS_rt_sigprocmask:
    return "rt_sigprocmask";
  default:
    return "";
  }
}

long syscall(long number, ...) {
  long a[6];
  va_list args;
  va_start(args, number);
  for (int i = 0; i < 6; i++)
    a[i] = va_arg(args, long);
  va_end(args);
  if (fails(number_name(number), __builtin_return_address(0)))
    return -1;
  long result;
  register long r10 __asm__("r10") = a[3];
  register long r8 __asm__("r8") = a[4];
  register long r9 __asm__("r9") = a[5];
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = (int)-result;
    return -1;
  }
  return result;
}
