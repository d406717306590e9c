/* What out.c and the formats share. */
#ifndef CIRRON_OUT_FORMAT_H
#define CIRRON_OUT_FORMAT_H

#include "buf.h"
#include "out.h"

struct out {
  FILE *file;
  enum out_format format;
  struct out_style style;
  const struct out_column *columns;
  size_t count;
  int64_t rows;
  int error;      /* negative errno of the first write that failed */
  struct buf buf; /* one row, or one cell */
  void *table;    /* out_table.c */
};

struct out_ops {
  void (*begin)(struct out *out);
  void (*row)(struct out *out, const struct out_cell *cells);
  void (*end)(struct out *out);
};

extern const struct out_ops out_table_ops, out_json_ops, out_csv_ops;

/* Writes out->buf and empties it. */
void out_flush(struct out *out);

#endif
