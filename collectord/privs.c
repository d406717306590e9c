#include "privs.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

static int say(int err, char *why, size_t len, const char *format, ...) __attribute__((format(printf, 4, 5)));
static int say(int err, char *why, size_t len, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, len, format, args);
  va_end(args);
  return err;
}

static int find_user(const char *name, struct privs *p, char *why, size_t len) {
  errno = 0;
  const struct passwd *entry = getpwnam(name);
  if (!entry)
    return say(errno ? -errno : -ENOENT, why, len, "--user %s: there is no such user; make it, or name another", name);
  if (geteuid() != 0 && entry->pw_uid != geteuid())
    return say(-EPERM, why, len, "--user %s: only root can become another user; start as root, or leave --user away", name);
  p->user = name;
  p->uid = entry->pw_uid;
  p->gid = entry->pw_gid;
  return 0;
}

/* New files get the group that the process has. SQLite makes some of its own and would not be told another. */
static int find_group(const char *name, struct privs *p, char *why, size_t len) {
  errno = 0;
  const struct group *entry = getgrnam(name);
  if (!entry)
    return say(errno ? -errno : -ENOENT, why, len, "--group %s: there is no such group; make it, or name another", name);
  if (geteuid() != 0 && entry->gr_gid != getegid())
    return say(-EPERM, why, len, "--group %s: only root can run with another group; start as root, or through `sg %s`", name,
               name);
  p->gid = p->group = entry->gr_gid;
  return 0;
}

int privs_find(const struct config *config, struct privs *out, char *why, size_t why_len) {
  struct privs p = {.uid = geteuid(), .gid = getegid(), .group = PRIVS_NO_GROUP};
  int err = config->user[0] ? find_user(config->user, &p, why, why_len) : 0;
  if (!err && config->group[0])
    err = find_group(config->group, &p, why, why_len);
  if (err)
    return err;
  p.umask = p.group == PRIVS_NO_GROUP ? 077 : 027;
  p.socket_mode = config->any_user ? 0666 : p.group == PRIVS_NO_GROUP ? 0600 : 0660;
  *out = p;
  return 0;
}

void privs_make_folder(const struct privs *privs, const char *path, bool open_to_all) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (!slash || slash == folder)
    return;
  *slash = '\0';
  if (mkdir(folder, 0700) != 0)
    return;
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return;
  if (geteuid() == 0)
    (void)!fchown(fd, privs->uid, privs->gid);
  if (open_to_all || privs->group != PRIVS_NO_GROUP)
    (void)fchmod(fd, open_to_all ? 0755 : 0750);
  close(fd);
}

static int become(const struct privs *p) {
  /* The groups of the user, or of nobody: root's would open files that the collector has no business with. */
  if (p->user ? initgroups(p->user, p->gid) : setgroups(0, NULL))
    return -errno;
  if (setresgid(p->gid, p->gid, p->gid) != 0 || setresuid(p->uid, p->uid, p->uid) != 0)
    return -errno;
  return p->uid != 0 && setuid(0) == 0 ? -EPERM : 0; /* it must not be possible to go back */
}

int privs_drop(const struct privs *privs, char *why, size_t why_len) {
  umask(privs->umask);
  bool wanted = privs->user || privs->group != PRIVS_NO_GROUP;
  int err = wanted && geteuid() == 0 ? become(privs) : 0;
  if (err)
    return say(err, why, why_len, "cannot become user %s (%s); start as that user instead of --user",
               privs->user ? privs->user : "root", strerror(-err));
  if (wanted)
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* kernels without it have nothing to forbid */
  return 0;
}

void privs_share_store(const struct privs *privs, const char *db) {
  static const char *const ends[] = {"", "-wal", "-shm"};
  char path[PATH_MAX + 8];
  if (privs->group == PRIVS_NO_GROUP)
    return;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    snprintf(path, sizeof path, "%s%s", db, ends[i]);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & S_IRGRP) &&
        (st.st_gid == privs->group || fchown(fd, (uid_t)-1, privs->group) == 0))
      (void)fchmod(fd, (st.st_mode & 0777) | S_IRGRP); /* the group reads nothing then; doctor says so */
    if (fd >= 0)
      close(fd);
  }
}
