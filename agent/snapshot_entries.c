/* See snapshot_entries.h. */
#include "snapshot_entries.h"

#include <string.h>

#include "snapshot.h"

#define MODELS_NAMED 64u
#define GRADIENT_SUFFIX ".grad"
#define NAME_ROOM 1280 /* a name that is cut, and the suffix */

static struct {
  bool gradients_first; /* in the present request */
  uint32_t at_model[MODELS_NAMED];
} entries;

static const char *area_name_of(const struct list_item *item, char *room, bool gradient, size_t *len) {
  size_t n = item->name_len < SNAPSHOT_NAME_MAX ? item->name_len : SNAPSHOT_NAME_MAX;
  memcpy(room, list_text() + item->name, n);
  if (gradient) {
    memcpy(room + n, GRADIENT_SUFFIX, sizeof GRADIENT_SUFFIX - 1);
    n += sizeof GRADIENT_SUFFIX - 1;
  }
  *len = n;
  return room;
}

static uint32_t put_text(uint32_t at) {
  return at ? snapshot_area_put_name(list_text() + at, strlen(list_text() + at)) : 0;
}

void entries_text(struct list_item *items, uint32_t count) {
  char room[NAME_ROOM];
  size_t len;
  for (uint32_t m = 0; m < list_models(); m++)
    entries.at_model[m] = snapshot_area_put_name(list_model(m), strlen(list_model(m)));
  for (uint32_t i = 0; i < count; i++) {
    struct list_item *item = &items[i];
    const char *name = area_name_of(item, room, false, &len);
    item->at_name = snapshot_area_put_name(name, len);
    name = area_name_of(item, room, true, &len);
    item->at_grad = snapshot_area_put_name(name, len);
    item->at_shape = snapshot_area_put_dims(list_dims() + item->dims, item->ndim);
    item->at_strides =
        item->contiguous ? SNAPSHOT_CONTIGUOUS : snapshot_area_put_dims(list_dims() + item->dims + item->ndim, item->ndim);
    item->at_dtype_name = put_text(item->dtype_name);
    item->at_reason = put_text(item->reason);
  }
  snapshot_area_text_keep();
}

static struct snapshot_entry entry_of(const struct list_item *item) {
  return (struct snapshot_entry){
      .address = item->address,
      .name = item->at_name,
      .shape = item->at_shape,
      .strides = item->at_strides,
      .model = entries.at_model[item->model],
      .reason = item->at_reason,
      .dtype_name = item->at_dtype_name,
      .dtype = item->dtype,
      .ndim = item->ndim,
      .flags = item->flags,
  };
}

static struct snapshot_entry gradient_entry(const struct list_item *item) {
  struct snapshot_entry entry = entry_of(item);
  entry.name = item->at_grad;
  entry.address = item->grad_address;
  entry.flags |= SNAPSHOT_GRADIENT;
  if (!item->odd)
    return entry;
  const struct tensor_facts *facts = &item->odd->facts;
  entry.shape = snapshot_area_put_dims(facts->shape, facts->ndim);
  entry.strides = facts->contiguous ? SNAPSHOT_CONTIGUOUS : snapshot_area_put_dims(facts->strides, facts->ndim);
  entry.dtype = (uint8_t)facts->dtype;
  entry.ndim = facts->ndim;
  entry.flags = facts->flags | SNAPSHOT_GRADIENT;
  entry.reason = facts->reason[0] ? snapshot_area_put_name(facts->reason, strlen(facts->reason)) : 0;
  entry.dtype_name = facts->dtype_name[0] ? snapshot_area_put_name(facts->dtype_name, strlen(facts->dtype_name)) : 0;
  return entry;
}

struct entries_half entries_half(const struct snapshot_area *area, unsigned what) {
  uint32_t weights = area->count - area->gradients, first = entries.gradients_first ? area->gradients : weights;
  bool is_first = (what == SNAPSHOT_READS_GRADIENTS) == entries.gradients_first;
  return is_first ? (struct entries_half){0, first} : (struct entries_half){first, area->count};
}

static uint32_t write_kind(const struct list_item *items, uint32_t count, bool gradients, uint32_t n) {
  struct snapshot_entry *to = snapshot_area_entries();
  for (uint32_t i = 0; i < count; i++)
    if (!gradients)
      to[n++] = entry_of(&items[i]);
    else if (items[i].has_grad)
      to[n++] = gradient_entry(&items[i]);
  return n;
}

uint32_t entries_write(const struct list_item *items, uint32_t count, bool gradients_first) {
  entries.gradients_first = gradients_first;
  uint32_t n = write_kind(items, count, entries.gradients_first, 0);
  return write_kind(items, count, !entries.gradients_first, n);
}

uint32_t entries_flag_torn(const struct snapshot_area *area, unsigned what, uint32_t done) {
  struct snapshot_entry *all = snapshot_area_entries();
  struct entries_half half = entries_half(area, what);
  uint32_t count, unused, marked = 0, at = half.from;
  const struct list_item *items = list_items(&count, &unused);
  bool gradients = what == SNAPSHOT_READS_GRADIENTS;
  for (uint32_t i = 0; i < count && at < half.to; i++) {
    if (gradients && !items[i].has_grad)
      continue;
    bool torn = (gradients ? items[i].grad_torn : items[i].torn) || at >= done || at >= list_model_done(items[i].model);
    if (torn) {
      all[at].flags |= SNAPSHOT_TORN;
      marked++;
    }
    at++;
  }
  return marked;
}
