// links: tools/jsontext.c tools/buf.c
/* JSON out of a store: checked, put on one line, exact. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <string.h>

#include "tools/jsontext.h"

static void gives(const char *text, size_t len, json_type type, const char *want) {
  struct buf buf = {0};
  jsontext_add(&buf, text, len, type, "instead");
  assert_string_equal(buf_text(&buf), want);
  buf_fini(&buf);
}

#define GIVES(text, type, want) gives(text, sizeof text - 1, type, want)

static void good(void **state) {
  (void)state;
  GIVES("{\n \"a\" : [1, 2.5, true, null]\n}", JSON_OBJECT, "{\"a\":[1,2.5,true,null]}");
  GIVES("[]", JSON_ARRAY, "[]");
  GIVES("{\"a\":9223372036854775807}", JSON_OBJECT, "{\"a\":9223372036854775807}");
  GIVES("{\"a\":\"\\u0000\\u001b\xc3\xbc\"}", JSON_OBJECT, "{\"a\":\"\\u0000\\u001B\\u00FC\"}");
  GIVES("[0.1]", JSON_ARRAY, "[0.10000000000000001]");
}

static void too_large_integers_are_kept_as_reals(void **state) {
  (void)state;
  GIVES("{\"a\":36893488147419103232}", JSON_OBJECT, "{\"a\":3.6893488147419103e19}");
}

static void bad(void **state) {
  (void)state;
  gives(NULL, 0, JSON_OBJECT, "instead");
  GIVES("", JSON_OBJECT, "instead");
  GIVES("{", JSON_OBJECT, "instead");
  GIVES("{}{}", JSON_OBJECT, "instead");
  GIVES("[]", JSON_OBJECT, "instead");
  GIVES("{\"a\":NaN}", JSON_OBJECT, "instead");
  GIVES("{\"a\":\"\xff\"}", JSON_OBJECT, "instead");
  GIVES("{\"a\":1e999}", JSON_OBJECT, "instead");
}

/* Brackets without end: refused, not followed down. */
static void deep(void **state) {
  static char text[100000];
  (void)state;
  memset(text, '[', sizeof text);
  gives(text, sizeof text, JSON_ARRAY, "instead");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(good), cmocka_unit_test(too_large_integers_are_kept_as_reals),
                                     cmocka_unit_test(bad), cmocka_unit_test(deep)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
