/* cirron-query overhead */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/store_abi.h"
#include "cmd.h"
#include "jsontext.h"
#include "overhead.h"
#include "say.h"
#include "text.h"

static void print(const struct cli *cli, const struct pick_session *s, const struct overhead *o) {
  struct buf line = {0}, command = {0};
  if (cli->format == OUT_TABLE) {
    pick_command(s, &command);
    printf("%.8s ", s->id);
    text_show_cut(&line, buf_text(&command), command.len, cli->style.utf8, 80);
    printf("%s\n", buf_text(&line));
    for (unsigned i = 0; overhead_say(o, i, &line); i++)
      printf("  %s\n", line.data);
  } else {
    json_t *object = overhead_json(o);
    json_object_set_new(object, "session_id", json_string(s->id));
    jsontext_dump(&line, object);
    printf("%s\n", buf_text(&line));
    json_decref(object);
  }
  buf_fini(&line);
  buf_fini(&command);
}

static bool parse_since(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  *out = value;
  return *text >= '0' && *text <= '9' && !*end && !errno;
}

/* Sessions of other processes of a job have no pairs: they are told of only where no session has any. */
static int tell(const struct cli *cli, const struct pick_session *sessions, size_t count, int64_t since_ns, bool one) {
  size_t with = 0, without = SIZE_MAX, running = 0;
  for (size_t i = count; i-- > 0;) {
    struct overhead o;
    if (sessions[i].start_ns < since_ns)
      continue;
    overhead_gather(cli->store, &sessions[i], &o);
    if (!o.checked)
      continue;
    running += strcmp(sessions[i].state, SESSION_RUNNING) == 0;
    without = without == SIZE_MAX || sessions[i].spans > sessions[without].spans ? i : without;
    if (!o.pairs)
      continue;
    print(cli, &sessions[i], &o);
    with++;
    if (one)
      break;
  }
  if (!with && without != SIZE_MAX) {
    struct overhead o;
    overhead_gather(cli->store, &sessions[without], &o);
    print(cli, &sessions[without], &o);
  }
  return running || without == SIZE_MAX ? CLI_CHECK : CLI_OK;
}

int cmd_overhead(const struct cli *cli) {
  struct pick_session *sessions;
  size_t count;
  int64_t since_ns = 0;
  if (cli->format == OUT_CSV) {
    say("overhead has no form csv; it has table, json and jsonl");
    return CLI_USAGE;
  }
  if (cli->arg_count && !parse_since(cli->args[0], &since_ns)) {
    say("'%s' is no time in nanoseconds since 1970", cli->args[0]);
    return CLI_USAGE;
  }
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  status = tell(cli, sessions, count, since_ns, !cli->arg_count);
  if (status == CLI_CHECK)
    say("no session that has ended is an overhead check; record one with cirron run --overhead-check");
  pick_free(sessions, count);
  int error = out_file_error(stdout);
  return error ? cli_written(error) : status;
}
