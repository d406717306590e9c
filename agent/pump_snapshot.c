/* See pump_snapshot.h. */
#include "pump_snapshot.h"

#include <string.h>

#include "../proto/link_abi.h"
#include "snapshot_area.h"

#define HEAD_BYTES 1024u /* of a message, beside its tensors */

enum { /* field numbers of proto/cirron.proto */
       ENVELOPE_SNAPSHOT_SENT = 8,
       SENT_NUMBER = 1,
       SENT_HEAD = 2,
       SENT_FIRST = 3,
       SENT_TENSORS = 4,
       SENT_LAST = 5,
       HEAD_SPAN = 1,
       HEAD_FIRST_RECORD = 2,
       HEAD_TS_NS = 3,
       HEAD_EPOCH = 4,
       HEAD_STEP = 5,
       HEAD_COUNT = 6,
       HEAD_GRADIENTS = 7,
       HEAD_REASON = 8,
       HEAD_FLAGS = 9,
       HEAD_LIST_NS = 10,
       HEAD_READ_NS = 11,
       HEAD_WAIT_NS = 12,
       HEAD_BLOBS = 13,
       HEAD_BLOB_ERROR = 14,
       HEAD_FOLDER = 15,
       TENSOR_NAME = 1,
       TENSOR_MODEL = 2,
       TENSOR_SHAPE = 3,
       TENSOR_DTYPE = 4,
       TENSOR_FLAGS = 5,
       TENSOR_DTYPE_NAME = 6,
       TENSOR_REASON = 7,
       TENSOR_ERROR = 8,
       TENSOR_RESULT_FLAGS = 9,
       TENSOR_STATS = 10,
};

static struct {
  uint64_t sent;   /* number of the last request that was sent as a whole */
  uint64_t number; /* of the one under way; 0: none */
  uint32_t at;     /* its next tensor */
} pump;

void pump_snapshot_restart(void) {
  pump.sent = pump.number = 0;
  pump.at = 0;
}

/* The request to be sent, which has been read. */
static bool next(struct snapshot_asked *out) {
  return snapshot_area_asked(pump.sent, out) && __atomic_load_n(&out->area->settled, __ATOMIC_RELAXED) == out->area->number;
}

bool pump_snapshot_waits(void) {
  struct snapshot_asked asked;
  return next(&asked);
}

static uint64_t zigzag(int64_t value) {
  return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static void put_head(struct pbwrite *pb, const struct snapshot_area *a, const char *folder) {
  size_t begin = pbwrite_begin(pb, SENT_HEAD);
  pbwrite_uint(pb, HEAD_SPAN, a->span);
  pbwrite_uint(pb, HEAD_FIRST_RECORD, a->first_record);
  pbwrite_uint(pb, HEAD_TS_NS, a->ts_ns);
  pbwrite_uint(pb, HEAD_EPOCH, zigzag(a->epoch));
  pbwrite_uint(pb, HEAD_STEP, zigzag(a->step));
  pbwrite_uint(pb, HEAD_COUNT, a->count);
  pbwrite_uint(pb, HEAD_GRADIENTS, a->gradients);
  pbwrite_uint(pb, HEAD_REASON, a->reason);
  pbwrite_uint(pb, HEAD_FLAGS, a->flags);
  pbwrite_uint(pb, HEAD_LIST_NS, a->list_ns);
  pbwrite_uint(pb, HEAD_READ_NS, a->read_ns);
  pbwrite_uint(pb, HEAD_WAIT_NS, a->wait_ns);
  pbwrite_uint(pb, HEAD_BLOBS, a->blobs);
  pbwrite_int(pb, HEAD_BLOB_ERROR, a->blob_error);
  pbwrite_text(pb, HEAD_FOLDER, a->blobs ? folder : NULL);
  pbwrite_end(pb, begin);
}

static void put_name(struct pbwrite *pb, unsigned field, const char *text, uint32_t at) {
  uint32_t len;
  if (!at)
    return;
  memcpy(&len, text + at, sizeof len);
  pbwrite_bytes(pb, field, text + at + sizeof len, len);
}

static void put_tensor(struct pbwrite *pb, const struct snapshot_area *a, uint32_t i) {
  const char *base = (const char *)a, *text = base + SNAPSHOT_TEXT_OFFSET(a->entries);
  const struct snapshot_entry *e = (const struct snapshot_entry *)(base + SNAPSHOT_ENTRIES_OFFSET) + i;
  const struct snapshot_result *r = (const struct snapshot_result *)(base + SNAPSHOT_RESULTS_OFFSET(a->entries)) + i;
  size_t begin = pbwrite_begin(pb, SENT_TENSORS);
  put_name(pb, TENSOR_NAME, text, e->name);
  put_name(pb, TENSOR_MODEL, text, e->model);
  if (e->ndim) {
    size_t shape = pbwrite_begin(pb, TENSOR_SHAPE); /* packed */
    for (unsigned k = 0; k < e->ndim; k++) {
      int64_t size;
      memcpy(&size, text + e->shape + k * sizeof size, sizeof size);
      pbwrite_varint(pb, (uint64_t)size);
    }
    pbwrite_end(pb, shape);
  }
  pbwrite_uint(pb, TENSOR_DTYPE, e->dtype);
  pbwrite_uint(pb, TENSOR_FLAGS, e->flags);
  put_name(pb, TENSOR_DTYPE_NAME, text, e->dtype_name);
  put_name(pb, TENSOR_REASON, text, e->reason);
  pbwrite_int(pb, TENSOR_ERROR, r->error);
  pbwrite_uint(pb, TENSOR_RESULT_FLAGS, r->flags);
  if (!r->error)
    pbwrite_bytes(pb, TENSOR_STATS, &r->stats, sizeof r->stats);
  pbwrite_end(pb, begin);
}

void pump_snapshot_put(struct pbwrite *pb) {
  struct snapshot_asked asked;
  if (!next(&asked))
    return;
  const struct snapshot_area *a = asked.area;
  if (pump.number != a->number) {
    pump.number = a->number;
    pump.at = 0;
  }
  size_t begin = pbwrite_begin(pb, ENVELOPE_SNAPSHOT_SENT);
  pbwrite_uint(pb, SENT_NUMBER, a->number);
  if (pump.at == 0)
    put_head(pb, a, asked.uri);
  pbwrite_uint(pb, SENT_FIRST, pump.at);
  while (pump.at < a->count) {
    struct pbwrite before = *pb;
    put_tensor(pb, a, pump.at);
    if (pb->overflow || pb->len + HEAD_BYTES > LINK_MAX_MESSAGE) {
      *pb = before;
      break;
    }
    pump.at++;
  }
  if (pump.at == a->count) {
    pbwrite_uint(pb, SENT_LAST, 1);
    pump.sent = a->number;
    pump.number = 0;
  }
  pbwrite_end(pb, begin);
}

void pump_snapshot_stored(uint64_t number) {
  struct snapshot_asked asked;
  while (snapshot_area_asked(0, &asked) && asked.area->number <= number)
    snapshot_area_stored(asked.area);
}
