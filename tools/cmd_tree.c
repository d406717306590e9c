/* cirron-query tree: the spans of a session as a tree. Tables collapse what repeats; json nests all, jsonl and csv list all, each
 * span before its children, with its depth. */
#include <errno.h>
#include <libsmartcols.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../proto/ring_abi.h"
#include "../proto/store_abi.h"
#include "buf.h"
#include "cmd.h"
#include "db.h"
#include "marks_of.h"
#include "pick.h"
#include "say.h"
#include "spans.h"
#include "text.h"
#include "tree.h"
#include "units.h"

#define NAME_COLUMNS 48
#define MARKS_READ 64 /* of one span; of more only the number is told */
#define MARKS_COLUMNS 100
#define LINES_MAX 500000 /* a table has to be laid out in memory */

struct view {
  const struct cli *cli;
  const struct pick_session *session;
  struct tree tree;
  struct spans_names *names;
  struct marks_of marks;
  int64_t now_ns, depth;
  size_t lines, seen;
  /* table */
  struct libscols_table *table;
  /* jsonl, csv */
  struct out *out;
  struct buf json;
};

static void add_name(struct view *view, struct buf *out, uint32_t name) {
  size_t len = 0;
  const char *text = spans_name(view->names, name, &len);
  if (text && len)
    text_show_cut(out, text, len, view->cli->style.utf8, NAME_COLUMNS);
  else
    buf_puts(out, text ? "\"\"" : "(no name)");
}

static void add_label(struct view *view, struct buf *out, const struct tree_node *node) {
  add_name(view, out, node->name);
  if (node->index != SPAN_NO_INDEX)
    buf_printf(out, "[%lld]", (long long)node->index);
  if (node->module) {
    buf_putc(out, ' ');
    add_name(view, out, node->module);
  }
}

/* "loss=0.41", or of several of a name "loss=2.3..0.41 (8)". */
static void add_mark_group(struct view *view, struct buf *out, const struct marks_of_pair *pairs, size_t count, uint32_t name) {
  struct buf first = {0}, last = {0};
  char number[UNITS_MAX];
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    sqlite3_stmt *stmt = db_query(view->cli->store, "SELECT name, value, value_type FROM marks WHERE sid = ? AND mark = ?",
                                  view->session->sid, (sqlite3_int64)pairs[i].mark);
    if (!db_step(stmt))
      continue;
    if ((uint32_t)sqlite3_column_int64(stmt, 0) == name) {
      const char *type = (const char *)sqlite3_column_text(stmt, 2);
      buf_clear(&last);
      if (type && strcmp(type, "bool") == 0)
        buf_puts(&last, sqlite3_column_int64(stmt, 1) ? "true" : "false");
      else if (sqlite3_column_type(stmt, 1) == SQLITE_FLOAT)
        buf_puts(&last, units_real(sqlite3_column_double(stmt, 1), number));
      else
        text_show_cut(&last, (const char *)sqlite3_column_text(stmt, 1), (size_t)sqlite3_column_bytes(stmt, 1),
                      view->cli->style.utf8, NAME_COLUMNS);
      if (n++ == 0)
        buf_puts(&first, buf_text(&last));
    }
    sqlite3_finalize(stmt);
  }
  add_name(view, out, name);
  buf_printf(out, "=%s", buf_text(&first));
  if (n > 1)
    buf_printf(out, "%s%s (%zu)", view->cli->style.utf8 ? "…" : "..", buf_text(&last), n);
  buf_fini(&first);
  buf_fini(&last);
}

static void add_marks(struct view *view, struct buf *out, const struct tree_node *node) {
  uint32_t names[MARKS_READ], known = 0;
  char text[UNITS_MAX];
  size_t count;
  const struct marks_of_pair *pairs = marks_of_span(&view->marks, view->cli->store, view->session->sid, node->id, &count);
  if (!count)
    return;
  if (count > MARKS_READ) {
    buf_printf(out, " {%s}", units_of((int64_t)count, "mark", "marks", text));
    return;
  }
  struct buf all = {0};
  for (size_t i = 0; i < count; i++) {
    uint32_t name = (uint32_t)db_value(view->cli->store, 0, "SELECT name FROM marks WHERE sid = ? AND mark = ?",
                                       view->session->sid, (sqlite3_int64)pairs[i].mark);
    size_t k = 0;
    while (k < known && names[k] != name)
      k++;
    if (k < known)
      continue;
    names[known++] = name;
    buf_puts(&all, known > 1 ? ", " : "");
    add_mark_group(view, &all, pairs, count, name);
  }
  buf_puts(out, " {");
  text_show_cut(out, all.data, all.len, true, MARKS_COLUMNS);
  buf_putc(out, '}');
  buf_fini(&all);
}

static void add_notes(struct view *view, struct buf *out, const struct tree_node *node) {
  bool running = strcmp(view->session->state, SESSION_RUNNING) == 0;
  if (node->kind == SPAN_SESSION) {
    struct buf command = {0};
    buf_puts(out, " ");
    pick_command(view->session, &command);
    text_show_cut(out, buf_text(&command), command.len, view->cli->style.utf8, NAME_COLUMNS);
    buf_fini(&command);
  }
  if (node->end_ns == SPANS_NO_END)
    buf_puts(out, running ? " open now" : " unfinished");
  if (node->flags & SPAN_ERROR) {
    buf_puts(out, " error");
    if (node->exception) {
      buf_puts(out, ": ");
      add_name(view, out, node->exception);
    }
  }
  if (node->kind == SPAN_EVAL)
    buf_puts(out, " evaluation");
  if (node->kind == SPAN_FORWARD && (node->flags & SPAN_MODE_EVAL))
    buf_puts(out, " eval mode");
  if (node->slowest)
    buf_puts(out, " slowest");
  add_marks(view, out, node);
}

static struct libscols_line *new_line(struct view *view, struct libscols_line *above, const char *label, const char *duration,
                                      const char *share, const char *notes) {
  struct libscols_line *line = scols_table_new_line(view->table, above);
  if (!line)
    abort();
  scols_line_set_data(line, 0, label);
  scols_line_set_data(line, 1, duration);
  scols_line_set_data(line, 2, share);
  scols_line_set_data(line, 3, *notes == ' ' ? notes + 1 : notes);
  view->lines++;
  return line;
}

static struct libscols_line *span_line(struct view *view, struct libscols_line *above, const struct tree_node *node) {
  struct buf label = {0}, notes = {0};
  char duration[UNITS_MAX], share[UNITS_MAX];
  int64_t ns = tree_duration(node, view->now_ns);
  add_label(view, &label, node);
  add_notes(view, &notes, node);
  if (node->up == TREE_NONE)
    *share = 0;
  else
    units_share(ns, tree_duration(&view->tree.nodes[node->up], view->now_ns), share);
  struct libscols_line *line = new_line(view, above, label.data, units_duration(ns, duration), share, buf_text(&notes));
  if (view->cli->style.colour && ((node->flags & SPAN_ERROR) || node->end_ns == SPANS_NO_END))
    scols_line_set_color(line, node->flags & SPAN_ERROR ? "red" : "yellow");
  buf_fini(&label);
  buf_fini(&notes);
  return line;
}

/* "... 98 more step" with their sum; in the notes what they are like. */
static void group_line(struct view *view, struct libscols_line *above, const struct tree_node *node) {
  const struct tree_group *g = &view->tree.groups[node->summary];
  struct buf label = {0}, notes = {0};
  char text[UNITS_MAX], duration[UNITS_MAX], share[UNITS_MAX];
  buf_printf(&label, "%s %s more ", view->cli->style.utf8 ? "…" : "...", units_count(g->count, text));
  if (g->mixed) {
    buf_puts(&label, "of other names");
  } else {
    add_name(view, &label, g->name);
    if (g->module) {
      buf_putc(&label, ' ');
      add_name(view, &label, g->module);
    }
    buf_printf(&notes, "median %s", units_duration(g->median_ns, text));
    buf_printf(&notes, ", %s", units_duration(g->min_ns, text));
    buf_printf(&notes, " to %s", units_duration(g->max_ns, text));
  }
  if (g->errors)
    buf_printf(&notes, "%s%s with an error", notes.len ? ", " : "", units_count(g->errors, text));
  *share = 0;
  if (node->up != TREE_NONE)
    units_share(g->total_ns, tree_duration(&view->tree.nodes[node->up], view->now_ns), share);
  struct libscols_line *line =
      new_line(view, above, label.data, units_duration(g->total_ns, duration), share, buf_text(&notes));
  if (view->cli->style.colour)
    scols_line_set_color(line, "gray");
  buf_fini(&label);
  buf_fini(&notes);
}

static void table_level(struct view *view, struct libscols_line *above, const uint32_t *places, size_t n, int64_t depth) {
  for (size_t i = 0; i < n && view->lines < LINES_MAX; i++) {
    const struct tree_node *node = &view->tree.nodes[places[i]];
    if (node->summary != TREE_NONE)
      group_line(view, above, node);
    if (node->hidden)
      continue;
    struct libscols_line *line = span_line(view, above, node);
    if (depth < view->depth)
      table_level(view, line, view->tree.order + node->first, node->count, depth + 1);
  }
}

static int print_table(struct view *view) {
  const struct out_style *style = &view->cli->style;
  if (!view->cli->all)
    tree_collapse(&view->tree);
  view->table = scols_new_table();
  if (!view->table)
    abort();
  scols_table_set_stream(view->table, stdout);
  scols_table_enable_noencoding(view->table, 1);
  scols_table_enable_ascii(view->table, !style->utf8);
  scols_table_enable_colors(view->table, style->colour);
  scols_table_set_termforce(view->table, style->width ? SCOLS_TERMFORCE_ALWAYS : SCOLS_TERMFORCE_NEVER);
  if (style->width)
    scols_table_set_termwidth(view->table, (size_t)style->width);
  scols_table_new_column(view->table, "SPAN", 0, SCOLS_FL_TREE);
  scols_table_new_column(view->table, "DURATION", 0, SCOLS_FL_RIGHT);
  scols_table_new_column(view->table, "SHARE", 0, SCOLS_FL_RIGHT);
  scols_table_new_column(view->table, "", 0, style->width ? SCOLS_FL_TRUNC : 0);
  table_level(view, NULL, view->tree.order, view->tree.roots, 0);
  errno = 0;
  scols_print_table(view->table);
  scols_unref_table(view->table);
  if (view->lines >= LINES_MAX)
    say("only the first %d lines are shown; --depth N limits the levels, `cirron-query spans --format jsonl` has all",
        LINES_MAX);
  return out_file_error(stdout);
}

static const struct out_column columns[] = {{"session_id", NULL, 0, 0}, {"id", NULL, 0, 0},     {"parent_id", NULL, 0, 0},
                                            {"depth", NULL, 0, 0},      {"name", NULL, 0, 0},   {"index", NULL, 0, 0},
                                            {"kind", NULL, 0, 0},       {"module", NULL, 0, 0}, {"start_ns", NULL, 0, 0},
                                            {"end_ns", NULL, 0, 0},     {"dur_ns", NULL, 0, 0}, {"error", NULL, 0, 0},
                                            {"exception", NULL, 0, 0},  {"state", NULL, 0, 0}};

enum { COLUMNS = sizeof columns / sizeof *columns };

static struct out_cell name_cell(struct view *view, uint32_t name) {
  size_t len = 0;
  const char *text = spans_name(view->names, name, &len);
  return out_text_len(text, len);
}

static int list_level(struct view *view, const uint32_t *places, size_t n, int64_t depth) {
  int error = 0;
  for (size_t i = 0; i < n && !error; i++) {
    const struct tree_node *node = &view->tree.nodes[places[i]];
    char id[33], parent[33];
    bool open = node->end_ns == SPANS_NO_END;
    spans_id_text(view->session->prefix, node->id, id);
    spans_id_text(view->session->prefix, node->parent, parent);
    error =
        out_row(view->out, (const struct out_cell[COLUMNS]){
                               out_text(view->session->id), out_text(id), node->parent ? out_text(parent) : out_null(),
                               out_int(depth), name_cell(view, node->name), out_int_or_null(node->index, SPAN_NO_INDEX),
                               out_text(cli_kind_name(node->kind)), name_cell(view, node->module), out_int(node->start_ns),
                               open ? out_null() : out_int(node->end_ns), open ? out_null() : out_int(tree_duration(node, 0)),
                               out_bool((node->flags & SPAN_ERROR) != 0), name_cell(view, node->exception),
                               out_text(open ? "unfinished" : "closed")});
    if (!error && depth < view->depth)
      error = list_level(view, view->tree.order + node->first, node->count, depth + 1);
  }
  return error;
}

static void add_json_name(struct view *view, uint32_t name) {
  size_t len = 0;
  const char *text = spans_name(view->names, name, &len);
  if (text)
    text_json(&view->json, text, len);
  else
    buf_puts(&view->json, "null");
}

static int nest_level(struct view *view, const uint32_t *places, size_t n, int64_t depth) {
  struct buf *json = &view->json;
  for (size_t i = 0; i < n; i++) {
    const struct tree_node *node = &view->tree.nodes[places[i]];
    char id[33];
    spans_id_text(view->session->prefix, node->id, id);
    buf_printf(json, "%s\n%*s{\"id\":\"%s\",\"name\":", i ? "," : "", (int)depth + 1, "", id);
    add_json_name(view, node->name);
    buf_puts(json, ",\"index\":");
    buf_printf(json, node->index == SPAN_NO_INDEX ? "null" : "%lld", (long long)node->index);
    buf_printf(json, ",\"kind\":\"%s\",\"module\":", cli_kind_name(node->kind));
    add_json_name(view, node->module);
    buf_printf(json, ",\"start_ns\":%lld,\"end_ns\":", (long long)node->start_ns);
    buf_printf(json, node->end_ns == SPANS_NO_END ? "null" : "%lld", (long long)node->end_ns);
    buf_printf(json, ",\"error\":%s,\"exception\":", node->flags & SPAN_ERROR ? "true" : "false");
    add_json_name(view, node->exception);
    buf_printf(json, ",\"state\":\"%s\",\"children\":[", node->end_ns == SPANS_NO_END ? "unfinished" : "closed");
    if (fwrite(json->data, 1, json->len, stdout) != json->len)
      return -EPIPE;
    buf_clear(json);
    int error = depth < view->depth ? nest_level(view, view->tree.order + node->first, node->count, depth + 1) : 0;
    if (error)
      return error;
    buf_puts(json, "]}");
  }
  return 0;
}

static void count_level(struct view *view, const uint32_t *places, size_t n, int64_t depth) {
  view->seen += n;
  for (size_t i = 0; i < n && depth < TREE_MAX_DEPTH; i++)
    count_level(view, view->tree.order + view->tree.nodes[places[i]].first, view->tree.nodes[places[i]].count, depth + 1);
}

static int print_session(struct view *view, bool first) {
  int error = 0;
  if (view->cli->format == OUT_TABLE) {
    if (!first)
      putchar('\n');
    return print_table(view);
  }
  if (view->cli->format != OUT_JSON)
    return list_level(view, view->tree.order, view->tree.roots, 0);
  buf_clear(&view->json);
  buf_printf(&view->json, "%s\n{\"session_id\":\"%s\",\"spans\":[", first ? "" : ",", view->session->id);
  error = nest_level(view, view->tree.order, view->tree.roots, 0);
  buf_puts(&view->json, "]}");
  fwrite(view->json.data, 1, view->json.len, stdout);
  return error ? error : out_file_error(stdout);
}

static int show_session(struct view *view, const struct pick_session *session, bool first) {
  struct timespec now;
  view->session = session;
  view->lines = view->seen = 0;
  view->now_ns = session->end_ns ? session->end_ns : session->last_ns;
  if (strcmp(session->state, SESSION_RUNNING) == 0 && clock_gettime(CLOCK_REALTIME, &now) == 0)
    view->now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  int rc = tree_load(view->cli->store, session->sid, &view->tree);
  if (rc)
    db_die(view->cli->store, "spans", rc);
  count_level(view, view->tree.order, view->tree.roots, 0);
  if (view->seen < view->tree.count)
    say("%zu spans are not shown: they lie too deep, or are their own ancestors", view->tree.count - view->seen);
  rc = print_session(view, first);
  tree_fini(&view->tree);
  return rc;
}

int cmd_tree(const struct cli *cli) {
  struct view view = {.cli = cli, .depth = cli->depth >= 0 && cli->depth < TREE_MAX_DEPTH ? cli->depth : TREE_MAX_DEPTH};
  struct pick_session *sessions;
  size_t count;
  int error = 0, status = pick_sessions(cli, &sessions, &count);
  if (status)
    return status;
  const struct pick_session *one = pick_main(sessions, count);
  if (!one && cli->format == OUT_TABLE)
    puts("No process was traced into this store yet.");
  view.names = spans_names_new(cli->store);
  if (!view.names)
    db_die(cli->store, "names", -ENOMEM);
  if (cli->format == OUT_JSON)
    putchar('[');
  else if (cli->format != OUT_TABLE)
    view.out = out_begin(stdout, cli->format, &cli->style, columns, COLUMNS);
  size_t wanted = cli->last < 0 ? 1 : (size_t)cli->last < count ? (size_t)cli->last : count;
  if (one && cli->last < 0)
    error = show_session(&view, one, true);
  for (size_t i = count - wanted; one && cli->last >= 0 && i < count && !error; i++)
    error = show_session(&view, &sessions[i], i == count - wanted);
  if (cli->format == OUT_JSON)
    puts("\n]");
  int ended = out_end(view.out);
  spans_names_free(view.names);
  marks_of_fini(&view.marks);
  buf_fini(&view.json);
  pick_free(sessions, count);
  return cli_written(error ? error : ended);
}
