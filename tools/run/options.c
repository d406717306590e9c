#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../../proto/ring_abi.h"
#include "start.h"

enum kind { OURS, FLAG, TEXT, WORD, NUMBER, SIZE };

static const struct option {
  const char *name, *value, *setting; /* setting: the variable; for a FLAG with its value */
  enum kind kind;
  const char *allowed; /* WORD: the words; else for people */
  const char *help;
} options[] = {
    {"agent", "FILE", NULL, OURS, "a file", "the agent (default: the one that belongs to this program)"},
    {"no-check", NULL, NULL, OURS, NULL, "start also where no collector can be found"},
    {"socket", "PATH", "CIRRON_SOCKET", TEXT, "a path of 1 to 107 bytes", "record to the collector that listens there"},
    {"no-autostart", NULL, "CIRRON_AUTOSTART=0", FLAG, NULL, "start no private collector"},
    {"run-id", "TEXT", "CIRRON_RUN_ID", TEXT, "a text", "name of the run, the same in all ranks"},
    {"module-depth", "N", "CIRRON_MODULE_DEPTH", NUMBER, "a whole number from 1 to 63",
     "levels of nested modules that get a forward span"},
    {"cpu-time", "WHEN", "CIRRON_CPU_TIME", WORD, "auto|on|off", "CPU time of steps and epochs (auto), of all spans, of none"},
    {"workers", NULL, "CIRRON_WORKERS=1", FLAG, NULL, "fetch spans of a DataLoader's worker processes"},
    {"overhead-check", NULL, "CIRRON_OVERHEAD_CHECK=1", FLAG, NULL,
     "leave about every second block of steps unobserved, and say at the end what recording costs"},
    {"ring-bytes", "SIZE", "CIRRON_RING_BYTES", SIZE, "64K to 64M, in bytes or with K or M", "memory for one thread's records"},
    {"transport", "HOW", "CIRRON_TRANSPORT", WORD, "auto|socket", "how records travel: shared memory, or messages"},
    {"debug", NULL, "CIRRON_DEBUG=1", FLAG, NULL, "say on stderr what the agent decides"},
};
#define COUNT (sizeof options / sizeof *options)

static bool is_word(const char *text, const char *words) {
  size_t len = strlen(text);
  for (size_t n; *words; words += n + (words[n] == '|')) {
    n = strcspn(words, "|");
    if (n == len && strncasecmp(words, text, n) == 0)
      return true;
  }
  return false;
}

/* The number at the beginning of `text`, and where it ends. */
static bool number(const char *text, uint64_t most, uint64_t *out, const char **end) {
  char *stop;
  errno = 0;
  unsigned long long value = strtoull(text, &stop, 10);
  *end = stop;
  *out = value;
  return isdigit((unsigned char)text[0]) && !errno && value <= most;
}

static bool is_allowed(const struct option *o, const char *text) {
  uint64_t value;
  const char *end;
  switch (o->kind) {
  case TEXT:
    return *text && (strcmp(o->name, "socket") != 0 || strlen(text) < 108);
  case WORD:
    return is_word(text, o->allowed);
  case NUMBER:
    return number(text, 63, &value, &end) && !*end && value >= 1;
  case SIZE:
    if (!number(text, UINT32_MAX, &value, &end))
      return false;
    value *= *end == 'K' || *end == 'k' ? 1024 : *end == 'M' || *end == 'm' ? 1024 * 1024 : 1;
    end += *end && strchr("kKmM", *end);
    return !*end && value >= (uint64_t)RING_MIN_CELLS * RING_CELL && value <= (uint64_t)RING_MAX_CELLS * RING_CELL;
  default:
    return *text;
  }
}

static void apply(const struct option *o, const char *text, struct options *out) {
  char name[40];
  if (o->kind == OURS) {
    if (o->value)
      out->agent = text;
    else
      out->no_check = true;
    return;
  }
  snprintf(name, sizeof name, "%.*s", (int)strcspn(o->setting, "="), o->setting);
  if (o->kind == FLAG)
    text = strchr(o->setting, '=') + 1;
  out->overhead_check |= strcmp(name, "CIRRON_OVERHEAD_CHECK") == 0;
  if (setenv(name, text, 1) != 0)
    exit(start_say(START_TROUBLE, "out of memory"));
}

static const struct option *find(const char *arg) {
  size_t len = strcspn(arg, "=");
  for (size_t i = 0; i < COUNT; i++)
    if (strlen(options[i].name) == len && memcmp(options[i].name, arg, len) == 0)
      return &options[i];
  return NULL;
}

enum options_result options_parse(int argc, char **argv, struct options *out) {
  *out = (struct options){0};
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; i++) {
    if (strcmp(argv[i], "--") == 0) {
      i++;
      break;
    }
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      return OPTIONS_HELP;
    const struct option *o = argv[i][1] == '-' ? find(argv[i] + 2) : NULL;
    const char *given = argv[i], *value = strchr(argv[i], '=');
    if (!o || (value && !o->value)) {
      start_say(0, o ? "--%s takes no value" : "no option %s; see cirron run --help", o ? o->name : given);
      return OPTIONS_WRONG;
    }
    if (value)
      value++;
    else if (o->value)
      value = i + 1 < argc ? argv[++i] : NULL;
    if (o->value && !value) {
      start_say(0, "--%s needs a value; see cirron run --help", o->name);
      return OPTIONS_WRONG;
    }
    if (o->value && !is_allowed(o, value)) {
      start_say(0, "--%s '%s': it has to be %s", o->name, value, o->allowed);
      return OPTIONS_WRONG;
    }
    apply(o, value, out);
  }
  if (i >= argc) {
    start_say(0, "run needs a command: cirron run [OPTION ...] -- COMMAND [ARGUMENT ...]");
    return OPTIONS_WRONG;
  }
  out->command = argv + i;
  return OPTIONS_RUN;
}

void options_help(void) {
  printf("Usage: cirron run [OPTION ...] [--] COMMAND [ARGUMENT ...]\n"
         "Becomes COMMAND, with the agent loaded into it. Nothing stays in between: signals and exit status are its own.\n"
         "(With --overhead-check it waits for COMMAND, passes signals on, and ends as COMMAND did.)\n\n"
         "Options:\n");
  for (size_t i = 0; i < COUNT; i++) {
    char left[40];
    snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value ? " " : "",
             options[i].value ? options[i].value : "");
    printf("  %-19s %s\n", left, options[i].help);
  }
  printf("  %-19s %s\n\n"
         "The other settings of the agent are environment variables: see cirron-settings(7).\n"
         "Exit status: that of COMMAND; 125 cirron itself failed, 126 COMMAND cannot be run, 127 it was not found.\n",
         "--help", "this text");
}
