/* json and jsonl. Special floats are strings, because JSON has no numbers for them; integers are exact. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "out_format.h"
#include "text.h"
#include "units.h"

static void begin(struct out *out) {
  if (out->format == OUT_JSON)
    buf_putc(&out->buf, '[');
  out_flush(out);
}

static void add_value(struct buf *buf, const struct out_cell *cell) {
  char number[UNITS_MAX];
  switch (cell->kind) {
  case OUT_NULL:
    buf_add(buf, "null", 4);
    break;
  case OUT_INT:
    buf_printf(buf, "%" PRId64, cell->i);
    break;
  case OUT_BOOL:
    buf_puts(buf, cell->i ? "true" : "false");
    break;
  case OUT_REAL:
    buf_printf(buf, isfinite(cell->d) ? "%s" : "\"%s\"", units_exact(cell->d, number));
    break;
  case OUT_TEXT:
    text_json(buf, cell->text, cell->len);
    break;
  case OUT_RAW_JSON:
    buf_add(buf, cell->text, cell->len);
    break;
  }
}

static void row(struct out *out, const struct out_cell *cells) {
  const char *comma = "";
  if (out->format == OUT_JSON)
    buf_puts(&out->buf, out->rows ? ",\n " : "\n ");
  buf_putc(&out->buf, '{');
  for (size_t i = 0; i < out->count; i++) {
    if (out->columns[i].flags & OUT_NO_DATA)
      continue;
    buf_puts(&out->buf, comma);
    text_json(&out->buf, out->columns[i].name, strlen(out->columns[i].name));
    buf_putc(&out->buf, ':');
    add_value(&out->buf, &cells[i]);
    comma = ",";
  }
  buf_putc(&out->buf, '}');
  if (out->format == OUT_JSONL)
    buf_putc(&out->buf, '\n');
  out_flush(out);
}

static void end(struct out *out) {
  if (out->format == OUT_JSON)
    buf_puts(&out->buf, out->rows ? "\n]\n" : "]\n");
  out_flush(out);
}

const struct out_ops out_json_ops = {begin, row, end};
