#include "place.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../proto/link_abi.h"

#define AGENT "libcirron_agent.so"

/* The folder of the running program, with a slash at its end. */
static int own_folder(char out[PATH_MAX]) {
  ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
  if (n <= 0)
    return -ENOENT;
  out[n] = '\0';
  strrchr(out, '/')[1] = '\0';
  return 0;
}

static bool is_file(const char *path, int mode) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, mode) == 0;
}

static bool try_place(const char *folder, const char *below, const char *name, int mode, char out[PATH_MAX]) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s%s%s", folder, below, name) >= (int)sizeof path || !is_file(path, mode))
    return false;
  return realpath(path, out) != NULL;
}

int place_agent(char out[PATH_MAX]) {
  /* the build folder; PREFIX/bin with PREFIX/lib/cirron, or a distribution's PREFIX/lib/TRIPLET/cirron */
  static const char *const below[] = {"", "../lib/" CIRRON_TRIPLET "/cirron/", "../lib/cirron/", "../lib64/cirron/"};
  char folder[PATH_MAX];
  if (own_folder(folder) == 0)
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
      if (try_place(folder, below[i], AGENT, R_OK, out))
        return 0;
  return -ENOENT;
}

int place_program(const char *name, char out[PATH_MAX]) {
  char folder[PATH_MAX];
  if (own_folder(folder) == 0 && (try_place(folder, "", name, X_OK, out) || try_place(folder, "../sbin/", name, X_OK, out)))
    return 0;
  const char *path = getenv("PATH");
  for (size_t n; path && *path; path += n + (path[n] == ':')) {
    n = strcspn(path, ":");
    if (path[0] == '/' && snprintf(folder, sizeof folder, "%.*s/", (int)n, path) < (int)sizeof folder &&
        try_place(folder, "", name, X_OK, out))
      return 0;
  }
  return -ENOENT;
}

bool place_user_socket(char out[PATH_MAX]) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  return runtime && runtime[0] == '/' && snprintf(out, PATH_MAX, "%s/" LINK_USER_SOCKET, runtime) < PATH_MAX;
}

bool place_private_socket(const char *directory, bool in_tmp, char out[PATH_MAX]) {
  char folder[PATH_MAX];
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  int n = in_tmp ? snprintf(folder, sizeof folder, LINK_PRIVATE_FOLDER, (unsigned)geteuid())
                 : snprintf(folder, sizeof folder, "%s/cirron", runtime ? runtime : "");
  return n < (int)sizeof folder && folder[0] == '/' && (in_tmp || (runtime && runtime[0])) &&
         snprintf(out, PATH_MAX, LINK_PRIVATE_SOCKET, folder, (unsigned long long)link_path_hash(directory)) < PATH_MAX;
}

/* The rule of agent/link.c: root's, our own, or of whoever owns the folder. */
static bool trusted(const char *path, uid_t listener) {
  char folder[PATH_MAX];
  struct stat st;
  if (listener == 0 || listener == geteuid())
    return true;
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[slash == folder] = '\0';
  return stat(slash ? folder : ".", &st) == 0 && st.st_uid == listener;
}

static enum place_answer of_errno(void) {
  switch (errno) {
  case ENOENT:
  case ENOTDIR:
    return PLACE_NONE;
  case ECONNREFUSED:
    return PLACE_STALE;
  case EACCES:
  case EPERM:
    return PLACE_CLOSED;
  default:
    return PLACE_ERROR;
  }
}

enum place_answer place_connect(const char *path, int *fd, uid_t *owner) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct ucred peer = {0};
  socklen_t len = sizeof peer;
  *fd = -1;
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return PLACE_ERROR;
  }
  strcpy(address.sun_path, path);
  int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0)
    return PLACE_ERROR;
  enum place_answer answer = PLACE_ANSWERS;
  if (connect(made, (struct sockaddr *)&address, sizeof address) != 0 ||
      getsockopt(made, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
    answer = of_errno();
  else if (!trusted(path, peer.uid))
    answer = PLACE_STRANGER;
  *owner = peer.uid;
  if (answer == PLACE_ANSWERS) {
    *fd = made;
    return answer;
  }
  int saved = errno;
  close(made);
  errno = saved;
  return answer;
}

enum place_answer place_probe(const char *path, int wait_ms, uid_t *owner) {
  int fd;
  enum place_answer answer = place_connect(path, &fd, owner);
  struct pollfd hangup = {.fd = fd, .events = POLLIN | POLLRDHUP};
  if (answer == PLACE_ANSWERS && wait_ms && poll(&hangup, 1, wait_ms) > 0)
    answer = PLACE_REFUSES;
  if (fd >= 0)
    close(fd);
  return answer;
}
