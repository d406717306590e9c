// links: agent/snapshot_blob.c agent/folder.c agent/fd.c agent/clock.c agent/env.c
/* Directories of raw tensors: where they are made, when, and which make way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/snapshot_blob.h"

#define SESSION 0xabcdef0123456789u

struct env session_env;
static char folder[64];

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/test_blob_XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  session_env = (struct env){.snapshot_max_bytes = 10000};
  env_tell_of_output_again();
  blob_folder_set(folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[200];
  blob_close();
  snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
  return system(command);
}

static void path_of(uint64_t span, const char *file, char out[200]) {
  snprintf(out, 200, "%s/snapshots/%016llx%016llx/%s", folder, (unsigned long long)SESSION, (unsigned long long)span, file);
}

static bool is_there(uint64_t span, const char *file) {
  char path[200];
  path_of(span, file, path);
  return access(path, F_OK) == 0;
}

/* As if it had been written so many seconds ago. */
static void put(uint64_t span, const char *file, size_t bytes, time_t ago) {
  char path[200];
  path_of(span, file, path);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
  const struct timespec times[2] = {{.tv_sec = time(NULL) - ago}, {.tv_sec = time(NULL) - ago}};
  assert_int_equal(futimens(fd, times), 0);
  close(fd);
}

static void made_for_a_span(void **state) {
  (void)state;
  assert_int_equal(blob_open(SESSION, 7, 100), 0);
  assert_true(is_there(7, ""));
  struct stat of_fd, of_path;
  char path[200], uri[300];
  path_of(7, "", path);
  assert_int_equal(fstat(blob_folder()->fd, &of_fd), 0);
  assert_int_equal(stat(path, &of_path), 0);
  assert_true(of_fd.st_ino == of_path.st_ino);
  snprintf(uri, sizeof uri, "file://%s", path);
  uri[strlen(uri) - 1] = '\0'; /* no slash behind it */
  assert_string_equal(blob_uri(), uri);
  blob_close();
  assert_string_equal(blob_uri(), "");
}

static void odd_names_are_an_uri(void **state) {
  (void)state;
  char odd[100];
  snprintf(odd, sizeof odd, "%s/a b%%\xc3\xa9#?", folder);
  blob_folder_set(odd);
  assert_int_equal(blob_open(SESSION, 1, 1), 0);
  assert_non_null(strstr(blob_uri(), "/a%20b%25%C3%A9%23%3F/snapshots/"));
}

static void the_oldest_make_way(void **state) {
  (void)state;
  for (uint64_t span = 1; span <= 4; span++) {
    assert_int_equal(blob_open(SESSION, span, 100), 0);
    put(span, "weights.safetensors", 1500, (time_t)(100 - span));
    put(span, "gradients.safetensors", 1500, (time_t)(100 - span));
    put(span, ".weights.safetensors.1234.tmp", 100, (time_t)(100 - span));
  }
  uint64_t before = blob_removed();
  assert_true(is_there(1, ".weights.safetensors.1234.tmp")); /* there was room for the fourth: nobody knows what it will be */
  assert_int_equal(blob_open(SESSION, 5, 5000), 0);
  assert_int_equal(blob_removed() - before, 3); /* 3,100 and 5,000 are less than 10,000 */
  assert_false(is_there(1, "") || is_there(2, "") || is_there(3, ""));
  assert_true(is_there(4, "weights.safetensors") && is_there(5, ""));
}

static void what_is_not_ours_stays(void **state) {
  (void)state;
  char path[200];
  assert_int_equal(blob_open(SESSION, 1, 100), 0);
  put(1, "weights.safetensors", 9000, 50);
  put(1, "notes.txt", 9000, 60);
  snprintf(path, sizeof path, "%s/snapshots/mine", folder);
  assert_int_equal(mkdir(path, 0777), 0);
  uint64_t before = blob_removed();
  assert_int_equal(blob_open(SESSION, 2, 9000), 0);
  assert_false(is_there(1, "weights.safetensors"));
  assert_true(is_there(1, "notes.txt") && access(path, F_OK) == 0);
  assert_int_equal(blob_removed(), before); /* its directory is still there */
}

static void more_than_all_may_have(void **state) {
  (void)state;
  assert_int_equal(blob_open(SESSION, 1, 10001), -EFBIG);
  assert_false(is_there(1, ""));
  assert_string_equal(blob_uri(), "");
}

static void a_file_in_its_way(void **state) {
  (void)state;
  char path[200];
  snprintf(path, sizeof path, "%s/snapshots", folder);
  close(open(path, O_WRONLY | O_CREAT, 0644));
  assert_int_equal(blob_open(SESSION, 1, 1), -ENOTDIR);
  blob_folder_set(NULL);
  assert_int_equal(blob_open(SESSION, 1, 1), -ENAMETOOLONG);
}

static unsigned times(double rate, unsigned of) {
  unsigned n = 0;
  for (unsigned i = 0; i < of; i++)
    n += blob_wanted(ENV_SAMPLED, rate);
  return n;
}

static void dice(void **state) {
  (void)state;
  assert_true(blob_wanted(ENV_FULL, 0));
  assert_false(blob_wanted(ENV_STATS, 1) || blob_wanted(ENV_SNAPSHOTS_OFF, 1));
  assert_int_equal(times(1, 1000), 1000);
  assert_int_equal(times(0, 1000), 0);
  assert_in_range(times(0.3, 100000), 29000, 31000); /* six times the spread */
}

int main(void) {
  const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
      T(made_for_a_span),
      T(odd_names_are_an_uri),
      T(the_oldest_make_way),
      T(what_is_not_ours_stays),
      T(more_than_all_may_have),
      T(a_file_in_its_way),
      T(dice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
