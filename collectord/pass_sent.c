/* A pass that comes in messages: put together so that it looks like one that was copied from an area. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cirron_gen.h"
#include "pass.h"

#define TEXT_ROOM_MIN 4096u
#define FOLDER_MAX 12288u /* bytes: of a path in which all have to be written as %XX */

/* Nothing is opened by it: it is what the records say. */
static bool take_folder(struct pass *p, const ProtobufCBinaryData *folder) {
  if (folder->len < 8 || folder->len > FOLDER_MAX || memcmp(folder->data, "file:///", 8) != 0 ||
      memchr(folder->data, '\0', folder->len))
    return false;
  free(p->blob_uri);
  p->blob_uri = strndup((const char *)folder->data, folder->len);
  return p->blob_uri != NULL;
}

static int take_head(struct pass *p, const Cirron__SnapshotHead *h) {
  if (h->count > SNAPSHOT_MAX_ENTRIES)
    return -EPROTO;
  p->head = (struct snapshot_area){
      .number = p->number,
      .span = h->span,
      .first_record = h->first_record,
      .ts_ns = h->ts_ns,
      .epoch = h->epoch,
      .step = h->step,
      .count = h->count,
      .gradients = h->gradients,
      .reason = h->reason,
      .flags = h->flags | SNAPSHOT_OWN,
      .list_ns = h->list_ns,
  };
  p->read_ns = h->read_ns;
  p->wait_ns = h->wait_ns;
  p->blobs = take_folder(p, &h->folder) ? h->blobs & 3 : 0; /* which nobody could find otherwise */
  p->blob_error = h->blob_error > 0 ? h->blob_error : 0;
  return pass_check(p) ? 0 : -EPROTO; /* it has no entries yet */
}

/* Room for `bytes` more at the end of the text, and nothing between: *at is where they go. */
static int text_room(struct pass *p, size_t bytes, size_t align, uint32_t *at) {
  size_t from = (p->text_bytes + align - 1) / align * align, end = from + bytes;
  if (end > SNAPSHOT_MAX_TEXT)
    return -EPROTO;
  if (end > p->text_room) {
    size_t room = p->text_room ? 2 * p->text_room : TEXT_ROOM_MIN;
    while (room < end)
      room *= 2;
    int err = pass_hold(p, room - p->text_room);
    char *more = err ? NULL : realloc(p->text, room);
    if (!more)
      return -ENOMEM;
    memset(more + p->text_room, 0, room - p->text_room);
    p->text = more;
    p->text_room = room;
  }
  p->text_bytes = end;
  *at = (uint32_t)from;
  return 0;
}

static int add_name(struct pass *p, const ProtobufCBinaryData *name, uint32_t *at) {
  uint32_t len = (uint32_t)name->len;
  *at = 0;
  if (!len)
    return 0;
  if (len > SNAPSHOT_NAME_MAX)
    return -EPROTO;
  int err = text_room(p, sizeof len + len, sizeof len, at);
  if (err)
    return err;
  memcpy(p->text + *at, &len, sizeof len);
  memcpy(p->text + *at + sizeof len, name->data, len);
  return 0;
}

static int rows_room(struct pass *p) {
  if (p->at < p->rows_room)
    return 0;
  uint32_t room = p->rows_room ? 2 * p->rows_room : 64;
  int err = pass_hold(p, (room - p->rows_room) * (sizeof *p->entries + sizeof *p->results));
  if (err)
    return err;
  struct snapshot_entry *entries = reallocarray(p->entries, room, sizeof *entries);
  p->entries = entries ? entries : p->entries;
  struct snapshot_result *results = reallocarray(p->results, room, sizeof *results);
  p->results = results ? results : p->results;
  if (!entries || !results)
    return -ENOMEM;
  p->rows_room = room;
  return 0;
}

static int add_tensor(struct pass *p, const Cirron__SnapshotTensor *t) {
  if (t->n_shape > TENSOR_MAX_DIMS || t->dtype >= TENSOR_DTYPES ||
      (t->stats.len && t->stats.len != sizeof(struct tensor_stats)))
    return -EPROTO;
  int err = rows_room(p);
  struct snapshot_entry e = {
      .dtype = (uint8_t)t->dtype, .ndim = (uint8_t)t->n_shape, .flags = (uint8_t)t->flags, .strides = SNAPSHOT_CONTIGUOUS};
  err = err ? err : add_name(p, &t->name, &e.name);
  err = err ? err : add_name(p, &t->model, &e.model);
  err = err ? err : add_name(p, &t->reason, &e.reason);
  err = err ? err : add_name(p, &t->dtype_name, &e.dtype_name);
  if (t->n_shape)
    err = err ? err : text_room(p, t->n_shape * sizeof(int64_t), sizeof(int64_t), &e.shape);
  if (err)
    return err;
  if (t->n_shape)
    memcpy(p->text + e.shape, t->shape, t->n_shape * sizeof(int64_t));
  struct snapshot_result r = {.error = t->error, .flags = t->result_flags & SNAPSHOT_IN_BLOB};
  if (t->stats.len)
    memcpy(&r.stats, t->stats.data, sizeof r.stats);
  else if (r.error <= 0)
    r.error = ENODATA;
  p->entries[p->at] = e;
  p->results[p->at++] = r;
  return 0;
}

int pass_sent_add(struct pass *pass, const Cirron__SnapshotSent *sent) {
  int err = 0;
  if (!pass->begun) {
    if (!pass->text_bytes)
      pass->text_bytes = sizeof(uint32_t); /* no name is at 0 */
    err = sent->head ? take_head(pass, sent->head) : -EPROTO;
    pass->begun = !err;
  }
  if (!err && (sent->first != pass->at || sent->n_tensors > pass->head.count - pass->at))
    err = -EPROTO;
  for (size_t i = 0; !err && i < sent->n_tensors; i++)
    err = add_tensor(pass, sent->tensors[i]);
  if (!err && sent->last && pass->at != pass->head.count)
    err = -EPROTO;
  return err;
}
