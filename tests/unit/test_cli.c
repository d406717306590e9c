// links: tools/cli.c tools/say.c tools/text.c tools/buf.c tools/out.c tools/out_table.c tools/out_json.c tools/out_csv.c tools/units.c
/* The command line: options before and after the command, values, refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "proto/ring_abi.h"
#include "tools/cli.h"

static int nothing(const struct cli *cli) {
  (void)cli;
  return 0;
}

static const struct cli_command commands[] = {{"report", "", "Report", NULL, nothing, CLI_SESSION | CLI_CHECKS, 0, 0},
                                              {"spans", "", "Spans", NULL, nothing, CLI_SESSION | CLI_LIMIT | CLI_KIND, 0, 0},
                                              {"sql", "QUERY", "SQL", NULL, nothing, CLI_LIMIT, 1, 1},
                                              {"ranks", "", "Ranks", NULL, nothing, CLI_STEPS | CLI_STORES, 0, 0},
                                              {0}};

static struct cli cli;
static int status;

#define PARSE(...) parse((char *[]){"cirron-query", ##__VA_ARGS__, NULL})

/* The values are copied: parsing writes into some, and literals are not ours to write. */
static const struct cli_command *parse(char **argv) {
  static char copies[2 * CLI_STORES_MAX + 8][64];
  static char *args[2 * CLI_STORES_MAX + 9];
  int argc = 0;
  for (; argv[argc]; argc++) {
    snprintf(copies[argc], sizeof copies[argc], "%s", argv[argc]);
    args[argc] = copies[argc];
  }
  args[argc] = NULL;
  status = -1;
  return cli_parse(argc, args, commands, &cli, &status);
}

static void defaults(void **state) {
  (void)state;
  const struct cli_command *c = PARSE();
  assert_non_null(c);
  assert_string_equal(c->name, "report");
  assert_null(cli.db);
  assert_int_equal(cli.format, OUT_TABLE);
  assert_int_equal(cli.rank, -1);
  assert_int_equal(cli.limit, -1);
}

static void any_order(void **state) {
  (void)state;
  const struct cli_command *c =
      PARSE("--db", "a", "spans", "--json", "--session=ABCdef", "--limit", "0", "--kind", "optimizer_step");
  assert_non_null(c);
  assert_string_equal(c->name, "spans");
  assert_string_equal(cli.db, "a");
  assert_int_equal(cli.format, OUT_JSON);
  assert_string_equal(cli.session, "abcdef");
  assert_int_equal(cli.limit, 0);
  assert_int_equal(cli.kind, SPAN_OPTIMIZER);
  assert_non_null(PARSE("sql", "--", "-- a comment"));
  assert_string_equal(cli.args[0], "-- a comment");
  assert_non_null(PARSE("--check", "complete,finite"));
  assert_int_equal(cli.checks, CLI_CHECK_COMPLETE | CLI_CHECK_FINITE);
}

#define REFUSED(...)                                                                                                           \
  do {                                                                                                                         \
    assert_null(PARSE(__VA_ARGS__));                                                                                           \
    assert_int_equal(status, CLI_USAGE);                                                                                       \
  } while (0)

static void refusals(void **state) {
  (void)state;
  REFUSED("nothing");
  REFUSED("--nothing");
  REFUSED("--db");
  REFUSED("--db", "");
  REFUSED("--format", "yaml");
  REFUSED("--json=1");
  REFUSED("--session", "xyz");
  REFUSED("--session", "");
  REFUSED("--session", "0123456789abcdef0123456789abcdef0");
  REFUSED("--rank", " 1");
  REFUSED("--rank", "1x");
  REFUSED("--rank", "-1");
  REFUSED("--rank", "99999999999999999999");
  REFUSED("spans", "--limit", "");
  REFUSED("--limit", "3"); /* report has no rows */
  REFUSED("spans", "more");
  REFUSED("sql");
  REFUSED("sql", "a", "b");
  REFUSED("--check", "complete,");
}

static void several_stores(void **state) {
  (void)state;
  assert_non_null(PARSE("--db", "a", "ranks", "--steps", "--db", "b"));
  assert_true(cli.steps);
  assert_int_equal(cli.db_count, 2);
  assert_string_equal(cli.dbs[0], "a");
  assert_string_equal(cli.dbs[1], "b");
  REFUSED("--db", "a", "--db", "b", "spans");
  char *many[2 * CLI_STORES_MAX + 5] = {"cirron-query", "ranks"};
  for (int i = 0; i <= CLI_STORES_MAX; i++) {
    many[2 + 2 * i] = "--db";
    many[3 + 2 * i] = "x";
  }
  assert_null(parse(many));
  assert_int_equal(status, CLI_USAGE);
}

static void help_is_no_error(void **state) {
  (void)state;
  assert_null(PARSE("--help"));
  assert_int_equal(status, CLI_OK);
  assert_null(PARSE("spans", "-h"));
  assert_int_equal(status, CLI_OK);
  assert_null(PARSE("--version"));
  assert_int_equal(status, CLI_OK);
}

static void kinds(void **state) {
  (void)state;
  for (int i = 0; i < SPAN_KINDS; i++)
    assert_int_equal(cli_kind_find(cli_kind_name(i)), i);
  assert_int_equal(cli_kind_find("unknown"), -1);
  assert_string_equal(cli_kind_name(SPAN_KINDS), "unknown");
  assert_string_equal(cli_kind_name(-1), "unknown");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(defaults), cmocka_unit_test(any_order),
                                     cmocka_unit_test(refusals), cmocka_unit_test(help_is_no_error),
                                     cmocka_unit_test(kinds),    cmocka_unit_test(several_stores)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
