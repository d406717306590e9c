/* cirron-query stats: one row a name, with exact quantiles of the lengths of its spans; with --fast those of the roll-ups.
 *
 * Exact means all lengths in memory, by name: 32 bits for those below four seconds, which are nearly all, and 64 for the others. A
 * quantile is the length of the span of that rank, found by selection; nothing is sorted. The time without children is in the roll-ups
 * only, where it is exact, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/histogram.h"
#include "buf.h"
#include "cmd.h"
#include "db.h"
#include "pick.h"
#include "say.h"
#include "select.h"
#include "spans.h"

static const struct out_column columns[] = {
    {"name", NULL, 0, OUT_CUT},
    {"count", NULL, OUT_AS_COUNT, 0},
    {"total_ns", "TOTAL", OUT_AS_DURATION, 0},
    {"self_ns", "SELF", OUT_AS_DURATION, 0},
    {"mean_ns", "MEAN", OUT_AS_DURATION, 0},
    {"p50_ns", "P50", OUT_AS_DURATION, 0},
    {"p90_ns", "P90", OUT_AS_DURATION, 0},
    {"p99_ns", "P99", OUT_AS_DURATION, 0},
    {"max_ns", "MAX", OUT_AS_DURATION, 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns, QUANTILES = 3 };
static const double quantiles[QUANTILES] = {0.5, 0.9, 0.99};

struct name_stats {
  uint32_t name;
  int64_t count, total_ns, max_ns;
  int64_t rolled_count, self_ns; /* of the roll-ups */
  uint32_t *shorts;
  size_t short_count, short_room;
  uint64_t *longs;
  size_t long_count, long_room;
  int64_t min_ns; /* of the roll-ups, as is what follows */
  uint64_t *histogram;
  int64_t q[QUANTILES];
};

struct stats {
  const struct cli *cli;
  struct name_stats *list;
  size_t count, room;
  uint32_t *slots; /* hash of the name -> index + 1 */
  size_t mask;
  size_t last; /* the index that was found last */
};

/* ---- by name ---- */

static size_t slot_of(const struct stats *s, uint32_t name) {
  size_t at = name * 2654435761u & s->mask;
  while (s->slots[at] && s->list[s->slots[at] - 1].name != name)
    at = (at + 1) & s->mask;
  return at;
}

static void grow(struct stats *s) {
  s->room = s->room ? 2 * s->room : 64;
  s->list = buf_realloc(s->list, s->room * sizeof *s->list);
  free(s->slots);
  s->mask = 4 * s->room - 1;
  s->slots = memset(buf_alloc((s->mask + 1) * sizeof *s->slots), 0, (s->mask + 1) * sizeof *s->slots);
  for (size_t i = 0; i < s->count; i++)
    s->slots[slot_of(s, s->list[i].name)] = (uint32_t)i + 1;
}

static struct name_stats *find(struct stats *s, uint32_t name) {
  if (s->last < s->count && s->list[s->last].name == name)
    return &s->list[s->last];
  if (s->count == s->room)
    grow(s);
  size_t at = slot_of(s, name);
  if (!s->slots[at]) {
    s->list[s->count] = (struct name_stats){.name = name};
    s->slots[at] = (uint32_t)++s->count;
  }
  s->last = s->slots[at] - 1;
  return &s->list[s->last];
}

static void stats_fini(struct stats *s) {
  for (size_t i = 0; i < s->count; i++) {
    free(s->list[i].shorts);
    free(s->list[i].longs);
    free(s->list[i].histogram);
  }
  free(s->list);
  free(s->slots);
}

/* ---- exact: from the blocks ---- */

static int add_span(const struct span_row *row, const struct spans_session *session, void *arg) {
  (void)session;
  struct name_stats *n = find(arg, row->name);
  int64_t duration = spans_duration(row);
  n->count++;
  n->total_ns += duration;
  n->max_ns = duration > n->max_ns ? duration : n->max_ns;
  if (duration <= UINT32_MAX) {
    if (n->short_count == n->short_room) {
      n->short_room = n->short_room ? 2 * n->short_room : 1024;
      n->shorts = buf_realloc(n->shorts, n->short_room * sizeof *n->shorts);
    }
    n->shorts[n->short_count++] = (uint32_t)duration;
    return 0;
  }
  if (n->long_count == n->long_room) {
    n->long_room = n->long_room ? 2 * n->long_room : 64;
    n->longs = buf_realloc(n->longs, n->long_room * sizeof *n->longs);
  }
  n->longs[n->long_count++] = (uint64_t)duration;
  return 0;
}

/* Quantiles ascend, so each one is looked for in what the one before left on its right. */
static void exact_quantiles(struct name_stats *n) {
  size_t from_short = 0, from_long = 0;
  for (int i = 0; i < QUANTILES; i++) {
    size_t rank = select_rank(quantiles[i], (size_t)n->count);
    if (rank < n->short_count) {
      n->q[i] = select_u32(n->shorts, from_short, n->short_count, rank);
      from_short = rank;
    } else {
      rank -= n->short_count;
      n->q[i] = (int64_t)select_u64(n->longs, from_long, n->long_count, rank);
      from_long = rank;
    }
  }
}

static int read_spans(struct stats *s, const struct spans_filter *base, const struct pick_session *sessions, size_t count) {
  struct spans_filter filter = *base;
  bool all = !s->cli->session && s->cli->rank < 0;
  int rc = 0;
  filter.which = SPANS_CLOSED;
  filter.columns = BLOCK_NAME | BLOCK_END;
  for (size_t i = 0; i < (all ? 1 : count) && !rc; i++) {
    filter.sid = all ? 0 : sessions[i].sid;
    rc = spans_each(s->cli->store, &filter, add_span, s);
  }
  for (size_t i = 0; i < s->count && !rc; i++)
    exact_quantiles(&s->list[i]);
  return rc;
}

/* ---- from the roll-ups ---- */

static void add_rollup(struct stats *s, sqlite3_stmt *row) {
  struct name_stats *n = find(s, (uint32_t)sqlite3_column_int64(row, 0));
  int64_t min = sqlite3_column_int64(row, 4), max = sqlite3_column_int64(row, 5);
  n->rolled_count += sqlite3_column_int64(row, 1);
  n->self_ns += sqlite3_column_int64(row, 3);
  if (!s->cli->fast)
    return;
  if (!n->histogram) {
    n->histogram = memset(buf_alloc(HISTOGRAM_BINS * sizeof *n->histogram), 0, HISTOGRAM_BINS * sizeof *n->histogram);
    n->min_ns = min;
  }
  n->count = n->rolled_count;
  n->total_ns += sqlite3_column_int64(row, 2);
  n->min_ns = min < n->min_ns ? min : n->min_ns;
  n->max_ns = max > n->max_ns ? max : n->max_ns;
  if (histogram_add_packed(n->histogram, sqlite3_column_blob(row, 6), (size_t)sqlite3_column_bytes(row, 6)))
    db_die(s->cli->store, "roll-ups", -EBADMSG);
}

static void read_rollups(struct stats *s, const struct spans_filter *filter, const struct pick_session *sessions,
                         size_t count) {
  struct buf sql = {0};
  buf_puts(&sql, "SELECT name, count, total_ns, self_ns, min_ns, max_ns, histogram FROM rollups WHERE ");
  pick_where(s->cli, sessions, count, "sid", &sql);
  if (filter->names)
    buf_printf(&sql, " AND name = %u", filter->names_count ? filter->names[0] : 0);
  if (s->cli->kind >= 0)
    buf_printf(&sql, " AND kind = %d", s->cli->kind);
  for (sqlite3_stmt *row = db_prepare(s->cli->store, buf_text(&sql), 0, NULL); db_step(row);)
    add_rollup(s, row);
  buf_fini(&sql);
  for (size_t i = 0; s->cli->fast && i < s->count; i++)
    for (int k = 0; k < QUANTILES; k++)
      s->list[i].q[k] = (int64_t)histogram_quantile(s->list[i].histogram, quantiles[k], (uint64_t)s->list[i].min_ns,
                                                    (uint64_t)s->list[i].max_ns);
}

/* ---- output ---- */

static int by_total(const void *a, const void *b) {
  const struct name_stats *x = a, *y = b;
  if (x->total_ns != y->total_ns)
    return x->total_ns > y->total_ns ? -1 : 1;
  return (x->name > y->name) - (x->name < y->name);
}

static int show(struct out *out, struct spans_names *names, const struct name_stats *n) {
  size_t len = 0;
  const char *text = spans_name(names, n->name, &len);
  bool self = n->rolled_count == n->count; /* else some spans were not summed, of which the store says nothing more */
  const struct out_cell cells[COLUMNS] = {
      out_text_len(text ? text : "", len),
      out_int(n->count),
      out_int(n->total_ns),
      self ? out_int(n->self_ns) : out_null(),
      out_int(n->total_ns / n->count),
      out_int(n->q[0]),
      out_int(n->q[1]),
      out_int(n->q[2]),
      out_int(n->max_ns),
  };
  return out_row(out, cells);
}

static int show_all(struct stats *s, struct spans_names *names) {
  const struct cli *cli = s->cli;
  struct out *out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  int64_t shown = 0;
  int error = 0;
  if (s->count)
    qsort(s->list, s->count, sizeof *s->list, by_total);
  for (size_t i = 0; i < s->count && !error; i++) {
    if (!s->list[i].count)
      continue;
    if (shown == cmd_limit(cli)) {
      cmd_more(cli, shown);
      break;
    }
    error = show(out, names, &s->list[i]);
    shown++;
  }
  int error2 = out_end(out);
  cmd_none(cli, "spans", shown);
  return cli_written(error ? error : error2);
}

int cmd_stats(const struct cli *cli) {
  struct stats s = {.cli = cli};
  struct spans_filter filter = {.kinds = cli->kind >= 0 ? 1u << cli->kind : 0};
  struct pick_session *sessions;
  size_t count;
  uint32_t name = 0;
  int status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  if (cli->name) {
    filter.names = &name;
    filter.names_count = spans_name_find(cli->store, cli->name, strlen(cli->name), &name) == 0;
    if (!filter.names_count)
      say("nothing in this store has the name '%s'", cli->name);
  }
  int rc = cli->fast || !count ? 0 : read_spans(&s, &filter, sessions, count);
  if (rc)
    db_die(cli->store, "spans", rc);
  if (count)
    read_rollups(&s, &filter, sessions, count);
  struct spans_names *names = spans_names_new(cli->store);
  if (!names)
    db_die(cli->store, "names", -ENOMEM);
  status = show_all(&s, names);
  spans_names_free(names);
  stats_fini(&s);
  pick_free(sessions, count);
  return status;
}
