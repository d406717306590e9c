#include "pick.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "db.h"
#include "say.h"

/* Ranks of a job whose launcher gave no run id start within this time of each other. */
#define SAME_START_NS 60000000000

static char *text(sqlite3_stmt *stmt, int column) {
  const char *value = (const char *)sqlite3_column_text(stmt, column);
  return value ? buf_strdup(value) : NULL;
}

static int64_t number(sqlite3_stmt *stmt, int column, int64_t none) {
  return sqlite3_column_type(stmt, column) == SQLITE_NULL ? none : sqlite3_column_int64(stmt, column);
}

static const char columns[] =
    "SELECT sid, id, prefix, state, pid, ppid, rank, local_rank, world_size, host, exe, argv, cwd,"
    " python_version, run_id, start_ns, end_ns, last_ns, exit_code, exit_signal, spans, marks, emitted_spans,"
    " emitted_marks, dropped, dropped_total, overhead_ns, attrs FROM sessions"
    " WHERE (?1 < 0 OR coalesce(rank, 0) = ?1) AND state <> '" SESSION_ERASED "' ORDER BY start_ns, sid";

static void read_row(sqlite3 *store, sqlite3_stmt *stmt, struct pick_session *s) {
  const char *id = (const char *)sqlite3_column_text(stmt, 1), *prefix = (const char *)sqlite3_column_text(stmt, 2);
  *s = (struct pick_session){.store = store, .sid = sqlite3_column_int64(stmt, 0)};
  snprintf(s->id, sizeof s->id, "%.32s", id ? id : "");
  s->prefix = strtoull(prefix ? prefix : "", NULL, 16);
  s->state = text(stmt, 3);
  if (!s->state)
    s->state = buf_strdup(SESSION_LOST);
  s->pid = sqlite3_column_int64(stmt, 4);
  s->ppid = number(stmt, 5, -1);
  s->rank = number(stmt, 6, -1);
  s->local_rank = number(stmt, 7, -1);
  s->world_size = number(stmt, 8, -1);
  s->host = text(stmt, 9);
  s->exe = text(stmt, 10);
  s->argv = text(stmt, 11);
  s->cwd = text(stmt, 12);
  s->python_version = text(stmt, 13);
  s->run_id = text(stmt, 14);
  s->start_ns = sqlite3_column_int64(stmt, 15);
  s->end_ns = number(stmt, 16, 0);
  s->last_ns = number(stmt, 17, 0);
  s->exit_code = number(stmt, 18, -1);
  s->exit_signal = number(stmt, 19, -1);
  s->spans = sqlite3_column_int64(stmt, 20);
  s->marks = sqlite3_column_int64(stmt, 21);
  s->emitted_spans = sqlite3_column_int64(stmt, 22);
  s->emitted_marks = sqlite3_column_int64(stmt, 23);
  s->dropped = text(stmt, 24);
  s->dropped_total = sqlite3_column_int64(stmt, 25);
  s->overhead_ns = sqlite3_column_int64(stmt, 26);
  s->attrs = text(stmt, 27);
}

static int no_session(const struct cli *cli, size_t fitting) {
  const char *where = cli->store_count > 1 ? "these stores" : "this store";
  if (fitting > 1)
    say("session '%s': %zu sessions begin so; give more digits (see cirron-query sessions)", cli->session, fitting);
  else if (cli->session && cli->rank >= 0)
    say("session '%s' of rank %lld: not in %s (see cirron-query sessions)", cli->session, (long long)cli->rank, where);
  else if (cli->session)
    say("session '%s': not in %s (see cirron-query sessions)", cli->session, where);
  else
    say("rank %lld: no session of this rank in %s (see cirron-query sessions)", (long long)cli->rank, where);
  return CLI_ERROR;
}

static void session_fini(struct pick_session *s) {
  char *texts[] = {s->state, s->host, s->exe, s->cwd, s->argv, s->python_version, s->run_id, s->dropped, s->attrs};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    free(texts[i]);
}

/* Leaves only those that --session asks for. */
static size_t choose(const struct cli *cli, struct pick_session *list, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    bool last = strcmp(cli->session, "last") == 0;
    if (last ? i + 1 == count : strncmp(list[i].id, cli->session, strlen(cli->session)) == 0)
      list[kept++] = list[i];
    else
      session_fini(&list[i]);
  }
  return kept;
}

/* Oldest first; of equal ones the order of stores and rows stays. */
static int by_start(const void *a, const void *b) {
  const struct pick_session *x = a, *y = b;
  if (x->start_ns != y->start_ns)
    return x->start_ns < y->start_ns ? -1 : 1;
  return x->sid < y->sid ? -1 : x->sid > y->sid;
}

/* A store and a copy of it hold the same sessions. */
static bool is_there(const struct pick_session *list, size_t n, const struct pick_session *s) {
  for (size_t i = 0; i < n; i++)
    if (list[i].store != s->store && strcmp(list[i].id, s->id) == 0)
      return true;
  return false;
}

static void read_store(const struct cli *cli, sqlite3 *store, struct pick_session **list, size_t *n, size_t *cap) {
  for (sqlite3_stmt *stmt = db_query(store, columns, cli->rank); db_step(stmt);) {
    if (*n == *cap) {
      *cap = *cap ? 2 * *cap : 8;
      *list = buf_realloc(*list, *cap * sizeof **list);
    }
    read_row(store, stmt, &(*list)[*n]);
    if (cli->store_count > 1 && is_there(*list, *n, &(*list)[*n]))
      session_fini(&(*list)[*n]);
    else
      ++*n;
  }
}

int pick_sessions(const struct cli *cli, struct pick_session **out, size_t *count) {
  struct pick_session *list = NULL;
  size_t n = 0, cap = 0;
  for (size_t i = 0; i < cli->store_count; i++)
    read_store(cli, cli->stores[i], &list, &n, &cap);
  if (cli->store_count > 1 && n)
    qsort(list, n, sizeof *list, by_start);
  if (cli->session)
    n = choose(cli, list, n);
  if ((cli->session && n != 1) || (cli->rank >= 0 && n == 0)) {
    pick_free(list, n);
    return no_session(cli, n);
  }
  *out = list;
  *count = n;
  return CLI_OK;
}

int pick_sessions_of_all(const struct cli *cli, struct pick_session **out, size_t *count) {
  struct cli all = *cli;
  all.session = NULL;
  all.rank = -1;
  return pick_sessions(&all, out, count);
}

void pick_free(struct pick_session *sessions, size_t count) {
  for (size_t i = 0; i < count; i++)
    session_fini(&sessions[i]);
  free(sessions);
}

void pick_where(const struct cli *cli, const struct pick_session *sessions, size_t count, const char *column, struct buf *out) {
  if (!cli->session && cli->rank < 0 && cli->store_count < 2) {
    buf_printf(out, "%s NOT IN (SELECT sid FROM sessions WHERE state = '" SESSION_ERASED "')", column);
    return;
  }
  buf_printf(out, "%s IN (", column);
  const char *comma = "";
  for (size_t i = 0; i < count; i++)
    if (sessions[i].store == cli->store) {
      buf_printf(out, "%s%lld", comma, (long long)sessions[i].sid);
      comma = ",";
    }
  buf_puts(out, ")");
}

bool pick_trains(const struct pick_session *session) {
  int64_t sid = session->sid;
  return db_value(session->store, 0, "SELECT 1 FROM steps WHERE sid = ? LIMIT 1", sid) ||
         db_value(session->store, 0, "SELECT 1 FROM rollups WHERE sid = ?1 AND kind IN (?2, ?3) LIMIT 1", sid, SPAN_BATCH,
                  SPAN_OPTIMIZER);
}

/* torchrun calls all of its jobs "none" that nobody named. */
static bool has_run_id(const struct pick_session *session) {
  return session->run_id && *session->run_id && strcmp(session->run_id, "none") != 0;
}

bool pick_same_job(const struct pick_session *a, const struct pick_session *b) {
  if (a->world_size != b->world_size || a->world_size < 2)
    return false;
  if (has_run_id(a) && has_run_id(b))
    return strcmp(a->run_id, b->run_id) == 0;
  int64_t apart = a->start_ns > b->start_ns ? a->start_ns - b->start_ns : b->start_ns - a->start_ns;
  return apart < SAME_START_NS;
}

const struct pick_session *pick_main(const struct pick_session *sessions, size_t count) {
  const struct pick_session *found = NULL;
  for (size_t i = count; i-- > 0 && !found;)
    if (pick_trains(&sessions[i]))
      found = &sessions[i];
  if (!found)
    return count ? &sessions[count - 1] : NULL;
  for (size_t i = 0; i < count; i++)
    if (sessions[i].rank >= 0 && sessions[i].rank < found->rank && pick_same_job(&sessions[i], found) &&
        pick_trains(&sessions[i]))
      found = &sessions[i];
  return found;
}

void pick_command(const struct pick_session *session, struct buf *out) {
  json_t *argv = session->argv ? json_loads(session->argv, JSON_ALLOW_NUL, NULL) : NULL, *word;
  size_t i;
  json_array_foreach(argv, i, word) {
    const char *one = json_string_value(word), *base = one && i == 0 ? strrchr(one, '/') : NULL;
    if (base && base[1]) /* python, not /opt/env/bin/python */
      one = base + 1;
    bool plain = one && *one && !strpbrk(one, " \t\n\"'");
    if (one) /* quoted enough to see where an argument ends; not meant for a shell */
      buf_printf(out, plain ? "%s%s" : "%s'%s'", i ? " " : "", one);
  }
  if (!out->len)
    buf_puts(out, session->exe && *session->exe ? session->exe : "(unknown program)");
  json_decref(argv);
}
