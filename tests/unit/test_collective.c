// links: tools/collective.c
/* What the text beside a collective says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tools/collective.h"

static void parses_to(const char *text, const char *op, const char *group, int64_t peer) {
  struct collective c;
  collective_parse(text, strlen(text), &c);
  if (c.op_len != strlen(op) || memcmp(c.op, op, c.op_len) != 0)
    fail_msg("'%s': operation '%.*s'", text, (int)c.op_len, c.op);
  if (c.group_len != strlen(group) || memcmp(c.group, group, c.group_len) != 0)
    fail_msg("'%s': group '%.*s'", text, (int)c.group_len, c.group);
  assert_int_equal(c.peer, peer);
}

static void test_parse(void **state) {
  (void)state;
  parses_to("all_reduce", "all_reduce", "world", -1);
  parses_to("all_reduce 2[0,4]", "all_reduce", "2[0,4]", -1);
  parses_to("recv from 3", "recv", "world", 3);
  parses_to("send to 12 2[0,12]", "send", "2[0,12]", 12);
  parses_to("recv from", "recv", "from", -1);
  parses_to("recv from x", "recv", "from x", -1);
  parses_to("gather to_it", "gather", "to_it", -1);
  parses_to("all_reduce ", "all_reduce", "world", -1);
  parses_to("", "", "world", -1);
  parses_to("send to 99999999999999999999", "send", "to 99999999999999999999", -1);
}

static bool holds(const char *group, int64_t rank) {
  return collective_holds(group, strlen(group), rank);
}

static void test_holds(void **state) {
  (void)state;
  assert_true(holds("world", 5));
  assert_true(holds("3", 5));
  assert_true(holds("3[64 ranks]", 5));
  assert_true(holds("3[0,5]", 0) && holds("3[0,5]", 5));
  assert_false(holds("3[0,5]", 1) || holds("3[0,5]", 50));
  assert_true(holds("3[0-3,8-11]", 2) && holds("3[0-3,8-11]", 8) && holds("3[0-3,8-11]", 11));
  assert_false(holds("3[0-3,8-11]", 4) || holds("3[0-3,8-11]", 12));
  const char *odd[] = {"[", "[]", "[-", "[1-", "[1,,2", "[,]", "]["};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
    (void)holds(odd[i], 1); /* ends, and reads no further than it may */
}

static void test_meets(void **state) {
  (void)state;
  assert_true(collective_meets("barrier", 7));
  assert_false(collective_meets("broadcast", 9));
  assert_false(collective_meets("all_reduce_", 11));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_holds), cmocka_unit_test(test_meets)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
