// links: collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/text.c collectord/store.c collectord/store_block.c collectord/store_checkpoint.c collectord/store_lock.c collectord/store_erase.c collectord/store_migrate.c collectord/store_open.c collectord/store_rows.c collectord/store_snapshots.c collectord/store_sql.c collectord/store_takeover.c collectord/schema.c collectord/utf8.c proto/block.c proto/erase.c proto/histogram.c
/* The same training, with commits, rollbacks and deaths of the collector at any moment, must leave the same store as without. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/ingest_dump.h"
#include "tests/support/ingest_script.h"

/* Says where two dumps part. */
static void assert_same(const char *want, const char *got, unsigned seed) {
  size_t i = 0, line = 0;
  for (; want[i] && want[i] == got[i]; i++)
    if (want[i] == '\n')
      line = i + 1;
  if (want[i] || got[i])
    fail_msg("seed %u, from byte %zu on: want %.200s\n--- got %.200s", seed, i, want + line, got + line);
}

static char *straight(const struct script *script, bool sums) {
  struct run r = run_new(script);
  advance(&r, SIZE_MAX);
  commit(&r, true);
  char *text = dump(&r, sums);
  run_free(&r);
  return text;
}

static void replay(const struct script *script, unsigned seed, unsigned stride, bool sums, const char *want) {
  struct run r = run_new(script);
  srandom(seed);
  for (int round = 0; r.at < script->count || round < 3; round++) {
    advance(&r, 1 + (size_t)random() % stride);
    switch (random() % 6) {
    case 0:
      roll_back(&r);
      break;
    case 1:
      die(&r, random() % 2);
      break;
    case 2:
      break;
    default:
      commit(&r, false);
    }
  }
  commit(&r, true);
  char *got = dump(&r, sums);
  assert_same(want, got, seed);
  free(got);
  run_free(&r);
}

static void replayed(void **state) {
  (void)state;
  struct script s = training(3, 8, true);
  char *want = straight(&s, true);
  for (unsigned seed = 1; seed <= 25; seed++)
    replay(&s, seed, 60, true, want);
  free(want);
  script_free(&s);
}

static void replayed_when_the_process_was_killed(void **state) {
  (void)state;
  struct script s = training(2, 6, false);
  s.count -= s.count / 3;
  char *want = straight(&s, true);
  for (unsigned seed = 1; seed <= 25; seed++)
    replay(&s, seed, 40, true, want);
  free(want);
  script_free(&s);
}

/* So many that blocks are sealed. Sums over children of long spans start anew with a new collector, so they are left out. */
static void replayed_over_many_blocks(void **state) {
  (void)state;
  struct script s = training(3, 1500, true);
  char *want = straight(&s, false);
  for (unsigned seed = 1; seed <= 3; seed++)
    replay(&s, seed, 4000, false, want);
  free(want);
  script_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replayed),
      cmocka_unit_test(replayed_when_the_process_was_killed),
      cmocka_unit_test(replayed_over_many_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
