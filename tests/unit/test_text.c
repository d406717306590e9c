// links: tools/text.c tools/buf.c
/* Hostile text on its way to a terminal or into JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text.h"

static void shows(const char *text, size_t len, bool utf8, const char *want) {
  struct buf buf = {0};
  text_show(&buf, text, len, utf8);
  assert_string_equal(buf_text(&buf), want);
  buf_fini(&buf);
}

#define SHOWS(text, utf8, want) shows(text, sizeof text - 1, utf8, want)

static void escapes(void **state) {
  (void)state;
  SHOWS("", true, "");
  SHOWS("plain", true, "plain");
  SHOWS("a\nb\tc\r", true, "a\\nb\\tc\\r");
  SHOWS("\033[2J", true, "\\x1b[2J");
  SHOWS("zero\0byte", true, "zero\\x00byte");
  SHOWS("\x7f", true, "\\x7f");
  SHOWS("\xc2\x9b", true, "\\x9b");       /* C1: a control sequence in one character */
  SHOWS("\xe2\x80\xae", true, "\\u202e"); /* right to left override */
  SHOWS("\xf3\xa0\x80\x81", true, "\\U000e0001");
  SHOWS("\xc3\xbc", true, "\xc3\xbc");
  SHOWS("\xc3\xbc", false, "\\xfc");
  SHOWS("\xf0\x9f\x98\x80", false, "\\U0001f600");
  SHOWS("\xff\xc3", true, "\\xff\\xc3");          /* no UTF-8, cut UTF-8 */
  SHOWS("\xc0\x80", true, "\\xc0\\x80");          /* too long a form */
  SHOWS("\xed\xa0\x80", true, "\\xed\\xa0\\x80"); /* half of a pair */
  SHOWS("\xf4\x90\x80\x80", true, "\\xf4\\x90\\x80\\x80");
}

static void cut(const char *text, bool utf8, size_t columns, const char *want) {
  struct buf buf = {0};
  text_show_cut(&buf, text, strlen(text), utf8, columns);
  assert_string_equal(buf_text(&buf), want);
  assert_true(text_width(buf_text(&buf)) <= columns || columns < 3);
  buf_fini(&buf);
}

static void cuts(void **state) {
  (void)state;
  cut("abcdef", true, 6, "abcdef");
  cut("abcdefg", true, 6, "abcde\xe2\x80\xa6");
  cut("abcdefg", false, 6, "abc...");
  cut("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", true, 4, "\xe6\xbc\xa2\xe2\x80\xa6"); /* characters of two columns */
  cut("abc", true, 0, "\xe2\x80\xa6");
}

/* Thousands of characters without width take no column, but are not shown either. */
static void cuts_what_has_no_width(void **state) {
  struct buf text = {0}, out = {0};
  (void)state;
  for (int i = 0; i < 5000; i++)
    buf_puts(&text, "\xcc\x81");
  text_show_cut(&out, text.data, text.len, true, 20);
  assert_true(out.len < 200);
  buf_fini(&text);
  buf_fini(&out);
}

/* What jansson reads back is what went in. */
static void json_is_exact(void **state) {
  char text[4096];
  size_t len = 0;
  struct buf buf = {0};
  (void)state;
  for (int c = 0; c < 0x80; c++)
    text[len++] = (char)c;
  static const char more[] = "\xc2\x80\xc2\x9f\xc3\xbf\xe2\x80\xa8\xe2\x80\xae\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf3\xa0"
                             "\x80\x81\xf4\x8f\xbf\xbf";
  memcpy(text + len, more, sizeof more - 1);
  len += sizeof more - 1;
  text_json(&buf, text, len);
  for (size_t i = 0; i < buf.len; i++)
    assert_true((unsigned char)buf.data[i] >= 0x20 && buf.data[i] != 0x7f);
  json_t *value = json_loadb(buf.data, buf.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
  assert_non_null(value);
  assert_int_equal(json_string_length(value), len);
  assert_memory_equal(json_string_value(value), text, len);
  json_decref(value);
  buf_clear(&buf);
  text_json(&buf, "a\xff\xe2\x80", 4);
  assert_string_equal(buf.data, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  buf_fini(&buf);
}

/* Any bytes: shown text is printable, JSON is read by jansson. */
static void any_bytes(void **state) {
  (void)state;
  srand(7);
  for (int round = 0; round < 2000; round++) {
    struct buf shown = {0}, json = {0};
    size_t len = (size_t)rand() % 40;
    char *text = malloc(len + 1); /* exact, so that ASan sees reading past the end */
    for (size_t i = 0; i < len; i++)
      text[i] = (char)(rand() % 3 ? rand() : "\xe2\x80\xae\xf0\x9f\xc2\x1b\x9b"[rand() % 8]);
    text_show(&shown, text, len, round % 2);
    text_json(&json, text, len);
    for (size_t i = 0; i < shown.len; i++)
      assert_true((unsigned char)shown.data[i] >= 0x20 && shown.data[i] != 0x7f);
    json_t *value = json_loadb(json.data, json.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    json_decref(value);
    buf_fini(&shown);
    buf_fini(&json);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(escapes), cmocka_unit_test(cuts),
                                     cmocka_unit_test(cuts_what_has_no_width), cmocka_unit_test(json_is_exact),
                                     cmocka_unit_test(any_bytes)};
  setlocale(LC_ALL, "C.UTF-8");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
