/* See launch.h.
 *
 * The collector must be nobody's business but its own: not a child that the script meets in wait(), and no SIGCHLD. So the process
 * is made by clone with exit signal 0, which plain wait calls do not see, and that one makes the collector and ends; the collector
 * is then a child of init (or of the nearest subreaper). fork() would copy page tables and make every later write of the job a
 * fault; CLONE_VM | CLONE_VFORK shares the memory and holds the calling thread until exec instead, about a millisecond.
 *
 * Both processes run in our memory: everything they need is made ready before, and they only make system calls.
 *
 * A process that is a subreaper by its own wish gets no collector, because it would become its child again. One that is init of
 * its container gets one; it is the one case in which the script could see it.
 */
#include "launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "env.h"

#define PROGRAM "collectord"
#define IDLE_EXIT_SECONDS "30"
#define STACK_BYTES (64 * 1024)
#define ENV_MAX 4096 /* variables handed on; those beyond are left out */

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

extern char **environ;

/* The directory that the last socket path was made for: the store of a collector that is started again must not move when the
 * script has changed its directory. Only link.c calls, under its lock. */
static char job_dir[PATH_MAX];
static char job_socket[sizeof(((struct sockaddr_un *)0)->sun_path)];

/* Folders. */

static int dir_look(const char *path, struct stat *st) {
  return syscall(SYS_newfstatat, AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

/* Is it a folder of ours (no link to one) that has none of the `forbidden` mode bits? */
static int dir_check(const char *path, mode_t forbidden) {
  struct stat st;
  int r = dir_look(path, &st);
  if (r < 0)
    return r;
  if (!S_ISDIR(st.st_mode))
    return -ENOTDIR;
  return st.st_uid == geteuid() && !(st.st_mode & forbidden) ? 0 : -EPERM;
}

static int dir_make(const char *path, mode_t mode, mode_t forbidden) {
  if (mkdir(path, mode) != 0 && errno != EEXIST)
    return -errno;
  return dir_check(path, forbidden);
}

static int socket_in(const char *dir, uint64_t hash, char *out, size_t size) {
  int n = snprintf(out, size, LINK_PRIVATE_SOCKET, dir, (unsigned long long)hash);
  return n > 0 && (size_t)n < size && (size_t)n < sizeof(job_socket) ? 0 : -ENAMETOOLONG;
}

/* Others may read the user's runtime folder on odd systems; what counts is that only this user can write to it. */
static int runtime_socket(uint64_t hash, char *out, size_t size) {
  char dir[PATH_MAX];
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  if (!runtime || runtime[0] != '/')
    return -ENOENT;
  if (snprintf(dir, sizeof(dir), "%s/cirron", runtime) >= (int)sizeof(dir))
    return -ENAMETOOLONG;
  int r = dir_check(runtime, S_IWGRP | S_IWOTH);
  if (r == 0)
    r = dir_make(dir, 0700, S_IWGRP | S_IWOTH);
  return r == 0 ? socket_in(dir, hash, out, size) : r;
}

static int tmp_socket(uint64_t hash, char *out, size_t size) {
  char dir[64];
  (void)snprintf(dir, sizeof(dir), LINK_PRIVATE_FOLDER, (unsigned)geteuid());
  int r = dir_make(dir, 0700, S_IRWXG | S_IRWXO);
  return r == 0 ? socket_in(dir, hash, out, size) : r;
}

static int working_dir(char out[PATH_MAX]) {
  if (!getcwd(out, PATH_MAX))
    return -errno;
  return out[0] == '/' ? 0 : -ENOENT; /* "(unreachable)..." */
}

int launch_socket_path(char *out, size_t size) {
  char dir[PATH_MAX];
  int r = working_dir(dir);
  if (r < 0)
    return r;
  if (runtime_socket(link_path_hash(dir), out, size) < 0 && (r = tmp_socket(link_path_hash(dir), out, size)) < 0)
    return r;
  memcpy(job_dir, dir, strlen(dir) + 1);
  memcpy(job_socket, out, strlen(out) + 1);
  return 0;
}

/* The program. */

static bool is_program(const char *path) {
  struct stat st;
  return syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static uintptr_t hex(const char **text) {
  uintptr_t value = 0;
  for (;; (*text)++) {
    char c = **text;
    if (c >= '0' && c <= '9')
      value = value << 4 | (uintptr_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value << 4 | (uintptr_t)(c - 'a' + 10);
    else
      return value;
  }
}

/* "55d0-55e0 r-xp 0 08:01 123   /path": the path if `address` is in the range, else NULL. */
static const char *map_path(const char *line, uintptr_t address) {
  uintptr_t from = hex(&line);
  if (*line++ != '-')
    return NULL;
  uintptr_t to = hex(&line);
  return address >= from && address < to ? strchr(line, '/') : NULL;
}

/* The line of /proc/self/maps that holds `address`, as map_path gives it, copied to `out`. */
static int mapped_file(uintptr_t address, char out[PATH_MAX]) {
  char buf[PATH_MAX + 128];
  size_t len = 0;
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), r = -ENOENT;
  if (fd < 0)
    return -errno;
  for (ssize_t n; r == -ENOENT && (n = read(fd, buf + len, sizeof(buf) - len)) > 0;) {
    char *line = buf, *end;
    for (len += (size_t)n; r == -ENOENT && (end = memchr(line, '\n', len - (size_t)(line - buf))); line = end + 1) {
      *end = '\0';
      const char *path = map_path(line, address);
      if (path && strlen(path) < PATH_MAX) {
        memcpy(out, path, strlen(path) + 1);
        r = 0;
      }
    }
    len -= (size_t)(line - buf);
    memmove(buf, line, len);
  }
  close(fd);
  return r;
}

/* The folder of the file that this code was loaded from, by way of /proc: dladdr gives the path as it was preloaded, which may be
 * relative to a directory that the script has left. */
static int own_dir(char out[PATH_MAX]) {
  int r = mapped_file((uintptr_t)own_dir, out);
  if (r == 0)
    *strrchr(out, '/') = '\0';
  return r;
}

static bool program_beside(char out[PATH_MAX]) {
  /* the build folder; PREFIX/lib, PREFIX/lib/cirron and PREFIX/lib/TRIPLET/cirron with the program in PREFIX/bin or sbin */
  static const char *const places[] = {
      "", "../bin/", "../sbin/", "../../bin/", "../../sbin/", "../../../bin/", "../../../sbin/"};
  char dir[PATH_MAX];
  if (own_dir(dir) < 0)
    return false;
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
    if (snprintf(out, PATH_MAX, "%s/%s" PROGRAM, dir, places[i]) < PATH_MAX && is_program(out))
      return true;
  return false;
}

static bool program_in_path(char out[PATH_MAX]) {
  const char *path = getenv("PATH");
  for (size_t n; path && *path; path += n + (path[n] == ':')) {
    n = strcspn(path, ":");
    if (path[0] == '/' && snprintf(out, PATH_MAX, "%.*s/" PROGRAM, (int)n, path) < PATH_MAX && is_program(out))
      return true;
  }
  return false;
}

/* The new process. */

struct launch {
  char program[PATH_MAX];
  char db[PATH_MAX];
  char *argv[9];
  char *envp[ENV_MAX + 1];
  int exec_errno; /* of the collector's exec; 0 when it went well */
  char stack[2][STACK_BYTES] __attribute__((aligned(64)));
};

/* Not for the collector: what would load the agent into it, our settings, and what a service manager told the job alone. */
static bool env_kept(const char *entry) {
  static const char *const dropped[] = {"LD_PRELOAD=", "CIRRON_", "NOTIFY_SOCKET=", "LISTEN_", "WATCHDOG_"};
  for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
    if (strncmp(entry, dropped[i], strlen(dropped[i])) == 0)
      return false;
  return true;
}

static void env_copy(char **out) {
  size_t n = 0;
  for (char **entry = environ; entry && *entry && n < ENV_MAX; entry++)
    if (env_kept(*entry))
      out[n++] = *entry;
  out[n] = NULL;
}

/* Functions of the new processes never return to whoever would clear their frames in AddressSanitizer's books. */
#define IN_CHILD __attribute__((no_sanitize_address))

/* Where there is no close_range (before Linux 5.9): those that /proc lists. */
IN_CHILD static void close_listed(void) {
  struct entry { /* linux_dirent64 */
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
  };
  char buf[4096] __attribute__((aligned(8)));
  int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (long n; dir >= 0 && (n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0;)
    for (long at = 0; at < n;) {
      struct entry *entry = (struct entry *)(buf + at);
      int fd = 0;
      for (const char *c = entry->name; *c >= '0' && *c <= '9'; c++)
        fd = fd * 10 + (*c - '0');
      if (fd > 2 && fd != dir)
        close(fd);
      at += entry->reclen;
    }
  if (dir >= 0)
    close(dir);
}

/* The job's standard streams must not live on in it: whoever reads a job's output from a pipe waits for its end. */
IN_CHILD static bool child_descriptors(void) {
  int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++)
    if (null < 0 || (fd != null && dup2(null, fd) < 0))
      return false;
  if (syscall(SYS_close_range, 3u, ~0u, 0u) != 0)
    close_listed();
  return true;
}

/* Handlers are gone with exec, but ignored signals and the mask would stay. The handlers go before the mask: they are the job's
 * and would run in its memory. */
IN_CHILD static bool child_signals(void) {
  struct sigaction action = {.sa_handler = SIG_DFL};
  uint64_t none = 0;
  for (int sig = 1; sig <= 64; sig++)
    (void)sigaction(sig, &action, NULL);                                           /* two cannot be set, and two are libc's */
  return syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none)) == 0; /* else nobody could end it */
}

IN_CHILD static int child_run(void *arg) {
  struct launch *launch = arg;
  (void)setsid();
  (void)!chdir("/"); /* so that it holds no file system of the job */
  if (child_descriptors() && child_signals())
    execve(launch->program, launch->argv, launch->envp);
  launch->exec_errno = errno;
  _exit(127);
}

/* clone, with `run` on a stack of its own. libc's wrapper will not do: before glibc 2.25 it overwrites the caller's cached thread
 * id when memory is shared. */
IN_CHILD static int spawn(int (*run)(void *), char *stack, struct launch *launch) {
  char *top = stack + STACK_BYTES;
#ifdef __x86_64__
  long pid;
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile("syscall\n\t"
                   "testq %%rax, %%rax\n\t"
                   "jnz 1f\n\t"
                   "xorl %%ebp, %%ebp\n\t"
                   "movq %[arg], %%rdi\n\t"
                   "call *%[run]\n\t"
                   "ud2\n"
                   "1:"
                   : "=a"(pid)
                   : "0"((long)SYS_clone), "D"((long)(CLONE_VM | CLONE_VFORK)), "S"(top), "d"(0L), "r"(r10),
                     "r"(r8), [run] "r"(run), [arg] "r"(launch)
                   : "rcx", "r11", "memory", "cc");
  return (int)pid;
#else
  int pid = clone(run, top, CLONE_VM | CLONE_VFORK, launch);
  return pid < 0 ? -errno : pid;
#endif
}

IN_CHILD static int middle_run(void *arg) {
  struct launch *launch = arg;
  int pid = spawn(child_run, launch->stack[1], launch);
  if (pid < 0)
    launch->exec_errno = -pid;
  _exit(0);
}

/* All signals are blocked around it: a handler must not run in the new processes, which share our memory. */
static int launch_run(struct launch *launch) {
  uint64_t all = ~0ull, before;
  if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all)) != 0)
    return -errno;
  int pid = spawn(middle_run, launch->stack[0], launch);
  while (pid > 0 && wait4(pid, NULL, __WCLONE, NULL) < 0 && errno == EINTR)
    ;
  (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
  return pid < 0 ? pid : -launch->exec_errno;
}

/* The store's folder below the job's directory; a link to one elsewhere will do. */
static int store_dir(const char *path) {
  struct stat st;
  if (mkdir(path, 0755) != 0 && errno != EEXIST)
    return -errno;
  if (syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) != 0)
    return -errno;
  if (!S_ISDIR(st.st_mode))
    return -ENOTDIR;
  return access(path, W_OK | X_OK) == 0 ? 0 : -errno;
}

static int store_path(const char *socket_path, char out[PATH_MAX]) {
  char dir[PATH_MAX];
  int r = 0;
  if (strcmp(socket_path, job_socket) == 0)
    memcpy(dir, job_dir, sizeof(dir));
  else
    r = working_dir(dir);
  if (r < 0)
    return r;
  const char *base = strcmp(dir, "/") == 0 ? "" : dir;
  if (snprintf(out, PATH_MAX, "%s/" LINK_PRIVATE_STORE, base) >= PATH_MAX)
    return -ENAMETOOLONG;
  char *slash = strrchr(out, '/');
  *slash = '\0';
  r = store_dir(out);
  *slash = '/';
  return r;
}

static bool adopts_orphans(void) {
  int subreaper = 0;
  return getpid() != 1 && prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0) == 0 && subreaper;
}

static int launch_prepare(struct launch *launch, const char *socket_path) {
  if (adopts_orphans())
    return -EBUSY;
  if (!program_beside(launch->program) && !program_in_path(launch->program))
    return -ENOENT;
  int r = store_path(socket_path, launch->db);
  if (r < 0)
    return r;
  char *const argv[] = {launch->program, "--foreground",    "--socket", (char *)socket_path, "--db", launch->db,
                        "--idle-exit",   IDLE_EXIT_SECONDS, NULL};
  static_assert(sizeof(argv) == sizeof(launch->argv), "one place each");
  memcpy(launch->argv, argv, sizeof(argv));
  env_copy(launch->envp);
  return 0;
}

int launch_collector(const char *socket_path) {
  struct launch *launch = mmap(NULL, sizeof(*launch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (launch == MAP_FAILED)
    return -errno;
  int r = launch_prepare(launch, socket_path);
  if (r == 0)
    r = launch_run(launch);
  if (r == 0)
    env_debug("started %s --socket %s --db %s", launch->program, socket_path, launch->db);
  else
    env_debug("no private collector: %s %s: error %d", launch->program[0] ? launch->program : PROGRAM,
              launch->db[0] ? launch->db : "", -r);
  munmap(launch, sizeof(*launch));
  return r;
}
