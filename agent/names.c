#include "names.h"

#include <string.h>

#include "segment.h"

static const char *const texts[NAMES] = {"epoch",   "eval",     "step",           "data_load",
                                         "forward", "backward", "optimizer_step", "fetch"};
static struct {
  unsigned generation;
  uint32_t id;
} fixed[NAMES];

uint32_t name_id(enum name name) {
  unsigned now = segment_generation();
  if (__atomic_load_n(&fixed[name].generation, __ATOMIC_ACQUIRE) != now) {
    fixed[name].id = segment_name(texts[name], strlen(texts[name]));
    __atomic_store_n(&fixed[name].generation, now, __ATOMIC_RELEASE);
  }
  return fixed[name].id;
}

uint32_t name_of_class(struct name_cache *cache, const char *text, uintptr_t key) {
  struct name_cached *c = &cache->at[(key >> 4 ^ key >> 10) % NAME_CLASSES];
  unsigned now = segment_generation();
  if (c->key != key || c->generation != now)
    *c = (struct name_cached){.key = key, .generation = now, .id = segment_name(text, strlen(text))};
  return c->id;
}
