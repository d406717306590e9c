#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

/* From Linux 6.15 a pidfd keeps the exit status of its process, also after that was reaped. Older headers do not have these; the
 * size is part of the ioctl's number, so the struct is the first published one that holds the status. */
struct pidfd_info_v2 {
  uint64_t mask, cgroupid;
  uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  int32_t exit_code;
};
#define PIDFD_IOCTL_GET_INFO _IOWR(0xFF, 11, struct pidfd_info_v2)
#define PIDFD_MASK_EXIT (1ull << 3)

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define STAT_START_TIME 22
#define STAT_EXIT_CODE 52

int process_open(pid_t pid) {
  if (pid <= 0)
    return -ESRCH;
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  return fd < 0 ? -errno : fd;
}

int process_open_peer(int socket, pid_t pid) {
  /* The socket's own pidfd can't be that of another process which got the same number meanwhile. */
  int fd = -1;
  socklen_t len = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0 && fd >= 0) {
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* it is so already; costs nothing to be sure */
    return fd;
  }
  return process_open(pid);
}

bool process_ended(int pidfd) {
  struct pollfd p = {.fd = pidfd, .events = POLLIN};
  return poll(&p, 1, 0) > 0 && (p.revents & (POLLIN | POLLHUP));
}

/* The stat file of a process: its state and the number in field `wanted`. */
static int stat_read(pid_t pid, char *state, int wanted, uint64_t *value) {
  char path[40], text[2048];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0)
    return -ESRCH;
  text[n] = '\0';
  char *at = strrchr(text, ')'); /* the name before it may hold anything */
  if (!at || at[1] != ' ' || !at[2])
    return -EBADMSG;
  *state = at[2];
  at += 3;
  for (int field = 4; *at; field++) {
    uint64_t number = strtoull(at, &at, 10);
    if (field == wanted)
      *value = number;
    while (*at && *at != ' ')
      at++;
    if (*at != ' ')
      break;
  }
  return 0;
}

static struct process_exit decode(int status) {
  struct process_exit e = {.known = true, .code = -1};
  if (WIFSIGNALED(status))
    e.signal = WTERMSIG(status);
  else
    e.code = WEXITSTATUS(status);
  return e;
}

static bool status_of_pidfd(int pidfd, struct process_exit *out) {
  struct pidfd_info_v2 info = {.mask = PIDFD_MASK_EXIT};
  if (ioctl(pidfd, PIDFD_IOCTL_GET_INFO, &info) != 0 || !(info.mask & PIDFD_MASK_EXIT))
    return false;
  *out = decode(info.exit_code);
  return true;
}

/* May we see what the kernel keeps for those that could trace the process? The link is refused by the same rule. */
static bool may_look_into(pid_t pid) {
  char path[40], name[64];
  snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
  return readlink(path, name, sizeof name) > 0;
}

static bool status_of_zombie(pid_t pid, struct process_exit *out) {
  char state = 0;
  uint64_t code = UINT64_MAX;
  if (stat_read(pid, &state, STAT_EXIT_CODE, &code) != 0 || state != 'Z' || code > 0xffff)
    return false;
  if (code == 0 && !may_look_into(pid))
    return false; /* of another user's process the file says 0, whatever the status was */
  *out = decode((int)code);
  return true;
}

bool process_status_hidden(pid_t pid) {
  char state = 0;
  uint64_t code = 0;
  return stat_read(pid, &state, STAT_EXIT_CODE, &code) == 0 && state == 'Z' && code == 0 && !may_look_into(pid);
}

struct process_exit process_exit_status(int pidfd, pid_t pid) {
  struct process_exit e = {.code = -1};
  /* The pidfd knows once its parent has waited for it, the stat file until then: it may happen between the two looks. */
  if (status_of_pidfd(pidfd, &e) || status_of_zombie(pid, &e) || status_of_pidfd(pidfd, &e))
    return e;
  return (struct process_exit){.code = -1};
}

/* Is this line of a maps file the wanted one: 1, 0, or -1 for the rest of an overlong line. */
typedef int (*maps_line)(const char *line, const void *wanted);

static enum process_mapping maps_look(pid_t pid, maps_line is_it, const void *wanted) {
  char path[40], line[512];
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  FILE *f = fopen(path, "re");
  if (!f)
    return errno == ENOENT || errno == ESRCH ? PROCESS_GONE : PROCESS_UNKNOWN;
  enum process_mapping found = PROCESS_GONE;
  while (found != PROCESS_MAPS && fgets(line, sizeof line, f)) {
    int here = is_it(line, wanted);
    if (here >= 0)
      found = here ? PROCESS_MAPS : PROCESS_MAPS_NOT;
  }
  if (ferror(f) && found != PROCESS_MAPS)
    found = PROCESS_UNKNOWN;
  fclose(f);
  return found;
}

static int is_memfd(const char *line, const void *wanted) {
  unsigned long long ino = 0;
  int name = 0;
  ino_t inode = *(const ino_t *)wanted;
  const char *start = inode ? "/memfd:" : "/memfd:" PROCESS_MEMFD;
  if (sscanf(line, "%*s %*s %*s %*s %llu %n", &ino, &name) < 1)
    return -1;
  return (!inode || ino == inode) && strncmp(line + name, start, strlen(start)) == 0;
}

enum process_mapping process_mapping(pid_t pid, ino_t inode) {
  return maps_look(pid, is_memfd, &inode);
}

struct range {
  uint64_t address, bytes;
};

static int is_range(const char *line, const void *wanted) {
  const struct range *r = wanted;
  unsigned long long from, to;
  if (sscanf(line, "%llx-%llx ", &from, &to) < 2)
    return -1;
  return from == r->address && to - from == r->bytes;
}

enum process_mapping process_maps_range(pid_t pid, uint64_t address, uint64_t bytes) {
  return maps_look(pid, is_range, &(struct range){address, bytes});
}

int process_start_wall(pid_t pid, int64_t *start_ns) {
  char state = 0;
  uint64_t ticks = 0;
  int err = stat_read(pid, &state, STAT_START_TIME, &ticks);
  if (err || state == 'Z' || state == 'X')
    return -ESRCH;
  *start_ns = clock_wall_of_ticks(ticks);
  return 0;
}
