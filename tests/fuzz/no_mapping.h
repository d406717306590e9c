/* In the place of collectord/mapping.c, for fuzz targets that are to be quick: what a descriptor stands for is memory that is there
 * already, and stays. Header only. */
#ifndef CIRRON_FUZZ_NO_MAPPING_H
#define CIRRON_FUZZ_NO_MAPPING_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectord/mapping.h"

static struct no_mapping {
  int fd;
  void *memory;
} no_mappings[4];

__attribute__((unused)) static void no_mapping_add(int fd, void *memory) {
  for (size_t i = 0; i < sizeof no_mappings / sizeof *no_mappings; i++)
    if (!no_mappings[i].memory) {
      no_mappings[i] = (struct no_mapping){.fd = fd, .memory = memory};
      return;
    }
  abort();
}

int mapping_open(int fd, size_t bytes, struct mapping *out) {
  for (size_t i = 0; i < sizeof no_mappings / sizeof *no_mappings; i++)
    if (no_mappings[i].memory && no_mappings[i].fd == fd) {
      *out = (struct mapping){.memory = no_mappings[i].memory, .bytes = bytes};
      return 0;
    }
  return -EBADF;
}

/* Memory of our own that was given back, for the next one: fresh memory takes longer than all the rest. */
static struct mapping no_mapping_spare[4];

int mapping_own(size_t bytes, struct mapping *out) {
  *out = (struct mapping){.bytes = bytes};
  for (size_t i = 0; i < sizeof no_mapping_spare / sizeof *no_mapping_spare && !out->memory; i++)
    if (no_mapping_spare[i].memory && no_mapping_spare[i].bytes == bytes) {
      out->memory = memset(no_mapping_spare[i].memory, 0, bytes);
      no_mapping_spare[i].memory = NULL;
    }
  if (!out->memory)
    out->memory = calloc(1, bytes);
  return out->memory ? 0 : -ENOMEM;
}

static bool no_mapping_keeps(const struct mapping *mapping) {
  for (size_t i = 0; i < sizeof no_mappings / sizeof *no_mappings; i++)
    if (no_mappings[i].memory == mapping->memory)
      return true;
  for (size_t i = 0; i < sizeof no_mapping_spare / sizeof *no_mapping_spare; i++)
    if (!no_mapping_spare[i].memory) {
      no_mapping_spare[i] = *mapping;
      return true;
    }
  return false;
}

void mapping_close(struct mapping *mapping) {
  if (mapping->memory && !no_mapping_keeps(mapping))
    free(mapping->memory);
  mapping->memory = NULL;
}

#endif
