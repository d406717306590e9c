// links: agent/env.c
/* Settings: good values are kept, bad ones cost one line each and leave the default, strangers' variables cost nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/env.h"
#include "proto/ring_abi.h"

static struct env env;
static char said[8192]; /* on stderr, by the last call */

static void capture(void (*what)(void)) {
  int keep = dup(2), file = memfd_create("stderr", 0);
  assert_true(keep >= 0 && file >= 0);
  dup2(file, 2);
  what();
  dup2(keep, 2);
  ssize_t n = pread(file, said, sizeof(said) - 1, 0);
  said[n > 0 ? n : 0] = '\0';
  close(keep);
  close(file);
}

static void read_env(void) {
  env_read(&env);
}

static unsigned lines(void) {
  unsigned n = 0;
  for (const char *at = said; (at = strchr(at, '\n')); at++)
    n++;
  return n;
}

/* Reads the settings with just this one set. */
static void with(const char *name, const char *value) {
  clearenv();
  if (name)
    setenv(name, value, 1);
  capture(read_env);
}

static void assert_one_line(const char *name, const char *value, const char *allowed) {
  assert_int_equal(lines(), 1);
  assert_int_equal(strncmp(said, "cirron: ", 8), 0);
  assert_non_null(strstr(said, name));
  assert_non_null(strstr(said, value));
  assert_non_null(strstr(said, allowed));
}

static void defaults(void **state) {
  (void)state;
  with(NULL, NULL);
  assert_string_equal(said, "");
  assert_true(env.enabled && env.autostart);
  assert_false(env.workers || env.debug || env.offline);
  assert_string_equal(env.socket, "");
  assert_int_equal(env.ring_cells, 16384);
  assert_int_equal(env.ring_cells_max, 262144);
  assert_int_equal(env.module_depth, 1);
  assert_int_equal(env.cpu_time, ENV_CPU_AUTO);
  assert_int_equal(env.transport, ENV_TRANSPORT_AUTO);
}

static void booleans(void **state) {
  (void)state;
  static const char *const yes[] = {"1", "true", "yes", "on", "TRUE", "Yes"}, *const no[] = {"0", "false", "no", "off", "Off"};
  for (size_t i = 0; i < 6; i++) {
    with("CIRRON_WORKERS", yes[i]);
    assert_true(env.workers);
    assert_string_equal(said, "");
  }
  for (size_t i = 0; i < 5; i++) {
    with("CIRRON_AUTOSTART", no[i]);
    assert_false(env.autostart);
    assert_string_equal(said, "");
  }
  with("CIRRON_AUTOSTART", "maybe");
  assert_true(env.autostart);
  assert_one_line("CIRRON_AUTOSTART", "maybe", "0 or 1");
  with("CIRRON_WORKERS", "");
  assert_false(env.workers);
  assert_string_equal(said, "");
}

static void off_is_silent(void **state) {
  (void)state;
  clearenv();
  setenv("CIRRON_ENABLED", "0", 1);
  setenv("CIRRON_CPU_TIME", "nonsense", 1);
  setenv("CIRRON_NOBODY_KNOWS", "1", 1);
  capture(read_env);
  assert_false(env.enabled);
  assert_string_equal(said, "");
}

static void words(void **state) {
  (void)state;
  with("CIRRON_CPU_TIME", "on");
  assert_int_equal(env.cpu_time, ENV_CPU_ON);
  with("CIRRON_CPU_TIME", "OFF");
  assert_int_equal(env.cpu_time, ENV_CPU_OFF);
  with("CIRRON_TRANSPORT", "socket");
  assert_int_equal(env.transport, ENV_TRANSPORT_SOCKET);
  assert_string_equal(said, "");
  with("CIRRON_CPU_TIME", "o");
  assert_int_equal(env.cpu_time, ENV_CPU_AUTO);
  assert_one_line("CIRRON_CPU_TIME", "=o ", "auto|on|off");
  with("CIRRON_SNAPSHOTS", "all");
  assert_one_line("CIRRON_SNAPSHOTS", "all", "stats|sampled|full|off");
  with("CIRRON_CUDA", "auto|cupti");
  assert_one_line("CIRRON_CUDA", "auto|cupti", "auto|cupti|launch|off;");
}

static void ring_bytes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    unsigned cells;
  } good[] = {{"65536", 1024}, {"64K", 1024},     {"64k", 1024},          {"65537", 2048},      {"1M", 16384},
              {"3M", 65536},   {"64M", 1u << 20}, {"67108864", 1u << 20}, {"0001048576", 16384}};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    with("CIRRON_RING_BYTES", good[i].text);
    assert_int_equal(env.ring_cells, good[i].cells);
    assert_string_equal(said, "");
  }
  static const char *const bad[] = {
      "0", "1", "63K", "65M", "K", "1G", "-1M", "1 M", "1.5M", "99999999999999999999", "4294967296M", "1MM", "0x10000"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    with("CIRRON_RING_BYTES", bad[i]);
    assert_int_equal(env.ring_cells, 16384);
    assert_one_line("CIRRON_RING_BYTES", bad[i], "64K to 64M");
  }
}

static void numbers(void **state) {
  (void)state;
  with("CIRRON_MODULE_DEPTH", "3");
  assert_int_equal(env.module_depth, 3);
  static const char *const bad[] = {"0", "64", "-1", "1x", " 1", "4294967297"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    with("CIRRON_MODULE_DEPTH", bad[i]);
    assert_int_equal(env.module_depth, 1);
    assert_one_line("CIRRON_MODULE_DEPTH", bad[i], "1 to 63");
  }
  with("CIRRON_MAX_OVERHEAD", "0.5");
  assert_true(env.max_overhead > 0.49 && env.max_overhead < 0.51);
  with("CIRRON_MAX_OVERHEAD", "100");
  assert_true(env.max_overhead > 99.9);
  static const char *const no_bounds[] = {"abc", "0", "-1", "100.1", "nan", "1%", "0.0"};
  for (size_t i = 0; i < sizeof(no_bounds) / sizeof(no_bounds[0]); i++) {
    with("CIRRON_MAX_OVERHEAD", no_bounds[i]);
    assert_true(env.max_overhead == 0);
    assert_one_line("CIRRON_MAX_OVERHEAD", no_bounds[i], "above 0 and up to 100");
  }
  with("CIRRON_OVERHEAD_CHECK", "maybe");
  assert_false(env.overhead_check);
  assert_one_line("CIRRON_OVERHEAD_CHECK", "maybe", "0 or 1");
  static const char *const rates[] = {"0", "1", "0.5", ".25", "1.", "1e-3", "100E-2"};
  for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
    with("CIRRON_SAMPLE_RATE", rates[i]);
    assert_true(env.sample_rate == strtod(rates[i], NULL));
    assert_string_equal(said, "");
  }
  with("CIRRON_SNAPSHOT_STEPS", "100");
  assert_int_equal(env.snapshot_steps, 100);
  with("CIRRON_SNAPSHOT_STEPS", "often");
  assert_int_equal(env.snapshot_steps, 0);
  assert_one_line("CIRRON_SNAPSHOT_STEPS", "often", "from 0 to 1000000000");
  with("CIRRON_SNAPSHOT_WAIT_MS", "0");
  assert_int_equal(env.snapshot_wait_ms, 0);
  with("CIRRON_SNAPSHOT_WAIT_MS", "600001");
  assert_int_equal(env.snapshot_wait_ms, 1000);
  assert_one_line("CIRRON_SNAPSHOT_WAIT_MS", "600001", "to 600000");
  with("CIRRON_SNAPSHOT_MAX_BYTES", "5000000000");
  assert_true(env.snapshot_max_bytes == 5000000000u);
  with("CIRRON_SNAPSHOT_MAX_BYTES", "0");
  assert_true(env.snapshot_max_bytes == 10000000000u);
  assert_one_line("CIRRON_SNAPSHOT_MAX_BYTES", "0", "above 0");
  with("CIRRON_SAMPLE_SEED", "7");
  assert_true(env.sample_seed == 7);
  with("CIRRON_FLUSH_INTERVAL", "0.05");
  assert_true(env.flush_interval == 0.05);
  with("CIRRON_FLUSH_INTERVAL", "0.001");
  assert_true(env.flush_interval == 0.001);
  with("CIRRON_FLUSH_INTERVAL", "12.34e1");
  assert_true(env.flush_interval == 123.4);
  assert_string_equal(said, "");
  static const char *const no_rates[] = {"1.5", "-0.5", "nan", "inf", "", ".", "1e", "0,5", "1e999", "1x"};
  for (size_t i = 0; i < sizeof(no_rates) / sizeof(no_rates[0]); i++) {
    with("CIRRON_SAMPLE_RATE", no_rates[i]);
    assert_int_equal(lines(), *no_rates[i] ? 1 : 0);
  }
}

static void sockets(void **state) {
  (void)state;
  char text[300], cwd[PATH_MAX];
  with("CIRRON_SOCKET", "/run/x.sock");
  assert_string_equal(env.socket, "/run/x.sock");
  assert_int_equal(chdir("/tmp"), 0);
  with("CIRRON_SOCKET", "x.sock");
  snprintf(text, sizeof(text), "%s/x.sock", getcwd(cwd, sizeof(cwd)));
  assert_string_equal(env.socket, text);

  memset(text, 'p', sizeof(text));
  text[0] = '/';
  text[107] = '\0';
  with("CIRRON_SOCKET", text);
  assert_string_equal(env.socket, text);
  assert_string_equal(said, "");
  text[107] = 'p';
  text[108] = '\0';
  with("CIRRON_SOCKET", text);
  assert_string_equal(env.socket, "");
  assert_true(env.offline); /* not: some other collector than the one that was asked for */
  assert_one_line("CIRRON_SOCKET", "/ppp", "107 bytes");
}

static void lists_of_words(void **state) {
  (void)state;
  static const struct {
    const char *text;
    unsigned bits;
  } good[] = {{"torch", ENV_TORCH},    {"torch,transformers", ENV_TORCH | ENV_TRANSFORMERS},
              {" Torch , KERAS ", 5},  {"none", 0},
              {"sklearn,sklearn", 16}, {"lightning", ENV_LIGHTNING}};
  for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
    with("CIRRON_FRAMEWORKS", good[i].text);
    assert_int_equal(env.frameworks, good[i].bits);
    assert_string_equal(said, "");
  }
  static const char *const bad[] = {"jax", "torch,", ",", "torch torch", "torch,jax", "tor", "torch|keras"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    with("CIRRON_FRAMEWORKS", bad[i]);
    assert_int_equal(env.frameworks, ENV_FRAMEWORKS_ALL);
    assert_one_line("CIRRON_FRAMEWORKS", bad[i], "torch|tensorflow|keras|transformers|sklearn|lightning|none");
  }
  with("CIRRON_OUTPUT", "stdout,log");
  assert_int_equal(env.output, 6);
  with("CIRRON_OUTPUT", "disk");
  assert_int_equal(env.output, ENV_SPOOL);
  assert_one_line("CIRRON_OUTPUT", "disk", "spool|stdout|log|none");
  assert_int_equal(env_framework("torch", 5), ENV_TORCH);
  assert_int_equal(env_framework("torc", 4), 0);
  assert_int_equal(env_framework("", 0), 0);
}

static void bytes_and_paths(void **state) {
  (void)state;
  with(NULL, NULL);
  assert_int_equal(env.spool_max_bytes, 1000000000);
  with("CIRRON_SPOOL_MAX_BYTES", "77");
  assert_int_equal(env.spool_max_bytes, 77);
  with("CIRRON_SPOOL_MAX_BYTES", "9223372036854775807");
  assert_true(env.spool_max_bytes == INT64_MAX);
  assert_string_equal(said, "");
  static const char *const bad[] = {"0", "-1", "many", "1.5", "1e9", "1G", " 5", "9223372036854775808"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    with("CIRRON_SPOOL_MAX_BYTES", bad[i]);
    assert_int_equal(env.spool_max_bytes, 1000000000);
    assert_one_line("CIRRON_SPOOL_MAX_BYTES", bad[i], "a whole number of bytes above 0; using 1000000000");
  }
  char path[ENV_PATH_MAX + 2];
  memset(path, 'p', sizeof(path));
  path[ENV_PATH_MAX + 1] = '\0';
  with("CIRRON_OUTPUT_DIR", path);
  assert_one_line("CIRRON_OUTPUT_DIR", "ppp", "at most 4000 bytes; using ./.cirron/");
  with("CIRRON_OUTPUT_DIR", path + 1);
  assert_string_equal(said, "");
}

static void what_is_set(void **state) {
  (void)state;
  with(NULL, NULL);
  assert_false(env_is_set(&env, "ENABLED") || env_is_set(&env, "DEBUG") || env_is_set(&env, "SPOOL_MAX_BYTES"));
  with("CIRRON_SPOOL_MAX_BYTES", "5");
  assert_true(env_is_set(&env, "SPOOL_MAX_BYTES"));
  assert_false(env_is_set(&env, "OUTPUT") || env_is_set(&env, "DEBUG"));
  with("CIRRON_DEBUG", "");
  assert_false(env_is_set(&env, "DEBUG"));
  with("CIRRON_DEBUG", "perhaps"); /* its default was said to hold */
  assert_true(env_is_set(&env, "DEBUG"));
  assert_false(env_is_set(&env, "NOTHING"));
}

/* What is asked for and not there yet is said; what asks for nothing is not. */
static void unused_is_said(void **state) {
  (void)state;
  with("CIRRON_SNAPSHOTS", "full");
  assert_int_equal(env.snapshots, ENV_FULL);
  assert_string_equal(said, "");
  with("CIRRON_FRAMES", "all");
  assert_one_line("CIRRON_FRAMES", "has no effect", "in this version");
  static const char *const quiet[][2] = {
      {"CIRRON_SNAPSHOTS", "off"}, {"CIRRON_CUDA", "off"}, {"CIRRON_CUDA", "auto"}, {"CIRRON_FLUSH_INTERVAL", "2"}};
  for (size_t i = 0; i < sizeof(quiet) / sizeof(quiet[0]); i++) {
    with(quiet[i][0], quiet[i][1]);
    assert_string_equal(said, "");
  }
}

static void unknown_names_get_the_closest(void **state) {
  (void)state;
  with("CIRRON_SNAPSHOT", "off");
  assert_one_line("CIRRON_SNAPSHOT ", "is no setting", "CIRRON_SNAPSHOTS");
  with("CIRRON_AUTO_START", "0");
  assert_one_line("CIRRON_AUTO_START ", "is no setting", "CIRRON_AUTOSTART");
  with("CIRRON_", "0");
  assert_int_equal(lines(), 1);
  char longest[2000];
  memset(longest, 'X', sizeof(longest));
  memcpy(longest, "CIRRON_", 7);
  longest[sizeof(longest) - 1] = '\0';
  with(longest, "0");
  assert_int_equal(lines(), 1);
  assert_true(strlen(said) < 300);
}

static void strangers_are_left_alone(void **state) {
  (void)state;
  static const char *const names[] = {
      "CIRRON_DB",         "CIRRON_API_KEY", "CIRRON_SECRET_TOKEN", "CIRRON_SERVICE_HOST", "CIRRON_PORT_80_TCP",
      "CIRRON_OUTPUT_DIR", "CIRRONX",        "MY_CIRRON_THING"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    with(names[i], "whatever");
    assert_string_equal(said, "");
  }
}

static void one_line_whatever_the_value(void **state) {
  (void)state;
  with("CIRRON_CPU_TIME", "a\nb\x1b[31m");
  assert_one_line("CIRRON_CPU_TIME", "a?b?[31m", "auto|on|off");
  char value[5000];
  memset(value, 'v', sizeof(value));
  value[sizeof(value) - 1] = '\0';
  with("CIRRON_CPU_TIME", value);
  assert_one_line("CIRRON_CPU_TIME", "vvvv", "using auto");
}

static void say_debug(void) {
  env_debug("socket %s is %d", "/x", 7);
}

static void debug_lines(void **state) {
  (void)state;
  with("CIRRON_DEBUG", "1");
  assert_true(env.debug);
  capture(say_debug);
  assert_string_equal(said, "cirron: socket /x is 7\n");
  with(NULL, NULL);
  capture(say_debug);
  assert_string_equal(said, "");
}

static void debug_lines_before_the_settings(void **state) {
  (void)state;
  const struct {
    const char *enabled, *debug;
    bool speaks;
  } cases[] = {{NULL, NULL, false}, {NULL, "1", true},    {"1", "yes", true},  {"0", "1", false},
               {"off", "1", false}, {"maybe", "1", true}, {NULL, "no", false}, {NULL, "perhaps", false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    with("CIRRON_RING_BYTES", "12"); /* what is wrong elsewhere is not complained of */
    if (cases[i].enabled)
      setenv("CIRRON_ENABLED", cases[i].enabled, 1);
    if (cases[i].debug)
      setenv("CIRRON_DEBUG", cases[i].debug, 1);
    capture(env_read_debug);
    assert_string_equal(said, "");
    capture(say_debug);
    assert_string_equal(said, cases[i].speaks ? "cirron: socket /x is 7\n" : "");
  }
}

static struct env_ranks ranks;
static void read_ranks(void) {
  ranks = env_ranks();
}

static void launcher_variables(void **state) {
  (void)state;
  clearenv();
  capture(read_ranks);
  assert_true(ranks.rank == -1 && ranks.local_rank == -1 && ranks.world_size == -1);
  assert_string_equal(env_run_id(), "");
  setenv("SLURM_PROCID", "5", 1);
  setenv("SLURM_LOCALID", "1", 1);
  setenv("SLURM_NTASKS", "8", 1);
  setenv("SLURM_JOB_ID", "77", 1);
  capture(read_ranks);
  assert_true(ranks.rank == 5 && ranks.local_rank == 1 && ranks.world_size == 8);
  assert_string_equal(env_run_id(), "77");
  setenv("RANK", "3", 1);
  setenv("LOCAL_RANK", "", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("TORCHELASTIC_RUN_ID", "elastic", 1);
  capture(read_ranks);
  assert_true(ranks.rank == 3 && ranks.local_rank == 1 && ranks.world_size == 4);
  assert_string_equal(env_run_id(), "elastic");
  setenv("CIRRON_RUN_ID", "mine", 1);
  assert_string_equal(env_run_id(), "mine");
  assert_string_equal(said, "");
  setenv("RANK", "-3", 1);
  setenv("SLURM_PROCID", "9999999999", 1);
  capture(read_ranks);
  assert_int_equal(ranks.rank, -1);
  assert_one_line("RANK", "-3", "whole number");
  capture(read_ranks); /* named once a process */
  assert_string_equal(said, "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(defaults),
      cmocka_unit_test(booleans),
      cmocka_unit_test(off_is_silent),
      cmocka_unit_test(words),
      cmocka_unit_test(ring_bytes),
      cmocka_unit_test(numbers),
      cmocka_unit_test(sockets),
      cmocka_unit_test(lists_of_words),
      cmocka_unit_test(bytes_and_paths),
      cmocka_unit_test(what_is_set),
      cmocka_unit_test(unused_is_said),
      cmocka_unit_test(unknown_names_get_the_closest),
      cmocka_unit_test(strangers_are_left_alone),
      cmocka_unit_test(one_line_whatever_the_value),
      cmocka_unit_test(debug_lines),
      cmocka_unit_test(debug_lines_before_the_settings),
      cmocka_unit_test(launcher_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
