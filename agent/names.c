#include "names.h"

#include <string.h>

#include "hot.h"
#include "segment.h"

static const char *const texts[NAMES] = {"epoch",    "eval",           "step",  "data_load", "forward",
                                         "backward", "optimizer_step", "fetch", "batch",     "collective"};
HOT_DATA uint32_t name_ids[NAMES];

void names_make(void) {
  for (unsigned i = 0; i < NAMES; i++)
    name_ids[i] = segment_name(texts[i], strlen(texts[i]));
}

static unsigned place(uintptr_t key) {
  return (key >> 4 ^ key >> 10) % NAME_CLASSES;
}

HOT uint32_t name_known(const struct name_cache *cache, uintptr_t key) {
  const struct name_cached *c = &cache->at[place(key)];
  return c->key == key && c->generation == segment_generation() ? c->id : 0;
}

uint32_t name_of_class(struct name_cache *cache, const char *text, uintptr_t key) {
  uint32_t id = name_known(cache, key);
  if (id)
    return id;
  id = segment_name(text, strlen(text));
  cache->at[place(key)] = (struct name_cached){.key = key, .generation = segment_generation(), .id = id};
  return id;
}
