// links: agent/doc.c agent/json.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/json.h"

static struct doc *good(const char *text) {
  struct doc *doc = doc_new();
  assert_non_null(doc);
  size_t len = strlen(text);
  char *exact = malloc(len ? len : 1);
  memcpy(exact, text, len);
  if (json_read(doc, exact, len) != 0)
    fail_msg("%s\nline %u: %s", text, doc->error_line, doc->error);
  free(exact);
  return doc;
}

static void bad(const char *text, unsigned line, const char *why) {
  struct doc *doc = doc_new();
  assert_non_null(doc);
  if (json_read(doc, text, strlen(text)) == 0)
    fail_msg("accepted: %s", text);
  if (!strstr(doc->error, why) || doc->error_line != line)
    fail_msg("%s\nline %u: %s\nexpected in line %u: %s", text, doc->error_line, doc->error, line, why);
  assert_null(doc->root);
  doc_free(doc);
}

static void test_values(void **state) {
  (void)state;
  struct doc *doc = good(" {\"a\": [1, -2.5e1, true, false, null, \"x\"],\n\t\"b\": {}, \"c\": [], \"\": 0}\n");
  const struct doc_node *a = doc_find(doc->root, "a"), *n = a->first;
  assert_int_equal(a->count, 6);
  assert_true(n->kind == DOC_INT && n->whole == 1);
  n = n->next;
  assert_true(n->kind == DOC_FLOAT && n->number == -25.0);
  n = n->next;
  assert_true(n->kind == DOC_BOOL && n->whole == 1);
  n = n->next;
  assert_true(n->kind == DOC_BOOL && n->whole == 0);
  n = n->next;
  assert_true(n->kind == DOC_NULL);
  n = n->next;
  assert_true(n->kind == DOC_TEXT && doc_is(&n->text, "x"));
  assert_null(n->next);
  assert_true(doc_find(doc->root, "b")->kind == DOC_MAP && doc_find(doc->root, "c")->kind == DOC_LIST);
  assert_int_equal(doc_find(doc->root, "b")->line, 2);
  assert_true(doc_find(doc->root, "")->kind == DOC_INT);
  doc_free(doc);
  doc = good("12345678901234567890");
  assert_true(doc->root->kind == DOC_FLOAT && doc->root->number == 12345678901234567890.0);
  doc_free(doc);
}

static void test_texts(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"\"\"", ""},
      {"\"yes\"", "yes"},
      {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
      {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude82\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x82"},
      {"\"\xf0\x9f\x9a\x82 #: {\"", "\xf0\x9f\x9a\x82 #: {"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct doc *doc = good(cases[i].in);
    assert_int_equal(doc->root->kind, DOC_TEXT);
    assert_string_equal(doc->root->text.bytes, cases[i].out);
    doc_free(doc);
  }
  struct doc *doc = good("\"a\\u0000b\"");
  assert_int_equal(doc->root->text.len, 3);
  assert_memory_equal(doc->root->text.bytes, "a\0b", 4);
  doc_free(doc);
}

static void test_refused(void **state) {
  (void)state;
  static const struct {
    const char *text;
    unsigned line;
    const char *why;
  } cases[] = {
      {"", 1, "end of the file"},
      {"{\"a\": 1,}", 1, "a key in quotes"},
      {"[1,]", 1, "a value is expected"},
      {"[1 2]", 1, "',' or ']'"},
      {"{\"a\" 1}", 1, "':'"},
      {"{a: 1}", 1, "a key in quotes"},
      {"{\"a\": 1}\nx", 2, "unexpected text"},
      {"{\"a\": 1,\n \"a\": 2}", 2, "twice, first in line 1"},
      {"['a']", 1, "a value is expected"},
      {"[True]", 1, "a value is expected"},
      {"[01]", 1, "a value is expected"},
      {"[+1]", 1, "a value is expected"},
      {"[1.]", 1, "a value is expected"},
      {"[.5]", 1, "a value is expected"},
      {"[1e]", 1, "a value is expected"},
      {"[NaN]", 1, "a value is expected"},
      {"[-]", 1, "a value is expected"},
      {"[~]", 1, "a value is expected"},
      {"[yes]", 1, "a value is expected"},
      {"// x\n1", 1, "a value is expected"},
      {"\"a\nb\"", 1, "no end"},
      {"\"a\tb\"", 1, "\\t"},
      {"\"abc", 1, "no end"},
      {"\"\\x41\"", 1, "backslash"},
      {"\"\\u12g4\"", 1, "hexadecimal"},
      {"\"\\ud800\"", 1, "no character"},
      {"\"\\ud800\\u0041\"", 1, "no character"},
      {"\"\\udc00\"", 1, "no character"},
      {"[1", 1, "',' or ']'"},
      {"{", 1, "a key in quotes"},
      {"\"\xff\"", 1, "UTF-8"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    bad(cases[i].text, cases[i].line, cases[i].why);
}

static void test_bounds(void **state) {
  (void)state;
  static char text[2 * DOC_NODES_MAX + 3];
  memset(text, '[', 100);
  bad(text, 1, "deep");
  for (size_t i = 0; i < DOC_NODES_MAX; i++)
    memcpy(text + 1 + 2 * i, i + 1 < DOC_NODES_MAX ? "1," : "1]", 2);
  bad(text, 1, "values");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
