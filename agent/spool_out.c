/* See spool_out.h. */
#include "spool_out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "glibc.h"
#include "utf8.h"

void out_flush(struct out *o) {
  for (size_t done = 0; done < o->len && !o->error;) {
    ssize_t n = write(o->fd, o->buf + done, o->len - done);
    if (n < 0 && errno != EINTR)
      o->error = -errno;
    else if (n == 0)
      o->error = -ENOSPC;
    else
      done += n < 0 ? 0 : (size_t)n;
  }
  o->written += o->len;
  o->len = 0;
}

void out_put(struct out *o, const char *text, size_t len) {
  while (len) {
    if (o->len == OUT_BUFFER)
      out_flush(o);
    size_t n = len < OUT_BUFFER - o->len ? len : OUT_BUFFER - o->len;
    memcpy(o->buf + o->len, text, n);
    o->len += n;
    text += n;
    len -= n;
  }
}

void out_puts(struct out *o, const char *text) {
  out_put(o, text, strlen(text));
}

void out_putf(struct out *o, const char *format, ...) {
  char text[256]; /* more than any of the formats gives */
  va_list args;
  va_start(args, format);
  int n = vsnprintf(text, sizeof text, format, args);
  va_end(args);
  out_put(o, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* --- text --- */

static void put_code(struct out *o, uint32_t c) {
  if (c >= 0x10000)
    out_putf(o, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
  else
    out_putf(o, "\\u%04x", c);
}

/* Of text that is JSON already only what is not ASCII is written anew: it can only lie in strings. */
void out_escaped(struct out *o, const char *text, size_t len, bool is_json) {
  for (size_t i = 0, bytes; i < len; i += bytes ? bytes : 1) {
    uint32_t c;
    bytes = utf8_decode(text + i, len - i, &c);
    bool quoted = !is_json && (c == '"' || c == '\\');
    if (quoted)
      out_puts(o, "\\");
    if (c >= 0x7f || (c < 0x20 && !is_json))
      put_code(o, c);
    else
      out_put(o, text + i, 1);
  }
}

void out_string(struct out *o, const char *text, size_t len) {
  out_puts(o, "\"");
  out_escaped(o, text, len, false);
  out_puts(o, "\"");
}

void out_id(struct out *o, uint64_t id) {
  out_putf(o, "\"%016llx%016llx\"", (unsigned long long)o->prefix, (unsigned long long)id);
}

/* Whatever the job's locale takes for a decimal point. */
void out_number(struct out *o, double value) {
  char text[48];
  if (value != value || value - value != 0) {
    out_puts(o, value != value ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return;
  }
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value)
    snprintf(text, sizeof text, "%.17g", value);
  bool whole = true;
  for (const char *p = text; *p; p++) {
    bool digit = strchr("0123456789+-e", *p) != NULL;
    whole = whole && digit && *p != 'e';
    if (digit)
      out_put(o, p, 1);
    else if (p[-1] >= '0' && p[-1] <= '9')
      out_puts(o, "."); /* and nothing for the further bytes of one that has several */
  }
  if (whole)
    out_puts(o, ".0");
}
