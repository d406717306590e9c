/* cirron-query report: picks the session, tells the facts, judges the checks that were asked for. */
#include <string.h>

#include "../proto/store_abi.h"
#include "cmd.h"
#include "jsontext.h"
#include "report.h"
#include "say.h"

static int print_json(const struct cli *cli, json_t *object) {
  struct buf line = {0};
  if (cli->format == OUT_JSONL)
    jsontext_dump(&line, object);
  else
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17));
  printf("%s\n", buf_text(&line));
  buf_fini(&line);
  json_decref(object);
  return out_file_error(stdout);
}

/* Says what does not hold. */
static int check(const struct cli *cli, const struct report *r) {
  const struct pick_session *s = r->session;
  struct buf line = {0};
  int status = CLI_OK;
  if ((cli->checks & CLI_CHECK_COMPLETE) && !report_complete(r)) {
    report_say_complete(r, true, &line);
    say("check complete does not hold: %s", line.data);
    status = CLI_CHECK;
  }
  if ((cli->checks & CLI_CHECK_FINISHED) &&
      (strcmp(s->state, SESSION_FINISHED) != 0 || s->exit_code > 0 || s->exit_signal > 0)) {
    buf_clear(&line);
    report_say_ending(r, true, &line);
    say("check finished does not hold: ended: %s", line.data);
    status = CLI_CHECK;
  }
  for (size_t i = 0; (cli->checks & CLI_CHECK_FINITE) && i < r->values_count; i++)
    if (r->values[i].bad_count) {
      say("check finite does not hold: mark '%s' has %lld values that are not finite", r->values[i].name,
          (long long)r->values[i].bad_count);
      status = CLI_CHECK;
    }
  if ((cli->checks & CLI_CHECK_FINITE) && r->tensors.pass) {
    buf_clear(&line);
    first_bad_say(&r->tensors, true, &line);
    say("check finite does not hold: %s", line.data);
    status = CLI_CHECK;
  }
  buf_fini(&line);
  return status;
}

static int no_sessions(const struct cli *cli) {
  if (cli->format == OUT_TABLE)
    puts("No process was traced into this store yet. Start one with LD_PRELOAD=libcirron_agent.so python train.py.");
  else
    print_json(cli, json_pack("{s:n}", "session"));
  if (cli->checks)
    say("the checks do not hold: there is no session");
  return cli->checks ? CLI_CHECK : CLI_OK;
}

int cmd_report(const struct cli *cli) {
  struct pick_session *sessions;
  struct report report;
  size_t count;
  if (cli->format == OUT_CSV) {
    say("report has no form csv; it has table, json and jsonl (steps --format csv has rows)");
    return CLI_USAGE;
  }
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  const struct pick_session *session = pick_main(sessions, count);
  if (!session)
    return no_sessions(cli);
  struct cli one = *cli;
  one.store = session->store;
  report_gather(&one, sessions, count, session, &report);
  int written = cli_written(cli->format == OUT_TABLE ? report_text(&one, &report) : print_json(cli, report_json(&report)));
  status = check(cli, &report);
  report_fini(&report);
  pick_free(sessions, count);
  return written ? written : status;
}
