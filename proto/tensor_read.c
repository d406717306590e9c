/* Reading tensors (tensor_read.h).
 *
 * Where the numbers lie one after another they are fetched in pieces, which stay in the processor's cache while they are counted. All
 * other views are read box by box: as many consecutive numbers (in the order they are wanted in) as fit. Whatever way a box lies in memory,
 * it is made of rows, all of the same length, in which no gap is larger than TENSOR_GAP. The rows are fetched one after another into
 * the buffer's first half, where the box is a view with other strides, and its numbers are put in order in the second half. So a row
 * of a matrix, its columns, a transposed or a flipped one, all come in by extents and not number by number.
 *
 * Views are as hostile as the process they came from. Once layout_of has accepted one, each of its numbers has an address below
 * 2^63, and no product of what is below can run over.
 */
#include "tensor_read.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { PIECE = 512 * 1024 }; /* what is fetched at a time: a multiple of a block of any type */

struct dim {
  uint64_t n;
  int64_t stride; /* bytes */
};

struct layout {
  uint64_t address; /* of the first number */
  uint64_t count;
  size_t size; /* of a number */
  unsigned ndim;
  struct dim dim[TENSOR_MAX_DIMS]; /* outermost first, of at least 2 each */
};

/* ---- what the view is ---- */

int64_t tensor_elements(const struct tensor_view *view) {
  if (!tensor_size(view->dtype) || view->ndim > TENSOR_MAX_DIMS)
    return -EINVAL;
  uint64_t count = 1;
  bool none = false;
  for (unsigned i = 0; i < view->ndim; i++) {
    if (view->shape[i] < 0)
      return -EINVAL;
    none |= !view->shape[i];
  }
  for (unsigned i = 0; i < view->ndim && !none; i++)
    if (__builtin_mul_overflow(count, (uint64_t)view->shape[i], &count) || count > TENSOR_MAX_ELEMENTS)
      return -EFBIG;
  if (none)
    return 0;
  __int128 low = view->address, high = view->address; /* of the first number's byte, and of the last one's */
  for (unsigned i = 0; view->strides && i < view->ndim; i++) {
    __int128 reach = (__int128)view->strides[i] * (view->shape[i] - 1) * (int64_t)tensor_size(view->dtype);
    *(reach < 0 ? &low : &high) += reach;
  }
  high += view->strides ? tensor_size(view->dtype) : count * tensor_size(view->dtype);
  return low < 0 || high > INT64_MAX ? -EINVAL : (int64_t)count;
}

/* Numbers in the order of memory: no stride is below 0, the larger ones come first. */
static void order_by_memory(struct layout *l) {
  for (unsigned i = 0; i < l->ndim; i++) {
    struct dim d = l->dim[i];
    if (d.stride < 0) {
      l->address += (d.n - 1) * (uint64_t)d.stride;
      d.stride = -d.stride;
    }
    unsigned at = i;
    for (; at && l->dim[at - 1].stride < d.stride; at--)
      l->dim[at] = l->dim[at - 1];
    l->dim[at] = d;
  }
}

/* Dimensions whose numbers follow each other as those of one would. */
static void join_dims(struct layout *l) {
  unsigned n = 0;
  for (unsigned i = 0; i < l->ndim; i++) {
    struct dim d = l->dim[i];
    int64_t whole;
    if (n && !__builtin_mul_overflow(d.stride, (int64_t)d.n, &whole) && l->dim[n - 1].stride == whole)
      l->dim[n - 1] = (struct dim){l->dim[n - 1].n * d.n, d.stride};
    else
      l->dim[n++] = d;
  }
  l->ndim = n;
}

static int layout_of(const struct tensor_view *view, bool in_order, struct layout *l) {
  int64_t count = tensor_elements(view);
  if (count < 0)
    return (int)count;
  *l = (struct layout){.address = view->address, .count = (uint64_t)count, .size = tensor_size(view->dtype)};
  if (!count)
    return 0;
  int64_t next = (int64_t)l->size; /* stride of a contiguous tensor */
  for (unsigned i = view->ndim; i-- > 0;) {
    uint64_t n = (uint64_t)view->shape[i];
    if (n > 1) /* innermost first; they are turned around below */
      l->dim[l->ndim++] = (struct dim){n, view->strides ? view->strides[i] * (int64_t)l->size : next};
    next *= (int64_t)n;
  }
  for (unsigned i = 0; i < l->ndim / 2; i++) {
    struct dim d = l->dim[i];
    l->dim[i] = l->dim[l->ndim - 1 - i];
    l->dim[l->ndim - 1 - i] = d;
  }
  if (!in_order)
    order_by_memory(l);
  join_dims(l);
  return 0;
}

/* ---- where the numbers go ---- */

struct reading {
  const struct tensor_source *source;
  struct layout layout;
  struct tensor_pass pass;
  bool second; /* the second pass */
};

static int give(struct reading *r, const void *data, size_t n) {
  if (r->second) {
    tensor_pass_histogram(&r->pass, data, n);
    return 0;
  }
  tensor_pass_moments(&r->pass, data, n);
  return r->source->sink ? r->source->sink(r->source->sink_arg, data, n * r->layout.size) : 0;
}

static const void *fetch(const struct reading *r, uint64_t address, size_t bytes, void *buffer, int *error) {
  *error = 0;
  const void *data = r->source->fetch(r->source->fetch_arg, address, bytes, buffer, error);
  if (!data && *error >= 0)
    *error = -EIO;
  return data;
}

/* ---- one after another ---- */

/* *whole: the tensor lies in the buffer. */
static int stream_pass(struct reading *r, bool *whole) {
  const struct tensor_source *s = r->source;
  size_t size = r->layout.size;
  uint64_t bytes = r->layout.count * size;
  bool keeps = bytes <= s->buffer_bytes;
  *whole = keeps;
  for (uint64_t done = 0; done < bytes;) {
    size_t piece = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
    uint8_t *to = (uint8_t *)s->buffer + (keeps ? done : 0);
    int rc;
    const void *data = fetch(r, r->layout.address + done, piece, to, &rc);
    if (!data)
      return rc;
    *whole &= data == to;
    rc = give(r, data, piece / size);
    if (rc)
      return rc;
    done += piece;
  }
  return 0;
}

static int read_stream(struct reading *r) {
  bool whole;
  int rc = stream_pass(r, &whole);
  if (rc)
    return rc;
  tensor_pass_turn(&r->pass);
  if (!tensor_pass_needs_histogram(&r->pass))
    return 0;
  r->second = true;
  return whole ? give(r, r->source->buffer, (size_t)r->layout.count) : stream_pass(r, &whole);
}

/* ---- boxes ---- */

/* How a box comes into the buffer. Of its dimensions, those from `inner` on make a row (in order of their strides). */
struct box {
  unsigned ndim;
  struct dim dim[TENSOR_MAX_DIMS];               /* as it lies there */
  struct dim buffer[TENSOR_MAX_DIMS];            /* as it will lie in the buffer */
  unsigned row_dims[TENSOR_MAX_DIMS], rows_ndim; /* dimensions of which each index is another row, innermost first */
  size_t row_bytes;
  uint64_t rows, count;
  uint64_t lowest,
      first; /* offsets of the lowest byte from the first number's, below 0 (modulo 2^64); of the first number in the buffer */
};

/* False: it does not fit. */
static bool box_plan(struct box *b, size_t size, uint64_t area, uint64_t numbers) {
  unsigned order[TENSOR_MAX_DIMS]; /* smallest stride first */
  uint64_t step[TENSOR_MAX_DIMS];
  b->count = 1;
  b->lowest = b->first = 0;
  for (unsigned i = 0; i < b->ndim; i++) {
    unsigned at = i;
    step[i] = b->dim[i].stride < 0 ? -(uint64_t)b->dim[i].stride : (uint64_t)b->dim[i].stride;
    for (; at && step[order[at - 1]] > step[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
    b->count *= b->dim[i].n;
    b->lowest += b->dim[i].stride < 0 ? (b->dim[i].n - 1) * (uint64_t)b->dim[i].stride : 0;
  }
  uint64_t row = size;
  unsigned k = 0;
  for (; k < b->ndim && step[order[k]] <= row + TENSOR_GAP; k++)
    row += (b->dim[order[k]].n - 1) * step[order[k]];
  if (b->count > numbers || row > area)
    return false;
  b->row_bytes = (size_t)row;
  b->rows = 1;
  b->rows_ndim = 0;
  for (unsigned i = 0; i < b->ndim; i++) {
    const struct dim *d = &b->dim[order[i]];
    uint64_t in_buffer = i < k ? step[order[i]] : b->rows * row;
    if (i >= k) {
      b->row_dims[b->rows_ndim++] = order[i];
      b->rows *= d->n;
      if (b->rows > area / row)
        return false;
    }
    b->first += d->stride < 0 ? (d->n - 1) * in_buffer : 0;
    b->buffer[order[i]] = (struct dim){d->n, d->stride < 0 ? -(int64_t)in_buffer : (int64_t)in_buffer};
  }
  return true;
}

/* Rows from memory; *data: where they are. */
static int box_fetch(const struct reading *r, const struct box *b, uint64_t address, uint8_t *area, const uint8_t **data) {
  const struct tensor_source *s = r->source;
  uint64_t index[TENSOR_MAX_DIMS] = {0}, addresses[TENSOR_ROWS];
  int rc = 0;
  address += b->lowest;
  if (b->rows == 1) {
    *data = fetch(r, address, b->row_bytes, area, &rc);
    return *data ? 0 : rc;
  }
  *data = area;
  for (uint64_t done = 0; done < b->rows;) {
    unsigned n = 0;
    for (; n < TENSOR_ROWS && done + n < b->rows; n++) {
      addresses[n] = address;
      for (unsigned i = 0; i < b->rows_ndim; i++) { /* to the next row */
        const struct dim *d = &b->dim[b->row_dims[i]];
        uint64_t step = d->stride < 0 ? -(uint64_t)d->stride : (uint64_t)d->stride;
        address += step;
        if (++index[i] < d->n)
          break;
        address -= step * d->n;
        index[i] = 0;
      }
    }
    uint8_t *to = area + done * b->row_bytes;
    if (s->fetch_rows) {
      rc = s->fetch_rows(s->fetch_arg, addresses, n, b->row_bytes, to);
      if (rc)
        return rc;
    }
    for (unsigned i = 0; i < n && !s->fetch_rows; i++, to += b->row_bytes) {
      const void *row = fetch(r, addresses[i], b->row_bytes, to, &rc);
      if (!row)
        return rc;
      if (row != to)
        memcpy(to, row, b->row_bytes);
    }
    done += n;
  }
  return 0;
}

#define COPY(bytes)                                                                                                            \
  for (uint64_t i = 0; i < n; i++)                                                                                             \
  memcpy(to + i * (bytes), from + (int64_t)i * stride, bytes)

static void copy_row(uint8_t *to, const uint8_t *from, uint64_t n, int64_t stride, size_t size) {
  if (stride == (int64_t)size)
    memcpy(to, from, n * size);
  else if (size == 1)
    COPY(1);
  else if (size == 2)
    COPY(2);
  else if (size == 4)
    COPY(4);
  else
    COPY(8);
}

/* In order, from the buffer. */
static void box_copy(const struct box *b, size_t size, const uint8_t *from, uint8_t *to) {
  uint64_t index[TENSOR_MAX_DIMS] = {0};
  const struct dim *inner = &b->buffer[b->ndim - 1];
  int64_t at = (int64_t)b->first;
  for (uint64_t done = 0; done < b->count; done += inner->n) {
    copy_row(to + done * size, from + at, inner->n, inner->stride, size);
    for (unsigned i = b->ndim - 1; i-- > 0;) {
      at += b->buffer[i].stride;
      if (++index[i] < b->buffer[i].n)
        break;
      at -= b->buffer[i].stride * (int64_t)b->buffer[i].n;
      index[i] = 0;
    }
  }
}

/* ---- a view, box by box ---- */

struct gathering {
  uint8_t *area, *ordered;            /* halves of the buffer */
  uint64_t area_bytes, room, numbers; /* room: of numbers in `ordered`, of which there are so many */
  bool keeps;                         /* all numbers find room */
  unsigned cut;                       /* the dimension of which a box has `most` indices, and all of those further in */
  uint64_t most;
};

/* Makes the box of n indices of dimension `cut`. */
static bool box_try(const struct reading *r, const struct gathering *g, unsigned cut, uint64_t n, struct box *b) {
  const struct layout *l = &r->layout;
  b->ndim = l->ndim - cut;
  memcpy(b->dim, l->dim + cut, b->ndim * sizeof b->dim[0]);
  b->dim[0].n = n;
  return box_plan(b, l->size, g->area_bytes, g->keeps ? g->room : g->room - TENSOR_BLOCK);
}

/* The largest box: whole dimensions from the innermost on, and a part of the next one. */
static void gather_plan(const struct reading *r, struct gathering *g) {
  struct box b;
  g->cut = r->layout.ndim - 1;
  while (g->cut && box_try(r, g, g->cut, r->layout.dim[g->cut].n, &b))
    g->cut--;
  uint64_t fits = 1, too_many = r->layout.dim[g->cut].n + 1;
  while (too_many - fits > 1) {
    uint64_t n = fits + (too_many - fits) / 2;
    if (box_try(r, g, g->cut, n, &b))
      fits = n;
    else
      too_many = n;
  }
  g->most = fits;
}

/* Whole blocks go on, the rest waits for more. */
static int gather_give(struct reading *r, struct gathering *g, bool last) {
  uint64_t n = last ? g->numbers : g->numbers - g->numbers % TENSOR_BLOCK;
  if ((g->keeps && !last) || !n)
    return 0;
  int rc = give(r, g->ordered, (size_t)n);
  if (!g->keeps) {
    g->numbers -= n;
    memmove(g->ordered, g->ordered + n * r->layout.size, g->numbers * r->layout.size);
  }
  return rc;
}

static int gather_box(struct reading *r, struct gathering *g, uint64_t address, uint64_t n) {
  struct box b;
  const uint8_t *data;
  if (!box_try(r, g, g->cut, n, &b))
    return -EINVAL; /* cannot be: one of no fewer indices did fit */
  int rc = box_fetch(r, &b, address, g->area, &data);
  if (rc)
    return rc;
  box_copy(&b, r->layout.size, data, g->ordered + g->numbers * r->layout.size);
  g->numbers += b.count;
  return gather_give(r, g, false);
}

static int gather_pass(struct reading *r, struct gathering *g) {
  const struct layout *l = &r->layout;
  uint64_t index[TENSOR_MAX_DIMS] = {0}, address = l->address;
  const struct dim *cut = &l->dim[g->cut];
  g->numbers = 0;
  for (;;) {
    for (uint64_t i = 0; i < cut->n; i += g->most) {
      int rc = gather_box(r, g, address + i * (uint64_t)cut->stride, cut->n - i < g->most ? cut->n - i : g->most);
      if (rc)
        return rc;
    }
    unsigned i = g->cut;
    for (; i > 0; i--) {
      const struct dim *d = &l->dim[i - 1];
      address += (uint64_t)d->stride;
      if (++index[i - 1] < d->n)
        break;
      address -= (uint64_t)d->stride * d->n;
      index[i - 1] = 0;
    }
    if (!i)
      return gather_give(r, g, true);
  }
}

static int read_boxes(struct reading *r) {
  const struct tensor_source *s = r->source;
  size_t half = s->buffer_bytes / 2 / 64 * 64;
  struct gathering g = {.area = s->buffer, .ordered = (uint8_t *)s->buffer + half, .area_bytes = half};
  g.room = half / r->layout.size;
  g.keeps = r->layout.count <= g.room;
  gather_plan(r, &g);
  int rc = gather_pass(r, &g);
  if (rc)
    return rc;
  tensor_pass_turn(&r->pass);
  if (!tensor_pass_needs_histogram(&r->pass))
    return 0;
  r->second = true;
  return g.keeps ? give(r, g.ordered, (size_t)g.numbers) : gather_pass(r, &g);
}

int tensor_read(const struct tensor_view *view, const struct tensor_source *source, struct tensor_stats *stats) {
  struct reading r = {.source = source};
  if (source->buffer_bytes < TENSOR_BUFFER_MIN)
    return -EINVAL;
  int rc = layout_of(view, source->sink != NULL, &r.layout);
  if (rc)
    return rc;
  tensor_pass_begin(&r.pass, view->dtype);
  bool stream = !r.layout.ndim || (r.layout.ndim == 1 && r.layout.dim[0].stride == (int64_t)r.layout.size);
  rc = stream ? read_stream(&r) : read_boxes(&r);
  if (!rc)
    *stats = r.pass.stats;
  return rc;
}
