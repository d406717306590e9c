#include "idmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The ids come from strangers and may be chosen to collide: mixed with a number they cannot know. */
static uint64_t seed;

static size_t place(const struct idmap *map, uint64_t key) {
  uint64_t h = (key ^ seed) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return (size_t)(h >> 32) & (map->size - 1);
}

static size_t probe(const struct idmap *map, uint64_t key) {
  size_t i = place(map, key);
  while (map->slots[i].key && map->slots[i].key != key)
    i = (i + 1) & (map->size - 1);
  return i;
}

static int grow(struct idmap *map) {
  if (!seed && getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
    seed = (uint64_t)(uintptr_t)map; /* early in boot: at least the address is random */
  struct idmap bigger = {.size = map->size ? map->size * 2 : 64, .count = map->count};
  bigger.slots = calloc(bigger.size, sizeof *bigger.slots);
  if (!bigger.slots)
    return -ENOMEM;
  for (size_t i = 0; i < map->size; i++)
    if (map->slots[i].key)
      bigger.slots[probe(&bigger, map->slots[i].key)] = map->slots[i];
  free(map->slots);
  *map = bigger;
  return 0;
}

int idmap_put(struct idmap *map, uint64_t key, uint32_t value) {
  if (map->count * 4 >= map->size * 3) {
    int err = grow(map);
    if (err)
      return err;
  }
  struct idmap_slot *slot = &map->slots[probe(map, key)];
  map->count += slot->key == 0;
  *slot = (struct idmap_slot){.key = key, .value = value};
  return 0;
}

bool idmap_get(const struct idmap *map, uint64_t key, uint32_t *value) {
  if (!map->size || !key)
    return false;
  const struct idmap_slot *slot = &map->slots[probe(map, key)];
  if (!slot->key)
    return false;
  *value = slot->value;
  return true;
}

void idmap_remove(struct idmap *map, uint64_t key) {
  if (!map->size || !key)
    return;
  size_t hole = probe(map, key);
  if (!map->slots[hole].key)
    return;
  map->count--;
  /* Entries behind the hole that were pushed past it move up, so that no probe ends too early. */
  for (size_t i = (hole + 1) & (map->size - 1); map->slots[i].key; i = (i + 1) & (map->size - 1)) {
    size_t home = place(map, map->slots[i].key);
    if (((i - home) & (map->size - 1)) >= ((i - hole) & (map->size - 1))) {
      map->slots[hole] = map->slots[i];
      hole = i;
    }
  }
  map->slots[hole].key = 0;
}

void idmap_clear(struct idmap *map) {
  if (map->size)
    memset(map->slots, 0, map->size * sizeof *map->slots);
  map->count = 0;
}

void idmap_fini(struct idmap *map) {
  free(map->slots);
  *map = (struct idmap){0};
}
