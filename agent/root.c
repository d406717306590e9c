/* See root.h. */
#include "root.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "env.h"
#include "glibc.h"
#include "session.h"
#include "utf8.h"

#define ID_MAX_BYTES 256u

static atomic_uint frameworks;
static atomic_bool mixed_precision;

void root_frameworks(unsigned bits) {
  atomic_store(&frameworks, bits);
}

void root_mixed_precision(void) {
  atomic_store_explicit(&mixed_precision, true, memory_order_relaxed);
}

void root_forget(void) {
  atomic_store(&mixed_precision, false);
}

struct out {
  char *at;
  size_t len; /* ROOT_ATTRS_BYTES hold the longest of all */
};

__attribute__((format(printf, 2, 3))) static void put(struct out *o, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(o->at + o->len, ROOT_ATTRS_BYTES - o->len, format, args);
  va_end(args);
  if (n > 0 && o->len + (size_t)n < ROOT_ATTRS_BYTES)
    o->len += (size_t)n;
}

static void put_key(struct out *o, const char *key) {
  put(o, "%s\"%s\":", o->len > 1 ? "," : "", key);
}

static void put_number(struct out *o, const char *key, int value) {
  put_key(o, key);
  put(o, "%d", value);
}

/* From the environment: any bytes. */
static void put_text(struct out *o, const char *key, const char *text) {
  size_t len = utf8_cut(text, strlen(text), ID_MAX_BYTES);
  put_key(o, key);
  put(o, "\"");
  for (size_t i = 0, n; i < len; i += n ? n : 1) {
    uint32_t c;
    n = utf8_decode(text + i, len - i, &c);
    if (n == 0 || c < 0x20)
      put(o, "\\u%04x", (unsigned)c);
    else
      put(o, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", (int)n, text + i);
  }
  put(o, "\"");
}

static void put_ids(struct out *o) {
  static const char *const ids[][2] = {{"cirron.pipeline_id", "CIRRON_PIPELINE_ID"},
                                       {"cirron.deployment_id", "CIRRON_DEPLOYMENT_ID"},
                                       {"cirron.workspace_id", "CIRRON_WORKSPACE_ID"}};
  if (env_run_id()[0])
    put_text(o, "cirron.run_id", env_run_id());
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
    const char *value = getenv(ids[i][1]);
    if (value && *value)
      put_text(o, ids[i][0], value);
  }
}

static void put_ranks(struct out *o) {
  struct env_ranks ranks = session_ranks();
  put_number(o, "rank", env_rank(&ranks));
  if (ranks.local_rank >= 0)
    put_number(o, "local_rank", ranks.local_rank);
  if (ranks.world_size >= 0)
    put_number(o, "world_size", ranks.world_size);
}

static void put_frameworks(struct out *o, unsigned bits) {
  bool first = true;
  if (!bits)
    return;
  put_key(o, "framework");
  put(o, "\"");
  for (const char *word = ENV_FRAMEWORKS; *word; bits >>= 1) {
    size_t len = strcspn(word, "|");
    if (bits & 1)
      put(o, "%s%.*s", first ? "" : ",", (int)len, word);
    first = first && !(bits & 1);
    word += len + (word[len] == '|');
  }
  put(o, "\"");
}

size_t root_attributes(char out[ROOT_ATTRS_BYTES]) {
  struct out o = {.at = out};
  unsigned bits = atomic_load(&frameworks);
  int devices = cuda_devices();
  put(&o, "{");
  put_number(&o, "pid", (int)getpid());
  put_ranks(&o);
  put_ids(&o);
  put_frameworks(&o, bits);
  put_key(&o, "device");
  put(&o, devices ? "\"cuda\"" : "\"cpu\"");
  if (devices)
    put_number(&o, "cuda_count", devices);
  if (bits & ENV_TORCH) {
    put_key(&o, "mixed_precision");
    put(&o, atomic_load(&mixed_precision) ? "true" : "false");
  }
  put(&o, "}");
  return o.len;
}
