#include "out.h"

#include <errno.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "out_format.h"

static int terminal_width(int fd) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  int width = columns ? atoi(columns) : 0;
  if (width > 0)
    return width;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void out_style(FILE *file, struct out_style *out) {
  int fd = fileno(file);
  bool terminal = fd >= 0 && isatty(fd);
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  out->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  out->colour = terminal && !(no_color && *no_color) && term && *term && strcmp(term, "dumb") != 0;
  out->width = terminal ? terminal_width(fd) : 0;
}

static const struct out_ops *ops(const struct out *out) {
  return out->format == OUT_TABLE ? &out_table_ops : out->format == OUT_CSV ? &out_csv_ops : &out_json_ops;
}

int out_file_error(FILE *file) {
  return ferror(file) ? -(errno ? errno : EIO) : 0;
}

void out_flush(struct out *out) {
  errno = 0;
  if (!out->error && out->buf.len && fwrite(out->buf.data, 1, out->buf.len, out->file) != out->buf.len)
    out->error = -(errno ? errno : EIO);
  buf_clear(&out->buf);
}

struct out *out_begin(FILE *file, enum out_format format, const struct out_style *style, const struct out_column *columns,
                      size_t count) {
  struct out *out = buf_alloc(sizeof *out);
  *out = (struct out){.file = file, .format = format, .style = *style, .columns = columns, .count = count};
  ops(out)->begin(out);
  return out;
}

int out_row(struct out *out, const struct out_cell *cells) {
  ops(out)->row(out, cells);
  out->rows++;
  return out->error;
}

int out_end(struct out *out) {
  if (!out)
    return 0;
  ops(out)->end(out);
  errno = 0;
  if (!out->error && fflush(out->file) != 0)
    out->error = -(errno ? errno : EIO);
  int error = out->error;
  buf_fini(&out->buf);
  free(out);
  return error;
}

bool out_format_parse(const char *text, enum out_format *format) {
  static const char *const names[] = {"table", "json", "jsonl", "csv"};
  for (size_t i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) {
      *format = (enum out_format)i;
      return true;
    }
  return false;
}

struct out_cell out_null(void) {
  return (struct out_cell){.kind = OUT_NULL};
}

struct out_cell out_int(int64_t value) {
  return (struct out_cell){.kind = OUT_INT, .i = value};
}

struct out_cell out_int_or_null(int64_t value, int64_t null_value) {
  return value == null_value ? out_null() : out_int(value);
}

struct out_cell out_real(double value) {
  return (struct out_cell){.kind = OUT_REAL, .d = value};
}

struct out_cell out_bool(bool value) {
  return (struct out_cell){.kind = OUT_BOOL, .i = value};
}

struct out_cell out_text_len(const char *text, size_t len) {
  return text ? (struct out_cell){.kind = OUT_TEXT, .text = text, .len = len} : out_null();
}

struct out_cell out_text(const char *text) {
  return out_text_len(text, text ? strlen(text) : 0);
}

struct out_cell out_raw_json(const char *text, size_t len) {
  return text ? (struct out_cell){.kind = OUT_RAW_JSON, .text = text, .len = len} : out_null();
}
