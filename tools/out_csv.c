/* CSV as in RFC 4180, but lines end with a line feed. Control characters in texts are escaped as in tables, so one row is one
 * line; null is an empty field, an empty text is "". */
#include <inttypes.h>
#include <string.h>

#include "out_format.h"
#include "text.h"
#include "units.h"

static void add_text(struct buf *buf, const char *text, size_t len) {
  struct buf shown = {0};
  text_show(&shown, text, len, true);
  if (shown.len && !strpbrk(shown.data, ",\"")) {
    buf_add(buf, shown.data, shown.len);
  } else {
    buf_putc(buf, '"');
    for (size_t i = 0; i < shown.len; i++) {
      if (shown.data[i] == '"')
        buf_putc(buf, '"');
      buf_putc(buf, shown.data[i]);
    }
    buf_putc(buf, '"');
  }
  buf_fini(&shown);
}

static void add_value(struct buf *buf, const struct out_cell *cell) {
  char number[UNITS_MAX];
  switch (cell->kind) {
  case OUT_NULL:
    break;
  case OUT_INT:
    buf_printf(buf, "%" PRId64, cell->i);
    break;
  case OUT_BOOL:
    buf_puts(buf, cell->i ? "true" : "false");
    break;
  case OUT_REAL:
    buf_puts(buf, units_exact(cell->d, number));
    break;
  case OUT_TEXT:
  case OUT_RAW_JSON:
    add_text(buf, cell->text, cell->len);
    break;
  }
}

static void line(struct out *out, const struct out_cell *cells) {
  bool first = true;
  for (size_t i = 0; i < out->count; i++) {
    if (out->columns[i].flags & OUT_NO_DATA)
      continue;
    if (!first)
      buf_putc(&out->buf, ',');
    first = false;
    if (cells)
      add_value(&out->buf, &cells[i]);
    else
      add_text(&out->buf, out->columns[i].name, strlen(out->columns[i].name));
  }
  buf_putc(&out->buf, '\n');
  out_flush(out);
}

static void begin(struct out *out) {
  line(out, NULL);
}

static void end(struct out *out) {
  (void)out;
}

const struct out_ops out_csv_ops = {begin, line, end};
