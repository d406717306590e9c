/* See env.h. One table names each setting, its check, its default and what is said about a bad value (docs/settings.md is its text
 * for people). Settings that only later parts use are in it too, so that a typo in them is not silent.
 *
 * Nothing here allocates; a complaint is one line, written by one write(2).
 */
#include "env.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "../proto/ring_abi.h"

extern char **environ;

static bool debug_on;

/* Lines on stderr. */

static void say(const char *format, va_list args) {
  char line[512] = "cirron: ";
  int saved = errno;
  size_t start = strlen(line);
  int n = vsnprintf(line + start, sizeof(line) - start - 1, format, args);
  size_t len = start + (n < 0 ? 0 : (size_t)n);
  if (len > sizeof(line) - 2)
    len = sizeof(line) - 2;
  for (size_t i = 0; i < len; i++) /* one line, whatever a value holds */
    if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
      line[i] = '?';
  line[len++] = '\n';
  (void)!write(STDERR_FILENO, line, len); /* nothing can be done where nobody listens */
  errno = saved;
}

static bool told_of_output; /* whoever comes first; two at once say it twice */

bool env_told_of_output(void) {
  bool told = told_of_output;
  told_of_output = true;
  return told;
}

void env_tell_of_output_again(void) {
  told_of_output = false;
}

void env_complain(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
}

void env_debug(const char *format, ...) {
  if (!debug_on)
    return;
  va_list args;
  va_start(args, format);
  say(format, args);
  va_end(args);
}

/* Values. Each returns false for a bad one and leaves the target as it was. */

static bool parse_bool(const char *text, bool *out) {
  static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
  for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
    if (strcasecmp(text, words[i]) == 0) {
      *out = i % 2;
      return true;
    }
  return false;
}

static bool parse_uint(const char *text, uint64_t max, uint64_t *out) {
  uint64_t value = 0;
  if (*text == '\0')
    return false;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || value > (max - (uint64_t)(*text - '0')) / 10)
      return false;
    value = value * 10 + (uint64_t)(*text - '0');
  }
  *out = value;
  return true;
}

/* Which word of "a|b|c" is it? -1: none. */
static int parse_word(const char *text, const char *words) {
  size_t len = strlen(text);
  for (int i = 0; *words; i++) {
    size_t n = strcspn(words, "|");
    if (n == len && strncasecmp(text, words, n) == 0)
      return i;
    words += n + (words[n] == '|');
  }
  return -1;
}

/* A number like 0.25, 1e-3 or 2; no sign, no name. By hand, because strtod follows the script's locale. */
static bool parse_number(const char *text, double *out) {
  double value = 0, scale = 1;
  int digits = 0, decimals = 0, exponent = 0, sign = 1;
  for (; *text >= '0' && *text <= '9'; text++, digits++)
    value = value * 10 + (*text - '0');
  if (*text == '.')
    for (text++; *text >= '0' && *text <= '9'; text++, digits++, decimals++)
      value = value * 10 + (*text - '0');
  if (digits == 0 || digits > 300)
    return false;
  if (*text == 'e' || *text == 'E') {
    text++;
    if (*text == '-' || *text == '+')
      sign = *text++ == '-' ? -1 : 1;
    if (*text == '\0')
      return false;
    for (; *text >= '0' && *text <= '9' && exponent < 300; text++)
      exponent = exponent * 10 + (*text - '0');
  }
  exponent = sign * exponent - decimals;
  for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--)
    scale *= 10; /* exact up to 10^22, so what people write comes out as they wrote it */
  *out = exponent < 0 ? value / scale : value * scale;
  return *text == '\0';
}

/* The bit of text[0..len) in "a|b|c"; 0: none. */
static unsigned word_bit(const char *text, size_t len, const char *words) {
  for (unsigned bit = 1; *words; bit <<= 1) {
    size_t n = strcspn(words, "|");
    if (n == len && strncasecmp(text, words, n) == 0)
      return bit;
    words += n + (words[n] == '|');
  }
  return 0;
}

unsigned env_framework(const char *name, size_t len) {
  return word_bit(name, len, ENV_FRAMEWORKS);
}

/* Words of "a|b|c" with commas between; blanks around them do not count. */
static bool parse_words(const char *text, const char *words, unsigned *out) {
  unsigned all = 0;
  for (;;) {
    text += strspn(text, " ");
    size_t len = strcspn(text, ",");
    size_t end = len;
    while (end > 0 && text[end - 1] == ' ')
      end--;
    unsigned bit = word_bit(text, end, words);
    if (!bit)
      return false;
    all |= bit;
    if (text[len] == 0)
      break;
    text += len + 1;
  }
  *out = all;
  return true;
}

/* Bytes, or with the suffix K or M, made a power of two by going up. In cells. */
static bool parse_ring(const char *text, unsigned *cells) {
  char digits[24];
  size_t len = strlen(text);
  uint64_t unit = 1, bytes;
  if (len == 0 || len >= sizeof(digits))
    return false;
  memcpy(digits, text, len + 1);
  if (strchr("kKmM", digits[len - 1])) {
    unit = digits[len - 1] == 'k' || digits[len - 1] == 'K' ? 1024 : 1024 * 1024;
    digits[len - 1] = '\0';
  }
  if (!parse_uint(digits, UINT32_MAX, &bytes))
    return false;
  bytes *= unit;
  if (bytes < (uint64_t)RING_MIN_CELLS * RING_CELL || bytes > (uint64_t)RING_MAX_CELLS * RING_CELL)
    return false;
  unsigned n = RING_MIN_CELLS;
  while ((uint64_t)n * RING_CELL < bytes)
    n *= 2;
  *cells = n;
  return true;
}

static bool socket_fits(char out[108], const char *dir, const char *path) {
  int n = snprintf(out, 108, "%s%s%s", dir, *dir ? "/" : "", path);
  return n > 0 && n < 108;
}

/* A relative path is made absolute now, because the script may change its directory before the next connection. */
static bool parse_socket(const char *text, struct env *env) {
  char path[108], dir[PATH_MAX];
  env->offline = !socket_fits(path, "", text);
  if (env->offline)
    return false;
  memcpy(env->socket, path, sizeof(path));
  if (text[0] != '/' && getcwd(dir, sizeof(dir)) && dir[0] == '/' && socket_fits(path, dir, text))
    memcpy(env->socket, path, sizeof(path));
  return true;
}

/* The table. */

enum setting_type {
  TYPE_BOOL,
  TYPE_WORD,
  TYPE_UINT,
  TYPE_NUMBER,
  TYPE_BYTES,
  TYPE_RING,
  TYPE_SOCKET,
  TYPE_PATH,
  TYPE_WORDS,
  TYPE_ANY
};

struct setting {
  const char *name; /* without CIRRON_ */
  enum setting_type type;
  const char *allowed;  /* for people; for TYPE_WORD and TYPE_WORDS also the words */
  const char *fallback; /* for people */
  size_t offset;        /* in struct env, or NOT_KEPT */
  double min, max;
  bool unused; /* by this version: said where it is set */
};

#define NOT_KEPT ((size_t)-1)
#define BOOLEAN "0 or 1 (false, true, no, yes, off, on)"
#define KEPT(field) offsetof(struct env, field)

static const struct setting settings[] = {
    {"ENABLED", TYPE_BOOL, BOOLEAN, "1", KEPT(enabled), 0, 0, false},
    {"SOCKET", TYPE_SOCKET, "a path of at most 107 bytes", "no collector", NOT_KEPT, 0, 0, false},
    {"AUTOSTART", TYPE_BOOL, BOOLEAN, "1", KEPT(autostart), 0, 0, false},
    {"TRANSPORT", TYPE_WORD, "auto|socket", "auto", KEPT(transport), 0, 0, false},
    {"OUTPUT", TYPE_WORDS, ENV_SINKS, "spool", KEPT(output), 0, 0, false},
    {"OUTPUT_DIR", TYPE_PATH, "a path of at most 4000 bytes", "./.cirron/", NOT_KEPT, 0, ENV_PATH_MAX, false},
    {"SNAPSHOTS", TYPE_WORD, "stats|sampled|full|off", "stats", KEPT(snapshots), 0, 0, false},
    {"SAMPLE_RATE", TYPE_NUMBER, "a number from 0 to 1", "0.01", KEPT(sample_rate), 0, 1, false},
    {"SAMPLE_SEED", TYPE_BYTES, "a whole number above 0", "none", KEPT(sample_seed), 0, 0, false},
    {"SNAPSHOT_STEPS", TYPE_UINT, "a whole number from 0 to 1000000000", "0", KEPT(snapshot_steps), 0, 1000000000, false},
    {"SNAPSHOT_WAIT_MS", TYPE_UINT, "a whole number from 0 to 600000", "1000", KEPT(snapshot_wait_ms), 0, 600000, false},
    {"SNAPSHOT_MAX_BYTES", TYPE_BYTES, "a whole number of bytes above 0", "10000000000", KEPT(snapshot_max_bytes), 0, 0, false},
    {"FLUSH_INTERVAL", TYPE_NUMBER, "seconds from 0.001 to 3600", "1.0", KEPT(flush_interval), 0.001, 3600, false},
    {"SPOOL_MAX_BYTES", TYPE_BYTES, "a whole number of bytes above 0", "1000000000", KEPT(spool_max_bytes), 0, 0, false},
    {"FRAMEWORKS", TYPE_WORDS, ENV_FRAMEWORKS "|none", "all of them", KEPT(frameworks), 0, 0, false},
    {"FRAMES", TYPE_ANY, NULL, NULL, NOT_KEPT, 0, 0, true},
    {"MAX_OVERHEAD", TYPE_NUMBER, "per cent, a number above 0 and up to 100", "no bound", KEPT(max_overhead), 1e-9, 100, false},
    {"MODULE_DEPTH", TYPE_UINT, "a whole number from 1 to 63", "1", KEPT(module_depth), 1, 63, false},
    {"WORKERS", TYPE_BOOL, BOOLEAN, "0", KEPT(workers), 0, 0, false},
    {"CPU_TIME", TYPE_WORD, "auto|on|off", "auto", KEPT(cpu_time), 0, 0, false},
    {"CUDA", TYPE_WORD, "auto|cupti|launch|off", "auto", NOT_KEPT, 0, 0, true},
    {"OVERHEAD_CHECK", TYPE_BOOL, BOOLEAN, "0", KEPT(overhead_check), 0, 0, false},
    {"RING_BYTES", TYPE_RING, "64K to 64M, in bytes or with K or M", "1M", KEPT(ring_cells), 0, 0, false},
    {"RING_BYTES_MAX", TYPE_RING, "64K to 64M, in bytes or with K or M", "16M", KEPT(ring_cells_max), 0, 0, false},
    {"RUN_ID", TYPE_ANY, NULL, NULL, NOT_KEPT, 0, 0, false},
    {"DEBUG", TYPE_BOOL, BOOLEAN, "0", KEPT(debug), 0, 0, false},
};

/* Not ours, and no typos: other programs of this house, the Python package of the same name, and what Kubernetes sets in every
 * container where a service is called cirron. A star stands for any rest. */
static const char *const foreign[] = {
    "DB",
    "API_KEY",
    "API_ENDPOINT",
    "WORKSPACE_ID",
    "PIPELINE_ID",
    "DEPLOYMENT_ID",
    "INGEST_PATH",
    "LOAD_WARN_BYTES",
    "LOAD_MAX_BYTES",
    "VERBOSE",
    "SECRET_*",
    "SAMPLE_MODELS_PATH",
    "RUN_OVERHEAD_TESTS",
    "OVERHEAD_RESULTS",
    "SERVICE_*",
    "PORT",
    "PORT_*",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PREFIX "CIRRON_"

static_assert(COUNT(settings) <= 32, "bits of env.set");

bool env_is_set(const struct env *env, const char *name) {
  for (size_t i = 0; i < COUNT(settings); i++)
    if (strcmp(settings[i].name, name) == 0)
      return env->set >> i & 1;
  return false;
}

static bool in_range(const struct setting *setting, double value) {
  return value >= setting->min && value <= setting->max;
}

/* Checks the value and, where it has a place, keeps it. */
static bool setting_apply(const struct setting *setting, const char *text, struct env *env) {
  void *to = setting->offset == NOT_KEPT ? NULL : (char *)env + setting->offset;
  uint64_t whole;
  double number;
  int word;
  switch (setting->type) {
  case TYPE_BOOL:
    return parse_bool(text, to);
  case TYPE_WORD:
    word = parse_word(text, setting->allowed);
    if (word >= 0 && to)
      memcpy(to, &(unsigned){(unsigned)word}, sizeof(unsigned)); /* an enum in the order of the words */
    return word >= 0;
  case TYPE_UINT:
    if (!parse_uint(text, UINT32_MAX, &whole) || !in_range(setting, (double)whole))
      return false;
    if (to)
      *(unsigned *)to = (unsigned)whole;
    return true;
  case TYPE_NUMBER:
    if (!parse_number(text, &number) || !in_range(setting, number))
      return false;
    if (to)
      *(double *)to = number;
    return true;
  case TYPE_BYTES:
    if (!parse_uint(text, INT64_MAX, &whole) || whole == 0)
      return false;
    *(uint64_t *)to = whole;
    return true;
  case TYPE_RING:
    return parse_ring(text, to);
  case TYPE_PATH:
    return strlen(text) <= (size_t)setting->max;
  case TYPE_WORDS:
    return parse_words(text, setting->allowed, to);
  case TYPE_SOCKET:
    return parse_socket(text, env);
  case TYPE_ANY:
    return true;
  }
  return true;
}

static_assert(sizeof(enum env_cpu_time) == sizeof(unsigned) && sizeof(enum env_transport) == sizeof(unsigned) &&
                  sizeof(enum env_snapshots) == sizeof(unsigned),
              "kept by number");

static void setting_read(const struct setting *setting, struct env *env) {
  char name[32];
  (void)snprintf(name, sizeof(name), PREFIX "%s", setting->name);
  const char *text = getenv(name);
  if (!text || !*text)
    return;
  env->set |= 1u << (setting - settings);
  if (!setting_apply(setting, text, env))
    env_complain("%s=%.60s is not allowed: %s; using %s", name, text, setting->allowed, setting->fallback);
  else if (setting->unused && strcasecmp(text, "auto") != 0 && strcasecmp(text, "off") != 0)
    env_complain("%s has no effect in this version", name);
}

/* Unknown names. */

static bool is_known(const char *name, size_t len) {
  for (size_t i = 0; i < COUNT(settings); i++)
    if (strlen(settings[i].name) == len && memcmp(settings[i].name, name, len) == 0)
      return true;
  for (size_t i = 0; i < COUNT(foreign); i++) {
    size_t n = strlen(foreign[i]);
    bool star = foreign[i][n - 1] == '*';
    if (star ? len >= n - 1 && memcmp(foreign[i], name, n - 1) == 0 : len == n && memcmp(foreign[i], name, n) == 0)
      return true;
  }
  return false;
}

#define NAME_LONGEST 32

static unsigned min3(unsigned a, unsigned b, unsigned c) {
  unsigned least = a < b ? a : b;
  return least < c ? least : c;
}

/* Edits between the two (Levenshtein), one row at a time. */
static unsigned distance(const char *a, size_t a_len, const char *b) {
  unsigned row[NAME_LONGEST + 1];
  size_t b_len = strlen(b);
  for (size_t j = 0; j <= b_len; j++)
    row[j] = (unsigned)j;
  for (size_t i = 1; i <= a_len; i++) {
    unsigned diagonal = row[0];
    row[0] = (unsigned)i;
    for (size_t j = 1; j <= b_len; j++) {
      unsigned above = row[j];
      row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
      diagonal = above;
    }
  }
  return row[b_len];
}

static void complain_unknown(const char *name, size_t len) {
  const struct setting *best = &settings[0];
  unsigned best_distance = UINT_MAX;
  for (size_t i = 0; i < COUNT(settings); i++) {
    unsigned d = distance(name, len < NAME_LONGEST ? len : NAME_LONGEST, settings[i].name);
    if (d < best_distance) {
      best_distance = d;
      best = &settings[i];
    }
  }
  env_complain(PREFIX "%.*s is no setting of cirron and is ignored; the closest one is " PREFIX "%s", len < 60 ? (int)len : 60,
               name, best->name);
}

static void check_names(void) {
  for (char **entry = environ; entry && *entry; entry++) {
    if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
      continue;
    const char *name = *entry + strlen(PREFIX);
    size_t len = strcspn(name, "=");
    if (!is_known(name, len))
      complain_unknown(name, len);
  }
}

void env_read(struct env *out) {
  *out = (struct env){.enabled = true,
                      .autostart = true,
                      .ring_cells = (1u << 20) / RING_CELL,
                      .ring_cells_max = (16u << 20) / RING_CELL,
                      .module_depth = 1,
                      .sample_rate = 0.01,
                      .snapshot_wait_ms = 1000,
                      .snapshot_max_bytes = 10000000000,
                      .flush_interval = 1.0,
                      .frameworks = ENV_FRAMEWORKS_ALL,
                      .output = ENV_SPOOL,
                      .spool_max_bytes = 1000000000};
  for (size_t i = 0; i < COUNT(settings); i++) {
    setting_read(&settings[i], out);
    if (!out->enabled) /* the first of the table: off is off, without a word */
      return;
  }
  out->frameworks &= ENV_FRAMEWORKS_ALL; /* none is none of them */
  check_names();
  debug_on = out->debug;
}

static bool is_on(const char *name, bool fallback) {
  const char *text = getenv(name);
  bool value = fallback;
  return text && *text && parse_bool(text, &value) ? value : fallback;
}

void env_read_debug(void) {
  debug_on = is_on(PREFIX "ENABLED", true) && is_on(PREFIX "DEBUG", false);
}

/* Ranks and run id. */

/* The first of the two that is set and right. `told`: bad values are named once a process, not once a session. */
static int rank_of(const char *first, const char *second, bool *told) {
  const char *const names[] = {first, second};
  uint64_t value;
  for (int i = 0; i < 2; i++) {
    const char *text = getenv(names[i]);
    if (!text || !*text)
      continue;
    if (parse_uint(text, INT_MAX, &value))
      return (int)value;
    if (!*told)
      env_complain("%s=%.60s is not allowed: a whole number from 0 to %d; taken as not set", names[i], text, INT_MAX);
    *told = true;
  }
  return -1;
}

struct env_ranks env_ranks(void) {
  static bool told[3];
  return (struct env_ranks){
      .rank = rank_of("RANK", "SLURM_PROCID", &told[0]),
      .local_rank = rank_of("LOCAL_RANK", "SLURM_LOCALID", &told[1]),
      .world_size = rank_of("WORLD_SIZE", "SLURM_NTASKS", &told[2]),
  };
}

const char *env_run_id(void) {
  static const char *const names[] = {"CIRRON_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
  for (size_t i = 0; i < COUNT(names); i++) {
    const char *text = getenv(names[i]);
    if (text && *text)
      return text;
  }
  return "";
}
