#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/link_abi.h"

#define DEFAULT_DB "/var/lib/cirron/traces.db"
#define SHARED_RATE 500000u /* a tenth of a core, and a hundred times what a training makes */

enum kind { FLAG, PATH, NAME, NUMBER };

struct option {
  const char *name;
  enum kind kind;
  size_t offset;
  uint64_t min, max;
  const char *value, *help;
};

#define FIELD(f) offsetof(struct config, f)

/* `config`, `help` and `version` are about the reading itself and have no field. */
static const struct option options[] = {
    {"socket", PATH, FIELD(socket), 0, 0, "PATH",
     "listen here (default: $XDG_RUNTIME_DIR/" LINK_USER_SOCKET ", else " LINK_SYSTEM_SOCKET ")"},
    {"db", PATH, FIELD(db), 0, 0, "PATH", "the store (default: " DEFAULT_DB ")"},
    {"foreground", FLAG, FIELD(foreground), 0, 0, NULL, "do not go into the background"},
    {"idle-exit", NUMBER, FIELD(idle_exit_s), 1, 86400, "SECONDS", "end when no session was alive for that long"},
    {"user", NAME, FIELD(user), 0, 0, "NAME", "give up root and run as this user"},
    {"group", NAME, FIELD(group), 0, 0, "NAME", "accept processes of this group's members too, and let them read the store"},
    {"any-user", FLAG, FIELD(any_user), 0, 0, NULL, "accept traced processes of every user, not only of our own and root"},
    {"max-sessions", NUMBER, FIELD(max_sessions), 1, 65536, "N", "sessions at a time (default: 256)"},
    {"max-user-sessions", NUMBER, FIELD(max_user_sessions), 1, 65536, "N",
     "those of one user (default: all; half of them with --group or --any-user)"},
    {"keep-days", NUMBER, FIELD(keep_days), 1, 36500, "N", "remove sessions that ended more than N days ago"},
    {"max-db-bytes", NUMBER, FIELD(max_db_bytes), 1 << 20, 1ull << 50, "N",
     "remove the oldest finished sessions when the store is larger"},
    {"max-rings", NUMBER, FIELD(max_rings), 1, 65536, "N", "threads of one session (default: 1024)"},
    {"max-rate", NUMBER, FIELD(max_rate), 100, 1000000000, "N",
     "spans and marks of one session a second (default: no limit; 500000 with --group or --any-user)"},
    {"max-session-bytes", NUMBER, FIELD(max_session_bytes), 1 << 20, 1ull << 50, "N",
     "what one session may send in all, 64 bytes a span and its texts (default: no limit)"},
};
#define OPTIONS (sizeof options / sizeof *options)

static const struct option *find(const char *name, size_t len) {
  for (size_t i = 0; i < OPTIONS; i++)
    if (strlen(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
      return &options[i];
  return NULL;
}

static bool number(const char *text, const struct option *o, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end || errno || value < o->min || value > o->max)
    return false;
  *out = value;
  return true;
}

/* Sets one option from its text; `where` says in a message where it stands. */
static bool set(struct config *c, const struct option *o, const char *text, const char *where, char *message, size_t len) {
  char *field = (char *)c + o->offset;
  switch (o->kind) {
  case FLAG:
    if (text && strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
      snprintf(message, len, "%s%s: \"%.60s\" is neither true nor false", where, o->name, text);
      return false;
    }
    *(bool *)field = !text || text[0] == 't';
    return true;
  case PATH:
    if (!*text || strlen(text) >= PATH_MAX) {
      snprintf(message, len, "%s%s: needs a path of 1 to %d bytes", where, o->name, PATH_MAX - 1);
      return false;
    }
    strcpy(field, text);
    return true;
  case NAME:
    if (!*text || strlen(text) >= sizeof c->user) {
      snprintf(message, len, "%s%s: needs a name of 1 to %zu bytes", where, o->name, sizeof c->user - 1);
      return false;
    }
    strcpy(field, text);
    return true;
  default:
    if (!number(text, o, (uint64_t *)field)) {
      snprintf(message, len, "%s%s: \"%.60s\" is not a whole number from %llu to %llu", where, o->name, text,
               (unsigned long long)o->min, (unsigned long long)o->max);
      return false;
    }
    return true;
  }
}

static char *trim(char *text) {
  while (isspace((unsigned char)*text))
    text++;
  size_t n = strlen(text);
  while (n && isspace((unsigned char)text[n - 1]))
    text[--n] = '\0';
  return text;
}

static bool file_line(struct config *c, char *line, const char *where, char *message, size_t len) {
  char *key = trim(line);
  if (!*key || *key == '#')
    return true;
  char *equals = strchr(key, '=');
  if (equals)
    *equals = '\0';
  char *name = trim(key);
  const struct option *o = equals ? find(name, strlen(name)) : NULL;
  if (!o) {
    snprintf(message, len, equals ? "%sunknown setting \"%.60s\"" : "%sneeds the form key = value: \"%.60s\"", where, name);
    return false;
  }
  return set(c, o, trim(equals + 1), where, message, len);
}

static bool file_read(struct config *c, const char *path, char *message, size_t len) {
  FILE *f = fopen(path, "re");
  if (!f) {
    snprintf(message, len, "config: cannot read %.500s (%s)", path, strerror(errno));
    return false;
  }
  char line[PATH_MAX + 64], where[600];
  bool ok = true;
  for (int n = 1; ok && fgets(line, sizeof line, f); n++) {
    snprintf(where, sizeof where, "%.500s:%d: ", path, n);
    size_t used = strlen(line);
    if (strlen(line) == sizeof line - 1 && line[used - 1] != '\n') {
      snprintf(message, len, "%sline is too long", where);
      ok = false;
    } else {
      ok = file_line(c, line, where, message, len);
    }
  }
  if (ok && ferror(f)) {
    snprintf(message, len, "config: cannot read %.500s", path);
    ok = false;
  }
  fclose(f);
  return ok;
}

static void help(char *out, size_t len) {
  size_t n = (size_t)snprintf(out, len,
                              "usage: collectord [options]\n"
                              "Keeps what traced training jobs report in a store, for cirron-query.\n\n");
  for (size_t i = 0; i < OPTIONS && n < len; i++) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value ? " " : "",
             options[i].value ? options[i].value : "");
    n += (size_t)snprintf(out + n, len - n, "  %-22s %s\n", left, options[i].help);
  }
  if (n < len)
    snprintf(out + n, len - n,
             "  %-22s lines of the form key = value, with the names above; the command line counts more\n"
             "  %-22s print the version\n  %-22s print this\n\n"
             "SIGTERM: keeps what has come in, ends with status 0. Status 1: cannot run, 2: usage.\n",
             "--config FILE", "--version", "--help");
}

/* The value of argv[*i], "--name=value" or "--name value"; NULL if there is none. */
static const char *value_of(int argc, char *const *argv, int *i) {
  const char *equals = strchr(argv[*i], '=');
  if (equals)
    return equals + 1;
  return *i + 1 < argc ? argv[++*i] : NULL;
}

static enum config_result walk(int argc, char *const *argv, struct config *c, const char **file, char *message, size_t len) {
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i], *name = arg + 2;
    if (strcmp(arg, "--help") == 0) {
      help(message, len);
      return CONFIG_DONE;
    }
    if (strcmp(arg, "--version") == 0) {
      snprintf(message, len, "collectord %s\n", CIRRON_VERSION);
      return CONFIG_DONE;
    }
    size_t name_len = strncmp(arg, "--", 2) == 0 ? strcspn(name, "=") : 0;
    bool is_file = name_len == 6 && memcmp(name, "config", 6) == 0;
    const struct option *o = name_len ? find(name, name_len) : NULL;
    if (!o && !is_file) {
      snprintf(message, len, "unknown option \"%.60s\"; --help lists them", arg);
      return CONFIG_INVALID;
    }
    if (o && o->kind == FLAG) {
      if (!set(c, o, strchr(arg, '=') ? strchr(arg, '=') + 1 : NULL, "--", message, len))
        return CONFIG_INVALID;
      continue;
    }
    const char *value = value_of(argc, argv, &i);
    if (!value) {
      snprintf(message, len, "--%.*s: needs a value", (int)name_len, name);
      return CONFIG_INVALID;
    }
    if (is_file)
      *file = value;
    else if (!set(c, o, value, "--", message, len))
      return CONFIG_INVALID;
  }
  return CONFIG_RUN;
}

static void defaults(struct config *c) {
  memset(c, 0, sizeof *c);
  c->max_sessions = 256;
  c->max_rings = 1024;
  strcpy(c->db, DEFAULT_DB);
}

enum config_result config_parse(int argc, char *const *argv, struct config *out, char *message, size_t message_len) {
  const char *file = NULL;
  defaults(out);
  enum config_result result = walk(argc, argv, out, &file, message, message_len);
  if (result != CONFIG_RUN)
    return result;
  if (file) { /* the file first, then the command line over it again */
    defaults(out);
    if (!file_read(out, file, message, message_len))
      return CONFIG_INVALID;
    result = walk(argc, argv, out, &file, message, message_len);
  }
  bool shared = out->any_user || out->group[0];
  if (!out->max_user_sessions) /* where several share it, one of them must not have it all */
    out->max_user_sessions = shared ? (out->max_sessions + 1) / 2 : out->max_sessions;
  if (!out->max_rate && shared)
    out->max_rate = SHARED_RATE;
  if (!out->socket[0]) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/')
      snprintf(out->socket, sizeof out->socket, "%.*s/%s", PATH_MAX - 64, runtime, LINK_USER_SOCKET);
    else
      strcpy(out->socket, LINK_SYSTEM_SOCKET);
  }
  return result;
}
