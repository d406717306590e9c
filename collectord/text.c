#include "text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

#define JSON_DEEPEST 64

struct scan {
  const uint8_t *at, *end;
};

static void blanks(struct scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
    s->at++;
}

static bool take(struct scan *s, char c) {
  blanks(s);
  if (s->at == s->end || *s->at != (uint8_t)c)
    return false;
  s->at++;
  return true;
}

static bool hex4(struct scan *s) {
  if (s->end - s->at < 4)
    return false;
  for (int i = 0; i < 4; i++, s->at++)
    if (!memchr("0123456789abcdefABCDEF", *s->at, 22))
      return false;
  return true;
}

static bool string(struct scan *s) {
  if (!take(s, '"'))
    return false;
  while (s->at < s->end && *s->at != '"') {
    if (*s->at < 0x20)
      return false;
    if (*s->at != '\\') {
      s->at++;
      continue;
    }
    if (++s->at == s->end || !memchr("\"\\/bfnrtu", *s->at, 9))
      return false;
    if (*s->at++ == 'u' && !hex4(s))
      return false;
  }
  return take(s, '"');
}

static bool digits(struct scan *s) {
  const uint8_t *from = s->at;
  while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
    s->at++;
  return s->at > from;
}

static bool number(struct scan *s) {
  if (s->at < s->end && *s->at == '-')
    s->at++;
  bool zero = s->at < s->end && *s->at == '0';
  const uint8_t *from = s->at;
  if (!digits(s) || (zero && s->at - from > 1))
    return false;
  if (s->at < s->end && *s->at == '.') {
    s->at++;
    if (!digits(s))
      return false;
  }
  if (s->at < s->end && (*s->at | 0x20) == 'e') {
    s->at++;
    if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
      s->at++;
    if (!digits(s))
      return false;
  }
  return true;
}

static bool word(struct scan *s, const char *text) {
  size_t n = strlen(text);
  if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0)
    return false;
  s->at += n;
  return true;
}

static bool value(struct scan *s, int depth);

static bool members(struct scan *s, char close, int depth) {
  if (depth > JSON_DEEPEST)
    return false;
  if (take(s, close))
    return true;
  do {
    if (close == '}' && (!string(s) || !take(s, ':')))
      return false;
    if (!value(s, depth))
      return false;
  } while (take(s, ','));
  return take(s, close);
}

static bool value(struct scan *s, int depth) {
  blanks(s);
  if (s->at == s->end)
    return false;
  switch (*s->at) {
  case '{':
    s->at++;
    return members(s, '}', depth + 1);
  case '[':
    s->at++;
    return members(s, ']', depth + 1);
  case '"':
    return string(s);
  case 't':
    return word(s, "true");
  case 'f':
    return word(s, "false");
  case 'n':
    return word(s, "null");
  default:
    return number(s);
  }
}

bool text_is_json_object(const char *text, size_t len) {
  if (utf8_valid(text, len) != len)
    return false;
  struct scan s = {(const uint8_t *)text, (const uint8_t *)text + len};
  blanks(&s);
  if (s.at == s.end || *s.at != '{' || !value(&s, 0))
    return false;
  blanks(&s);
  return s.at == s.end;
}

char *text_utf8(struct text_bytes in) {
  size_t len;
  return utf8_clean(in.len ? in.data : "", strnlen(in.len ? in.data : "", in.len), &len);
}

void text_json_string(FILE *out, struct text_bytes in) {
  size_t len;
  char *clean = utf8_clean(in.len ? in.data : "", in.len, &len);
  fputc('"', out);
  for (size_t i = 0; clean && i < len; i++) {
    unsigned char c = (unsigned char)clean[i];
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
  free(clean);
}
