/* See toml.h. Here: texts, in one quote of either kind or in three. */
#include <string.h>

#include "toml_own.h"

/* The digits behind \x, \u and \U: 2, 4 or 8. */
static bool put_number(struct toml *t, unsigned n) {
  uint32_t code = 0;
  for (; n; n--, t->at++) {
    static const char digits[] = "0123456789abcdef";
    char c = *t->at;
    const char *digit = c ? strchr(digits, c >= 'A' && c <= 'F' ? c | 0x20 : c) : NULL;
    if (!digit)
      return TOML_FAIL(t, "a number in hexadecimal is expected behind '\\x', '\\u' and '\\U'");
    code = code << 4 | (uint32_t)(digit - digits);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    return TOML_FAIL(t, "a number behind a backslash is no character");
  return doc_put_code(t->doc, code);
}

/* Behind a backslash. */
static bool escape(struct toml *t) {
  static const char letters[] = "btnfre\"\\", bytes[] = "\b\t\n\f\r\x1b\"\\";
  char c = *t->at;
  const char *known = c ? strchr(letters, c) : NULL;
  if (!known && (c == 0 || !strchr("xuU", c)))
    return TOML_FAIL(t, "only \\b \\t \\n \\f \\r \\e \\\" \\\\ \\x \\u and \\U are allowed behind a backslash");
  t->at++;
  return known ? doc_put(t->doc, &bytes[known - letters], 1) : put_number(t, c == 'x' ? 2 : c == 'u' ? 4 : 8);
}

/* A backslash that ends its line, in three quotes: the text goes on at the next thing that is no blank. */
static bool joined(struct toml *t) {
  const char *end = t->at + 1 + strspn(t->at + 1, " \t");
  if (*end != '\n')
    return false;
  for (t->at = end; *t->at == ' ' || *t->at == '\t' || *t->at == '\n'; t->at++)
    t->line += *t->at == '\n';
  return true;
}

static size_t quotes_at(const char *at, char quote) {
  size_t n = 0;
  while (at[n] == quote)
    n++;
  return n;
}

/* At the last quotes. Before three of them one or two may belong to the text. */
static bool finish(struct toml *t, size_t marks, size_t from, struct doc_text *out) {
  size_t n = marks == 1 ? 1 : quotes_at(t->at, *t->at), own = n > 5 ? 2 : n - marks;
  bool good = doc_put(t->doc, t->at, own);
  t->at += own + marks;
  return good && doc_text(t->doc, from, out);
}

bool toml_text(struct toml *t, bool lines, struct doc_text *out) {
  char quote = *t->at;
  size_t marks = lines && quotes_at(t->at, quote) >= 3 ? 3 : 1, from = t->doc->text_used;
  unsigned begin = t->line;
  bool good = true;
  t->at += marks;
  if (marks == 3 && *t->at == '\n') {
    t->at++;
    t->line++;
  }
  while (good && quotes_at(t->at, quote) < marks) {
    char c = *t->at;
    if (c == 0 || (c == '\n' && marks == 1))
      return doc_fail(t->doc, begin, "the text in quotes that begins here has no end");
    if (c == '\\' && quote == '"' && marks == 3 && joined(t))
      continue;
    t->line += c == '\n';
    t->at++;
    good = c == '\\' && quote == '"' ? escape(t) : doc_put(t->doc, &c, 1);
  }
  return good && finish(t, marks, from, out);
}
