// links: agent/config_file.c agent/config_check.c agent/doc.c agent/yaml.c agent/yaml_text.c agent/yaml_flow.c agent/json.c agent/toml.c agent/toml_text.c agent/toml_word.c
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config_file.h"

#define PROJECT "name: n\nframework: pytorch\ntype: embedding\nversion: '1'\n"

static char folder[PATH_MAX];

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/cirron-test-XXXXXX");
  return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  char command[PATH_MAX + 16];
  (void)snprintf(command, sizeof command, "rm -rf %s", folder);
  return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void put(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void expect_found(const char *start, const char *expected) {
  char path[PATH_MAX], whole[2 * PATH_MAX];
  assert_int_equal(config_find(start, path), 0);
  (void)snprintf(whole, sizeof whole, "%s/%s", folder, expected);
  assert_string_equal(path, whole);
}

static void test_find(void **state) {
  (void)state;
  char path[PATH_MAX];
  assert_int_equal(mkdir("a", 0700), 0);
  assert_int_equal(mkdir("a/b", 0700), 0);
  assert_int_equal(mkdir("a/b/c", 0700), 0);
  assert_int_equal(config_find("a/b/c", path), -ENOENT); /* nothing in /tmp either */
  put("cirron.json", "{}");
  expect_found("a/b/c", "cirron.json");
  expect_found(NULL, "cirron.json");
  put("a/cirron.yml", "");
  expect_found("a/b/c", "a/cirron.yml");
  put("a/cirron.yaml", "");
  expect_found("a/b/c", "a/cirron.yaml");
  assert_int_equal(mkdir("a/b/cirron.yaml", 0700), 0); /* a folder is none */
  assert_int_equal(mkfifo("a/b/cirron.yml", 0600), 0); /* nor is what never ends */
  expect_found("a/b/c", "a/cirron.yaml");
  put("a/b/c/x.py", "");
  expect_found("a/b/c/x.py", "a/cirron.yaml"); /* from a file's folder */
  assert_int_equal(symlink("../../cirron.json", "a/b/cirron.json"), 0);
  expect_found("a/b", "a/b/cirron.json");
  assert_int_equal(config_find("nowhere", path), -ENOENT);
  assert_int_equal(config_find("/", path), -ENOENT);
}

static int load(const char *path, const char *text, struct config_complaint *why) {
  struct doc *doc = NULL;
  memset(why, 0, sizeof *why);
  put(path, text);
  int r = config_load(path, &doc, why);
  assert_true((r == 0) == (doc != NULL));
  doc_free(doc);
  return r;
}

static void test_load(void **state) {
  (void)state;
  struct config_complaint why;
  struct doc *doc;
  assert_int_equal(load("x.yaml", PROJECT, &why), 0);
  assert_int_equal(
      load("x.json", "{\"name\": \"n\", \"framework\": \"onnx\", \"type\": \"embedding\", \"version\": \"1\"}", &why), 0);
  assert_int_equal(load("x.json", PROJECT, &why), -EINVAL);
  assert_int_equal(why.line, 1);
  assert_int_equal(config_load("nowhere.yaml", &doc, &why), -ENOENT);
  assert_string_equal(why.text, "there is no such file");
  assert_int_equal(config_load(folder, &doc, &why), -ENOENT);
  assert_int_equal(mkfifo("pipe", 0600), 0);
  assert_int_equal(config_load("pipe", &doc, &why), -ENOENT); /* and does not wait */
  assert_int_equal(config_load("/dev/zero", &doc, &why), -ENOENT);
}

static int load_user(const char *home, struct config_complaint *why, char path[PATH_MAX]) {
  struct doc *doc = NULL;
  memset(why, 0, sizeof *why);
  if (home)
    setenv("HOME", home, 1);
  else
    unsetenv("HOME");
  int r = config_load_user(path, &doc, why);
  assert_true((r == 0) == (doc != NULL));
  doc_free(doc);
  return r;
}

static void test_user(void **state) {
  (void)state;
  struct config_complaint why;
  char path[PATH_MAX], long_home[PATH_MAX];
  assert_int_equal(load_user(folder, &why, path), -ENOENT);
  assert_int_equal(load_user(NULL, &why, path), -ENOENT);
  assert_int_equal(mkdir(".cirron", 0700), 0);
  assert_int_equal(mkfifo(".cirron/config.toml", 0600), 0);
  assert_int_equal(load_user(folder, &why, path), -ENOENT);
  assert_int_equal(remove(".cirron/config.toml"), 0);
  put(".cirron/config.toml", "[default]\nx = 1\n");
  assert_int_equal(load_user(folder, &why, path), 0);
  assert_int_equal(load_user(".//", &why, path), 0);
  assert_string_equal(path, "./.cirron/config.toml");
  put(".cirron/config.toml", "[default]\nx = \n");
  assert_int_equal(load_user(folder, &why, path), -EINVAL);
  assert_int_equal(why.line, 2);
  assert_non_null(strstr(why.text, "a value is expected"));
  memset(long_home, 'x', sizeof long_home - 1);
  long_home[sizeof long_home - 1] = 0;
  assert_int_equal(load_user(long_home, &why, path), -ENOENT);
  assert_int_equal(load_user("", &why, path), -ENOENT); /* that of "/" */
  assert_string_equal(path, "/.cirron/config.toml");
}

static void test_long(void **state) {
  (void)state;
  struct config_complaint why;
  char *text = malloc(DOC_BYTES_MAX + 2);
  size_t n = strlen(PROJECT);
  memcpy(text, PROJECT, n);
  memset(text + n, '#', DOC_BYTES_MAX - n);
  text[DOC_BYTES_MAX] = 0;
  assert_int_equal(load("x.yaml", text, &why), 0);
  strcpy(text + DOC_BYTES_MAX, "#");
  assert_int_equal(load("x.yaml", text, &why), -EINVAL);
  assert_non_null(strstr(why.text, "longer than"));
  free(text);
}

static void test_rules(void **state) {
  (void)state;
  static const struct {
    const char *text;
    unsigned line;
    const char *why; /* NULL: is right */
  } cases[] = {
      {PROJECT, 0, NULL},
      {PROJECT "description:\nprofiling:\nenv: {}\nsecrets: [a]\ndata: {a: b}\nother: [1]\n", 0, NULL},
      {PROJECT
       "profiling:\n  snapshots: off\n  sample_rate: 0\n  flush_interval: 0.5\n  frameworks: []\n  torch: {epoch_steps: 5}\n",
       0, NULL},
      {PROJECT "profiling: {snapshots: full, sample_rate: 1, frameworks: [torch, other]}\n", 0, NULL},
      {PROJECT "servingConfig:\n  runtime: sklearn-joblib\n  class_labels: [a]\n  input_schema: x\n", 0, NULL},
      {"", 1, "a map of keys and values, not nothing"},
      {"- a\n", 1, "a map of keys and values, not a list"},
      {"text\n", 1, "a map of keys and values, not a text"},
      {"framework: pytorch\ntype: embedding\nversion: '1'\n", 1, "name is missing"},
      {"name: n\ntype: embedding\nversion: '1'\n", 1, "framework is missing"},
      {"name: n\nframework: torch\ntype: embedding\nversion: '1'\n", 2,
       "framework must be tensorflow|sklearn|onnx|pytorch, not torch"},
      {"name: n\nframework: pytorch\ntype: x\nversion: '1'\n", 3, "type must be classification|"},
      {"name: n\nframework: pytorch\ntype: embedding\nversion: 1.0\n", 4,
       "version must be a text (a number has to be put in quotes), not 1.0"},
      {"name:\nframework: pytorch\ntype: embedding\nversion: '1'\n", 1, "name must be a text"},
      {"name: ''\nframework: pytorch\ntype: embedding\nversion: '1'\n", 1, "name must be a text"},
      {PROJECT "profiling: [x]\n", 5, "profiling must be a map, not a list"},
      {PROJECT "profiling:\n  snapshots: some\n", 6, "profiling.snapshots must be stats|sampled|full|off, not some"},
      {PROJECT "profiling:\n  sample_rate: 2\n", 6, "profiling.sample_rate must be a number from 0 to 1, not 2"},
      {PROJECT "profiling:\n  sample_rate: .nan\n", 6, "a number from 0 to 1, not .nan"},
      {PROJECT "profiling:\n  sample_rate: '0.5'\n", 6, "a number from 0 to 1"},
      {PROJECT "profiling:\n  sample_rate: true\n", 6, "a number from 0 to 1"},
      {PROJECT "profiling:\n  flush_interval: 0\n", 6, "flush_interval must be a number above 0"},
      {PROJECT "profiling:\n  flush_interval: .inf\n", 6, "flush_interval must be a number above 0"},
      {PROJECT "profiling:\n  frameworks: torch\n", 6, "frameworks must be a list of texts, not torch"},
      {PROJECT "profiling:\n  frameworks: [1]\n", 6, "frameworks must be a list of texts"},
      {PROJECT "env: {A: 1}\n", 5, "env must be a map of texts"},
      {PROJECT "secrets: x\n", 5, "secrets must be a list"},
      {PROJECT "serving_config: {runtime: x}\n", 5, "servingConfig.runtime must be onnx|"},
      {PROJECT "profiling:\n  snapshots: \"a\\nb\"\n", 6, "not a?b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct config_complaint why;
    int r = load("x.yaml", cases[i].text, &why);
    if (r != (cases[i].why ? -EINVAL : 0) || (r && (why.line != cases[i].line || !strstr(why.text, cases[i].why))))
      fail_msg("%s\n%d, line %u: %s", cases[i].text, r, why.line, why.text);
  }
}

/* The root of several projects says nothing about any of them. */
static void test_workspace(void **state) {
  (void)state;
  struct config_complaint why;
  assert_int_equal(load("x.yaml", "workspace:\n  - a\n", &why), -ENOENT);
  assert_int_equal(load("x.yaml", PROJECT "workspace: x\n", &why), 0);
}

static void test_unknown(void **state) {
  (void)state;
  struct config_complaint why;
  struct doc *doc = NULL;
  put("x.yaml", PROJECT "profilng:\n  snapshots: off\nother: 1\n");
  assert_int_equal(config_load("x.yaml", &doc, &why), 0);
  const struct doc_node *node = config_unknown(doc->root);
  assert_string_equal(node->key.bytes, "profilng");
  doc_free(doc);
  put("x.yaml", PROJECT);
  assert_int_equal(config_load("x.yaml", &doc, &why), 0);
  assert_null(config_unknown(doc->root));
  doc_free(doc);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_find),  TEST(test_load),      TEST(test_user),    TEST(test_long),
      TEST(test_rules), TEST(test_workspace), TEST(test_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
