/* Tables by libsmartcols. Every text is escaped before the library sees it, so its own escaping is off. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>

#include "out_format.h"
#include "text.h"
#include "units.h"

#define ID_DIGITS 8     /* of an id: enough to tell sessions apart and to ask for one */
#define CELL_COLUMNS 60 /* where there is no terminal whose width could limit a cell */

static bool right_aligned(const struct out_column *column) {
  return column->as == OUT_AS_DURATION || column->as == OUT_AS_COUNT;
}

static void add_title(struct buf *buf, const struct out *out, const struct out_column *column) {
  if (column->title) {
    buf_puts(buf, column->title);
    return;
  }
  text_show_cut(buf, column->name, strlen(column->name), out->style.utf8, CELL_COLUMNS);
  for (size_t i = 0; i < buf->len; i++)
    buf->data[i] = (char)toupper((unsigned char)buf->data[i]);
}

static void begin(struct out *out) {
  struct libscols_table *table = scols_new_table();
  struct buf title = {0};
  if (!table)
    abort();
  scols_table_set_stream(table, out->file);
  scols_table_enable_noencoding(table, 1);
  scols_table_enable_ascii(table, !out->style.utf8);
  scols_table_enable_colors(table, out->style.colour);
  scols_table_set_termforce(table, out->style.width ? SCOLS_TERMFORCE_ALWAYS : SCOLS_TERMFORCE_NEVER);
  if (out->style.width)
    scols_table_set_termwidth(table, (size_t)out->style.width);
  for (size_t i = 0; i < out->count; i++) {
    const struct out_column *column = &out->columns[i];
    if (column->flags & OUT_NO_TABLE)
      continue;
    buf_clear(&title);
    add_title(&title, out, column);
    int flags = (right_aligned(column) ? SCOLS_FL_RIGHT : 0) | (column->flags & OUT_CUT ? SCOLS_FL_TRUNC : 0);
    struct libscols_column *made = scols_table_new_column(table, buf_text(&title), 0, flags);
    if (made && out->style.colour)
      scols_cell_set_color(scols_column_get_header(made), "bold");
  }
  buf_fini(&title);
  out->table = table;
}

static void add_int(struct buf *buf, enum out_as as, int64_t value) {
  char text[UNITS_MAX];
  if (as == OUT_AS_DURATION)
    buf_puts(buf, units_duration(value, text));
  else if (as == OUT_AS_TIME)
    buf_puts(buf, units_time(value, text));
  else if (as == OUT_AS_COUNT)
    buf_puts(buf, units_count(value, text));
  else
    buf_printf(buf, "%" PRId64, value);
}

static void add_cell(struct buf *buf, const struct out *out, const struct out_column *column, const struct out_cell *cell) {
  char number[UNITS_MAX];
  size_t columns = out->style.width > CELL_COLUMNS ? (size_t)out->style.width : CELL_COLUMNS;
  switch (cell->kind) {
  case OUT_NULL:
    buf_puts(buf, "-");
    break;
  case OUT_INT:
    add_int(buf, column->as, cell->i);
    break;
  case OUT_BOOL:
    buf_puts(buf, cell->i ? "yes" : "no");
    break;
  case OUT_REAL:
    buf_puts(buf, units_real(cell->d, number));
    break;
  case OUT_TEXT:
  case OUT_RAW_JSON:
    text_show_cut(buf, cell->text, column->as == OUT_AS_ID && cell->len > ID_DIGITS ? ID_DIGITS : cell->len, out->style.utf8,
                  columns);
    break;
  }
}

static void print(struct out *out) {
  errno = 0;
  if (!out->error && scols_print_table(out->table) != 0 && ferror(out->file))
    out->error = -(errno ? errno : EIO);
  if (!out->error && ferror(out->file))
    out->error = -(errno ? errno : EIO);
  scols_table_remove_lines(out->table);
}

static void row(struct out *out, const struct out_cell *cells) {
  struct libscols_line *line = scols_table_new_line(out->table, NULL);
  size_t shown = 0;
  for (size_t i = 0; line && i < out->count; i++) {
    if (out->columns[i].flags & OUT_NO_TABLE)
      continue;
    buf_clear(&out->buf);
    add_cell(&out->buf, out, &out->columns[i], &cells[i]);
    scols_line_set_data(line, shown++, buf_text(&out->buf));
  }
  if (scols_table_get_nlines(out->table) >= OUT_TABLE_PART)
    print(out);
}

static void end(struct out *out) {
  if (scols_table_get_nlines(out->table))
    print(out);
  scols_unref_table(out->table);
}

const struct out_ops out_table_ops = {begin, row, end};
