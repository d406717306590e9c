/* cirron-query spans: streams, with one block, one row and the numbers of one session's marks in memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "db.h"
#include "jsontext.h"
#include "marks_of.h"
#include "pick.h"
#include "say.h"
#include "spans.h"
#include "text.h"

#include "../proto/ring_abi.h"

static const struct out_column columns[] = {
    {"id", NULL, 0, OUT_NO_TABLE},
    {"name", NULL, 0, OUT_CUT},
    {"kind", NULL, 0, OUT_NO_TABLE},
    {"parent_id", NULL, 0, OUT_NO_TABLE},
    {"index", NULL, 0, 0},
    {"at", "AT", OUT_AS_DURATION, OUT_NO_DATA},
    {"start_ns", NULL, 0, OUT_NO_TABLE},
    {"end_ns", NULL, 0, OUT_NO_TABLE},
    {"dur_ns", "DURATION", OUT_AS_DURATION, 0},
    {"cpu_ns", "CPU", OUT_AS_DURATION, 0},
    {"gpu_ns", "GPU", OUT_AS_DURATION, 0},
    {"memory_peak_bytes", NULL, 0, OUT_NO_TABLE},
    {"thread_id", "THREAD", 0, 0},
    {"pid", NULL, 0, OUT_NO_TABLE},
    {"rank", NULL, 0, 0},
    {"mark_ids", NULL, 0, OUT_NO_TABLE},
    {"session_id", "SESSION", OUT_AS_ID, 0},
    {"state", NULL, 0, OUT_NO_TABLE},
    {"error", NULL, 0, OUT_NO_TABLE},
    {"detail", NULL, 0, OUT_NO_DATA | OUT_CUT},
    {"attrs", NULL, 0, OUT_NO_TABLE},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

enum { STOP = 1 }; /* from the callback: enough */

struct listing {
  const struct cli *cli; /* of the store whose turn it is */
  const struct pick_session *sessions;
  size_t count;
  struct out *out;
  struct spans_names *names;
  struct marks_of marks;
  struct buf attrs, mark_ids;
  int64_t limit, shown;
  int error;
  bool more, named; /* more than the limit; a store has the name */
};

static const char *mode(const struct span_row *row) {
  return row->flags & SPAN_MODE_TRAIN ? "train" : row->flags & SPAN_MODE_EVAL ? "eval" : NULL;
}

/* The usual span has no attributes of its own: then the object is put together without parsing. */
static void add_attrs(struct listing *list, const struct span_row *row) {
  const char *const keys[] = {"mode", "module", "exception"};
  const char *values[3] = {mode(row), NULL, NULL};
  size_t lens[3] = {values[0] ? strlen(values[0]) : 0, 0, 0};
  values[1] = spans_name(list->names, row->module, &lens[1]);
  values[2] = spans_name(list->names, row->exception, &lens[2]);
  struct buf *out = &list->attrs;
  buf_clear(out);
  json_t *own = row->attrs_len ? jsontext_parse(row->attrs, row->attrs_len, JSON_OBJECT) : NULL;
  if (own) {
    for (size_t i = 0; i < 3; i++)
      if (values[i])
        json_object_set_new(own, keys[i], json_stringn(values[i], lens[i]));
    jsontext_dump(out, own);
    json_decref(own);
    return;
  }
  buf_putc(out, '{');
  for (size_t i = 0; i < 3; i++)
    if (values[i]) {
      buf_printf(out, "%s\"%s\":", out->len > 1 ? "," : "", keys[i]);
      text_json(out, values[i], lens[i]);
    }
  buf_putc(out, '}');
}

static void add_mark_ids(struct listing *list, const struct span_row *row, const struct spans_session *session) {
  char id[33];
  size_t count;
  const struct marks_of_pair *pairs = marks_of_span(&list->marks, list->cli->store, session->sid, row->id, &count);
  buf_clear(&list->mark_ids);
  buf_putc(&list->mark_ids, '[');
  for (size_t i = 0; i < count; i++) {
    spans_id_text(session->prefix, pairs[i].mark, id);
    buf_puts(&list->mark_ids, i ? ",\"" : "\"");
    buf_add(&list->mark_ids, id, 32);
    buf_putc(&list->mark_ids, '"');
  }
  buf_putc(&list->mark_ids, ']');
}

/* For a table: "train ResNet", "ValueError", "unfinished". */
static void add_detail(struct listing *list, const struct span_row *row) {
  const char *parts[4] = {mode(row), NULL, NULL, row->end_ns == SPANS_NO_END ? "unfinished" : NULL};
  size_t lens[4] = {parts[0] ? strlen(parts[0]) : 0, 0, 0, 10};
  parts[1] = spans_name(list->names, row->module, &lens[1]);
  parts[2] = spans_name(list->names, row->exception, &lens[2]);
  if (!parts[2] && row->flags & SPAN_ERROR) {
    parts[2] = "error";
    lens[2] = 5;
  }
  buf_clear(&list->attrs);
  buf_puts(&list->attrs, "");
  for (size_t i = 0; i < 4; i++)
    if (parts[i]) {
      buf_puts(&list->attrs, list->attrs.len ? " " : "");
      buf_add(&list->attrs, parts[i], lens[i]);
    }
}

static int show(const struct span_row *row, const struct spans_session *session, void *arg) {
  struct listing *list = arg;
  bool table = list->cli->format == OUT_TABLE, open = row->end_ns == SPANS_NO_END;
  char id[33], parent[33];
  size_t name_len = 0;
  if (list->shown == list->limit) {
    list->more = true;
    return STOP;
  }
  const char *name = spans_name(list->names, row->name, &name_len);
  spans_id_text(session->prefix, row->id, id);
  spans_id_text(session->prefix, row->parent, parent);
  if (table) {
    add_detail(list, row);
  } else {
    add_attrs(list, row);
    add_mark_ids(list, row, session);
  }
  const struct out_cell cells[COLUMNS] = {
      out_text(id),
      out_text_len(name ? name : "", name_len),
      out_text(cli_kind_name(row->kind)),
      row->parent ? out_text(parent) : out_null(),
      out_int_or_null(row->index, SPAN_NO_INDEX),
      out_int(row->start_ns - session->start_ns),
      out_int(row->start_ns),
      open ? out_null() : out_int(row->end_ns),
      open ? out_null() : out_int(spans_duration(row)),
      out_int_or_null(row->cpu_ns, SPAN_NO_TIME),
      out_int_or_null(row->gpu_ns, SPAN_NO_TIME),
      out_null(),
      out_int(row->tid),
      out_int(session->pid),
      out_int(session->rank < 0 ? 0 : session->rank), /* as in the spool format: 0 where none is set */
      out_raw_json(list->mark_ids.data, list->mark_ids.len),
      out_text(session->id),
      out_text(open ? "unfinished" : "closed"),
      out_bool((row->flags & SPAN_ERROR) != 0),
      out_text_len(buf_text(&list->attrs), list->attrs.len),
      out_raw_json(list->attrs.data, list->attrs.len),
  };
  list->shown++;
  list->error = out_row(list->out, cells);
  return list->error ? STOP : 0;
}

/* The longest of some, but not all sessions: each session's are collected first. */
struct slow {
  int64_t sid, duration;
  uint64_t id;
};

struct slow_list {
  struct slow *items;
  size_t count;
};

static int collect(const struct span_row *row, const struct spans_session *session, void *arg) {
  struct slow_list *list = arg;
  list->items = buf_realloc(list->items, (list->count + 1) * sizeof *list->items);
  list->items[list->count++] = (struct slow){session->sid, spans_duration(row), row->id};
  return 0;
}

static int compare_slow(const void *a, const void *b) {
  const struct slow *x = a, *y = b;
  return x->duration == y->duration ? 0 : x->duration > y->duration ? -1 : 1;
}

static int slowest_of(struct listing *list, struct spans_filter filter, const struct pick_session *sessions, size_t count,
                      size_t n) {
  struct slow_list slow = {0};
  int rc = 0;
  for (size_t i = 0; i < count && rc >= 0; i++) {
    filter.sid = sessions[i].sid;
    rc = spans_slowest(list->cli->store, &filter, n, collect, &slow);
  }
  if (slow.count)
    qsort(slow.items, slow.count, sizeof *slow.items, compare_slow);
  for (size_t i = 0; i < slow.count && i < n && rc == 0; i++) {
    struct spans_filter one = {.sid = slow.items[i].sid, .span = slow.items[i].id, .which = SPANS_CLOSED};
    rc = spans_each(list->cli->store, &one, show, list);
  }
  free(slow.items);
  return rc;
}

static int run(struct listing *list, struct spans_filter filter, const struct pick_session *sessions, size_t count) {
  const struct cli *cli = list->cli;
  bool all = !cli->session && cli->rank < 0;
  int rc = 0;
  if (count == 0)
    return 0;
  if (cli->slowest) {
    int64_t spans = db_value(cli->store, 0, "SELECT sum(count) FROM block_meta");
    int64_t n = cli->limit < 0 ? CMD_TABLE_ROWS : cmd_limit(cli);
    n = n < spans ? n : spans;
    filter.sid = all ? 0 : sessions[0].sid;
    if (all || count == 1)
      return spans_slowest(cli->store, &filter, (size_t)n, show, list);
    return slowest_of(list, filter, sessions, count, (size_t)n);
  }
  for (size_t i = 0; i < (all ? 1 : count) && rc == 0; i++) {
    if (!all && sessions[i].store != cli->store)
      continue;
    filter.sid = all ? 0 : sessions[i].sid;
    rc = spans_each(cli->store, &filter, show, list);
  }
  return rc;
}

static int list_store(const struct cli *cli, void *arg) {
  struct listing *list = arg;
  uint32_t name = 0;
  struct spans_filter filter = {.kinds = cli->kind >= 0 ? 1u << cli->kind : 0};
  if (cli->name) {
    filter.names = &name;
    filter.names_count = spans_name_find(cli->store, cli->name, strlen(cli->name), &name) == 0;
    list->named |= filter.names_count;
  }
  list->cli = cli;
  list->names = spans_names_new(cli->store);
  if (!list->names)
    db_die(cli->store, "names", -ENOMEM);
  int rc = run(list, filter, list->sessions, list->count);
  spans_names_free(list->names);
  marks_of_fini(&list->marks);
  list->marks = (struct marks_of){0};
  if (rc < 0) {
    (void)cli_written(out_end(list->out)); /* what could be read */
    db_die(cli->store, "spans", rc);
  }
  return rc;
}

int cmd_spans(const struct cli *cli) {
  struct listing list = {.limit = cmd_limit(cli)};
  struct pick_session *sessions;
  if (!cmd_one_order(cli))
    return CLI_USAGE;
  int status = pick_sessions(cli, &sessions, &list.count);
  if (status)
    return status;
  list.sessions = sessions;
  list.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  (void)cmd_each_store(cli, list_store, &list); /* STOP: the list says why */
  status = cli_written(out_end(list.out));
  if (cli->name && !list.named)
    say("nothing in %s has the name '%s'", cli->store_count > 1 ? "these stores" : "this store", cli->name);
  if (list.more)
    cmd_more(cli, list.shown);
  cmd_none(cli, "spans", list.shown);
  buf_fini(&list.attrs);
  buf_fini(&list.mark_ids);
  pick_free(sessions, list.count);
  return status;
}
