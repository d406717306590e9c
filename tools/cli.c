#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/ring_abi.h"
#include "buf.h"
#include "db.h"
#include "say.h"
#include "snaps.h"

static const char *const kinds[SPAN_KINDS] = {
    [SPAN_USER] = "user",       [SPAN_SESSION] = "session",   [SPAN_EPOCH] = "epoch",
    [SPAN_EVAL] = "eval",       [SPAN_STEP] = "step",         [SPAN_DATA_LOAD] = "data_load",
    [SPAN_FORWARD] = "forward", [SPAN_BACKWARD] = "backward", [SPAN_OPTIMIZER] = "optimizer_step",
    [SPAN_BATCH] = "batch",     [SPAN_FETCH] = "fetch",       [SPAN_COLLECTIVE] = "collective",
};

const char *cli_kind_name(int kind) {
  return kind >= 0 && kind < SPAN_KINDS ? kinds[kind] : "unknown";
}

int cli_kind_find(const char *name) {
  for (int i = 0; i < SPAN_KINDS; i++)
    if (strcmp(name, kinds[i]) == 0)
      return i;
  return -1;
}

/* Each returns NULL, or what is allowed. */
static const char *set_db(struct cli *cli, char *value) {
  if (cli->db_count == CLI_STORES_MAX || !*value)
    return "a file, of at most 64";
  cli->dbs[cli->db_count++] = value;
  cli->db = cli->dbs[0];
  return NULL;
}

static const char *set_format(struct cli *cli, char *value) {
  return out_format_parse(value, &cli->format) ? NULL : "table, json, jsonl or csv";
}

static const char *set_json(struct cli *cli, char *value) {
  (void)value;
  cli->format = OUT_JSON;
  return NULL;
}

static const char *set_session(struct cli *cli, char *value) {
  cli->session = value;
  if (strcmp(value, "last") == 0)
    return NULL;
  size_t digits = strspn(value, "0123456789abcdefABCDEF");
  if (!digits || digits > 32 || value[digits])
    return "the first digits of a session's id (see `cirron-query sessions`), or last";
  for (char *s = value; *s; s++)
    *s = (char)tolower((unsigned char)*s);
  return NULL;
}

static const char *set_number(const char *value, int64_t least, int64_t most, int64_t *out) {
  static char allowed[64];
  char *end;
  errno = 0;
  long long n = strtoll(value, &end, 10);
  if (!isspace((unsigned char)*value) && end != value && !*end && !errno && n >= least && n <= most) {
    *out = n;
    return NULL;
  }
  snprintf(allowed, sizeof allowed, "a whole number from %lld to %lld", (long long)least, (long long)most);
  return allowed;
}

static const char *set_rank(struct cli *cli, char *value) {
  return set_number(value, 0, INT32_MAX, &cli->rank);
}

static const char *set_limit(struct cli *cli, char *value) {
  return set_number(value, 0, INT64_C(1) << 40, &cli->limit);
}

static const char *set_depth(struct cli *cli, char *value) {
  return set_number(value, 0, 1000, &cli->depth);
}

static const char *set_last(struct cli *cli, char *value) {
  return set_number(value, 1, INT32_MAX, &cli->last);
}

static const char *set_keep(struct cli *cli, char *value) {
  return set_number(value, 0, INT32_MAX, &cli->keep);
}

static const char *set_yes(struct cli *cli, char *value) {
  (void)value;
  cli->yes = true;
  return NULL;
}

static const char *set_fast(struct cli *cli, char *value) {
  (void)value;
  cli->fast = true;
  return NULL;
}

static const char *set_steps(struct cli *cli, char *value) {
  (void)value;
  cli->steps = true;
  return NULL;
}

/* "7d": so long ago. Seconds, or -1. */
static int64_t set_ago(const char *value) {
  char *end;
  errno = 0;
  long n = strtol(value, &end, 10);
  int64_t unit = *end == 'd' ? 86400 : *end == 'h' ? 3600 : *end == 'm' ? 60 : 0;
  return isdigit((unsigned char)*value) && unit && !end[1] && !errno && n < INT32_MAX ? n * unit : -1;
}

static const char *set_before(struct cli *cli, char *value) {
  static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};
  int64_t ago = set_ago(value);
  time_t at = ago >= 0 ? time(NULL) - ago : -1;
  for (size_t i = 0; at == -1 && i < sizeof forms / sizeof *forms; i++) {
    struct tm parts = {.tm_isdst = -1};
    const char *end = strptime(value, forms[i], &parts);
    at = end && !*end ? mktime(&parts) : -1; /* local time */
  }
  cli->before_ns = (int64_t)at * 1000000000;
  return at > 0 ? NULL : "a time like 2026-01-31 or 2026-01-31T12:00, or how long ago like 7d, 12h or 30m";
}

static const char *set_name(struct cli *cli, char *value) {
  cli->name = value;
  return NULL;
}

static const char span_kinds[] =
    "user, session, epoch, eval, step, data_load, forward, backward, optimizer_step, batch, fetch or collective";
static const char tensor_kinds[] = "weight or gradient";

/* Whether it is one for the command is known later. */
static const char *set_kind(struct cli *cli, char *value) {
  cli->kind = cli_kind_find(value);
  cli->tensor_kind = strcmp(value, "weight") == 0 ? SNAPS_WEIGHT : strcmp(value, "gradient") == 0 ? SNAPS_GRADIENT : 0;
  cli->kind_text = value;
  return NULL;
}

static const char *wrong_kind(const struct cli *cli, const struct cli_command *command) {
  bool tensors = command->options & CLI_TENSORS;
  if (!cli->kind_text || (tensors ? cli->tensor_kind != 0 : cli->kind >= 0))
    return NULL;
  return tensors ? tensor_kinds : span_kinds;
}

static const char *set_epoch(struct cli *cli, char *value) {
  return set_number(value, 0, INT64_C(1) << 40, &cli->epoch);
}

static const char *set_timeout(struct cli *cli, char *value) {
  return set_number(value, 0, 86400, &cli->timeout);
}

static const char *set_slowest(struct cli *cli, char *value) {
  (void)value;
  cli->slowest = true;
  return NULL;
}

static const char *set_all(struct cli *cli, char *value) {
  (void)value;
  cli->all = true;
  return NULL;
}

static const char *set_checks(struct cli *cli, char *value) {
  static const char *const names[] = {"complete", "finished", "finite"};
  for (char *rest = value, *one; (one = strsep(&rest, ","));) {
    size_t i = 0;
    while (i < 3 && strcmp(one, names[i]) != 0)
      i++;
    if (i == 3)
      return "complete, finished, finite, or some of them with commas between";
    cli->checks |= 1u << i;
  }
  return NULL;
}

static const struct {
  const char *name, *value, *help;
  const char *(*set)(struct cli *cli, char *value);
  unsigned only; /* for commands that have this bit; 0: for all */
} options[] = {
    {"db", "PATH", "the store (several times: one of each host); else $CIRRON_DB, " DB_USER_STORE ", " DB_SYSTEM_STORE, set_db,
     0},
    {"format", "FORMAT", "table (default), json, jsonl (one object a line) or csv", set_format, 0},
    {"json", NULL, "the same as --format json", set_json, 0},
    {"session", "ID", "one session: the first digits of its id, or last", set_session, CLI_SESSION},
    {"rank", "N", "only sessions of this rank", set_rank, CLI_SESSION},
    {"limit", "N", "at most N rows; 0: all", set_limit, CLI_LIMIT},
    {"name", "NAME", "only those of this name", set_name, CLI_NAME},
    {"kind", "KIND", "only spans of this kind: step, forward, user, ...; of tensors: weight, gradient", set_kind,
     CLI_KIND | CLI_TENSORS},
    {"epoch", "N", "only snapshots of this epoch", set_epoch, CLI_EPOCH},
    {"timeout", "SECONDS", "how long to wait for it (30)", set_timeout, CLI_TIMEOUT},
    {"slowest", NULL, "the longest first", set_slowest, CLI_SLOWEST},
    {"depth", "N", "only N levels below the session", set_depth, CLI_DEPTH},
    {"last", "N", "the last N sessions instead of one", set_last, CLI_LAST},
    {"all", NULL, "show each span, collapse nothing", set_all, CLI_ALL},
    {"before", "TIME", "only what ended before 2026-01-31, 2026-01-31T12:00, or 7d, 12h, 30m ago", set_before, CLI_CLEAR},
    {"keep", "N", "all but the N that ended last", set_keep, CLI_CLEAR},
    {"yes", NULL, "do not ask", set_yes, CLI_CLEAR},
    {"fast", NULL, "from the sums kept while recording; quantiles are then within 6 % or so", set_fast, CLI_FAST},
    {"steps", NULL, "one row a step: how long a rank waited in it for others, and for which", set_steps, CLI_STEPS},
    {"check", "WHAT", "exit with 3 unless it holds: complete, finished, finite (or a,b)", set_checks, CLI_CHECKS},
};

enum { OPTIONS = sizeof options / sizeof *options, HELP = OPTIONS, VERSION };

static void print_options(unsigned mask, bool common) {
  for (size_t i = 0; i < OPTIONS; i++) {
    char left[40];
    if (options[i].only ? !(mask & options[i].only) : !common)
      continue;
    snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value ? " " : "",
             options[i].value ? options[i].value : "");
    printf("  %-19s %s\n", left, options[i].help);
  }
}

static void print_help(const struct cli_command *commands) {
  printf("Usage: cirron-query [OPTION ...] [COMMAND [ARGUMENT ...]]\n"
         "Reads what collectord stored of training runs. Without a command: report.\n\nCommands:\n");
  for (const struct cli_command *c = commands; c->name; c++) {
    char left[40];
    snprintf(left, sizeof left, "%s%s%s", c->name, *c->args ? " " : "", c->args);
    printf("  %-19s %s\n", left, c->summary);
  }
  printf("\nOptions, before or after the command:\n");
  print_options(~0u, true);
  printf("  %-19s %s\n  %-19s %s\n", "--help", "this text, or with a command, that of the command", "--version", "the version");
  printf("\nExit status: 0 done, 1 error, 2 wrong usage, 3 what was asked for does not hold (--check), or first-bad\n"
         "found something.\n");
}

static void print_command_help(const struct cli_command *c) {
  printf("Usage: cirron-query %s%s%s [OPTION ...]\n%s.\n", c->name, *c->args ? " " : "", c->args, c->summary);
  if (c->more)
    printf("\n%s", c->more);
  if (c->options & ~(unsigned)CLI_NO_STORE) {
    printf("\nOptions of this command:\n");
    print_options(c->options, false);
  }
  printf("\nCommon options:\n");
  print_options(0, true);
}

static int usage(const char *format, const char *a, const char *b, const char *c) {
  struct buf line = {0};
  /* The formats are all in this file and use what they are given in this order. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  buf_printf(&line, format, a, b, c);
#pragma GCC diagnostic pop
  say("%s", buf_text(&line));
  buf_fini(&line);
  return CLI_USAGE;
}

static const struct cli_command *find_command(const char *name, const struct cli_command *commands) {
  for (const struct cli_command *c = commands; c->name; c++)
    if (strcmp(c->name, name) == 0)
      return c;
  return NULL;
}

static int wrong_command(const char *name, const struct cli_command *commands) {
  struct buf list = {0};
  for (const struct cli_command *c = commands; c->name; c++)
    buf_printf(&list, "%s%s", c->name, c[1].name ? (c[2].name ? ", " : " or ") : "");
  int status = usage("no command '%s'; there is %s", name, buf_text(&list), NULL);
  buf_fini(&list);
  return status;
}

/* Reads the options; *seen gets the bits of `only` that were used, by option. */
static int parse_options(int argc, char **argv, struct cli *out, bool *seen, bool *help, bool *version) {
  struct option longs[OPTIONS + 3] = {0};
  for (int i = 0; i < OPTIONS; i++)
    longs[i] = (struct option){options[i].name, options[i].value ? required_argument : no_argument, NULL, i + 256};
  longs[OPTIONS] = (struct option){"help", no_argument, NULL, HELP + 256};
  longs[OPTIONS + 1] = (struct option){"version", no_argument, NULL, VERSION + 256};
  opterr = 0;
  optind = 0;
  for (int got; (got = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
    int i = got - 256;
    const char *allowed;
    if (got == ':')
      return usage("%s needs a value; see --help", argv[optind - 1], NULL, NULL);
    if (got == '?')
      return usage("no option %s (or not with a value, or not clear which is meant); see --help", argv[optind - 1], NULL, NULL);
    if (got == 'h' || i == HELP) {
      *help = true;
    } else if (i == VERSION) {
      *version = true;
    } else {
      seen[i] = true;
      if ((allowed = options[i].set(out, optarg)))
        return usage("--%s '%s': it has to be %s", options[i].name, optarg, allowed);
    }
  }
  return CLI_OK;
}

const struct cli_command *cli_parse(int argc, char **argv, const struct cli_command *commands, struct cli *out, int *status) {
  bool seen[OPTIONS] = {false}, help = false, version = false;
  *out = (struct cli){.rank = -1, .limit = -1, .kind = -1, .depth = -1, .last = -1, .keep = -1, .epoch = -1, .timeout = -1};
  *status = parse_options(argc, argv, out, seen, &help, &version);
  if (*status)
    return NULL;
  if (version) {
    printf("cirron-query %s\n", CIRRON_VERSION);
    return NULL;
  }
  const char *name = optind < argc ? argv[optind++] : NULL;
  const struct cli_command *command = name ? find_command(name, commands) : commands;
  if (!command) {
    *status = wrong_command(name, commands);
    return NULL;
  }
  if (help) {
    if (name)
      print_command_help(command);
    else
      print_help(commands);
    return NULL;
  }
  out->args = argv + optind;
  out->arg_count = argc - optind;
  for (size_t i = 0; i < OPTIONS && !*status; i++)
    if (seen[i] && options[i].only && !(command->options & options[i].only))
      *status = usage("--%s has no meaning for %s; see cirron-query %s --help", options[i].name, command->name, command->name);
  const char *allowed = *status ? NULL : wrong_kind(out, command);
  if (allowed)
    *status = usage("--kind '%s': it has to be %s", out->kind_text, allowed, NULL);
  if (!*status && out->db_count > 1 && !(command->options & CLI_STORES))
    *status = usage("%s reads one store; only one --db has a meaning for it", command->name, NULL, NULL);
  if (!*status && out->arg_count < command->min_args)
    *status = usage("%s needs %s; see cirron-query %s --help", command->name, command->args, command->name);
  if (!*status && out->arg_count > command->max_args)
    *status = usage("'%s' is too much for %s; see cirron-query %s --help", out->args[command->max_args], command->name,
                    command->name);
  return *status ? NULL : command;
}

int cli_written(int error) {
  if (!error || error == -EPIPE)
    return CLI_OK;
  say("writing failed: %s", strerror(-error));
  return CLI_ERROR;
}
