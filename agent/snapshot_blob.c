/* See snapshot_blob.h. */
#include "snapshot_blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "folder.h"
#include "glibc.h"
#include "session.h"

#define FOLDER "snapshots"
#define ID_DIGITS 32u
#define LARGE_BYTES 100000000ull /* one snapshot of more is worth a word */

static struct {
  char folder[PATH_MAX]; /* absolute; empty: there is none */
  bool is_set, told_large;
  char uri[3 * PATH_MAX + 8];
  struct owned_fd owned;
  uint64_t removed;
  uint64_t random; /* 0: not begun */
} blob = {.owned = {.fd = -1}};

struct owned_fd *blob_folder(void) {
  return &blob.owned;
}

const char *blob_uri(void) {
  return blob.uri;
}

uint64_t blob_removed(void) {
  return blob.removed;
}

void blob_close(void) {
  fd_drop(&blob.owned);
  blob.uri[0] = '\0';
}

void blob_folder_set(const char *output_dir) {
  char here[PATH_MAX] = "";
  blob.is_set = true;
  blob.folder[0] = '\0';
  if (!output_dir || (output_dir[0] != '/' && !getcwd(here, sizeof here)))
    return;
  const char *path = strncmp(output_dir, "./", 2) == 0 && output_dir[2] ? output_dir + 2 : output_dir;
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/')
    len--;
  int n = snprintf(blob.folder, sizeof blob.folder, "%s%s%.*s/" FOLDER, here, here[0] ? "/" : "", (int)len, path);
  if (n < 0 || (size_t)n + 2 * ID_DIGITS > sizeof blob.folder)
    blob.folder[0] = '\0';
}

/* --- the dice ------------------------------------------------------------------------------------------------------------ */

static uint64_t next_random(void) { /* splitmix64 */
  uint64_t z = blob.random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

bool blob_wanted(enum env_snapshots mode, double sample_rate) {
  if (mode != ENV_SAMPLED)
    return mode == ENV_FULL;
  if (!blob.random) {
    blob.random = session_env.sample_seed;
    if (!blob.random && syscall(SYS_getrandom, &blob.random, sizeof blob.random, 1 /* GRND_NONBLOCK */) < 0)
      blob.random = clock_system();
  }
  return (double)(next_random() >> 11) * 0x1p-53 < sample_rate;
}

/* --- room ---------------------------------------------------------------------------------------------------------------- */

struct place {
  char id[ID_DIGITS + 1];
  int64_t age_ns;
  uint64_t bytes;
};

static bool is_id(const char *name) {
  return strspn(name, "0123456789abcdef") == ID_DIGITS && name[ID_DIGITS] == '\0';
}

/* Files of ours, also those that were never brought to an end. */
static bool is_file(const char *name) {
  const char *base = name[0] == '.' ? name + 1 : name;
  return strncmp(base, "weights.safetensors", 19) == 0 || strncmp(base, "gradients.safetensors", 21) == 0;
}

/* Calls for each of them, with its path. */
static void each_file(const char *id, void (*visit)(struct place *place, const char *path), struct place *place) {
  char path[2 * PATH_MAX];
  snprintf(path, sizeof path, "%s/%.32s", blob.folder, id);
  DIR *folder = opendir(path);
  const struct dirent *entry;
  while (folder && (entry = readdir(folder)))
    if (is_file(entry->d_name)) {
      snprintf(path, sizeof path, "%s/%.32s/%s", blob.folder, id, entry->d_name);
      visit(place, path);
    }
  if (folder)
    closedir(folder);
}

static void add_file(struct place *place, const char *path) {
  struct stat st;
  if (syscall(SYS_newfstatat, AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
    return;
  int64_t ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
  place->bytes += (uint64_t)st.st_size;
  place->age_ns = ns < place->age_ns ? ns : place->age_ns;
}

static struct place look_at(const char *id) {
  struct place place = {.age_ns = INT64_MAX};
  memcpy(place.id, id, ID_DIGITS);
  each_file(id, add_file, &place);
  return place;
}

static int oldest_first(const void *a, const void *b) {
  const struct place *x = a, *y = b;
  return x->age_ns < y->age_ns ? -1 : x->age_ns > y->age_ns;
}

/* All directories of snapshots; NULL: none, or no memory. */
static struct place *list(size_t *count) {
  DIR *folder = opendir(blob.folder);
  struct place *places = NULL;
  const struct dirent *entry;
  size_t n = 0, room = 0;
  while (folder && (entry = readdir(folder))) {
    if (!is_id(entry->d_name))
      continue;
    if (n == room) {
      struct place *more = realloc(places, (room ? 2 * room : 64) * sizeof *places);
      if (!more)
        break;
      places = more;
      room = room ? 2 * room : 64;
    }
    places[n++] = look_at(entry->d_name);
  }
  if (folder)
    closedir(folder);
  *count = n;
  return places;
}

static void remove_file(struct place *place, const char *path) {
  (void)place;
  (void)unlink(path); /* what stays counts again the next time */
}

static void remove_place(struct place *place) {
  char path[PATH_MAX + 64];
  each_file(place->id, remove_file, place);
  snprintf(path, sizeof path, "%s/%s", blob.folder, place->id);
  blob.removed += rmdir(path) == 0;
}

/* So that what is there and so many bytes more stay below the bound. */
static void make_room(uint64_t bytes) {
  size_t count;
  struct place *places = list(&count);
  uint64_t sum = bytes;
  for (size_t i = 0; i < count; i++)
    sum += places[i].bytes;
  if (sum > session_env.snapshot_max_bytes)
    qsort(places, count, sizeof *places, oldest_first);
  for (size_t i = 0; i < count && sum > session_env.snapshot_max_bytes; i++) {
    remove_place(&places[i]);
    sum -= places[i].bytes;
  }
  free(places);
}

/* --- the directory ------------------------------------------------------------------------------------------------------- */

static void write_uri(const char *path) {
  static const char hex[] = "0123456789ABCDEF";
  memcpy(blob.uri, "file://", 8);
  char *to = blob.uri + 7;
  for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
    bool plain = (*p >= '0' && *p <= '9') || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z') || strchr("/-._~", *p);
    *to++ = plain ? (char)*p : '%';
    if (!plain) {
      *to++ = hex[*p >> 4];
      *to++ = hex[*p & 15];
    }
  }
  *to = '\0';
}

static int tell(const char *what, int error) {
  if (!env_told_of_output())
    env_complain("raw tensors of snapshots cannot be written to %.200s: %s; their statistics are taken all the same", what,
                 strerror(-error));
  return error;
}

int blob_open(uint64_t session, uint64_t span, uint64_t bytes) {
  char path[PATH_MAX + 64];
  blob_close();
  if (!blob.is_set) {
    const char *given = getenv("CIRRON_OUTPUT_DIR");
    blob_folder_set(given && *given && strlen(given) <= ENV_PATH_MAX ? given : "./.cirron");
  }
  if (!blob.folder[0])
    return tell("no directory that can be named", -ENAMETOOLONG);
  if (bytes > session_env.snapshot_max_bytes) {
    if (!env_told_of_output())
      env_complain("raw tensors of snapshots are not written: one takes %llu bytes, all together may have %llu "
                   "(CIRRON_SNAPSHOT_MAX_BYTES)",
                   (unsigned long long)bytes, (unsigned long long)session_env.snapshot_max_bytes);
    return -EFBIG;
  }
  make_room(bytes);
  snprintf(path, sizeof path, "%s/%016llx%016llx", blob.folder, (unsigned long long)session, (unsigned long long)span);
  int r = folder_make(path);
  int fd = r < 0 ? r : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (r == 0 && fd < 0)
    r = -errno;
  if (r == 0 && access(path, W_OK) != 0)
    r = -errno;
  if (fd >= 0)
    r = r < 0 ? (close(fd), r) : fd_own(fd, &blob.owned);
  if (r < 0)
    return tell(path, r);
  write_uri(path);
  if (bytes > LARGE_BYTES && !blob.told_large) {
    blob.told_large = true;
    env_complain("each snapshot writes %llu MB of raw tensors to %.200s (CIRRON_SNAPSHOTS=stats writes none)",
                 (unsigned long long)(bytes / 1000000), blob.folder);
  }
  return 0;
}
