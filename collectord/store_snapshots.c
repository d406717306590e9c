/* The store's rows of snapshots (store.h). There may be tens of thousands of them in one transaction, so their JSON is made by hand. */
#include <assert.h>

#include "../proto/ring_abi.h"
#include "../proto/tensor_read.h"
#include "store_internal.h"

#define NUMBER_MAX 21 /* digits, sign, comma */

/* A number of a JSON array; returns where the next one goes. */
static char *put_number(char *to, int64_t value) {
  char digits[NUMBER_MAX];
  size_t n = 0;
  uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do
    digits[n++] = (char)('0' + left % 10);
  while (left /= 10);
  if (value < 0)
    *to++ = '-';
  while (n)
    *to++ = digits[--n];
  return to;
}

/* `text` has room for n * NUMBER_MAX + 2 bytes. */
static size_t array_json(const int64_t *values, size_t n, char *text) {
  char *to = text;
  *to++ = '[';
  for (size_t i = 0; i < n; i++) {
    if (i)
      *to++ = ',';
    to = put_number(to, values[i]);
  }
  *to++ = ']';
  return (size_t)(to - text);
}

static void bind_real(struct store *store, int at, double value) {
  int rc = sqlite3_bind_double(store->statements[SQL_SNAPSHOT_SET], at, value); /* NaN becomes NULL */
  assert(rc == SQLITE_OK);
  (void)rc; /* with NDEBUG */
}

/* The memory of `histogram` and `magnitude` must stay until the statement was run. */
static int bind_stats(struct store *store, const struct tensor_stats *s, char *histogram, char *magnitude) {
  const uint64_t counts[] = {s->count, s->nans, s->infs, s->neg_infs, s->zeros};
  const double numbers[] = {s->mean, s->std, s->min, s->max, s->norm};
  for (int i = 0; i < 5; i++)
    store_bind_int(store, SQL_SNAPSHOT_SET, 11 + i, (int64_t)counts[i]);
  for (int i = 0; i < 5; i++)
    bind_real(store, 16 + i, numbers[i]);
  int rc = store_bind_text(store, SQL_SNAPSHOT_SET, 21, histogram,
                           array_json((const int64_t *)s->histogram, TENSOR_BINS, histogram));
  return rc ? rc
            : store_bind_text(store, SQL_SNAPSHOT_SET, 22, magnitude,
                              array_json((const int64_t *)s->magnitude, TENSOR_MAGNITUDES, magnitude));
}

int store_snapshot(struct store *store, int64_t sid, const struct snapshot_row *row) {
  char shape[TENSOR_MAX_DIMS * NUMBER_MAX + 2], histogram[TENSOR_BINS * NUMBER_MAX + 2],
      magnitude[TENSOR_MAGNITUDES * NUMBER_MAX + 2];
  assert(row->ndim <= TENSOR_MAX_DIMS);
  int rc = store_begin(store);
  if (rc)
    return rc;
  const int64_t numbers[] = {sid, (int64_t)row->id, (int64_t)row->pass, (int64_t)row->span};
  for (int i = 0; i < 4; i++)
    store_bind_int(store, SQL_SNAPSHOT_SET, 1 + i, numbers[i]);
  rc = store_bind_text(store, SQL_SNAPSHOT_SET, 5, row->tensor, row->tensor_len);
  rc = rc ? rc : store_bind_text(store, SQL_SNAPSHOT_SET, 6, row->model, row->model_len);
  rc = rc ? rc : store_bind_string(store, SQL_SNAPSHOT_SET, 7, row->gradient ? "gradient" : "weight");
  rc = rc ? rc : store_bind_text(store, SQL_SNAPSHOT_SET, 8, shape, array_json(row->shape, row->ndim, shape));
  rc = rc ? rc : store_bind_text(store, SQL_SNAPSHOT_SET, 9, row->dtype, row->dtype_len);
  rc = rc ? rc : store_bind_string(store, SQL_SNAPSHOT_SET, 10, row->mode);
  if (row->stats)
    rc = rc ? rc : bind_stats(store, row->stats, histogram, magnitude);
  rc = rc ? rc : store_bind_string(store, SQL_SNAPSHOT_SET, 23, row->blob_uri);
  store_bind_int(store, SQL_SNAPSHOT_SET, 24, row->ts_ns);
  store_bind_int(store, SQL_SNAPSHOT_SET, 25, row->torn);
  rc = rc ? rc : store_bind_string(store, SQL_SNAPSHOT_SET, 26, row->attrs);
  if (!rc)
    return store_run(store, SQL_SNAPSHOT_SET);
  store_done(store, SQL_SNAPSHOT_SET);
  return rc;
}

int store_snapshot_pass(struct store *store, int64_t sid, const struct snapshot_pass_row *row) {
  int rc = store_begin(store);
  if (rc)
    return rc;
  store_bind_int(store, SQL_PASS_SET, 1, sid);
  store_bind_int(store, SQL_PASS_SET, 2, (int64_t)row->pass);
  store_bind_int(store, SQL_PASS_SET, 3, (int64_t)row->span);
  store_bind_int_unless(store, SQL_PASS_SET, 4, row->epoch, SPAN_NO_INDEX);
  store_bind_int_unless(store, SQL_PASS_SET, 5, row->step, SPAN_NO_INDEX);
  rc = store_bind_string(store, SQL_PASS_SET, 6, row->reason);
  rc = rc ? rc : store_bind_string(store, SQL_PASS_SET, 7, row->mode);
  const int64_t numbers[] = {row->ts_ns,   row->records, row->list_ns, row->read_ns,
                             row->wait_ns, row->torn,    row->own,     row->blobs};
  for (int i = 0; i < 8; i++)
    store_bind_int(store, SQL_PASS_SET, 8 + i, numbers[i]);
  store_bind_int_unless(store, SQL_PASS_SET, 16, row->blob_error, 0);
  if (!rc)
    return store_run(store, SQL_PASS_SET);
  store_done(store, SQL_PASS_SET);
  return rc;
}
