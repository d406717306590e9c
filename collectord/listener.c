#include "listener.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

#define INHERITED_FD 3 /* the first one, by the protocol of LISTEN_FDS */
#define BACKLOG 128
#define ACCEPTS_A_TURN 64

static int say(int err, char *why, size_t len, const char *format, ...) __attribute__((format(printf, 4, 5)));
static int say(int err, char *why, size_t len, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, len, format, args);
  va_end(args);
  return err;
}

/* A socket from the service manager: 1 if there is one. */
static int inherit(struct listener *l, char *why, size_t len) {
  const char *count = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
  if (!count || !pid || strtol(pid, NULL, 10) != (long)getpid() || strtol(count, NULL, 10) < 1)
    return 0;
  int listening = 0;
  socklen_t size = sizeof listening;
  if (getsockopt(INHERITED_FD, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening)
    return say(-EINVAL, why, len, "descriptor %d from LISTEN_FDS is not a listening socket; check the socket unit",
               INHERITED_FD);
  if (fcntl(INHERITED_FD, F_SETFD, FD_CLOEXEC) != 0 || fcntl(INHERITED_FD, F_SETFL, O_NONBLOCK) != 0)
    return say(-errno, why, len, "the socket from LISTEN_FDS cannot be set up (%s)", strerror(errno));
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_PID");
  l->fd = INHERITED_FD;
  l->inherited = true;
  return 1;
}

/* Others come only where the socket is for them. */
static void make_folder(const char *path, mode_t mode) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash && slash != folder) {
    *slash = '\0';
    mode_t before = umask(0022);
    (void)mkdir(folder, mode & 077 ? 0755 : 0700); /* bind says what is wrong if this did not work */
    umask(before);
  }
}

/* Something has the name already. 0: it was a socket of ours on which nobody answers, and is gone. */
static int remove_stale(const struct sockaddr_un *address, char *why, size_t len) {
  const char *path = address->sun_path;
  struct stat st;
  if (lstat(path, &st) != 0)
    return errno == ENOENT ? 0 : say(-errno, why, len, "%s: cannot be looked at (%s)", path, strerror(errno));
  if (!S_ISSOCK(st.st_mode))
    return say(-EEXIST, why, len, "%s: exists and is not a socket; choose another --socket", path);
  int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0)
    return say(-errno, why, len, "%s: no socket (%s)", path, strerror(errno));
  int refused = connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
  close(probe);
  if (refused == 0 || refused == EAGAIN)
    return say(-EADDRINUSE, why, len, "%s: another collector answers there; use it, end it, or choose another --socket", path);
  if (st.st_uid != geteuid())
    return say(-EPERM, why, len, "%s: belongs to user %d; remove it or choose another --socket", path, (int)st.st_uid);
  if (refused != ECONNREFUSED)
    return say(-refused, why, len, "%s: cannot be looked into (%s); remove it or choose another --socket", path,
               strerror(refused));
  if (unlink(path) != 0 && errno != ENOENT)
    return say(-errno, why, len, "%s: a stale socket that cannot be removed (%s); remove it", path, strerror(errno));
  return 0;
}

static int bind_at(int fd, const struct sockaddr_un *address, mode_t mode) {
  mode_t before = umask(~mode & 0777);
  int err = bind(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : -errno;
  umask(before);
  return err;
}

static int listen_at(const struct sockaddr_un *address, mode_t mode, struct listener *l, char *why, size_t len) {
  const char *path = address->sun_path;
  l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (l->fd < 0)
    return say(-errno, why, len, "%s: no socket (%s)", path, strerror(errno));
  make_folder(path, mode);
  int err = bind_at(l->fd, address, mode);
  if (err == -EADDRINUSE) {
    err = remove_stale(address, why, len);
    if (err)
      return err;
    err = bind_at(l->fd, address, mode);
  }
  if (err)
    return say(err, why, len, "%s: cannot be made (%s); the folder must exist and be writable, or choose another --socket",
               path, strerror(-err));
  struct stat st;
  if (listen(l->fd, BACKLOG) != 0 || lstat(path, &st) != 0)
    return say(-errno, why, len, "%s: cannot be listened on (%s)", path, strerror(errno));
  l->dev = st.st_dev;
  l->ino = st.st_ino;
  strcpy(l->path, path);
  return 0;
}

int listener_open(const char *path, mode_t mode, struct listener *out, char *why, size_t why_len) {
  struct listener l = {.fd = -1};
  int err = inherit(&l, why, why_len);
  if (err < 0)
    return err;
  if (!err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
      return say(-ENAMETOOLONG, why, why_len,
                 "%s: longer than the %zu bytes a socket's path may have; choose a shorter --socket", path,
                 sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    err = listen_at(&address, mode, &l, why, why_len);
    if (err) {
      if (l.fd >= 0)
        close(l.fd);
      return err;
    }
  }
  *out = l;
  return 0;
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  struct listener *l = arg;
  (void)event_add(l->acceptable, NULL); /* was in the loop before: needs no memory */
}

/* Out of descriptors, most likely: the waiting connection would wake us at once again. */
static void take_breath(struct listener *l, int err) {
  log_limited(LOG_ACCEPT, "listener", -err, "no connection can be accepted");
  struct timeval second = {.tv_sec = 1};
  event_del(l->acceptable);
  if (event_add(l->pause, &second) != 0)
    (void)event_add(l->acceptable, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg) {
  (void)what;
  struct listener *l = arg;
  for (int i = 0; i < ACCEPTS_A_TURN; i++) {
    int peer = accept4((int)fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0) {
      conn_accept(l->conns, peer);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
      take_breath(l, errno);
    return;
  }
}

int listener_start(struct listener *listener, struct conns *conns) {
  listener->conns = conns;
  listener->acceptable = event_new(conns->base, listener->fd, EV_READ | EV_PERSIST, on_acceptable, listener);
  listener->pause = evtimer_new(conns->base, on_pause_over, listener);
  if (!listener->acceptable || !listener->pause || event_add(listener->acceptable, NULL) != 0)
    return -ENOMEM;
  return 0;
}

void listener_close(struct listener *listener) {
  if (listener->acceptable)
    event_free(listener->acceptable);
  if (listener->pause)
    event_free(listener->pause);
  listener->acceptable = listener->pause = NULL;
  struct stat st;
  if (listener->fd >= 0 && listener->path[0] && lstat(listener->path, &st) == 0 && st.st_dev == listener->dev &&
      st.st_ino == listener->ino)
    (void)unlink(listener->path); /* if it stays, the next one replaces it */
  if (listener->fd >= 0)
    close(listener->fd);
  listener->fd = -1;
}

void listener_notify(const char *state) {
  const char *path = getenv("NOTIFY_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path)
    return;
  strcpy(address.sun_path, path);
  socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] == '/'));
  if (path[0] == '@')
    address.sun_path[0] = '\0';
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return;
  if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address, len) < 0)
    log_line("listener", -errno, "the service manager cannot be told %s", state);
  close(fd);
}
