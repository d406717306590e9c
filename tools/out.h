/* Rows on their way out, in one of four formats. A command fills one array of cells a row; the format decides how they look.
 *
 *   table  aligned, in words and units, for people; everything that is hostile is escaped, wide columns are cut to the terminal
 *   json   an array of objects     jsonl  one object a line     csv  RFC 4180 with a header line
 *
 * json, jsonl and csv are streams: one row is held at a time. A table needs the widths of its rows and is printed in parts of
 * OUT_TABLE_PART rows. Nothing is written to any other stream than `file`.
 */
#ifndef CIRRON_OUT_H
#define CIRRON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OUT_TABLE_PART 5000

enum out_format { OUT_TABLE, OUT_JSON, OUT_JSONL, OUT_CSV };

/* What the output goes to, found once by out_style. */
struct out_style {
  bool utf8;   /* the locale can show it */
  bool colour; /* a terminal, and neither NO_COLOR nor TERM=dumb says otherwise */
  int width;   /* columns of the terminal, 0: not a terminal */
};

void out_style(FILE *file, struct out_style *out);

enum out_kind { OUT_NULL, OUT_INT, OUT_REAL, OUT_BOOL, OUT_TEXT, OUT_RAW_JSON };

/* Texts are borrowed until out_row returns. OUT_RAW_JSON is text that is valid JSON on one line. */
struct out_cell {
  enum out_kind kind;
  int64_t i; /* OUT_INT, OUT_BOOL */
  double d;
  const char *text;
  size_t len;
};

/* How a table shows a column. */
enum out_as { OUT_AS_IS, OUT_AS_DURATION, OUT_AS_TIME, OUT_AS_COUNT, OUT_AS_ID };
enum out_column_flag {
  OUT_NO_TABLE = 1, /* machine formats only */
  OUT_NO_DATA = 2,  /* tables only */
  OUT_CUT = 4,      /* may be cut when the table is too wide for the terminal */
};

struct out_column {
  const char *name;  /* in machine formats */
  const char *title; /* in tables; NULL: the name in capitals */
  enum out_as as;
  unsigned flags;
};

struct out;

/* `columns` is borrowed until out_end. Names may hold anything (sql). */
struct out *out_begin(FILE *file, enum out_format format, const struct out_style *style, const struct out_column *columns,
                      size_t count);
/* One cell a column. Returns 0 or a negative errno once writing failed (-EPIPE: nobody reads any more). */
int out_row(struct out *out, const struct out_cell *cells);
/* Writes what is left, frees. Returns as out_row. Accepts NULL. */
int out_end(struct out *out);

bool out_format_parse(const char *text, enum out_format *format);

/* 0, or what a write to the file failed with. */
int out_file_error(FILE *file);

/* Cells. */
struct out_cell out_null(void);
struct out_cell out_int(int64_t value);
struct out_cell out_int_or_null(int64_t value, int64_t null_value);
struct out_cell out_real(double value);
struct out_cell out_bool(bool value);
struct out_cell out_text(const char *text); /* NULL: null */
struct out_cell out_text_len(const char *text, size_t len);
struct out_cell out_raw_json(const char *text, size_t len);

#endif
