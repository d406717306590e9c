#include "names.h"

#include <string.h>

#include "segment.h"

#define CLASSES 64u /* direct-mapped; a training job has a handful of outermost modules, optimizers and exceptions */

struct cached {
  uintptr_t key;
  unsigned generation;
  uint32_t id;
};

static const char *const texts[NAMES] = {"epoch", "eval", "step", "data_load", "forward", "backward", "optimizer_step"};
static struct cached fixed[NAMES];
static __thread struct cached classes[CLASSES];

uint32_t name_id(enum name name) {
  struct cached *c = &fixed[name];
  unsigned now = segment_generation();
  if (__atomic_load_n(&c->generation, __ATOMIC_ACQUIRE) != now) {
    c->id = segment_name(texts[name], strlen(texts[name]));
    __atomic_store_n(&c->generation, now, __ATOMIC_RELEASE);
  }
  return c->id;
}

uint32_t name_of_class(const char *text, uintptr_t key) {
  struct cached *c = &classes[(key >> 4 ^ key >> 10) % CLASSES];
  unsigned now = segment_generation();
  if (c->key != key || c->generation != now)
    *c = (struct cached){.key = key, .generation = now, .id = segment_name(text, strlen(text))};
  return c->id;
}
