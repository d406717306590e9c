// links: collectord/utf8.c
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "collectord/utf8.h"

#define BAD "\xef\xbf\xbd"

static void test_clean(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
      {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
      {"a\xff"
       "b",
       "a" BAD "b"},
      {"\x80\x80", BAD BAD},
      {"\xc0\xaf", BAD BAD},                 /* overlong */
      {"\xe0\x80\x80", BAD BAD BAD},         /* overlong */
      {"\xf0\x80\x80\x80", BAD BAD BAD BAD}, /* overlong */
      {"\xed\xa0\x80", BAD BAD BAD},         /* surrogate */
      {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, /* beyond the last */
      {"\xf5", BAD},
      {"\xe2\x82", BAD}, /* cut off: once */
      {"\xe2\x82x", BAD "x"},
      {"\xf0\x9f\x98", BAD},
      {"\xc3\xc3\xa9", BAD "\xc3\xa9"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t len, in_len = strlen(cases[i].in);
    char *exact = malloc(in_len ? in_len : 1); /* so that reading on is noticed */
    memcpy(exact, cases[i].in, in_len);
    char *out = utf8_clean(exact, in_len, &len);
    assert_string_equal(out, cases[i].out);
    assert_int_equal(len, strlen(cases[i].out));
    assert_int_equal(utf8_valid(exact, in_len) == in_len, !strcmp(cases[i].in, cases[i].out));
    assert_int_equal(utf8_valid(out, len), len);
    free(out);
    free(exact);
  }
  size_t len;
  char *out = utf8_clean("a\0b\xff", 4, &len);
  assert_int_equal(len, 6);
  assert_memory_equal(out, "a\0b" BAD, 7);
  free(out);
}

static void test_cut(void **state) {
  (void)state;
  const char *text = "ab\xe2\x82\xac"
                     "cd";
  static const size_t want[] = {0, 1, 2, 2, 2, 5, 6, 7, 7};
  for (size_t limit = 0; limit < sizeof want / sizeof *want; limit++)
    assert_int_equal(utf8_cut(text, strlen(text), limit), want[limit]);
  assert_int_equal(utf8_cut("\x80\x80\x80\x80\x80\x80", 6, 5), 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_clean), cmocka_unit_test(test_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
