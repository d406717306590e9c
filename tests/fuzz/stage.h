/* A store for fuzz targets: made once, in memory as far as Linux has that, and rolled back after each input. Header only. */
#ifndef CIRRON_FUZZ_STAGE_H
#define CIRRON_FUZZ_STAGE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectord/store.h"

static char stage_folder[] = "/dev/shm/cirron-fuzz-XXXXXX";

static void stage_clear(void) {
  char command[80];
  snprintf(command, sizeof command, "rm -rf %s", stage_folder);
  if (system(command) != 0)
    fputs("the store of the fuzz target stays\n", stderr);
}

static struct store *stage_store(void) {
  static struct store *store;
  if (store)
    return store;
  char path[80], why[512] = "";
  if (!mkdtemp(stage_folder))
    abort();
  atexit(stage_clear);
  snprintf(path, sizeof path, "%s/t.db", stage_folder);
  if (store_open(path, &store, why, sizeof why) != 0) {
    fputs(why, stderr);
    abort();
  }
  return store;
}

#endif
