#include "blob.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../proto/safetensors.h"
#include "pass.h"
#include "utf8.h"

enum { WEIGHTS, GRADIENTS };
static const char *const names[] = {[WEIGHTS] = "weights.safetensors", [GRADIENTS] = "gradients.safetensors"};

struct blob {
  struct safetensors *file; /* NULL: nothing to write */
  struct safetensors_tensor *tensors;
  struct pass_view *views; /* whose shapes they are */
  char **cleaned;          /* names that are ours */
  uint32_t *entries, count;
  uint32_t next; /* of the tensors: entries come in their order */
};

static void blob_free(struct blob *b) {
  if (!b)
    return;
  safetensors_drop(b->file);
  for (uint32_t i = 0; b->cleaned && i < b->count; i++)
    free(b->cleaned[i]);
  free(b->cleaned);
  free(b->tensors);
  free(b->views);
  free(b->entries);
  free(b);
}

static void give_up(struct pass *p, int err) {
  if (!p->blob_error)
    p->blob_error = -err;
  for (int kind = 0; kind < 2; kind++) {
    blob_free(p->blob[kind]);
    p->blob[kind] = NULL;
  }
}

static int kind_of(const struct pass *p, uint32_t i) {
  return p->entries[i].flags & SNAPSHOT_GRADIENT ? GRADIENTS : WEIGHTS;
}

static bool belongs(const struct pass *p, uint32_t i, int kind) {
  struct pass_view view;
  if (kind_of(p, i) != kind || !pass_readable(p, i))
    return false;
  pass_view(p, i, &view);
  return view.view.ndim <= TENSOR_MAX_DIMS && tensor_elements(&view.view) >= 0;
}

/* The key of a tensor is its record's name: what is not UTF-8 is replaced as there. */
static int describe(const struct pass *p, struct blob *b, uint32_t at) {
  struct pass_text name = pass_text(p, p->entries[b->entries[at]].name);
  struct pass_view *view = &b->views[at];
  pass_view(p, b->entries[at], view);
  if (utf8_valid(name.data, name.len) != name.len) {
    b->cleaned[at] = utf8_clean(name.data, name.len, &name.len);
    name.data = b->cleaned[at];
  }
  b->tensors[at] = (struct safetensors_tensor){
      .name = name.data,
      .name_len = name.len,
      .dtype = view->view.dtype,
      .ndim = view->view.ndim,
      .shape = view->view.shape,
  };
  return name.data ? 0 : -ENOMEM;
}

static int describe_all(const struct pass *p, struct blob *b, int kind) {
  for (uint32_t i = 0; i < p->head.count; i++)
    b->count += belongs(p, i, kind);
  b->tensors = calloc(b->count ? b->count : 1, sizeof *b->tensors);
  b->views = calloc(b->count ? b->count : 1, sizeof *b->views);
  b->entries = calloc(b->count ? b->count : 1, sizeof *b->entries);
  b->cleaned = calloc(b->count ? b->count : 1, sizeof *b->cleaned);
  if (!b->tensors || !b->views || !b->entries || !b->cleaned)
    return -ENOMEM;
  int err = 0;
  for (uint32_t i = 0, at = 0; !err && i < p->head.count; i++)
    if (belongs(p, i, kind)) {
      b->entries[at] = i;
      err = describe(p, b, at++);
    }
  return err;
}

static int begin(struct pass *p, int kind) {
  char span[33];
  struct blob *b = calloc(1, sizeof *b);
  if (!b)
    return -ENOMEM;
  (void)snprintf(span, sizeof span, "%016" PRIx64 "%016" PRIx64, p->prefix, p->head.span); /* fits */
  int err = describe_all(p, b, kind);
  if (!err && b->count)
    err = safetensors_begin(p->directory, names[kind], span, b->tensors, b->count, &b->file);
  free(b->views); /* shapes are in the file by now */
  b->views = NULL;
  if (err)
    blob_free(b);
  else
    p->blob[kind] = b;
  return err;
}

void blob_open(struct pass *pass) {
  struct stat st;
  int err = pass->resumed ? -ECANCELED : 0; /* what was read by a collector before us may have changed */
  if (!err)
    err = pass->directory < 0 || fstat(pass->directory, &st) != 0 || !S_ISDIR(st.st_mode) ? -ENOTDIR : 0;
  for (int kind = 0; !err && kind < 2; kind++)
    err = begin(pass, kind);
  if (err)
    give_up(pass, err);
}

bool blob_is_open(const struct pass *pass) {
  return pass->blob[WEIGHTS] || pass->blob[GRADIENTS];
}

bool blob_begin(struct pass *pass, uint32_t i) {
  struct blob *b = pass->blob[kind_of(pass, i)];
  pass->writing = NULL;
  while (b && b->next < b->count && b->entries[b->next] < i)
    b->next++;
  if (!b || !b->file || b->next == b->count || b->entries[b->next] != i || b->tensors[b->next].left_out)
    return false;
  int err = safetensors_seek(b->file, b->next);
  if (err)
    give_up(pass, err);
  else
    pass->writing = b;
  return !err;
}

void blob_put(struct pass *pass, const void *data, size_t bytes) {
  int err = pass->writing ? safetensors_put(pass->writing->file, data, bytes) : 0;
  if (!err)
    return;
  pass->writing = NULL;
  give_up(pass, err);
}

bool blob_end(struct pass *pass, int err) {
  bool whole = pass->writing && !err;
  if (pass->writing && err)
    give_up(pass, err);
  pass->writing = NULL;
  return whole;
}

/* As far as it is known by now. */
static bool is_torn(const struct pass *p) {
  const struct snapshot_area *head = area_head(p->area);
  return __atomic_load_n(&head->settled, __ATOMIC_ACQUIRE) == p->number && (head->torn_from < p->head.count || head->torn);
}

void blob_close(struct pass *pass, bool whole) {
  for (int kind = 0; kind < 2; kind++) {
    struct blob *b = pass->blob[kind];
    if (whole && b && b->file) {
      int err = safetensors_end(b->file, is_torn(pass));
      b->file = NULL;
      pass->blobs |= err ? 0 : 1u << kind;
      if (err && !pass->blob_error)
        pass->blob_error = -err;
    }
    blob_free(b);
    pass->blob[kind] = NULL;
  }
}

void blob_find_uri(struct pass *pass) {
  static const char hex[] = "0123456789ABCDEF";
  char link[48], path[PATH_MAX];
  (void)snprintf(link, sizeof link, "/proc/self/fd/%d", pass->directory); /* fits */
  ssize_t len = pass->blobs ? readlink(link, path, sizeof path) : -1;
  char *uri = len > 0 && len < (ssize_t)sizeof path && path[0] == '/' ? malloc(sizeof "file://" + 3 * (size_t)len) : NULL;
  if (!uri)
    return;
  char *to = stpcpy(uri, "file://");
  for (ssize_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)path[i];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || memchr("/-._~", c, 5);
    if (plain) {
      *to++ = (char)c;
    } else {
      *to++ = '%';
      *to++ = hex[c >> 4];
      *to++ = hex[c & 15];
    }
  }
  *to = '\0';
  pass->blob_uri = uri;
}
