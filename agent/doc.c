/* See doc.h. */
#include "doc.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glibc.h"
#include "utf8.h"

struct doc *doc_new(void) {
  struct doc *doc = malloc(sizeof *doc); /* large, and touched only as far as it is used */
  if (doc)
    doc_init(doc);
  return doc;
}

void doc_init(struct doc *doc) {
  doc->root = NULL;
  doc->error_line = doc->node_count = 0;
  doc->error[0] = doc->source[0] = 0;
  doc->text_used = 0;
}

void doc_free(struct doc *doc) {
  free(doc);
}

void *doc_fail(struct doc *doc, unsigned line, const char *format, ...) {
  if (doc->error[0])
    return NULL;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(doc->error, sizeof doc->error, format, args); /* cut is good enough */
  va_end(args);
  doc->error[strcspn(doc->error, "\n")] = 0; /* what was quoted from the file may go on behind the line */
  for (char *at = doc->error; *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f)
      *at = '?';
  doc->error_line = line;
  return NULL;
}

/* --- the file's text --- */

bool doc_take(struct doc *doc, const char *text, size_t len) {
  const char *end = text + len;
  char *out = doc->source;
  unsigned line = 1;
  if (len > DOC_BYTES_MAX)
    return doc_fail(doc, 0, "the file is longer than %u bytes", DOC_BYTES_MAX);
  if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
    text += 3;
  while (text < end) {
    uint32_t code;
    size_t n = utf8_decode(text, (size_t)(end - text), &code);
    unsigned char c = (unsigned char)*text;
    if (n == 0)
      return doc_fail(doc, line, "the text is not UTF-8");
    if (c == '\r' && end - text > 1 && text[1] == '\n') {
      text++;
      continue;
    }
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
      return doc_fail(doc, line, "the control character 0x%02x is not allowed", c);
    line += c == '\n';
    memcpy(out, text, n);
    out += n;
    text += n;
  }
  *out = 0;
  return true;
}

/* --- building --- */

struct doc_node *doc_node(struct doc *doc, enum doc_kind kind, unsigned line) {
  if (doc->node_count == DOC_NODES_MAX)
    return doc_fail(doc, line, "there are more than %u values", DOC_NODES_MAX);
  struct doc_node *node = &doc->nodes[doc->node_count++];
  *node = (struct doc_node){.kind = kind, .line = line, .text = {.bytes = ""}};
  return node;
}

bool doc_put(struct doc *doc, const char *bytes, size_t len) {
  if (len >= sizeof doc->texts - doc->text_used)
    return doc_fail(doc, 0, "the texts are too long");
  memcpy(doc->texts + doc->text_used, bytes, len);
  doc->text_used += len;
  return true;
}

bool doc_put_code(struct doc *doc, uint32_t code) {
  char out[4];
  size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = len; i-- > 1; code >>= 6)
    out[i] = (char)(0x80 | (code & 0x3f));
  out[0] = (char)(lead[len] | code);
  return doc_put(doc, out, len);
}

bool doc_text(struct doc *doc, size_t from, struct doc_text *out) {
  size_t len = doc->text_used - from;
  if (!doc_put(doc, "", 1))
    return false;
  *out = (struct doc_text){.bytes = doc->texts + from, .len = len};
  return true;
}

struct doc_node *doc_entry(const struct doc_node *map, const struct doc_text *key) {
  for (struct doc_node *n = map->first; n; n = n->next)
    if (n->key.len == key->len && memcmp(n->key.bytes, key->bytes, key->len) == 0)
      return n;
  return NULL;
}

bool doc_key_free(struct doc *doc, const struct doc_node *map, const struct doc_text *key, unsigned line) {
  if (map->count == DOC_ENTRIES_MAX)
    return doc_fail(doc, line, "there are more than %u keys", DOC_ENTRIES_MAX);
  const struct doc_node *there = doc_entry(map, key);
  return !there || doc_fail(doc, line, "the key '%.60s' is there twice, first in line %u", key->bytes, there->line);
}

void doc_add(struct doc_node *parent, struct doc_node *child) {
  if (parent->last)
    parent->last->next = child;
  else
    parent->first = child;
  parent->last = child;
  parent->count++;
}

/* --- what a text stands for --- */

bool doc_is(const struct doc_text *text, const char *word) {
  return strlen(word) == text->len && memcmp(text->bytes, word, text->len) == 0;
}

/* In small letters, with a capital first, or all in capitals. */
static bool is_word(const struct doc_text *text, const char *word) {
  size_t len = strlen(word);
  if (text->len != len || len == 0)
    return false;
  bool small = true, first = true, capitals = true;
  for (size_t i = 0; i < len; i++) {
    char big = (char)(word[i] >= 'a' && word[i] <= 'z' ? word[i] - 'a' + 'A' : word[i]);
    small = small && text->bytes[i] == word[i];
    first = first && text->bytes[i] == (i ? word[i] : big);
    capitals = capitals && text->bytes[i] == big;
  }
  return small || first || capitals;
}

static int truth_of(const struct doc_text *text) {
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
  for (int i = 0; i < 6; i++)
    if (is_word(text, words[i]))
      return i % 2;
  return -1;
}

static size_t digits(const char *at) {
  return strspn(at, "0123456789");
}

/* The whole text as [-+]12, [-+]1.5e-3, .5; *whole tells which. */
static bool is_number(const struct doc_text *text, bool *whole) {
  const char *at = text->bytes;
  at += *at == '-' || *at == '+';
  size_t before = digits(at), after = 0;
  at += before;
  *whole = *at != '.' && *at != 'e' && *at != 'E';
  if (*at == '.') {
    after = digits(at + 1);
    at += 1 + after;
  }
  if (before + after == 0)
    return false;
  if (*at == 'e' || *at == 'E') {
    at++;
    at += *at == '-' || *at == '+';
    if (digits(at) == 0)
      return false;
    at += digits(at);
  }
  return at == text->bytes + text->len;
}

/* Python can set the locale to one with a decimal comma. */
static double number_of(const char *text) {
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!plain)
    return NAN;
  double number = strtod_l(text, NULL, plain);
  freelocale(plain);
  return number;
}

static bool special(const struct doc_text *text, double *out) {
  const char *at = text->bytes;
  bool minus = *at == '-';
  at += *at == '-' || *at == '+';
  struct doc_text rest = {.bytes = at, .len = text->len - (size_t)(at - text->bytes)};
  if (rest.len && *at == '.' && (is_word(&rest, ".inf") || doc_is(&rest, ".Inf")))
    *out = minus ? -HUGE_VAL : HUGE_VAL;
  else if (at == text->bytes && (is_word(text, ".nan") || doc_is(text, ".NaN")))
    *out = NAN;
  else
    return false;
  return true;
}

static bool whole_of(const char *text, int64_t *out) {
  bool minus = *text == '-';
  uint64_t value = 0, most = (uint64_t)INT64_MAX + minus;
  for (text += *text == '-' || *text == '+'; *text; text++) {
    uint64_t digit = (uint64_t)(*text - '0');
    if (value > (most - digit) / 10)
      return false;
    value = value * 10 + digit;
  }
  *out = (int64_t)(minus ? 0 - value : value);
  return true;
}

void doc_resolve(struct doc_node *node) {
  const struct doc_text *text = &node->text;
  bool whole = false;
  int truth = truth_of(text);
  node->kind = DOC_TEXT;
  if (text->len == 0 || doc_is(text, "~") || is_word(text, "null")) {
    node->kind = DOC_NULL;
  } else if (truth >= 0) {
    node->kind = DOC_BOOL;
    node->whole = truth;
  } else if (special(text, &node->number)) {
    node->kind = DOC_FLOAT;
  } else if (is_number(text, &whole)) {
    node->kind = whole && whole_of(text->bytes, &node->whole) ? DOC_INT : DOC_FLOAT;
    node->number = number_of(text->bytes);
  }
}

const struct doc_node *doc_find(const struct doc_node *map, const char *key) {
  if (!map || map->kind != DOC_MAP)
    return NULL;
  for (const struct doc_node *n = map->first; n; n = n->next)
    if (doc_is(&n->key, key))
      return n;
  return NULL;
}
