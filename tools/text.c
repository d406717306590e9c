#include "text.h"

#include <string.h>
#include <wchar.h>

size_t text_decode(const char *text, size_t len, uint32_t *out) {
  const unsigned char *s = (const unsigned char *)text;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (!len)
    return 0;
  if (s[0] < 0x80) {
    *out = s[0];
    return 1;
  }
  size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || len < n)
    return 0;
  uint32_t c = s[0] & (0xffu >> (n + 1));
  for (size_t i = 1; i < n; i++) {
    if ((s[i] & 0xc0) != 0x80)
      return 0;
    c = c << 6 | (s[i] & 0x3f);
  }
  if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
    return 0;
  *out = c;
  return n;
}

/* Control characters, line and paragraph ends, direction marks, and what has no place of its own on the screen. */
static bool is_unsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0x061c || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe0fff);
}

static void show_escaped(struct buf *out, uint32_t c) {
  static const char letters[] = "abtnvfr"; /* 7 to 13 */
  if (c >= 7 && c <= 13)
    buf_printf(out, "\\%c", letters[c - 7]);
  else if (c < 0x100)
    buf_printf(out, "\\x%02x", (unsigned)c);
  else
    buf_printf(out, c > 0xffff ? "\\U%08x" : "\\u%04x", (unsigned)c);
}

void text_show(struct buf *out, const char *text, size_t len, bool utf8) {
  buf_add(out, "", 0);
  for (size_t i = 0, n; i < len; i += n ? n : 1) {
    uint32_t c = 0;
    n = text_decode(text + i, len - i, &c);
    if (!n)
      show_escaped(out, (unsigned char)text[i]);
    else if (is_unsafe(c) || (c >= 0x80 && !utf8))
      show_escaped(out, c);
    else
      buf_add(out, text + i, n);
  }
}

static size_t char_width(uint32_t c) {
  int width = c < 0x80 ? 1 : wcwidth((wchar_t)c);
  return width < 0 ? 1 : (size_t)width;
}

size_t text_width(const char *shown) {
  size_t width = 0, len = strlen(shown);
  for (size_t i = 0, n; i < len; i += n ? n : 1) {
    uint32_t c = ' ';
    n = text_decode(shown + i, len - i, &c);
    width += char_width(c);
  }
  return width;
}

void text_show_cut(struct buf *out, const char *text, size_t len, bool utf8, size_t columns) {
  /* A name may be 4,096 bytes of characters without width: what can be shown needs no more than this. */
  struct buf whole = {0};
  text_show(&whole, text, len, utf8);
  if (text_width(buf_text(&whole)) <= columns && whole.len <= 4 * columns + 16) {
    buf_add(out, whole.data, whole.len);
  } else {
    const char *more = utf8 ? "…" : "...";
    size_t room = columns > text_width(more) ? columns - text_width(more) : 0, width = 0, i = 0;
    while (i < whole.len) {
      uint32_t c = ' ';
      size_t n = text_decode(whole.data + i, whole.len - i, &c);
      n = n ? n : 1;
      if (width + char_width(c) > room || i + n > 4 * columns + 16)
        break;
      width += char_width(c);
      i += n;
    }
    buf_add(out, whole.data, i);
    buf_puts(out, more);
  }
  buf_fini(&whole);
}

void text_json(struct buf *out, const char *text, size_t len) {
  size_t plain = 0; /* begin of what can be copied as it is */
  buf_putc(out, '"');
  for (size_t i = 0, n; i < len; i += n) {
    unsigned char ascii = (unsigned char)text[i];
    uint32_t c = 0;
    n = 1;
    if (ascii >= 0x20 && ascii < 0x7f && ascii != '"' && ascii != '\\')
      continue;
    size_t got = text_decode(text + i, len - i, &c);
    n = got ? got : 1;
    if (got && c >= 0x20 && c != '"' && c != '\\' && !(c >= 0x7f && is_unsafe(c)))
      continue;
    buf_add(out, text + plain, i - plain);
    plain = i + n;
    if (!got)
      buf_puts(out, "\xef\xbf\xbd");
    else if (c == '"' || c == '\\')
      buf_printf(out, "\\%c", (char)c);
    else if (c == '\n' || c == '\t' || c == '\r')
      buf_puts(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
    else if (c > 0xffff)
      buf_printf(out, "\\u%04x\\u%04x", 0xd800 + (unsigned)((c - 0x10000) >> 10), 0xdc00 + (unsigned)((c - 0x10000) & 0x3ff));
    else
      buf_printf(out, "\\u%04x", (unsigned)c);
  }
  buf_add(out, text + plain, len - plain);
  buf_putc(out, '"');
}
