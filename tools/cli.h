/* The command line: one table of options (cli.c) and one of commands (main.c) parse, check and print the help. */
#ifndef CIRRON_CLI_H
#define CIRRON_CLI_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "out.h"

/* Exit status. */
enum { CLI_OK = 0, CLI_ERROR = 1, CLI_USAGE = 2, CLI_CHECK = 3 };

#define CLI_STORES_MAX 64

/* Options that only some commands take. */
enum cli_option {
  CLI_SESSION = 1 << 0,
  CLI_LIMIT = 1 << 1,
  CLI_NAME = 1 << 2,
  CLI_KIND = 1 << 3,
  CLI_SLOWEST = 1 << 4,
  CLI_DEPTH = 1 << 5,
  CLI_LAST = 1 << 6,
  CLI_ALL = 1 << 7,
  CLI_CHECKS = 1 << 8,
  CLI_TENSORS = 1 << 9, /* --kind is one of tensors */
  CLI_TIMEOUT = 1 << 10,
  CLI_EPOCH = 1 << 11,
  CLI_CLEAR = 1 << 20,
  CLI_FAST = 1 << 21,
  CLI_STEPS = 1 << 23,
  CLI_STORES = 1 << 22,   /* no option: --db may be given several times */
  CLI_NO_STORE = 1 << 30, /* no option: the command runs without an open store */
};

enum cli_check { CLI_CHECK_COMPLETE = 1, CLI_CHECK_FINISHED = 2, CLI_CHECK_FINITE = 4 };

struct cli {
  const char *db; /* NULL: looked for; the first of several */
  enum out_format format;
  const char *session; /* lower-case hex digits, "last", or NULL */
  int64_t rank;        /* -1: all */
  int64_t limit;       /* -1: the command's own; 0: none */
  const char *name;
  int kind;              /* enum span_kind, or -1 */
  const char *kind_text; /* as it was given, or NULL */
  int tensor_kind;       /* enum snaps_kind, or 0 */
  int64_t epoch;         /* -1: not given */
  int64_t timeout;       /* seconds, -1: not given */
  bool slowest, all;
  int64_t depth, last; /* -1: not given */
  int64_t keep;        /* -1: not given */
  int64_t before_ns;   /* wall clock, 0: not given */
  bool yes, fast, steps;
  unsigned checks; /* bits of enum cli_check */
  char **args;     /* what follows the command */
  int arg_count;
  struct out_style style; /* of stdout */
  const char *dbs[CLI_STORES_MAX];
  size_t db_count;
  sqlite3 *stores[CLI_STORES_MAX]; /* opened by main.c, in the order of dbs */
  size_t store_count;
  sqlite3 *store; /* the first; in what cmd_each_store calls, the one whose turn it is */
};

struct cli_command {
  const char *name, *args, *summary, *more; /* more: lines for the command's own help, or NULL */
  int (*run)(const struct cli *cli);        /* returns the exit status */
  unsigned options;                         /* bits of enum cli_option, beside the common ones */
  int max_args, min_args;
};

/* Parses; returns the command, or NULL with *status: the program ends with that (help or version were printed, or one line about
 * what is wrong). The first of `commands`, which ends with an entry without a name, is the default. */
const struct cli_command *cli_parse(int argc, char **argv, const struct cli_command *commands, struct cli *out, int *status);

/* Name of a kind as in the table `spans`, and back (-1: none of that name). */
const char *cli_kind_name(int kind);
int cli_kind_find(const char *name);

/* The exit status for what out_row or out_end returned: an output that nobody reads any more is no error. */
int cli_written(int error);

#endif
