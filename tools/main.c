/* cirron-query: reads a store. The order of things: command line, store, command. */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd.h"
#include "db.h"
#include "say.h"
#include "units.h"

static const struct cli_command commands[] = {
    {"report", "", "What a person wants first: how it ended, where the time went, first bad value",
     "Of several sessions it takes the latest that trains. --check makes it a test for scripts:\n"
     "  complete  nothing was dropped        finished  the program ended by itself with status 0\n"
     "  finite    no mark, weight or gradient is NaN or infinite\n",
     cmd_report, CLI_SESSION | CLI_CHECKS | CLI_STORES, 0, 0},
    {"sessions", "", "One row a traced process", NULL, cmd_sessions, CLI_SESSION | CLI_LIMIT | CLI_STORES, 0, 0},
    {"tree", "", "The spans as they lie in each other, repeated ones collapsed",
     "Of more than three spans of a name in a row it shows the first, the slowest and those with an error.\n", cmd_tree,
     CLI_SESSION | CLI_DEPTH | CLI_LAST | CLI_ALL, 0, 0},
    {"steps", "", "One row a training step, with the time of each phase", NULL, cmd_steps,
     CLI_SESSION | CLI_LIMIT | CLI_SLOWEST | CLI_STORES, 0, 0},
    {"spans", "", "One row a span", NULL, cmd_spans, CLI_SESSION | CLI_LIMIT | CLI_NAME | CLI_KIND | CLI_SLOWEST | CLI_STORES,
     0, 0},
    {"stats", "", "One row a name: count, total, own time, mean, p50, p90, p99, longest",
     "Reads all spans, which takes about half a second for ten million; --fast reads the sums kept while recording.\n"
     "SELF is the time without that of direct children.\n",
     cmd_stats, CLI_SESSION | CLI_LIMIT | CLI_NAME | CLI_KIND | CLI_FAST, 0, 0},
    {"marks", "", "One row a value marked by the program", NULL, cmd_marks, CLI_SESSION | CLI_LIMIT | CLI_NAME | CLI_STORES, 0,
     0},
    {"ranks", "", "The ranks of a job compared, step by step: who is slow, who waited for whom",
     "Of several jobs it takes the latest, or that of --session. Times in phases are of a step (mean). WAITED is the time a\n"
     "rank waited for others, most of it FOR that one; WAITED FOR IT is how long others waited for it.\n"
     "One store a host: cirron-query ranks --db host-a.db --db host-b.db\n",
     cmd_ranks, CLI_SESSION | CLI_LIMIT | CLI_STEPS | CLI_STORES, 0, 0},
    {"status", "", "What each rank of the jobs that run does now, and who waits for whom",
     "STATE is runs, waits (for other ranks), late (others wait for it), stalled (for 5 s and three steps), ended or missing.\n"
     "Works while a job hangs.\n",
     cmd_status, CLI_SESSION | CLI_STORES, 0, 0},
    {"overhead", "[SINCE]", "What recording cost, from runs under cirron run --overhead-check",
     "Blocks of steps that are observed and blocks that are not took turns; a pair of them gives a difference. Shown is the\n"
     "median of the differences with its 95 % interval. SINCE: only sessions that began at or after this time, in\n"
     "nanoseconds since 1970; without it and --session the latest one. Status 3: there is none that has ended.\n",
     cmd_overhead, CLI_SESSION, 1, 0},
    {"snapshots", "[TENSOR]",
     "Statistics of weights and gradients, a row a tensor; of TENSOR (* matches anything) a row a snapshot",
     "NORM BY TIME is the norm of each snapshot, the first to the last (! where a number was not finite), HISTOGRAM the last\n"
     "one's numbers from the least to the greatest. A gradient is called as its weight, with .grad behind. The other formats\n"
     "have all records, each with its statistics. --kind is weight or gradient.\n"
     "  cirron-query snapshots 'layer4.*' --kind gradient\n",
     cmd_snapshots, CLI_SESSION | CLI_LIMIT | CLI_TENSORS | CLI_EPOCH | CLI_STORES, 1, 0},
    {"diff-tensors", "A B", "What became of each weight and gradient between two snapshots, the most changed first",
     "A and B are epochs: a number, first or last; or step=N; of another session: SESSION:EPOCH.\n"
     "CHANGE is the largest part by which the norm, the spread, or the mean in spreads moved, or DISTANCE: the part of the\n"
     "numbers that would have to take another magnitude. Those that did not change at all come last.\n"
     "  cirron-query diff-tensors 0 last --kind weight\n",
     cmd_diff_tensors, CLI_SESSION | CLI_LIMIT | CLI_TENSORS | CLI_STORES, 2, 2},
    {"first-bad", "",
     "The first loss, weight or gradient that was not finite, where, and the last good one; status 3 if there is one",
     "Judges all numbers that were marked, and the snapshots. Tensors are those of the first snapshot with a bad one: "
     "gradients,\n"
     "then weights, each in the model's order. What could not be judged is said.\n",
     cmd_first_bad, CLI_SESSION | CLI_LIMIT | CLI_STORES, 0, 0},
    {"snapshot", "now", "Asks a running training for a snapshot, and waits for it",
     "It is taken at the end of the next step. Without --session all that run are asked. The collector is that of\n"
     "$CIRRON_SOCKET, else the private one of this store, the user's or the system's; it takes the word of the session's user\n"
     "and of root.\n",
     cmd_snapshot, CLI_SESSION | CLI_TIMEOUT, 1, 1},
    {"sql", "QUERY", "The rows of an SQL query; it can only read",
     "Tables: sessions, epochs, steps, marks, names, rollups, snapshots, snapshot_passes, kernels; and spans, with a row a "
     "span.\n"
     "  cirron-query sql 'SELECT name, count(*), avg(dur_ns) FROM spans GROUP BY name'\n",
     cmd_sql, CLI_LIMIT, 1, 1},
    {"clear", "", "Removes sessions that have ended, with all that was recorded of them",
     "Asks before, or needs --yes. Running sessions stay. The other commands never write; this one may be used while a "
     "collector\n"
     "does. Without --before, --keep or --session: all that have ended.\n",
     cmd_clear, CLI_SESSION | CLI_CLEAR, 0, 0},
    {"doctor", "", "What is wrong with kernel, agent, collector or store, and what to do; status 3 if anything fails",
     "One line a finding: ok, warn or fail, the area, what was found; behind a semicolon what to do.\n", cmd_doctor,
     CLI_NO_STORE, 0, 0},
    {0},
};

int64_t cmd_limit(const struct cli *cli) {
  if (cli->limit >= 0)
    return cli->limit ? cli->limit : INT64_MAX;
  return cli->format == OUT_TABLE ? CMD_TABLE_ROWS : INT64_MAX;
}

void cmd_more(const struct cli *cli, int64_t shown) {
  if (cli->limit < 0)
    say("there are more than these %lld; --limit N shows N, --limit 0 all", (long long)shown);
}

int cmd_each_store(const struct cli *cli, int (*each)(const struct cli *cli, void *arg), void *arg) {
  int error = 0;
  for (size_t i = 0; i < cli->store_count && !error; i++) {
    struct cli one = *cli;
    one.store = cli->stores[i];
    error = each(&one, arg);
  }
  return error;
}

bool cmd_one_order(const struct cli *cli) {
  if (!cli->slowest || cli->store_count < 2)
    return true;
  say("--slowest is for one store; only one --db has a meaning with it");
  return false;
}

void cmd_none(const struct cli *cli, const char *what, int64_t shown) {
  if (cli->format == OUT_TABLE && shown == 0)
    say("there are no %s%s", what,
        cli->session || cli->rank >= 0 || cli->name || cli->kind_text || cli->epoch >= 0 || cli->arg_count ? " that fit"
        : cli->store_count > 1                                                                             ? " in these stores"
                                                                                                           : " in this store");
}

/* Whatever was printed has to have arrived. */
static int finish(int status) {
  errno = 0;
  int error = fflush(stdout) != 0 || ferror(stdout) ? (errno ? errno : EPIPE) : 0;
  int written = cli_written(-error);
  return status ? status : written;
}

static int open_stores(struct cli *cli) {
  char why[1024], note[1024];
  size_t count = cli->db_count ? cli->db_count : 1;
  for (size_t i = 0; i < count; i++) {
    const char *path;
    if (db_find(cli->dbs[i], &path, why, sizeof why) != 0 ||
        db_open(path, &cli->stores[i], why, sizeof why, note, sizeof note) != 0) {
      say("%s", why);
      return CLI_ERROR;
    }
    cli->store_count++;
    if (*note)
      say("%s", note);
  }
  cli->store = cli->stores[0];
  return CLI_OK;
}

int main(int argc, char **argv) {
  struct cli cli;
  int status;

  setlocale(LC_CTYPE, "");  /* numbers stay as in C */
  signal(SIGPIPE, SIG_IGN); /* `cirron-query spans | head` is no error; writes then fail with EPIPE */
  const struct cli_command *command = cli_parse(argc, argv, commands, &cli, &status);
  if (!command)
    return finish(status);
  out_style(stdout, &cli.style);
  units_init(cli.style.utf8);
  if (command->options & CLI_NO_STORE)
    return finish(command->run(&cli));
  status = open_stores(&cli);
  if (!status)
    status = command->run(&cli);
  for (size_t i = 0; i < cli.store_count; i++)
    sqlite3_close(cli.stores[i]);
  return finish(status);
}
