/* A map from 64-bit ids (0 excepted) to 32-bit numbers: open addressing, grows by itself. */
#ifndef CIRRON_IDMAP_H
#define CIRRON_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap {
  struct idmap_slot *slots;
  size_t size, count; /* size: a power of two, or 0 */
};

struct idmap_slot {
  uint64_t key; /* 0: free */
  uint32_t value;
};

/* A zeroed map is empty. */
int idmap_put(struct idmap *map, uint64_t key, uint32_t value); /* adds or changes; 0 or -ENOMEM */
bool idmap_get(const struct idmap *map, uint64_t key, uint32_t *value);
void idmap_remove(struct idmap *map, uint64_t key);
void idmap_clear(struct idmap *map);
void idmap_fini(struct idmap *map);

#endif
