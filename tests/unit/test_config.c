// links: collectord/config.c
/* Settings of collectord: command line, file, defaults, and what is refused with which words. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectord/config.h"

static struct config config;
static char message[4096];

static enum config_result parse(const char *a, const char *b, const char *c, const char *d) {
  const char *all[] = {"collectord", a, b, c, d, NULL};
  int argc = 1;
  while (argc < 5 && all[argc])
    argc++;
  message[0] = '\0';
  return config_parse(argc, (char *const *)all, &config, message, sizeof message);
}

static void assert_refused(const char *a, const char *b, const char *word) {
  assert_int_equal(parse(a, b, NULL, NULL), CONFIG_INVALID);
  if (!strstr(message, word) || strchr(message, '\n'))
    fail_msg("\"%s\" lacks \"%s\", or is more than a line", message, word);
}

static void takes_both_forms_of_a_value(void **state) {
  (void)state;
  assert_int_equal(parse("--socket", "/tmp/s", "--db=/tmp/d", "--foreground"), CONFIG_RUN);
  assert_string_equal(config.socket, "/tmp/s");
  assert_string_equal(config.db, "/tmp/d");
  assert_true(config.foreground);
  assert_false(config.any_user);
  assert_int_equal(config.idle_exit_s, 0);
  assert_int_equal(parse("--idle-exit", "30", NULL, NULL), CONFIG_RUN);
  assert_int_equal(config.idle_exit_s, 30);
}

static void shares_sessions_among_users(void **state) {
  (void)state;
  assert_int_equal(parse("--max-sessions", "9", NULL, NULL), CONFIG_RUN);
  assert_int_equal(config.max_user_sessions, 9);
  assert_int_equal(config.max_rate, 0);
  assert_int_equal(parse("--max-sessions", "9", "--any-user", NULL), CONFIG_RUN);
  assert_int_equal(config.max_user_sessions, 5);
  assert_int_equal(config.max_rate, 500000);
  assert_int_equal(parse("--any-user", "--max-rate", "7000", "--max-session-bytes=1048576"), CONFIG_RUN);
  assert_int_equal(config.max_rate, 7000);
  assert_int_equal(config.max_session_bytes, 1048576);
  assert_refused("--max-rate", "99", "from 100 to 1000000000");
  assert_refused("--max-session-bytes", "1M", "not a whole number");
  assert_int_equal(parse("--group=staff", "--max-user-sessions", "300", NULL), CONFIG_RUN);
  assert_string_equal(config.group, "staff");
  assert_int_equal(config.max_user_sessions, 300);
  assert_refused("--user", "", "1 to 63 bytes");
  assert_refused("--group", "a-name-that-is-longer-than-any-group-on-any-system-may-have-0123456789", "1 to 63 bytes");
}

static void looks_for_the_socket_where_agents_do(void **state) {
  (void)state;
  setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  assert_int_equal(parse(NULL, NULL, NULL, NULL), CONFIG_RUN);
  assert_string_equal(config.socket, "/run/user/7/cirron/collectord.sock");
  unsetenv("XDG_RUNTIME_DIR");
  assert_int_equal(parse(NULL, NULL, NULL, NULL), CONFIG_RUN);
  assert_string_equal(config.socket, "/run/cirron/collectord.sock");
}

static void refuses_what_it_does_not_know(void **state) {
  (void)state;
  assert_refused("--sokcet", "/tmp/s", "--sokcet");
  assert_refused("-s", NULL, "-s");
  assert_refused("/tmp/s", NULL, "/tmp/s");
  assert_refused("--", NULL, "--");
  assert_refused("--socket", NULL, "needs a value");
  assert_refused("--db=", NULL, "db");
  assert_refused("--idle-exit", "0", "1 to 86400");
  assert_refused("--idle-exit", "-1", "1 to 86400");
  assert_refused("--idle-exit", "5s", "5s");
  assert_refused("--idle-exit", "99999999999999999999", "1 to 86400");
  assert_refused("--keep-days", "0", "1 to 36500");
  assert_refused("--max-db-bytes", "1000", "1048576 to");
  assert_refused("--foreground=maybe", NULL, "neither true nor false");
  assert_refused("--config", "/nowhere/at/all", "/nowhere/at/all");
  char longest[6000];
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_refused("--socket", longest, "socket");
  assert_refused(longest, NULL, "unknown");
}

static void prints_help_and_version(void **state) {
  (void)state;
  assert_int_equal(parse("--help", NULL, NULL, NULL), CONFIG_DONE);
  const char *names[] = {"--socket", "--db",      "--foreground", "--idle-exit", "--any-user",
                         "--config", "--version", "--max-rings",  "--max-rate",  "--max-session-bytes"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_non_null(strstr(message, names[i]));
  assert_int_equal(parse("--version", NULL, NULL, NULL), CONFIG_DONE);
  assert_string_equal(message, "collectord " CIRRON_VERSION "\n");
}

static const char *file_with(const char *text) {
  static char path[64];
  strcpy(path, "/tmp/cirron-test-XXXXXX");
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  return path;
}

static void reads_a_file_and_lets_the_command_line_win(void **state) {
  (void)state;
  const char *path = file_with(
      "# ours\n\n  socket = /from/file \nidle-exit=9\nany-user = true\ndb=/from/file.db\nkeep-days=30\nmax-db-bytes = 2000000");
  assert_int_equal(parse("--socket", "/from/line", "--config", path), CONFIG_RUN);
  unlink(path);
  assert_string_equal(config.socket, "/from/line");
  assert_string_equal(config.db, "/from/file.db");
  assert_int_equal(config.idle_exit_s, 9);
  assert_true(config.any_user && config.keep_days == 30 && config.max_db_bytes == 2000000);
}

static void names_the_line_of_a_bad_file(void **state) {
  (void)state;
  const char *bad[][2] = {
      {"\nsocket\n", ":2: "}, {"color = red\n", ":1: "}, {"#\n#\nidle-exit = soon\n", ":3: "}, {"= x\n", ":1: "}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *path = file_with(bad[i][0]);
    assert_refused("--config", path, bad[i][1]);
    unlink(path);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(takes_both_forms_of_a_value),
      cmocka_unit_test(shares_sessions_among_users),
      cmocka_unit_test(looks_for_the_socket_where_agents_do),
      cmocka_unit_test(refuses_what_it_does_not_know),
      cmocka_unit_test(prints_help_and_version),
      cmocka_unit_test(reads_a_file_and_lets_the_command_line_win),
      cmocka_unit_test(names_the_line_of_a_bad_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
