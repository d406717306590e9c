/* The store that a command without --db would read: rights, disk, who writes to it, what it lacks. */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "../proto/store_abi.h"
#include "buf.h"
#include "db.h"
#include "doctor.h"

#define LITTLE_ROOM (UINT64_C(256) << 20)
#define SMB2_MAGIC 0xfe534d42
#define CIFS_MAGIC 0xff534d42

static void folder_of(const char *path, struct buf *out) {
  char *copy = strdup(path);
  buf_puts(out, copy ? dirname(copy) : ".");
  free(copy);
}

/* The machine's store is there, and closed to us: then it is not even seen, and the answer would be "no store". */
static bool closed_system_store(struct doctor *d) {
  struct stat st;
  struct buf folder = {0};
  folder_of(DB_SYSTEM_STORE, &folder);
  bool closed = stat(buf_text(&folder), &st) == 0 && S_ISDIR(st.st_mode) && access(buf_text(&folder), X_OK) != 0;
  if (closed) {
    const struct group *group = getgrgid(st.st_gid);
    doctor_find(d, DOCTOR_WARN, "store", "%s cannot be entered by this user; join the group %s (usermod -aG) and log in again",
                buf_text(&folder), group ? group->gr_name : "of that folder");
  }
  buf_fini(&folder);
  return closed;
}

static const char *network(uint32_t type) {
  switch (type) {
  case NFS_SUPER_MAGIC:
    return "NFS";
  case SMB_SUPER_MAGIC:
  case SMB2_MAGIC:
  case CIFS_MAGIC:
    return "SMB";
  case V9FS_MAGIC:
    return "9p";
  default:
    return NULL;
  }
}

static void disk(struct doctor *d, const char *path) {
  struct statfs fs;
  struct buf folder = {0};
  folder_of(path, &folder);
  if (statfs(buf_text(&folder), &fs) == 0) {
    uint64_t room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    const char *over = network((uint32_t)fs.f_type);
    if (over)
      doctor_find(d, DOCTOR_WARN, "store",
                  "%s is on %s, where SQLite's log works on one machine only; keep stores on a local disk", path, over);
    if (room == 0)
      doctor_find(d, DOCTOR_FAIL, "store", "the disk of %s is full, nothing more is kept; make room", path);
    else if (room < LITTLE_ROOM)
      doctor_find(d, DOCTOR_WARN, "store", "%" PRIu64 " MiB are left on the disk of %s; make room", room >> 20, path);
  }
  buf_fini(&folder);
}

static void content(struct doctor *d, sqlite3 *db, const char *path) {
  sqlite3_int64 sessions = db_value(db, 0, "SELECT count(*) FROM sessions");
  sqlite3_int64 running = db_value(db, 0, "SELECT count(*) FROM sessions WHERE state='" SESSION_RUNNING "'");
  sqlite3_int64 dropped = db_value(db, 0, "SELECT dropped_total FROM sessions ORDER BY start_ns DESC LIMIT 1");
  enum db_writer by = db_writer(path);
  doctor_find(d, DOCTOR_OK, "store", "%s: %lld sessions, %s", path, (long long)sessions,
              by == DB_WRITER_THERE  ? "a collector writes to it"
              : by == DB_WRITER_NONE ? "no collector writes to it now"
                                     : "readable");
  if (running && by == DB_WRITER_NONE)
    doctor_find(d, DOCTOR_WARN, "store",
                "%lld sessions are left running by a collector that ended; the next one on this store settles them",
                (long long)running);
  if (dropped)
    doctor_find(d, DOCTOR_WARN, "store",
                "the latest session lost %lld records; `cirron-query report` says why, CIRRON_RING_BYTES gives more room",
                (long long)dropped);
}

static void unreadable(struct doctor *d, const char *path, const char *why, int err) {
  struct stat st;
  const struct group *group = err == -EACCES && stat(path, &st) == 0 && (st.st_mode & S_IRGRP) ? getgrgid(st.st_gid) : NULL;
  if (group)
    doctor_find(d, DOCTOR_FAIL, "store", "%s; join the group %s (usermod -aG) and log in again", why, group->gr_name);
  else if (strchr(why, ';'))
    doctor_find(d, DOCTOR_FAIL, "store", "%s", why);
  else
    doctor_find(d, DOCTOR_FAIL, "store", "%s; %s", why,
                err == -ENOENT   ? "record something first, or name another"
                : err == -EACCES ? "ask its owner, or run collectord with --group"
                                 : "move it away, and the next collector makes a new one");
}

void doctor_store(struct doctor *d) {
  const char *path;
  char why[1024], note[1024];
  sqlite3 *db;
  bool closed = !d->cli->db && !getenv("CIRRON_DB") && closed_system_store(d);
  if (db_find(d->cli->db, &path, why, sizeof why) != 0) {
    if (!closed)
      doctor_find(d, DOCTOR_WARN, "store",
                  "none yet: neither " DB_USER_STORE " nor " DB_SYSTEM_STORE " is there; record something first");
    return;
  }
  disk(d, path);
  int err = db_open(path, &db, why, sizeof why, note, sizeof note);
  if (err) {
    unreadable(d, path, why, err);
    return;
  }
  if (*note)
    doctor_find(d, DOCTOR_WARN, "store", "%s", note);
  content(d, db, path);
  sqlite3_close(db);
}
