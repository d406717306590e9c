// links: agent/root.c agent/cuda.c agent/env.c
/* What a session's root span says of it, whatever the environment holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/env.h"
#include "agent/root.h"
#include "agent/session.h"

static struct env_ranks ranks = {-1, -1, -1};

struct env_ranks session_ranks(void) {
  return ranks;
}

static const char *const variables[] = {"CIRRON_RUN_ID",      "TORCHELASTIC_RUN_ID",  "SLURM_JOB_ID",
                                        "CIRRON_PIPELINE_ID", "CIRRON_DEPLOYMENT_ID", "CIRRON_WORKSPACE_ID"};

static int begin(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
    unsetenv(variables[i]);
  ranks = (struct env_ranks){-1, -1, -1};
  root_frameworks(0);
  root_forget();
  return 0;
}

static json_t *attributes(void) {
  char text[ROOT_ATTRS_BYTES];
  json_error_t error;
  size_t len = root_attributes(text);
  json_t *object = json_loadb(text, len, JSON_ALLOW_NUL, &error);
  assert_non_null(object);
  return object;
}

static void equals(json_t *got, const char *wanted) {
  json_error_t error;
  json_t *expected = json_loads(wanted, 0, &error);
  assert_non_null(expected);
  assert_int_equal(json_integer_value(json_object_get(got, "pid")), getpid());
  json_object_del(got, "pid");
  if (!json_equal(got, expected)) {
    char *text = json_dumps(got, JSON_SORT_KEYS);
    print_error("got %s\n", text);
    free(text);
    fail();
  }
  json_decref(expected);
  json_decref(got);
}

static void nothing_is_set(void **state) {
  (void)state;
  equals(attributes(), "{\"rank\": 0, \"device\": \"cpu\"}");
}

static void all_is_set(void **state) {
  (void)state;
  ranks = (struct env_ranks){3, 1, 8};
  setenv("CIRRON_RUN_ID", "run-7", 1);
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("CIRRON_PIPELINE_ID", "p", 1);
  setenv("CIRRON_DEPLOYMENT_ID", "d", 1);
  setenv("CIRRON_WORKSPACE_ID", "w", 1);
  root_frameworks(ENV_TORCH | ENV_TRANSFORMERS);
  root_mixed_precision();
  equals(attributes(), "{\"rank\": 3, \"local_rank\": 1, \"world_size\": 8, \"device\": \"cpu\", \"mixed_precision\": true,"
                       " \"cirron.run_id\": \"run-7\", \"cirron.pipeline_id\": \"p\", \"cirron.deployment_id\": \"d\","
                       " \"cirron.workspace_id\": \"w\", \"framework\": \"torch,transformers\"}");
}

static void only_a_local_rank(void **state) {
  (void)state;
  ranks.local_rank = 2;
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("CIRRON_PIPELINE_ID", "", 1);
  root_frameworks(ENV_TORCH);
  equals(attributes(), "{\"rank\": 2, \"local_rank\": 2, \"device\": \"cpu\", \"mixed_precision\": false,"
                       " \"cirron.run_id\": \"4711\", \"framework\": \"torch\"}");
}

static void any_bytes(void **state) {
  (void)state;
  setenv("CIRRON_RUN_ID", "a\"b\\c\n\x01\x7f \xc3\xa9 \xff\xed\xa0\x80 {}", 1);
  equals(attributes(),
         "{\"rank\": 0, \"device\": \"cpu\","
         " \"cirron.run_id\": \"a\\\"b\\\\c\\n\\u0001\x7f \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd {}\"}");
}

/* The longest of all that can be set, each byte of it six in JSON. */
static void always_fits(void **state) {
  (void)state;
  char longest[5000];
  memset(longest, 1, sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  ranks = (struct env_ranks){2147483647, 2147483647, 2147483647};
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
    setenv(variables[i], longest, 1);
  root_frameworks(ENV_FRAMEWORKS_ALL);
  json_t *got = attributes();
  assert_int_equal(json_string_length(json_object_get(got, "cirron.workspace_id")), 256);
  assert_int_equal(json_object_size(got), 11);
  json_decref(got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(nothing_is_set, begin),    cmocka_unit_test_setup(all_is_set, begin),
      cmocka_unit_test_setup(only_a_local_rank, begin), cmocka_unit_test_setup(any_bytes, begin),
      cmocka_unit_test_setup(always_fits, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
