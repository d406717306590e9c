#include "safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (1u << 18)
#define PUSH_BYTES (32u << 20)  /* so often the disk is asked to begin, so that little is left for the end */
#define HEADER_MAX (100u << 20) /* what the library reads */
#define TRIES 100               /* for a name */
#define TORN "\"false\"}}"      /* the header's end, before the spaces */
#define TORN_TRUE "\"true\"}} " /* as long */

struct safetensors {
  int folder, fd;
  char name[NAME_MAX + 1], temporary[NAME_MAX + 1];
  struct safetensors_tensor *tensors;
  size_t count;
  uint64_t data_at, torn_at; /* in the file */
  uint64_t at;               /* where the buffer's first byte goes */
  uint64_t left;             /* of the present tensor */
  uint64_t total, got, pushed;
  size_t used;
  char buffer[BUFFER_BYTES];
};

/* ---- text ---- */

struct text {
  char *data;
  size_t len, room;
  bool failed;
};

static void add(struct text *t, const char *data, size_t len) {
  if (t->failed)
    return;
  if (t->len + len > t->room) {
    size_t room = 2 * (t->len + len) + 4096;
    char *more = t->len + len > HEADER_MAX ? NULL : realloc(t->data, room);
    if (!more) {
      t->failed = true;
      return;
    }
    t->data = more;
    t->room = room;
  }
  memcpy(t->data + t->len, data, len);
  t->len += len;
}

static void add_string(struct text *t, const char *text) {
  add(t, text, strlen(text));
}

static void add_number(struct text *t, uint64_t value) {
  char digits[24];
  add(t, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value));
}

/* Bytes of the character at p, 0 if there is none. */
static size_t character(const uint8_t *p, size_t left) {
  size_t n = p[0] < 0x80                   ? 1
             : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
             : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
             : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                           : 0;
  if (!n || n > left)
    return 0;
  for (size_t i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80)
      return 0;
  bool wrong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
               (p[0] == 0xf4 && p[1] > 0x8f); /* overlong, surrogates, beyond the last one */
  return wrong ? 0 : n;
}

static void add_json(struct text *t, const char *text, size_t len) {
  add(t, "\"", 1);
  for (size_t i = 0, n; i < len; i += n ? n : 1) {
    const uint8_t *p = (const uint8_t *)text + i;
    char escape[8];
    n = character(p, len - i);
    if (!n)
      add_string(t, "\xef\xbf\xbd");
    else if (*p == '"' || *p == '\\')
      add(t, escape, (size_t)snprintf(escape, sizeof escape, "\\%c", *p));
    else if (*p < 0x20)
      add(t, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *p));
    else
      add(t, text + i, n);
  }
  add(t, "\"", 1);
}

/* ---- header ---- */

struct key {
  const char *data; /* as it stands in the header */
  size_t len, tensor;
};

static int by_key(const void *a, const void *b) {
  const struct key *x = a, *y = b;
  int order = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);
  if (order)
    return order;
  if (x->len != y->len)
    return x->len < y->len ? -1 : 1;
  return x->tensor < y->tensor ? -1 : 1;
}

/* Of several with the same name the first one has it. `keys` is in the order of the names afterwards. */
static void leave_out(struct safetensors_tensor *tensors, struct key *keys, size_t n) {
  static const char metadata[] = "\"__metadata__\"";
  qsort(keys, n, sizeof *keys, by_key);
  for (size_t i = 0; i < n; i++) {
    bool same = i && keys[i].len == keys[i - 1].len && memcmp(keys[i].data, keys[i - 1].data, keys[i].len) == 0;
    bool meta = keys[i].len == sizeof metadata - 1 && memcmp(keys[i].data, metadata, keys[i].len) == 0;
    struct safetensors_tensor *t = &tensors[keys[i].tensor];
    t->left_out = same || meta || !tensor_dtype_safetensors(t->dtype);
  }
}

static int find_bytes(struct safetensors_tensor *t) {
  uint64_t bytes = tensor_size(t->dtype);
  bool wrong = false, empty = false;
  for (uint32_t d = 0; d < t->ndim; d++) {
    wrong |= t->shape[d] < 0;
    empty |= t->shape[d] == 0;
  }
  for (uint32_t d = 0; !wrong && !empty && d < t->ndim; d++)
    wrong = __builtin_mul_overflow(bytes, (uint64_t)t->shape[d], &bytes) || bytes > INT64_MAX / 2;
  t->bytes = empty ? 0 : bytes;
  return wrong ? -EOVERFLOW : 0;
}

static int place(struct safetensors_tensor *tensors, size_t n, uint64_t *total) {
  *total = 0;
  for (size_t i = 0; i < n; i++) {
    int err = tensors[i].left_out ? 0 : find_bytes(&tensors[i]);
    if (err)
      return err;
  }
  for (size_t size = 8; size; size /= 2)
    for (size_t i = 0; i < n; i++)
      if (!tensors[i].left_out && tensor_size(tensors[i].dtype) == size) {
        tensors[i].offset = *total;
        *total += tensors[i].bytes;
        if (*total > INT64_MAX / 2)
          return -EOVERFLOW;
      }
  return 0;
}

static void add_tensor(struct text *t, const struct safetensors_tensor *tensor, const struct key *key) {
  add(t, key->data, key->len);
  add_string(t, ":{\"dtype\":\"");
  add_string(t, tensor_dtype_safetensors(tensor->dtype));
  add_string(t, "\",\"shape\":[");
  for (uint32_t d = 0; d < tensor->ndim; d++) {
    add_string(t, d ? "," : "");
    add_number(t, (uint64_t)tensor->shape[d]);
  }
  add_string(t, "],\"data_offsets\":[");
  add_number(t, tensor->offset);
  add_string(t, ",");
  add_number(t, tensor->offset + tensor->bytes);
  add_string(t, "]},");
}

/* `keys` and their text are found here, and given up by the caller. */
static int find_keys(struct safetensors_tensor *tensors, size_t n, struct text *text, struct key **keys) {
  *keys = calloc(n ? n : 1, sizeof **keys);
  for (size_t i = 0; *keys && i < n; i++) {
    size_t from = text->len;
    add_json(text, tensors[i].name, tensors[i].name_len);
    (*keys)[i] = (struct key){.len = text->len - from, .tensor = i};
  }
  if (!*keys || text->failed)
    return -ENOMEM;
  const char *at = text->data;
  for (size_t i = 0; i < n; at += (*keys)[i++].len)
    (*keys)[i].data = at;
  return 0;
}

/* *torn_at: where the value of `torn` begins. */
static int make_header(struct safetensors_tensor *tensors, size_t n, const char *span, struct text *header, uint64_t *total,
                       size_t *torn_at) {
  struct text names = {0};
  struct key *keys = NULL;
  int err = find_keys(tensors, n, &names, &keys);
  if (!err) {
    leave_out(tensors, keys, n);
    err = place(tensors, n, total);
  }
  if (!err) {
    add_string(header, "{");
    for (size_t i = 0; i < n; i++)
      if (!tensors[keys[i].tensor].left_out)
        add_tensor(header, &tensors[keys[i].tensor], &keys[i]);
    add_string(header, "\"__metadata__\":{\"format\":\"pt\",\"span\":");
    add_json(header, span, strlen(span));
    add_string(header, ",\"torn\":");
    *torn_at = header->len;
    add_string(header, TORN);
    while (header->len % 8 && !header->failed)
      add_string(header, " ");
    err = header->failed ? -ENOMEM : 0;
  }
  free(keys);
  free(names.data);
  return err;
}

/* ---- the temporary file ---- */

static bool is_temporary(const char *file, const char *name) {
  size_t n = strlen(name), len = strlen(file);
  return len > n + 6 && file[0] == '.' && memcmp(file + 1, name, n) == 0 && file[n + 1] == '.' &&
         strcmp(file + len - 4, ".tmp") == 0;
}

/* Those that nobody has locked are left of somebody who died. */
static void remove_stale(int folder, const char *name) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !dir)
    close(fd);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    int file = is_temporary(e->d_name, name) ? openat(folder, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    if (file < 0)
      continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
      (void)unlinkat(folder, e->d_name, 0); /* it may be gone already */
    close(file);
  }
  if (dir)
    closedir(dir);
}

static int make_temporary(struct safetensors *f) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  unsigned salt = (unsigned)now.tv_nsec ^ (unsigned)getpid() << 12;
  f->fd = -1;
  for (unsigned i = 0; f->fd < 0 && i < TRIES; i++) {
    if (snprintf(f->temporary, sizeof f->temporary, ".%s.%08x.tmp", f->name, salt + i) >= (int)sizeof f->temporary)
      return -ENAMETOOLONG;
    f->fd = openat(f->folder, f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (f->fd < 0 && errno != EEXIST)
      return -errno;
  }
  if (f->fd < 0)
    return -EEXIST;
  (void)flock(f->fd, LOCK_EX | LOCK_NB); /* file systems without locks keep what is left of the dead */
  return 0;
}

static int write_at(int fd, const char *data, size_t bytes, uint64_t at) {
  while (bytes) {
    ssize_t n = pwrite(fd, data, bytes, (off_t)at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n < 0 ? -errno : -EIO;
    data += n;
    bytes -= (size_t)n;
    at += (uint64_t)n;
  }
  return 0;
}

static int write_header(struct safetensors *f, const struct text *header, size_t torn_at) {
  uint8_t len[8];
  for (int i = 0; i < 8; i++)
    len[i] = (uint8_t)((uint64_t)header->len >> 8 * i);
  f->data_at = sizeof len + header->len;
  f->torn_at = sizeof len + torn_at;
  /* A disk without room says so now, where its file system can tell. */
  if (fallocate(f->fd, 0, 0, (off_t)(f->data_at + f->total)) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
    return -errno;
  int err = write_at(f->fd, (const char *)len, sizeof len, 0);
  return err ? err : write_at(f->fd, header->data, header->len, sizeof len);
}

int safetensors_begin(int folder, const char *name, const char *span, struct safetensors_tensor *tensors, size_t n,
                      struct safetensors **out) {
  struct text header = {0};
  size_t torn_at = 0;
  struct safetensors *f = strlen(name) > NAME_MAX ? NULL : calloc(1, sizeof *f);
  if (!f)
    return -ENOMEM;
  strcpy(f->name, name);
  f->folder = folder;
  f->tensors = tensors;
  f->count = n;
  f->fd = -1;
  int err = make_header(tensors, n, span, &header, &f->total, &torn_at);
  if (!err) {
    remove_stale(folder, name);
    err = make_temporary(f);
  }
  if (!err)
    err = write_header(f, &header, torn_at);
  free(header.data);
  if (err)
    safetensors_drop(f);
  else
    *out = f;
  return err;
}

/* ---- data ---- */

static int flush(struct safetensors *f) {
  int err = write_at(f->fd, f->buffer, f->used, f->at);
  f->at += f->used;
  f->used = 0;
  return err;
}

int safetensors_seek(struct safetensors *file, size_t i) {
  const struct safetensors_tensor *t = &file->tensors[i];
  uint64_t to = file->data_at + t->offset;
  if (file->left || t->left_out || i >= file->count)
    return -EIO;
  file->left = t->bytes;
  if (to == file->at + file->used)
    return 0;
  int err = flush(file);
  file->at = to;
  return err;
}

/* Asks the disk to begin, which does not wait for it. */
static void push(struct safetensors *f) {
  if (f->got - f->pushed < PUSH_BYTES)
    return;
  (void)sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* the end waits for all of it anyway */
  f->pushed = f->got;
}

int safetensors_put(struct safetensors *file, const void *data, size_t bytes) {
  int err = 0;
  if (bytes > file->left)
    return -EIO;
  file->left -= bytes;
  file->got += bytes;
  if (file->used + bytes > BUFFER_BYTES)
    err = flush(file);
  if (!err && bytes >= BUFFER_BYTES) {
    err = write_at(file->fd, data, bytes, file->at);
    file->at += bytes;
  } else if (!err) {
    memcpy(file->buffer + file->used, data, bytes);
    file->used += bytes;
  }
  push(file);
  return err;
}

static int sync_folder(int folder) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  int err = fsync(fd) != 0 && errno != EINVAL ? -errno : 0; /* EINVAL: not on this file system */
  close(fd);
  return err;
}

int safetensors_end(struct safetensors *file, bool torn) {
  int err = flush(file);
  if (!err && (file->left || file->got != file->total))
    err = -EIO;
  if (!err && torn)
    err = write_at(file->fd, TORN_TRUE, strlen(TORN_TRUE), file->torn_at);
  if (!err && fsync(file->fd) != 0)
    err = -errno;
  if (!err && renameat(file->folder, file->temporary, file->folder, file->name) != 0)
    err = -errno;
  if (!err) {
    file->temporary[0] = '\0';
    err = sync_folder(file->folder);
  }
  safetensors_drop(file);
  return err;
}

void safetensors_drop(struct safetensors *file) {
  if (!file)
    return;
  if (file->fd >= 0) {
    if (file->temporary[0])
      (void)unlinkat(file->folder, file->temporary, 0); /* where that fails the next one tries again */
    close(file->fd);
  }
  free(file);
}
