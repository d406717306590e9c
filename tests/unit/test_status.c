// links: tools/status.c tools/collective.c
/* Who is named when ranks wait: by what each of them has open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "tools/status.h"

#define SECOND INT64_C(1000000000)
#define NOW (100 * SECOND)
#define PATIENCE (5 * SECOND)

static struct status_rank ranks[4];
static struct status_wait found;

/* Four ranks that run and are in nothing. */
static int begin(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    ranks[i] =
        (struct status_rank){.rank = i, .known = true, .running = true, .number = STATUS_NO_NUMBER, .peer = -1, .reached = -1};
  return 0;
}

static void in(int rank, const char *op, const char *group, int64_t number, int64_t seconds) {
  struct status_rank *r = &ranks[rank];
  r->op = op;
  r->op_len = strlen(op);
  r->group = group;
  r->group_len = strlen(group);
  r->number = number;
  r->since_ns = NOW - seconds * SECOND;
}

static void backward(int rank, int64_t seconds) {
  ranks[rank].backward = true;
  ranks[rank].since_ns = NOW - seconds * SECOND;
}

/* "wwsw": w waits, s stalled, l late, r runs, e ended, m missing; awaited ones among e and m are E and M. */
static void judged(const char *roles) {
  static const char letters[] = {'r', 'w', 'l', 's', 'e', 'm'};
  char got[5] = "";
  (void)status_wait_find(ranks, 4, NOW, &found);
  status_judge(ranks, 4, NOW, PATIENCE, &found);
  for (int i = 0; i < 4; i++) {
    got[i] = letters[ranks[i].role];
    if (ranks[i].awaited && ranks[i].role >= STATUS_ENDED)
      got[i] = (char)(got[i] - 'a' + 'A');
    assert_int_equal(ranks[i].awaited, strchr("lsEM", got[i]) != NULL);
  }
  assert_string_equal(got, roles);
}

static void test_nobody_waits(void **state) {
  (void)state;
  judged("rrrr");
  assert_false(found.found);
  for (int i = 0; i < 4; i++)
    in(i, "all_reduce", "world", 7, 0);
  judged("rrrr");
}

static void test_one_is_stalled(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    if (i != 2)
      in(i, "all_reduce", "world", 7, 9 + i);
  judged("wwsw");
  assert_int_equal(found.first->rank, 3);
  assert_int_equal(found.since_ns, NOW - 12 * SECOND);
  assert_int_equal(found.waiting, 3);
  assert_int_equal(found.awaited, 1);
  assert_false(found.differs);
}

static void test_late_is_not_yet_stalled(void **state) {
  (void)state;
  in(0, "barrier", "world", 7, 2);
  judged("wlll");
}

static void test_one_that_has_passed_is_not_blamed(void **state) {
  (void)state;
  in(0, "reduce", "world", 7, 9);
  ranks[1].reached = 7;
  ranks[2].reached = 6;
  in(3, "reduce", "world", 8, 0); /* it has gone on already */
  judged("wrsr");
}

static void test_one_that_is_behind_in_the_group(void **state) {
  (void)state;
  in(0, "all_reduce", "world", 7, 9);
  in(1, "all_reduce", "world", 7, 9);
  in(2, "all_reduce", "world", 4, 0); /* comes slowly */
  in(3, "all_reduce", "world", 7, 0); /* has just come */
  judged("wwsr");
}

/* Who waits in another group is not the one to blame. */
static void test_groups(void **state) {
  (void)state;
  in(0, "all_reduce", "world", 7, 9);
  in(1, "all_reduce", "world", 7, 9);
  in(2, "all_reduce", "5[2-3]", 3, 9);
  judged("wwws");
  (void)begin(state);
  in(2, "all_reduce", "5[2-3]", 3, 9);
  judged("rrws");
}

static void test_pairs(void **state) {
  (void)state;
  in(0, "recv", "world", STATUS_NO_NUMBER, 9);
  ranks[0].peer = 3;
  judged("wrrs");
}

static void test_making_a_group(void **state) {
  (void)state;
  in(0, "init_process_group", "world", STATUS_NO_NUMBER, 9);
  in(1, "init_process_group", "world", STATUS_NO_NUMBER, 9);
  ranks[2].running = false;
  ranks[3].known = ranks[3].running = false;
  judged("wwEM");
}

static void test_different_operations(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    in(i, i == 1 ? "broadcast" : "all_reduce", "world", 7, 9);
  judged("wwww");
  assert_true(found.differs);
  assert_int_equal(found.awaited, 0);
}

static void test_backward(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++)
    backward(i, 9);
  judged("rrrr"); /* it is long, but nobody is missing */
  ranks[2].backward = false;
  judged("wwsw");
  ranks[2].running = false;
  judged("wwEw");
  (void)begin(state);
  backward(0, 9); /* a collective says more */
  in(1, "all_reduce", "world", 7, 2);
  judged("wwll");
  assert_int_equal(found.first->rank, 1);
}

static void test_ended_ones_that_nobody_needs(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++)
    ranks[i].running = false;
  judged("eeer");
}

int main(void) {
#define T(f) cmocka_unit_test_setup(f, begin)
  const struct CMUnitTest tests[] = {T(test_nobody_waits),
                                     T(test_one_is_stalled),
                                     T(test_late_is_not_yet_stalled),
                                     T(test_groups),
                                     T(test_pairs),
                                     T(test_one_that_has_passed_is_not_blamed),
                                     T(test_making_a_group),
                                     T(test_different_operations),
                                     T(test_one_that_is_behind_in_the_group),
                                     T(test_backward),
                                     T(test_ended_ones_that_nobody_needs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
