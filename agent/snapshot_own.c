/* See snapshot_own.h. */
#include "snapshot_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "snapshot.h"
#include "snapshot_area.h"
#include "snapshot_file.h"
#include "snapshot_list.h"

/* The memory is our own: it is read where it lies. */
static const void *fetch(void *arg, uint64_t address, size_t bytes, void *buffer, int *error) {
  (void)arg;
  (void)bytes;
  (void)buffer;
  (void)error;
  return (const void *)(uintptr_t)address; /* NOLINT(performance-no-int-to-ptr) */
}

/* The parts of complex numbers are a dimension of their own, the last. */
struct shape {
  int64_t sizes[TENSOR_MAX_DIMS + 1], strides[TENSOR_MAX_DIMS + 1];
};

static void finish_view(struct tensor_view *view, struct shape *shape, bool strided, bool complex) {
  view->shape = shape->sizes;
  view->strides = strided ? shape->strides : NULL;
  if (!complex)
    return;
  for (unsigned i = 0; i < view->ndim && strided; i++)
    shape->strides[i] *= 2;
  shape->sizes[view->ndim] = 2;
  shape->strides[view->ndim] = 1;
  view->ndim++;
}

static void view_of(const struct snapshot_entry *entry, struct shape *shape, struct tensor_view *view) {
  const char *text = snapshot_area_text();
  bool strided = entry->strides != SNAPSHOT_CONTIGUOUS;
  memcpy(shape->sizes, text + entry->shape, entry->ndim * sizeof(int64_t));
  if (strided)
    memcpy(shape->strides, text + entry->strides, entry->ndim * sizeof(int64_t));
  *view = (struct tensor_view){.address = entry->address, .dtype = (enum tensor_dtype)entry->dtype, .ndim = entry->ndim};
  finish_view(view, shape, strided, entry->flags & SNAPSHOT_COMPLEX);
}

static void values_view(const struct tensor_facts *facts, struct shape *shape, struct tensor_view *view) {
  memcpy(shape->sizes, facts->shape, facts->ndim * sizeof(int64_t));
  memcpy(shape->strides, facts->strides, facts->ndim * sizeof(int64_t));
  *view = (struct tensor_view){.address = facts->address, .dtype = facts->dtype, .ndim = facts->ndim};
  finish_view(view, shape, !facts->contiguous, facts->flags & SNAPSHOT_COMPLEX);
}

static void read_view(const struct tensor_view *view, const struct tensor_source *source, struct snapshot_result *result) {
  int r = view->ndim > TENSOR_MAX_DIMS ? -EINVAL : tensor_read(view, source, &result->stats);
  result->error = r < 0 ? -r : 0;
}

/* One that has no address: the object is asked for its numbers. */
static void read_held(struct snapshot_entry *entry, const struct list_item *item, const struct tensor_source *source,
                      struct snapshot_result *result) {
  struct tensor_facts facts;
  struct tensor_view view;
  struct shape shape;
  PyObject *values = list_values(item, entry->flags & SNAPSHOT_GRADIENT, &facts);
  if (!values) {
    result->error = ENODATA;
    return;
  }
  values_view(&facts, &shape, &view);
  read_view(&view, source, result);
  if (facts.flags & SNAPSHOT_COPY)
    entry->flags |= SNAPSHOT_COPY;
  entry->reason = 0;
  py.Py_DecRef(values);
}

/* Which item an entry is of: those of each kind come in the order of the items. */
struct cursor {
  uint32_t weight, gradient;
};

static uint32_t item_of(struct cursor *at, const struct snapshot_entry *entry, const struct list_item *items, uint32_t count) {
  if (!(entry->flags & SNAPSHOT_GRADIENT))
    return at->weight++;
  while (at->gradient < count && !items[at->gradient].has_grad)
    at->gradient++;
  return at->gradient++;
}

/* Was it let go of or changed since it was listed? Then there may be anything where it was, or nothing. */
static bool is_gone(const struct snapshot_entry *entry, const struct list_item *item) {
  if (list_model_done(item->model) != UINT32_MAX)
    return true;
  if (entry->flags & SNAPSHOT_GRADIENT)
    return !item->grad || item->grad_torn || !(snapshot_reads & SNAPSHOT_READS_GRADIENTS);
  return item->torn || !(snapshot_reads & SNAPSHOT_READS_WEIGHTS);
}

/* One entry, whatever it is. */
static void read_one(struct snapshot_entry *entry, const struct list_item *item, const struct tensor_source *source,
                     struct snapshot_result *result) {
  struct tensor_view view;
  struct shape shape;
  if (!source->buffer) {
    result->error = ENOMEM;
  } else if (!item || is_gone(entry, item)) {
    result->error = ECANCELED;
  } else if (!entry->reason) {
    view_of(entry, &shape, &view);
    read_view(&view, source, result);
  } else if (entry->dtype != TENSOR_NONE) {
    read_held(entry, item, source, result);
  } else {
    result->error = ENODATA;
  }
}

/* Files where they were asked for, and nothing of them was read elsewhere. */
static struct snapshot_files *begin_files(struct snapshot_area *area, uint32_t from) {
  int error = from ? -ECANCELED : 0;
  if (!(area->flags & SNAPSHOT_BLOBS))
    return NULL;
  struct snapshot_files *files = error ? NULL : files_begin(snapshot_area_folder_fd(), &error);
  area->blob_error = -error;
  return files;
}

static void end_files(struct snapshot_area *area, struct snapshot_files *files, bool whole) {
  struct snapshot_result *results = snapshot_area_results();
  const struct snapshot_entry *entries = snapshot_area_entries();
  int error;
  if (!files)
    return;
  area->blobs = files_end(files, whole, &error);
  area->blob_error = whole ? -error : EIO;
  for (uint32_t i = 0; i < area->count; i++)
    if (!(area->blobs & (entries[i].flags & SNAPSHOT_GRADIENT ? 2 : 1)))
      results[i].flags = 0;
}

bool own_read(uint32_t from) {
  struct snapshot_area *area = snapshot_area_get();
  struct snapshot_entry *entries = snapshot_area_entries();
  struct snapshot_result *results = snapshot_area_results();
  struct cursor at = {0};
  uint32_t count, gradients;
  const struct list_item *items = list_items(&count, &gradients);
  struct snapshot_files *files = begin_files(area, from);
  struct tensor_source source = {
      .fetch = fetch, .buffer = malloc(TENSOR_BUFFER_MIN), .buffer_bytes = TENSOR_BUFFER_MIN, .sink_arg = files};
  uint64_t began = clock_system();
  unsigned generation = snapshot_area_generation();
  bool whole = true, same = true;
  area->flags |= SNAPSHOT_OWN;
  snapshot_area_waits(true); /* asking a device or an array lets others run */
  for (uint32_t i = 0; i < area->count && same; i++) {
    uint32_t k = item_of(&at, &entries[i], items, count);
    if (i < from)
      continue;
    bool in_file = files && files_next(files, i);
    results[i] = (struct snapshot_result){.flags = in_file ? SNAPSHOT_IN_BLOB : 0};
    source.sink = in_file ? files_put : NULL;
    read_one(&entries[i], k < count ? &items[k] : NULL, &source, &results[i]);
    whole = whole && !(in_file && results[i].error);
    same = snapshot_area_get() == area && snapshot_area_generation() == generation;
    __atomic_store_n(&area->done, i + 1, __ATOMIC_RELEASE);
  }
  free(source.buffer);
  if (!same) {
    int error;
    if (files)
      (void)files_end(files, false, &error); /* nobody asks for them any more */
    return false;
  }
  snapshot_area_waits(false);
  end_files(area, files, whole);
  area->read_ns = clock_system() - began;
  __atomic_store_n(&area->finished, area->number, __ATOMIC_RELEASE);
  return true;
}
