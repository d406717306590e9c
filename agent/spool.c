/* See spool.h. */
#include "spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "folder.h"
#include "glibc.h"

#define LOOK_PART 16u        /* of the bound, written since the last look: others may have written as much */
#define FILES_MAX (1u << 20) /* looked at */
#define DIGITS 20u
#define NAME_BYTES (DIGITS + 1 + 32 + 5)

int spool_init(struct spool *s, const char *folder, uint64_t max_bytes) {
  char here[PATH_MAX] = "";
  if (folder[0] != '/' && !getcwd(here, sizeof here))
    return -errno;
  int n = snprintf(s->folder, sizeof s->folder, "%s%s%s", here, here[0] ? "/" : "", folder);
  if (n < 0 || (size_t)n + NAME_BYTES + 8 > sizeof s->folder)
    return -ENAMETOOLONG;
  s->max_bytes = max_bytes;
  s->bytes = s->looked = s->removed = s->failures = 0;
  s->known = s->at = 0;
  s->is_known = false;
  return 0;
}

/* --- what is there --- */

/* Reads 20 digits, a dash, 32 hex digits and the ending. */
static bool parse(const char *name, const char *ending, struct spool_file *out) {
  uint64_t ns = 0;
  for (unsigned i = 0; i < DIGITS; i++) {
    if (name[i] < '0' || name[i] > '9')
      return false;
    ns = ns * 10 + (uint64_t)(name[i] - '0');
  }
  if (name[DIGITS] != '-' || strspn(name + DIGITS + 1, "0123456789abcdef") != 32 || strcmp(name + DIGITS + 33, ending) != 0)
    return false;
  memcpy(out->id, name + DIGITS + 1, 32);
  out->id[32] = '\0';
  out->created_ns = ns;
  return true;
}

static void path_of(const struct spool *s, uint64_t created_ns, const char *id, const char *ending, char out[PATH_MAX]) {
  snprintf(out, PATH_MAX, "%.*s/%020llu-%.32s%s", PATH_MAX - 80, s->folder, (unsigned long long)created_ns, id, ending);
}

static int by_age(const void *a, const void *b) {
  const struct spool_file *x = a, *y = b;
  return x->created_ns < y->created_ns ? -1 : x->created_ns > y->created_ns ? 1 : strcmp(x->id, y->id);
}

static uint64_t size_of(const struct spool *s, const struct spool_file *file) {
  char path[PATH_MAX];
  struct stat st;
  path_of(s, file->created_ns, file->id, ".json", path);
  return syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 ? (uint64_t)st.st_size : 0;
}

/* All files of a folder, oldest first; NULL: none, or no memory. */
static struct spool_file *list(const struct spool *s, size_t *count) {
  DIR *folder = opendir(s->folder);
  struct spool_file *files = NULL, file;
  size_t n = 0, room = 0;
  const struct dirent *entry;
  while (folder && n < FILES_MAX && (entry = readdir(folder))) {
    if (!parse(entry->d_name, ".json", &file))
      continue;
    if (n == room) {
      struct spool_file *more = realloc(files, (room ? 2 * room : 256) * sizeof *files);
      if (!more)
        break;
      files = more;
      room = room ? 2 * room : 256;
    }
    file.bytes = size_of(s, &file);
    files[n++] = file;
  }
  if (folder)
    closedir(folder);
  if (n)
    qsort(files, n, sizeof *files, by_age);
  *count = n;
  return files;
}

static void look(struct spool *s) {
  size_t n;
  struct spool_file *files = list(s, &n);
  s->bytes = s->looked = 0;
  for (size_t i = 0; i < n; i++)
    s->bytes += files[i].bytes;
  s->known = n < SPOOL_OLDEST ? (unsigned)n : SPOOL_OLDEST;
  s->at = 0;
  if (s->known)
    memcpy(s->oldest, files, s->known * sizeof *files);
  free(files);
  s->is_known = true;
}

/* The newest stays, however large it is. */
static void remove_old(struct spool *s, const struct spool_batch *newest) {
  for (bool looked = false; s->bytes > s->max_bytes;) {
    if (s->at == s->known) {
      if (looked) /* what is left cannot be removed, or is a task for the next time */
        return;
      looked = true;
      look(s);
      continue;
    }
    const struct spool_file *file = &s->oldest[s->at++];
    if (file->created_ns == newest->created_ns && strcmp(file->id, newest->id) == 0)
      return;
    char path[PATH_MAX];
    path_of(s, file->created_ns, file->id, ".json", path);
    s->bytes -= file->bytes < s->bytes ? file->bytes : s->bytes;
    if (unlink(path) == 0)
      s->removed++;
  }
}

/* --- writing --- */

static int create(const struct spool *s, const char *path) {
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, fd = open(path, flags, 0666);
  if (fd < 0 && errno == ENOENT) {
    int r = folder_make(s->folder);
    if (r < 0)
      return r;
    fd = open(path, flags, 0666);
  }
  return fd < 0 ? -errno : fd;
}

static int write_file(struct spool *s, const struct spool_batch *batch, uint64_t *bytes) {
  char before[PATH_MAX], path[PATH_MAX];
  path_of(s, batch->created_ns, batch->id, ".json.tmp", before);
  path_of(s, batch->created_ns, batch->id, ".json", path);
  int fd = create(s, before);
  if (fd < 0)
    return fd;
  int r = spool_batch_write(fd, batch, bytes);
  if (close(fd) != 0 && r == 0)
    r = -errno; /* some file systems say so only now */
  if (r == 0 && rename(before, path) != 0)
    r = -errno;
  if (r < 0)
    (void)unlink(before);
  return r;
}

int spool_write(struct spool *s, const struct spool_batch *batch) {
  uint64_t bytes = 0;
  int r = write_file(s, batch, &bytes);
  if (r < 0) {
    s->failures++;
    return r;
  }
  s->bytes += bytes;
  s->looked += bytes;
  if (!s->is_known || s->looked > s->max_bytes / LOOK_PART)
    look(s);
  remove_old(s, batch);
  return 0;
}
