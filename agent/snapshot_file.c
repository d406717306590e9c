/* See snapshot_file.h. */
#include "snapshot_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/safetensors.h"
#include "../proto/tensor_read.h"
#include "snapshot_area.h"

enum { WEIGHTS, GRADIENTS, KINDS };
static const char *const names[KINDS] = {"weights.safetensors", "gradients.safetensors"};

struct one {
  struct safetensors *file; /* NULL: there is nothing of this kind */
  struct safetensors_tensor *tensors;
  uint32_t count;
};

struct snapshot_files {
  struct one kinds[KINDS];
  uint32_t *place; /* of each entry among the tensors of its kind; UINT32_MAX: in no file */
  struct one *now;
};

static void let_go(struct snapshot_files *files) {
  for (unsigned k = 0; k < KINDS; k++) {
    safetensors_drop(files->kinds[k].file);
    free(files->kinds[k].tensors);
  }
  free(files->place);
  free(files);
}

static int kind_of(const struct snapshot_entry *entry) {
  return entry->flags & SNAPSHOT_GRADIENT ? GRADIENTS : WEIGHTS;
}

static bool belongs(const struct snapshot_entry *entry) {
  return entry->dtype != TENSOR_NONE && entry->ndim < TENSOR_MAX_DIMS;
}

/* Complex numbers are two numbers each, which lie in a dimension of their own. `shape`: room for it. */
static void describe(struct one *one, const struct snapshot_entry *entry, int64_t *shape) {
  const char *text = snapshot_area_text();
  uint32_t len;
  memcpy(&len, text + entry->name, sizeof len);
  memcpy(shape, text + entry->shape, entry->ndim * sizeof *shape);
  shape[entry->ndim] = 2;
  one->tensors[one->count++] = (struct safetensors_tensor){
      .name = text + entry->name + sizeof len,
      .name_len = len,
      .dtype = (enum tensor_dtype)entry->dtype,
      .ndim = entry->ndim + (entry->flags & SNAPSHOT_COMPLEX ? 1u : 0u),
      .shape = shape,
  };
}

static int begin_all(struct snapshot_files *files, int folder) {
  const struct snapshot_area *area = snapshot_area_get();
  const struct snapshot_entry *entries = snapshot_area_entries();
  char span[33];
  size_t dims = 0;
  int r = 0;
  for (uint32_t i = 0; i < area->count; i++)
    dims += entries[i].ndim + 1u;
  int64_t *shapes = malloc((dims ? dims : 1) * sizeof *shapes), *shape = shapes;
  if (!shapes)
    return -ENOMEM;
  for (uint32_t i = 0; i < area->count; i++) {
    struct one *one = &files->kinds[kind_of(&entries[i])];
    files->place[i] = belongs(&entries[i]) ? one->count : UINT32_MAX;
    if (belongs(&entries[i]))
      describe(one, &entries[i], shape);
    shape += entries[i].ndim + 1u;
  }
  snprintf(span, sizeof span, "%016llx%016llx", (unsigned long long)area->session, (unsigned long long)area->span);
  for (unsigned k = 0; k < KINDS && !r; k++)
    if (files->kinds[k].count)
      r = safetensors_begin(folder, names[k], span, files->kinds[k].tensors, files->kinds[k].count, &files->kinds[k].file);
  free(shapes); /* they are in the file by now */
  return r;
}

struct snapshot_files *files_begin(int folder, int *error) {
  uint32_t count = snapshot_area_get()->count;
  struct snapshot_files *files = calloc(1, sizeof *files);
  *error = folder < 0 ? -EBADF : -ENOMEM;
  if (!files || folder < 0) {
    free(files);
    return NULL;
  }
  files->place = malloc((count ? count : 1) * sizeof *files->place);
  for (unsigned k = 0; k < KINDS; k++)
    files->kinds[k].tensors = calloc(count ? count : 1, sizeof *files->kinds[k].tensors);
  if (files->place && files->kinds[WEIGHTS].tensors && files->kinds[GRADIENTS].tensors)
    *error = begin_all(files, folder);
  if (*error == 0)
    return files;
  let_go(files);
  return NULL;
}

bool files_next(struct snapshot_files *files, uint32_t entry) {
  struct one *one = &files->kinds[kind_of(&snapshot_area_entries()[entry])];
  uint32_t place = files->place[entry];
  if (place == UINT32_MAX || !one->file || one->tensors[place].left_out)
    return false;
  files->now = one;
  return safetensors_seek(one->file, place) == 0;
}

int files_put(void *files, const void *data, size_t bytes) {
  return safetensors_put(((struct snapshot_files *)files)->now->file, data, bytes);
}

unsigned files_end(struct snapshot_files *files, bool whole, int *error) {
  unsigned there = 0;
  *error = 0;
  for (unsigned k = 0; k < KINDS && whole; k++) {
    struct one *one = &files->kinds[k];
    if (!one->file)
      continue;
    int r = safetensors_end(one->file, false);
    one->file = NULL;
    there |= r == 0 ? 1u << k : 0;
    *error = r < 0 && !*error ? r : *error;
  }
  let_go(files);
  return there;
}
