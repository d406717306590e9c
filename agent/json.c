/* See json.h. */
#include "json.h"

#include <errno.h>
#include <string.h>

struct json {
  const char *at;
  unsigned line;
  struct doc *doc;
};

#define FAIL(j, ...) doc_fail((j)->doc, (j)->line, __VA_ARGS__)

static struct doc_node *value(struct json *j, unsigned depth);

static char gap(struct json *j) { /* what stands behind the blanks */
  for (; *j->at == ' ' || *j->at == '\t' || *j->at == '\n'; j->at++)
    j->line += *j->at == '\n';
  return *j->at;
}

/* --- texts --- */

static int hex4(struct json *j) { /* -1 with an error */
  int code = 0;
  for (int i = 0; i < 4; i++, j->at++) {
    char c = *j->at;
    if (c >= '0' && c <= '9')
      code = code * 16 + (c - '0');
    else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
      code = code * 16 + ((c | 0x20) - 'a' + 10);
    else
      return (void)FAIL(j, "four digits in hexadecimal are expected behind '\\u'"), -1;
  }
  return code;
}

static bool put_unicode(struct json *j) {
  int code = hex4(j), low = 0;
  if (code >= 0xd800 && code < 0xdc00 && j->at[0] == '\\' && j->at[1] == 'u') {
    j->at += 2;
    low = hex4(j);
    if (low >= 0xdc00 && low < 0xe000)
      return doc_put_code(j->doc, 0x10000 + (((uint32_t)code - 0xd800) << 10) + ((uint32_t)low - 0xdc00));
  }
  if (code < 0 || low < 0)
    return false;
  if (code >= 0xd800 && code < 0xe000)
    return FAIL(j, "a number behind a backslash is no character");
  return doc_put_code(j->doc, (uint32_t)code);
}

static bool put_escape(struct json *j) { /* behind the backslash */
  static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
  char c = *j->at;
  const char *known = c ? strchr(letters, c) : NULL;
  if (!known && c != 'u')
    return FAIL(j, "only \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u are allowed behind a backslash");
  j->at++;
  return known ? doc_put(j->doc, &bytes[known - letters], 1) : put_unicode(j);
}

static bool text(struct json *j, struct doc_text *out) { /* at the first quote */
  size_t from = j->doc->text_used;
  for (j->at++; *j->at != '"';) {
    char c = *j->at;
    if (c == 0 || c == '\n')
      return FAIL(j, "a text in quotes has no end");
    if (c == '\t')
      return FAIL(j, "a tab in quotes has to be written as \\t");
    j->at++;
    if (c == '\\' ? !put_escape(j) : !doc_put(j->doc, &c, 1))
      return false;
  }
  j->at++;
  return doc_text(j->doc, from, out);
}

/* --- numbers and words --- */

/* Length of what JSON takes for a number, or 0. */
static size_t number_len(const char *begin) {
  const char *at = begin + (*begin == '-');
  size_t n = strspn(at, "0123456789");
  if (n == 0 || (*at == '0' && n > 1))
    return 0;
  at += n;
  if (*at == '.') {
    n = strspn(at + 1, "0123456789");
    if (n == 0)
      return 0;
    at += 1 + n;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    at += *at == '-' || *at == '+';
    n = strspn(at, "0123456789");
    if (n == 0)
      return 0;
    at += n;
  }
  return (size_t)(at - begin);
}

static struct doc_node *word(struct json *j) {
  struct doc_node *node = doc_node(j->doc, DOC_NULL, j->line);
  size_t len = strcspn(j->at, " \t\n,:[]{}\""), from = j->doc->text_used;
  struct doc_text here = {.bytes = j->at, .len = len};
  bool known = doc_is(&here, "null") || doc_is(&here, "true") || doc_is(&here, "false");
  if (!known && (len == 0 || number_len(j->at) != len))
    return FAIL(j, "a value is expected, not %.20s", *j->at ? j->at : "the end of the file");
  if (!node || !doc_put(j->doc, j->at, len) || !doc_text(j->doc, from, &node->text))
    return NULL;
  doc_resolve(node);
  j->at += len;
  return node;
}

/* --- lists and maps --- */

/* Behind an entry: 1: another follows, 0: the bracket was closed, -1 with an error. */
static int separator(struct json *j, char close) {
  char c = gap(j);
  if (c != ',' && c != close)
    return (void)FAIL(j, "',' or '%c' is expected", close), -1;
  j->at++;
  return c == ',';
}

static struct doc_node *list(struct json *j, unsigned depth) {
  struct doc_node *node = doc_node(j->doc, DOC_LIST, j->line);
  j->at++;
  if (node && gap(j) == ']')
    return j->at++, node;
  for (int more = 1; node && more;) {
    (void)gap(j);
    struct doc_node *item = value(j, depth + 1);
    more = item ? separator(j, ']') : -1;
    if (more < 0)
      return NULL;
    doc_add(node, item);
  }
  return node;
}

static struct doc_node *map(struct json *j, unsigned depth) {
  struct doc_node *node = doc_node(j->doc, DOC_MAP, j->line);
  j->at++;
  if (node && gap(j) == '}')
    return j->at++, node;
  for (int more = 1; node && more;) {
    struct doc_text key;
    if (gap(j) != '"')
      return FAIL(j, "a key in quotes is expected");
    unsigned line = j->line;
    if (!text(j, &key) || !doc_key_free(j->doc, node, &key, line))
      return NULL;
    if (gap(j) != ':')
      return FAIL(j, "':' is expected behind a key");
    j->at++;
    (void)gap(j);
    struct doc_node *entry = value(j, depth + 1);
    more = entry ? separator(j, '}') : -1;
    if (more < 0)
      return NULL;
    entry->key = key;
    doc_add(node, entry);
  }
  return node;
}

static struct doc_node *value(struct json *j, unsigned depth) {
  if (depth > DOC_DEPTH_MAX)
    return FAIL(j, "values are nested more than %u deep", DOC_DEPTH_MAX);
  if (*j->at == '[')
    return list(j, depth);
  if (*j->at == '{')
    return map(j, depth);
  if (*j->at != '"')
    return word(j);
  struct doc_node *node = doc_node(j->doc, DOC_TEXT, j->line);
  return node && text(j, &node->text) ? node : NULL;
}

int json_read(struct doc *doc, const char *bytes, size_t len) {
  if (!doc_take(doc, bytes, len))
    return -EINVAL;
  struct json j = {.at = doc->source, .line = 1, .doc = doc};
  (void)gap(&j);
  struct doc_node *root = value(&j, 0);
  if (root && gap(&j) != 0)
    root = FAIL(&j, "unexpected text behind the value: %.20s", j.at);
  if (!root)
    return -EINVAL;
  doc->root = root;
  return 0;
}
