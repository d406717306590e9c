#include "jsontext.h"

json_t *jsontext_parse(const char *text, size_t len, json_type type) {
  json_t *value = text && len ? json_loadb(text, len, JSON_ALLOW_NUL, NULL) : NULL;
  if (!value && text && len)
    value = json_loadb(text, len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
  if (value && json_typeof(value) != type) {
    json_decref(value);
    return NULL;
  }
  return value;
}

static int add(const char *text, size_t len, void *arg) {
  buf_add(arg, text, len);
  return 0;
}

void jsontext_dump(struct buf *out, const json_t *value) {
  /* Escaped to ASCII, so that nothing in it reaches a terminal as it is. */
  json_dump_callback(value, add, out, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
}

void jsontext_add(struct buf *out, const char *text, size_t len, json_type type, const char *instead) {
  json_t *value = jsontext_parse(text, len, type);
  if (value)
    jsontext_dump(out, value);
  else
    buf_puts(out, instead);
  json_decref(value);
}
