/* See link_socket.h. */
#include "link_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env.h"
#include "glibc.h"

/* Whose collector is it? Root's, our own, or that of whoever owns the folder the socket lies in: a system collector that has given
 * up root. Anybody else could have put a socket into a folder that all may write to. */
static bool peer_trusted(int fd, const char *path) {
  struct ucred peer;
  socklen_t len = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
    return false;
  if (peer.uid == 0 || peer.uid == geteuid())
    return true;
  sun_path folder;
  struct stat st;
  memcpy(folder, path, sizeof(folder));
  char *slash = strrchr(folder, '/');
  if (!slash)
    return false;
  slash[slash == folder] = '\0';
  return syscall(SYS_newfstatat, AT_FDCWD, folder, &st, 0) == 0 && st.st_uid == peer.uid;
}

int link_socket_connect(const sun_path path, struct owned_fd *out) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, path, sizeof(address.sun_path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  int r = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
  if (r == 0 && !peer_trusted(fd, path)) {
    env_debug("%s belongs to another user: not used", path);
    r = -EPERM;
  }
  if (r < 0) {
    close(fd);
    return r;
  }
  return fd_own(fd, out);
}

int link_socket_send(const struct owned_fd *to, const uint8_t *message, size_t len, int pass_fd) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {0};
  struct iovec part = {.iov_base = (void *)message, .iov_len = len};
  struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
  if (pass_fd >= 0) {
    control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &pass_fd, sizeof(int));
    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control.bytes);
  }
  if (!fd_ours(to))
    return -EBADF;
  int flags = MSG_NOSIGNAL | MSG_DONTWAIT; /* a sandbox may allow the plain one only */
  ssize_t n = pass_fd >= 0 ? sendmsg(to->fd, &msg, flags) : send(to->fd, message, len, flags);
  if (n < 0)
    return -errno;
  return (size_t)n == len ? 0 : -EMSGSIZE;
}
