// links: agent/doc.c agent/yaml.c agent/yaml_text.c agent/yaml_flow.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/yaml.h"
#include "tests/support/doc_show.h"

static void good(const char *text, const char *expected) {
  assert_reads(yaml_read, text, expected);
}

static void bad_bytes(const char *text, size_t len, unsigned line, const char *why) {
  assert_refuses(yaml_read, text, len, line, why);
}

static void bad(const char *text, unsigned line, const char *why) {
  bad_bytes(text, strlen(text), line, why);
}

static void test_maps(void **state) {
  (void)state;
  good("a: 1\nb: two\n", "{a:1,b:'two'}");
  good("a: 1", "{a:1}");
  good("a:\n  b:\n    c: x\n  d: y\ne: z", "{a:{b:{c:'x'},d:'y'},e:'z'}");
  good("a:\nb: \nc: ~\nd: null\ne: ''", "{a:~,b:~,c:~,d:~,e:''}");
  good("\"a b\": 1\n'it''s': 2\n\"q\\\"'\": 3\n'c: d': 4", "{a b:1,it's:2,q\"':3,c: d:4}");
  good("a b: 1\nc:d: 2\n1: x\n-x: 3\n?y: 4\n:z: 5", "{a b:1,c:d:2,1:'x',-x:3,?y:4,:z:5}");
  good("  a: 1\n  b: 2\n", "{a:1,b:2}");
  good("a  : 1\nb :\n   c: 2", "{a:1,b:{c:2}}");
  good("a: {}\nb: []\n", "{a:{},b:[]}");
}

static void test_lists(void **state) {
  (void)state;
  good("- a\n- 1\n-\n- b: 1\n  c: 2\n- - x\n  - y\n", "['a',1,~,{b:1,c:2},['x','y']]");
  good("k:\n- a\n- b\nl:\n  - c", "{k:['a','b'],l:['c']}");
  good("-\n  a: 1\n-\n  - 2\n", "[{a:1},[2]]");
  good("- - - 1\n    - 2\n", "[[[1,2]]]");
  good("k:\n-\n- b", "{k:[~,'b']}");
  good("- a: 1\n\n  b:\n  - 2\n- c", "[{a:1,b:[2]},'c']");
  good("- key: |\n    text\n  more: 1\n", "[{key:'text\\n',more:1}]");
}

static void test_comments(void **state) {
  (void)state;
  good("# first\na: 1 # one\n  # indented\n#\nb: x#y\nc: 'q' # q\n\n# last", "{a:1,b:'x#y',c:'q'}");
  good("a: # here\n  - 1 # one\n  # two\n  - 2\n", "{a:[1,2]}");
  good("a: [1, # one\n  2 # two\n  ]\n", "{a:[1,2]}");
  good("a: #\n  b\n", "{a:'b'}");
  good("a: # tab behind\n\t\n  \t# comment behind a tab\nb: 1\n", "{a:~,b:1}");
  good("", "~");
  good("\n# nothing\n\n", "~");
}

static void test_scalars(void **state) {
  (void)state;
  good("[true, True, TRUE, yes, no, On, OFF, False, tRue, y]", "[true,true,true,true,false,true,false,false,'tRue','y']");
  good("[0, -0, +7, 12, 007, 9223372036854775807, -9223372036854775808]",
       "[0,0,7,12,7,9223372036854775807,-9223372036854775808]");
  good("[9223372036854775808, 1e3, .5, 1., -1.5e-3, 0.01, .inf, -.INF]",
       "[9.2233720368547758e+18f,1000f,0.5f,1f,-0.0015f,0.01f,inff,-inff]");
  good("[.nan, 1_000, 0x10, 1.2.3, 1e, e5, ., +, 12a, 1.0-rc1, inf]",
       "[nanf,'1_000','0x10','1.2.3','1e','e5','.','+','12a','1.0-rc1','inf']");
  good("[null, Null, ~, '~', 'null', \"1\", 'true']", "[~,~,~,'~','null','1','true']");
  good("a: http://x.y/z?q=1\nb: a:b\nc: 12:30\nd: C:\\dir\ne: it's \"so\"\n",
       "{a:'http://x.y/z?q=1',b:'a:b',c:'12:30',d:'C:\\dir',e:'it's \"so\"'}");
  good("a: one\n  two\n\n  three # end\nb: 1\n  2", "{a:'one two\\nthree',b:'1 2'}");
  good("a: b\n  - c\n", "{a:'b - c'}");
  good("a: -x\nb: ?x\nc: :x\nd: a - b\ne: --\n", "{a:'-x',b:'?x',c:':x',d:'a - b',e:'--'}");
  good("a: daten \xe3\x83\x87\xe3\x83\xbc \xf0\x9f\x9a\x82\n", "{a:'daten \xe3\x83\x87\xe3\x83\xbc \xf0\x9f\x9a\x82'}");
}

static void test_quotes(void **state) {
  (void)state;
  good("a: 'it''s'\nb: ''''\nc: '#: [x'\nd: 'a\\n'", "{a:'it's',b:''',c:'#: [x',d:'a\\n'}");
  good("a: \"\\t\\\\\\\"\\/\\x41\\u00e9\\U0001F682\\e\\0z\"", "{a:'\\09\\\"/A\xc3\xa9\xf0\x9f\x9a\x82\\1b\\00z'}");
  good("a: \"\\ud83d\\ude82\"", "{a:'\xf0\x9f\x9a\x82'}");
  good("a: \"\\N\\_\\L\\P\"", "{a:'\xc2\x85\xc2\xa0\xe2\x80\xa8\xe2\x80\xa9'}");
  good("a: \"one\n  two  \n\n\n  three\"\nb: 'x\n\n  y'", "{a:'one two\\n\\nthree',b:'x\\ny'}");
  good("a: \"one \\\n   two\\n\\\n  \\  three\"", "{a:'one two\\n  three'}");
  good("a: \"x\\t\n  y\"", "{a:'x\\09 y'}");
  good("a: \"tab\there\"", "{a:'tab\\09here'}");
}

static void test_blocks(void **state) {
  (void)state;
  good("a: |\n  one\n   two\n\n  three\nb: 1", "{a:'one\\n two\\n\\nthree\\n',b:1}");
  good("a: |-\n  one\n\nb: |+\n  two\n\n\nc: 1", "{a:'one',b:'two\\n\\n\\n',c:1}");
  good("a: >\n  one\n  two\n\n  three\n    four\n  five\n", "{a:'one two\\nthree\\n  four\\nfive\\n'}");
  good("a: >-\n  one\n\n\n  two", "{a:'one\\n\\ntwo'}");
  good("a: |2\n    x\n  y\n", "{a:'  x\\ny\\n'}");
  good("a: |1-\n  x", "{a:' x'}");
  good("a: |\n\n  x\n", "{a:'\\nx\\n'}");
  good("a: |\nb: 1", "{a:'',b:1}");
  good("a: |\n", "{a:''}");
  good("a: |", "{a:''}");
  good("a: |+\n\n\nb: 1", "{a:'\\n\\n',b:1}");
  good("a: | # note\n  # text\n  x: y\n# comment\nb: 1", "{a:'# text\\nx: y\\n',b:1}");
  good("- |\n  x\n- >\n  y\n", "['x\\n','y\\n']");
  good("a:\n  b: |\n    x\n  c: 1", "{a:{b:'x\\n',c:1}}");
  good("a: |\n  x\n  \ty\n", "{a:'x\\n\\09y\\n'}");
}

static void test_flow(void **state) {
  (void)state;
  good("a: [1, 'two', \"three\", four five,]", "{a:[1,'two','three','four five']}");
  good("{a: 1, \"b\":2, 'c': [x, {d: e}], f, g: , h: }", "{a:1,b:2,c:['x',{d:'e'}],f:~,g:~,h:~}");
  good("a: [\n  1,\n\n  2\n]\nb: {\n  c: 1,\n  d:\n    2\n}\n", "{a:[1,2],b:{c:1,d:2}}");
}

static void test_flow_rest(void **state) {
  (void)state;
  good("[a:b, -1, 'x, y', \"]\"]", "['a:b',-1,'x, y',']']");
  good("[\"one\n  two\"]", "['one two']");
  good("{a: http://x, b: ::x}", "{a:'http://x',b:'::x'}");
  good("- [a, b]\n- {c: d}\n", "[['a','b'],{c:'d'}]");
  good("{a: one\n  two,\n b\n c: [x\n\n y\n]}", "{a:'one two',b c:['x\\ny']}");
  good("{}", "{}");
}

static void test_document(void **state) {
  (void)state;
  good("---\na: 1\n...\n", "{a:1}");
  good("--- # settings\na: 1\n...\n# end\n", "{a:1}");
  good("\xef\xbb\xbf"
       "a: 1\r\nb:\r\n  - x\r\n",
       "{a:1,b:['x']}");
  good("---\n", "~");
  good("a: ---\nb: ...\nc: |\n  ---\n", "{a:'---',b:'...',c:'---\\n'}");
}

static void test_refused(void **state) {
  (void)state;
  bad("a: &x 1\n", 1, "anchors");
  bad("a: 1\nb: *x\n", 2, "anchors");
  bad("a: 1\n<<: *x\n", 2, "anchors");
  bad("a: !!str 1\n", 1, "tags");
  bad("a: [&x 1]\n", 1, "anchors");
  bad("? a\n: b\n", 1, "'?'");
  bad("%YAML 1.2\n---\na: 1\n", 1, "directives");
  bad("a: 1\n---\nb: 2\n", 2, "more than one document");
  bad("a: 1\n...\nb: 2\n", 3, "fits nothing");
  bad("a:\n\tb: 1\n", 2, "tab");
  bad("a:\n  - x\n \t- y\n", 3, "tab");
  bad("-\ta: 1\n", 1, "tab");
  bad("a: x\n\ty\n", 2, "tab");
  bad("a: |\n  x\n\ty\n", 3, "tab");
  bad("a: 1\nb: 2\na: 3\n", 3, "'a' is there twice, first in line 1");
  bad("{a: 1, \"a\": 2}", 1, "twice");
  bad("x:\n  b: 1\n  'b': 1", 3, "twice");
}

static void test_wrong(void **state) {
  (void)state;
  bad("a: 1\n   b: 2\n", 2, "indented too far");
  bad("a: 1\n   {b: 2\n", 2, "indented too far");
  bad("a:\n    b: 1\n  c: 2\n", 3, "fits");
  bad("a:\n  - 1\n - 2\n", 3, "fits");
  bad("- 1\na: 2\n", 2, "fits nothing");
  bad("a: 1\n- 2\n", 2, "expected");
  bad("a: 1\nno colon\n", 2, "'key: value' is expected, not no colon");
  bad("a: b: c\n", 1, "quotes");
  bad("a: - b\n", 1, "line of its own");
  bad("a: 'x' y\n", 1, "unexpected text");
  bad("a: \"x\"y\n", 1, "unexpected text");
  bad("a: [1] 2\n", 1, "unexpected text");
  bad("a: 'x\nb: 1\n", 1, "no end");
  bad("x: 1\na: \"x\nb: 1\n", 2, "no end");
  bad("a: \"x\n---\n\"", 1, "no end");
  bad("x:\na: [1,\n 2\n", 2, "not closed");
  bad("a: {b: 1\nc: 2}\n", 2, "',' or '}'");
  bad("a: [1 2, [}\n", 1, "quotes");
  bad("a: [b: 1]\n", 1, "braces");
  bad("a: [,]\n", 1, "quotes");
  bad("a: {[x]: 1}\n", 1, "a key has to be a text");
  bad("a: ]\n", 1, "quotes");
  bad("a: @x\n", 1, "quotes");
  bad("a: `x\n", 1, "quotes");
  bad("a: %x\n", 1, "quotes");
  bad("a: \"\\q\"\n", 1, "\\q");
  bad("a: \"\\x4\"\n", 1, "hexadecimal");
  bad("a: \"\\ud800\"\n", 1, "no character");
  bad("a: \"\\U00110000\"\n", 1, "no character");
  bad("a: |x\n  y\n", 1, "'+', '-' and a digit");
  bad("a: | y\n", 1, "next line");
  bad("--- a: 1\n", 1, "unexpected text");
  bad("... a\n", 1, "unexpected text");
  bad("a: 1\n: 2\n", 2, "out of place");
}

static void test_bytes(void **state) {
  (void)state;
  bad("a: \xff\n", 1, "UTF-8");
  bad("a: 1\nb: \xe2\x82", 2, "UTF-8");
  bad("a: \xed\xa0\x80\n", 1, "UTF-8");
  bad("a: \xc0\xaf\n", 1, "UTF-8");
  bad("a: \xf4\x90\x80\x80\n", 1, "UTF-8");
  bad("a: 1\nb: \x1b[0m\n", 2, "0x1b");
  bad("a: 1\rb: 2\n", 1, "0x0d");
  bad("a: \x7f\n", 1, "0x7f");
  bad_bytes("a: \0b", 5, 1, "0x00");
}

static char *repeat(const char *unit, size_t n) {
  size_t len = strlen(unit);
  char *out = malloc(len * n + 1);
  for (size_t i = 0; i < n; i++)
    memcpy(out + i * len, unit, len);
  out[len * n] = 0;
  return out;
}

static void test_bounds(void **state) {
  (void)state;
  char *text = repeat("x", DOC_BYTES_MAX + 1);
  bad(text, 0, "longer than");
  text[DOC_BYTES_MAX] = 0;
  struct doc *doc = doc_new();
  assert_int_equal(yaml_read(doc, text, DOC_BYTES_MAX), 0);
  assert_int_equal(doc->root->text.len, DOC_BYTES_MAX);
  doc_free(doc);
  free(text);
  text = repeat("- ", 100);
  bad(text, 1, "deep");
  free(text);
  text = repeat("[", 100);
  bad(text, 1, "deep");
  free(text);
  text = repeat("{a: ", 100);
  bad(text, 1, "deep");
  free(text);
  text = repeat("-\n", DOC_NODES_MAX);
  bad(text, DOC_NODES_MAX, "values");
  free(text);
  size_t at = 0;
  text = malloc(16 * DOC_ENTRIES_MAX);
  for (unsigned i = 0; i <= DOC_ENTRIES_MAX; i++)
    at += (size_t)sprintf(text + at, "k%u: 1\n", i);
  bad(text, DOC_ENTRIES_MAX + 1, "keys");
  free(text);
}

/* A text that grows: each \L is two bytes in the file and three here. */
static void test_texts_grow(void **state) {
  (void)state;
  char *many = repeat("\\L", DOC_BYTES_MAX / 2 - 2), *text = malloc(DOC_BYTES_MAX + 1);
  size_t len = (size_t)sprintf(text, "\"%s\"", many);
  struct doc *doc = doc_new();
  assert_int_equal(yaml_read(doc, text, len), 0);
  assert_int_equal(doc->root->text.len, 3 * (DOC_BYTES_MAX / 2 - 2));
  doc_free(doc);
  free(text);
  free(many);
}

static void test_locale(void **state) {
  (void)state;
  static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C"};
  for (unsigned i = 0; i < 3 && !setlocale(LC_NUMERIC, locales[i]); i++)
    ;
  good("a: 0.25", setlocale(LC_NUMERIC, NULL)[0] == 'C' ? "{a:0.25f}" : "{a:0,25f}"); /* only the test shows it with a comma */
  setlocale(LC_NUMERIC, "C");
}

static void test_find(void **state) {
  (void)state;
  static const char text[] = "a: 1\nbc:\n  d: 2\n";
  struct doc *doc = doc_new();
  assert_int_equal(yaml_read(doc, text, sizeof text - 1), 0);
  assert_int_equal(doc_find(doc->root, "a")->whole, 1);
  const struct doc_node *d = doc_find(doc_find(doc->root, "bc"), "d");
  assert_int_equal(d->whole, 2);
  assert_int_equal(d->line, 3);
  assert_null(doc_find(doc->root, "b"));
  assert_null(doc_find(doc_find(doc->root, "a"), "d"));
  assert_null(doc_find(NULL, "d"));
  doc_free(doc);
  doc_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_maps),    cmocka_unit_test(test_lists),      cmocka_unit_test(test_comments),
      cmocka_unit_test(test_scalars), cmocka_unit_test(test_quotes),     cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_flow),    cmocka_unit_test(test_flow_rest),  cmocka_unit_test(test_document),
      cmocka_unit_test(test_refused), cmocka_unit_test(test_wrong),      cmocka_unit_test(test_bytes),
      cmocka_unit_test(test_bounds),  cmocka_unit_test(test_texts_grow), cmocka_unit_test(test_locale),
      cmocka_unit_test(test_find),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
