// links: agent/doc.c agent/toml.c agent/toml_text.c agent/toml_word.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/toml.h"
#include "tests/support/doc_show.h"

static void good(const char *text, const char *expected) {
  assert_reads(toml_read, text, expected);
}

static void bad_bytes(const char *text, size_t len, unsigned line, const char *why) {
  assert_refuses(toml_read, text, len, line, why);
}

static void bad(const char *text, unsigned line, const char *why) {
  bad_bytes(text, strlen(text), line, why);
}

static void test_keys(void **state) {
  (void)state;
  good("", "{}");
  good("# nothing\n\n  # more\n", "{}");
  good("a = 1\nb=2\n\tc\t=\t3 # note\n-_9 = 4", "{a:1,b:2,c:3,-_9:4}");
  good("a.b = 1\na . c = 2\na.d.e = 3", "{a:{b:1,c:2,d:{e:3}}}");
  good("\"a b\" = 1\n'c.d' = 2\n\"\" = 3\nx.\"y.z\".'w' = 4", "{a b:1,c.d:2,:3,x:{y.z:{w:4}}}");
  good("1 = 1\n3.2 = 2", "{1:1,3:{2:2}}");
}

static void test_tables(void **state) {
  (void)state;
  good("[a]\nx = 1\n[b]\ny = 2\n", "{a:{x:1},b:{y:2}}");
  good("[a.b.c]\nx = 1\n[a]\ny = 2\n[a.b]\nz = 3", "{a:{b:{c:{x:1},z:3},y:2}}");
  good("[ a . 'b c' ] # note\nx = 1", "{a:{b c:{x:1}}}");
  good("a.b = 1\n[a.c]\nx = 2", "{a:{b:1,c:{x:2}}}");
  good("[a]\n[a.b]\n[c]", "{a:{b:{}},c:{}}");
  good("[[a]]\nx = 1\n[[a]]\n[a.b]\ny = 2\n[[a.c]]\nz = 3\n[[a]]\nx = 4", "{a:[{x:1},{b:{y:2},c:[{z:3}]},{x:4}]}");
  good("[a.b]\n[[a.c]]\n", "{a:{b:{},c:[{}]}}");
  good("[a.b.c]\n[a]\nb.x = 1", "{a:{b:{c:{},x:1}}}");
}

static void test_brackets(void **state) {
  (void)state;
  good("a = []\nb = [1, 2,]\nc = [ [1], ['x', {d = 1}] ]", "{a:[],b:[1,2],c:[[1],['x',{d:1}]]}");
  good("a = [ # one\n  1, # two\n\n  2 # three\n  , ]\nb = 3", "{a:[1,2],b:3}");
  good("a = {}\nb = {x = 1, y.z = 2, y.w = [3]}", "{a:{},b:{x:1,y:{z:2,w:[3]}}}");
  good("a = {\n  x = 1, # of 1.1\n  y = 2,\n}\n", "{a:{x:1,y:2}}");
}

static void test_words(void **state) {
  (void)state;
  good("a = [true, false]", "{a:[true,false]}");
  good("a = [0, +0, -0, 12, +99, -17, 1_000, 5_3_4, 9223372036854775807, -9223372036854775808]",
       "{a:[0,0,0,12,99,-17,1000,534,9223372036854775807,-9223372036854775808]}");
  good("a = [0xDEAD_beef, 0o755, 0b1101_0, 0x7fffffffffffffff, 0x0]", "{a:[3735928559,493,26,9223372036854775807,0]}");
  good("a = [9223372036854775808, 0x8000000000000000, 0xffffffffffffffffffff]",
       "{a:[9.2233720368547758e+18f,9.2233720368547758e+18f,1.2089258196146292e+24f]}");
  good("a = [1.5, -0.01, 5e+22, 1e0_6, -2E-2, 6.626e-34, 3_1.4_1, 0e0, -0.0]",
       "{a:[1.5f,-0.01f,4.9999999999999996e+22f,1000000f,-0.02f,6.6259999999999998e-34f,31.41f,0f,-0f]}");
  good("a = [inf, +inf, -inf, nan]", "{a:[inff,inff,-inff,nanf]}");
}

static void test_dates(void **state) {
  (void)state;
  good("a = 1979-05-27\nb = 07:32:00 # note\nc = 1979-05-27T07:32:00Z\nd = 1979-05-27 00:32:00.999999-07:00",
       "{a:'1979-05-27',b:'07:32:00',c:'1979-05-27T07:32:00Z',d:'1979-05-27 00:32:00.999999-07:00'}");
  good("a = [1979-05-27, 1979-05-27t07:32, 07:32]", "{a:['1979-05-27','1979-05-27t07:32','07:32']}");
  good("a = 1979-05-27 # 12:00", "{a:'1979-05-27'}");
}

static void test_texts(void **state) {
  (void)state;
  good("a = \"x\"\nb = ''\nc = \"\"\nd = 'C:\\dir\\n'\ne = \"# [x] = 'y'\"",
       "{a:'x',b:'',c:'',d:'C:\\dir\\n',e:'# [x] = 'y''}");
  good("a = \"\\b\\t\\n\\f\\r\\e\\\"\\\\\"", "{a:'\\08\\09\\n\\0c\\0d\\1b\"\\'}");
  good("a = \"\\x41\\u00E9\\U0001F682\\u0000z\"", "{a:'A\xc3\xa9\xf0\x9f\x9a\x82\\00z'}");
  good("a = \"\"\"\none\n  two\n\"\"\"\nb = 1", "{a:'one\\n  two\\n',b:1}");
  good("a = '''\none \\n'''\nb = ''''quoted''''' # note", "{a:'one \\n',b:''quoted'''}");
  good("a = \"\"\"\"a\" \"\"b\"\"\"\"\"\nb = \"\"\"\"\"\"", "{a:'\"a\" \"\"b\"\"',b:''}");
  good("a = \"\"\"one \\\n   two \\  \n\n  three\\\\\n\"\"\"\nb = 1", "{a:'one two three\\\\n',b:1}");
  good("a = \"\"\"x\r\ny\"\"\"\r\nb = 'z'\r\n", "{a:'x\\ny',b:'z'}");
  good("\"a\" = \"tab\there\"", "{a:'tab\\09here'}");
}

static void test_twice(void **state) {
  (void)state;
  bad("a = 1\nb = 2\na = 3", 3, "the key 'a' is there twice, first in line 1");
  bad("a = 1\n'a' = 2", 2, "twice");
  bad("[a]\nx = 1\n[b]\n[a]", 4, "twice, first in line 1");
  bad("a = 1\n[a]", 2, "twice");
  bad("[a]\n[[a]]", 2, "twice");
  bad("[[a]]\n[a]", 2, "twice");
  bad("a = []\n[[a]]", 2, "twice");
  bad("a.b = 1\na.b = 2", 2, "twice");
  bad("a.b = 1\n[a]", 2, "twice");
  bad("a = 1\na.b = 2", 2, "the key 'a' of line 1 cannot be added to");
  bad("a = {x = 1}\na.y = 2", 2, "cannot be added to");
  bad("a = {x = 1}\n[a.b]", 2, "cannot be added to");
  bad("a = {x.y = 1}\n[a.x.z]", 2, "cannot be added to");
  bad("a = [{x = 1}]\n[a.b]", 2, "cannot be added to");
  bad("[a.b]\nx = 1\n[a]\nb.y = 2", 4, "cannot be added to");
  bad("[a.b.c]\n[a]\nb.c.y = 2", 3, "cannot be added to");
  bad("[a.b.c]\n[a]\nb.y = 2\n[a.b]", 4, "twice");
  bad("a = {x = 1, x = 2}", 1, "twice");
  bad("\"a\\u0000b\" = 1\n\"a\\u0000c\" = 2\n\"a\\u0000b\" = 3", 3, "twice");
}

static void test_wrong(void **state) {
  (void)state;
  bad("a", 1, "'=' is expected behind a key");
  bad("a = # x", 1, "a value is expected (a text has to be put in quotes), not # x");
  bad("a =\n1", 1, "not the end of the line");
  bad("\n= 1", 2, "a key is expected");
  bad("a = 1 2", 1, "unexpected text at the end of the line: 2");
  bad("a = text", 1, "a text has to be put in quotes), not text");
  bad("a = True", 1, "a value is expected");
  bad("[a", 1, "']' is expected");
  bad("[[a]", 1, "']]' is expected");
  bad("[a] x = 1", 1, "unexpected text");
  bad("[]", 1, "a key is expected");
  bad("[a.]", 1, "a key is expected");
  bad("a = [1\n 2]", 2, "',' or ']' is expected, not 2]");
  bad("\na = [1,\n", 2, "the bracket that begins here has no end");
  bad("a = {x = 1", 1, "the bracket that begins here has no end");
  bad("a = [1,,2]", 1, "a value is expected");
  bad("a = [,]", 1, "a value is expected");
  bad("a = {,}", 1, "a key is expected");
  bad("a = {x}", 1, "'=' is expected");
}

static void test_wrong_words(void **state) {
  (void)state;
  static const char *const words[] = {
      "01",  "+",    "1_",  "_1",  "1__0",  "1.",    ".5",      "1.e5",        "1e",   "1e+",       "0x",
      "0xg", "+0x1", "0X1", "0b2", "0o8",   "00.5",  "1979-05", "1979-05-27x", "7:30", "12:3",      "1979-05-27T",
      "tru", "Inf",  "INF", "--1", "1e1.5", "1.2.3", "null",    "~",           "0x_1", "07:32:00Z", "1_.5"};
  char text[64];
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    (void)snprintf(text, sizeof text, "\na = %s", words[i]);
    bad(text, 2, "a value is expected");
  }
}

static void test_wrong_texts(void **state) {
  (void)state;
  bad("a = 1\nb = \"x\nc = 2", 2, "the text in quotes that begins here has no end");
  bad("a = 'x\n'", 1, "has no end");
  bad("a = \"\"\"x\n\ny", 1, "has no end");
  bad("a = '''x''", 1, "has no end");
  bad("a = \"\\z\"", 1, "allowed behind a backslash");
  bad("a = \"\\", 1, "allowed behind a backslash");
  bad("a = \"\\\n\"", 1, "allowed behind a backslash");
  bad("a = \"\\u00g0\"", 1, "hexadecimal");
  bad("a = \"\\u00", 1, "hexadecimal");
  bad("a = \"\\ud800\"", 1, "no character");
  bad("a = \"\\U00110000\"", 1, "no character");
  bad("\"\"\"a\"\"\" = 1", 1, "'=' is expected");
  bad("a = \"\"\"x\"\"\"\"\"\"", 1, "unexpected text");
  bad("a = 'x'y'", 1, "unexpected text");
  bad_bytes("a = '\0'", 7, 1, "control character");
  bad("# \x01", 1, "control character");
  bad("a = '\xff'", 1, "not UTF-8");
}

static char *repeat(const char *what, size_t times) {
  size_t len = strlen(what);
  char *text = malloc(len * times + 1);
  for (size_t i = 0; i < times; i++)
    memcpy(text + i * len, what, len);
  text[len * times] = 0;
  return text;
}

static void test_bounds(void **state) {
  (void)state;
  char *text = repeat("#", DOC_BYTES_MAX + 1), *whole = malloc(DOC_BYTES_MAX + 1);
  bad(text, 0, "longer than");
  free(text);
  static const char *const deep[][2] = {{"a = ", "["}, {"a = ", "{b = "}, {"", "a."}, {"[", "a."}};
  for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
    text = repeat(deep[i][1], 100);
    (void)sprintf(whole, "%s%s", deep[i][0], text);
    bad(whole, 1, "deep");
    free(text);
  }
  size_t at = 0;
  for (unsigned i = 0; i <= DOC_ENTRIES_MAX; i++)
    at += (size_t)sprintf(whole + at, "k%u = 1\n", i);
  bad(whole, DOC_ENTRIES_MAX + 1, "keys");
  text = repeat("1,\n", DOC_NODES_MAX);
  (void)sprintf(whole, "a = [%s]", text);
  bad(whole, DOC_NODES_MAX - 1, "values");
  free(text);
  free(whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keys),        cmocka_unit_test(test_tables), cmocka_unit_test(test_brackets),
      cmocka_unit_test(test_words),       cmocka_unit_test(test_dates),  cmocka_unit_test(test_texts),
      cmocka_unit_test(test_twice),       cmocka_unit_test(test_wrong),  cmocka_unit_test(test_wrong_words),
      cmocka_unit_test(test_wrong_texts), cmocka_unit_test(test_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
