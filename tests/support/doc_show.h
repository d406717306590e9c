/* A document as a text, for tests of its readers: {key:value,...} [..] 'text' 12 1.5f true ~ */
#ifndef CIRRON_TESTS_DOC_SHOW_H
#define CIRRON_TESTS_DOC_SHOW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "agent/doc.h"

static char shown[1 << 16];
static size_t used;

__attribute__((format(printf, 1, 2))) static void show(const char *format, ...) {
  va_list args;
  va_start(args, format);
  used += (size_t)vsnprintf(shown + used, sizeof shown - used, format, args);
  va_end(args);
  assert_true(used < sizeof shown);
}

static void show_text(const struct doc_text *text) {
  show("'");
  for (size_t i = 0; i < text->len; i++) {
    unsigned char c = (unsigned char)text->bytes[i];
    if (c == '\n')
      show("\\n");
    else if (c < 0x20)
      show("\\%02x", c);
    else
      show("%c", c);
  }
  show("'");
}

static void show_node(const struct doc_node *node) {
  switch (node->kind) {
  case DOC_NULL:
    show("~");
    return;
  case DOC_BOOL:
    show(node->whole ? "true" : "false");
    return;
  case DOC_INT:
    show("%lld", (long long)node->whole);
    assert_true(node->number == (double)node->whole);
    return;
  case DOC_FLOAT:
    show("%.17gf", node->number);
    return;
  case DOC_TEXT:
    show_text(&node->text);
    return;
  case DOC_LIST:
  case DOC_MAP:
    break;
  }
  show(node->kind == DOC_MAP ? "{" : "[");
  unsigned count = 0;
  for (const struct doc_node *n = node->first; n; n = n->next, count++) {
    if (count)
      show(",");
    if (node->kind == DOC_MAP)
      show("%s:", n->key.bytes);
    show_node(n);
  }
  assert_int_equal(count, node->count);
  show(node->kind == DOC_MAP ? "}" : "]");
}

static void assert_shown(const struct doc_node *node, const char *expected) {
  used = 0;
  show_node(node);
  assert_string_equal(shown, expected);
}

typedef int (*doc_reader)(struct doc *doc, const char *text, size_t len);

static void assert_reads(doc_reader read, const char *text, const char *expected) {
  struct doc *doc = doc_new();
  assert_non_null(doc);
  size_t len = strlen(text);
  char *exact = malloc(len ? len : 1); /* nothing behind the end may be read */
  memcpy(exact, text, len);
  if (read(doc, exact, len) != 0)
    fail_msg("%s\nline %u: %s", text, doc->error_line, doc->error);
  assert_shown(doc->root, expected);
  free(exact);
  doc_free(doc);
}

static void assert_refuses(doc_reader read, const char *text, size_t len, unsigned line, const char *why) {
  struct doc *doc = doc_new();
  assert_non_null(doc);
  if (read(doc, text, len) == 0)
    fail_msg("accepted: %s", text);
  if (!strstr(doc->error, why) || doc->error_line != line)
    fail_msg("%s\nline %u: %s\nexpected in line %u: %s", text, doc->error_line, doc->error, line, why);
  assert_null(doc->root);
  assert_null(strchr(doc->error, '\n'));
  doc_free(doc);
}

#endif
