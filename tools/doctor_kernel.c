/* What agent and collector ask of the system: sealed memory that can be handed over, and descriptors of processes. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "doctor.h"

#define FEW_DESCRIPTORS 1024
#define PROBE_BYTES 4096

static void machine(struct doctor *d) {
  struct utsname name;
  if (uname(&name) != 0)
    return;
  if (strcmp(name.machine, "x86_64") == 0)
    doctor_find(d, DOCTOR_OK, "kernel", "Linux %s on x86_64", name.release);
  else
    doctor_find(d, DOCTOR_FAIL, "kernel", "Linux %s on %s; the agent is for x86_64 only", name.release, name.machine);
}

/* The way of a ring: made, sealed, passed through a socket, mapped by the one who got it. NULL, or what was refused. */
static const char *hand_over(int memory, const int ends[2]) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
  char byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
  memcpy(CMSG_DATA(&control.header), &memory, sizeof memory);
  if (sendmsg(ends[0], &msg, 0) != 1 || recvmsg(ends[1], &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1)
    return "passing a descriptor through a socket";
  if (msg.msg_controllen < sizeof control.header || control.header.cmsg_type != SCM_RIGHTS)
    return "passing a descriptor through a socket";
  int got;
  memcpy(&got, CMSG_DATA(&control.header), sizeof got);
  void *shared = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, got, 0);
  int saved = errno;
  close(got);
  errno = saved;
  if (shared == MAP_FAILED)
    return "mapping shared memory";
  munmap(shared, PROBE_BYTES);
  return NULL;
}

static const char *try_memory(void) {
  int memory = (int)syscall(SYS_memfd_create, "cirron-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING), ends[2];
  if (memory < 0)
    return "memfd_create";
  const char *refused = NULL;
  if (ftruncate(memory, PROBE_BYTES) != 0)
    refused = "giving a memfd its size";
  else if (fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refused = "sealing a memfd";
  else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    refused = "a Unix socket";
  else {
    refused = hand_over(memory, ends);
    int saved = errno;
    close(ends[0]);
    close(ends[1]);
    errno = saved;
  }
  int saved = errno;
  close(memory);
  errno = saved;
  return refused;
}

static void memory(struct doctor *d) {
  const char *refused = try_memory();
  if (refused)
    doctor_find(
        d, DOCTOR_WARN, "kernel",
        "%s is refused (%s), so records are sent as messages, and kill -9 takes the last of them along; the container's "
        "seccomp profile may allow it",
        refused, strerror(errno));
  else
    doctor_find(d, DOCTOR_OK, "kernel", "sealed memory can be handed to a collector (memfd)");
}

static void processes(struct doctor *d) {
  int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  if (fd >= 0) {
    close(fd);
    doctor_find(d, DOCTOR_OK, "kernel", "the end of a process can be watched (pidfd)");
  } else {
    doctor_find(
        d, DOCTOR_WARN, "kernel",
        "pidfd_open is refused (%s), so how a training ended is not known; Linux 5.3 has it, a seccomp profile may forbid it",
        strerror(errno));
  }
  if (access("/proc/self/stat", R_OK) != 0)
    doctor_find(d, DOCTOR_WARN, "kernel", "/proc cannot be read, so a restarted collector finds no process again; mount it");
}

static void descriptors(struct doctor *d) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < FEW_DESCRIPTORS)
    doctor_find(d, DOCTOR_WARN, "kernel", "only %llu descriptors are allowed, few for a collector; raise `ulimit -Hn` to %d",
                (unsigned long long)files.rlim_max, FEW_DESCRIPTORS);
}

void doctor_kernel(struct doctor *d) {
  machine(d);
  memory(d);
  processes(d);
  descriptors(d);
}
