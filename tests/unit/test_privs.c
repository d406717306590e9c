// links: collectord/privs.c
/* Names of users and groups, and the rights that follow from them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectord/config.h"
#include "collectord/privs.h"

static struct config config;
static struct privs privs;
static char why[512];

static int find(const char *user, const char *group, bool any_user) {
  memset(&config, 0, sizeof config);
  strcpy(config.user, user);
  strcpy(config.group, group);
  config.any_user = any_user;
  memset(&privs, 0x5a, sizeof privs);
  why[0] = '\0';
  return privs_find(&config, &privs, why, sizeof why);
}

static void nothing_asked_for_is_for_us_alone(void **state) {
  (void)state;
  assert_int_equal(find("", "", false), 0);
  assert_null(privs.user);
  assert_int_equal(privs.uid, geteuid());
  assert_int_equal(privs.group, PRIVS_NO_GROUP);
  assert_int_equal(privs.umask, 077);
  assert_int_equal(privs.socket_mode, 0600);
  assert_int_equal(find("", "", true), 0);
  assert_int_equal(privs.umask, 077); /* all may write; reading is another matter */
  assert_int_equal(privs.socket_mode, 0666);
}

static void a_group_comes_and_reads(void **state) {
  (void)state;
  const struct group *own = getgrgid(getegid());
  if (!own)
    skip();
  assert_int_equal(find("", own->gr_name, false), 0);
  assert_int_equal(privs.group, getegid());
  assert_int_equal(privs.umask, 027);
  assert_int_equal(privs.socket_mode, 0660);
  assert_int_equal(find("", own->gr_name, true), 0);
  assert_int_equal(privs.socket_mode, 0666);
}

static void unknown_names_are_said(void **state) {
  (void)state;
  assert_int_equal(find("no-such-user", "", false), -ENOENT);
  assert_string_equal(why, "--user no-such-user: there is no such user; make it, or name another");
  assert_int_equal(find("", "no-such-group", false), -ENOENT);
  assert_string_equal(why, "--group no-such-group: there is no such group; make it, or name another");
  unsigned char *bytes = (unsigned char *)&privs; /* untouched */
  assert_int_equal(bytes[0], 0x5a);
}

static void our_own_name_changes_nothing(void **state) {
  (void)state;
  const struct passwd *own = getpwuid(geteuid());
  if (!own)
    skip();
  assert_int_equal(find(own->pw_name, "", false), 0);
  assert_int_equal(privs.uid, geteuid());
  mode_t before = umask(0);
  assert_int_equal(privs_drop(&privs, why, sizeof why), 0);
  assert_int_equal(umask(before), 077);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_asked_for_is_for_us_alone),
      cmocka_unit_test(a_group_comes_and_reads),
      cmocka_unit_test(unknown_names_are_said),
      cmocka_unit_test(our_own_name_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
