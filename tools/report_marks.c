/* Marks of a report, in one pass over the session's marks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "db.h"
#include "report.h"

/* name -> place in values, for any number of names: open addressing, empty places are SIZE_MAX. */
struct table {
  size_t *places, size;
};

static size_t probe(const struct table *table, const struct report_value *values, uint32_t name) {
  size_t at = (name * 0x9e3779b1u) & (table->size - 1);
  while (table->places[at] != SIZE_MAX && values[table->places[at]].id != name)
    at = (at + 1) & (table->size - 1);
  return at;
}

static void grow(struct table *table, const struct report *report) {
  free(table->places);
  table->size = table->size ? 2 * table->size : 64;
  table->places = buf_alloc(table->size * sizeof *table->places);
  memset(table->places, 0xff, table->size * sizeof *table->places);
  for (size_t i = 0; i < report->values_count; i++)
    table->places[probe(table, report->values, report->values[i].id)] = i;
}

static struct report_value *find(struct table *table, struct report *report, uint32_t name) {
  if (2 * (report->values_count + 1) > table->size)
    grow(table, report);
  size_t at = probe(table, report->values, name);
  if (table->places[at] == SIZE_MAX) {
    report->values = buf_realloc(report->values, (report->values_count + 1) * sizeof *report->values);
    report->values[report->values_count] = (struct report_value){.id = name};
    table->places[at] = report->values_count++;
  }
  return &report->values[table->places[at]];
}

static double special(const char *text) {
  return strcmp(text, "Infinity") == 0 ? INFINITY : strcmp(text, "-Infinity") == 0 ? -INFINITY : NAN;
}

static void add(struct report_value *v, double value, uint64_t mark, int64_t ts_ns) {
  if (v->count++ == 0)
    v->first = value;
  v->last = value;
  if (isfinite(value)) {
    v->min = v->finite == 0 || value < v->min ? value : v->min;
    v->max = v->finite == 0 || value > v->max ? value : v->max;
    v->finite++;
    if (!v->bad_count) {
      v->has_good = true;
      v->good = value;
      v->good_mark = mark;
      v->good_ts_ns = ts_ns;
    }
  } else if (v->bad_count++ == 0) {
    v->bad = value;
    v->bad_mark = mark;
    v->bad_ts_ns = ts_ns;
  }
}

static void name_value(const struct cli *cli, struct report_value *v) {
  sqlite3_stmt *stmt = db_query(cli->store, "SELECT text FROM names WHERE name = ?", v->id);
  bool found = db_step(stmt);
  const char *text = found ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
  v->name_len = text ? (size_t)sqlite3_column_bytes(stmt, 0) : 0;
  v->name = buf_alloc(v->name_len + 1);
  if (text)
    memcpy(v->name, text, v->name_len);
  if (found)
    sqlite3_finalize(stmt);
}

void report_marks(const struct cli *cli, struct report *out) {
  struct table table = {0};
  int64_t sid = out->session->sid;
  sqlite3_stmt *stmt = db_query(cli->store,
                                "SELECT name, mark, value, ts_ns, value_type FROM marks WHERE sid = ?"
                                " AND name NOT IN (SELECT name FROM names WHERE text IN ('" OVERHEAD_CHECK_MARK "', '" SHED_MARK
                                "', '" FRAMEWORK_MARK "')) ORDER BY mark",
                                sid);
  while (db_step(stmt)) {
    const char *type = (const char *)sqlite3_column_text(stmt, 4);
    bool is_float = type && strcmp(type, "float") == 0;
    if (!is_float && !(type && strcmp(type, "int") == 0)) {
      out->other_marks++;
      continue;
    }
    const char *text =
        is_float && sqlite3_column_type(stmt, 2) == SQLITE_TEXT ? (const char *)sqlite3_column_text(stmt, 2) : NULL;
    double value = text ? special(text) : sqlite3_column_double(stmt, 2);
    add(find(&table, out, (uint32_t)sqlite3_column_int64(stmt, 0)), value, (uint64_t)sqlite3_column_int64(stmt, 1),
        sqlite3_column_int64(stmt, 3));
  }
  for (size_t i = 0; i < out->values_count; i++) {
    name_value(cli, &out->values[i]);
    if (out->values[i].bad_count)
      moment_find(cli->store, sid, out->values[i].bad_mark, out->values[i].bad_ts_ns, &out->values[i].bad_at);
  }
  free(table.places);
}

const struct report_value *report_first_bad(const struct report *r) {
  const struct report_value *found = NULL;
  for (size_t i = 0; i < r->values_count; i++)
    if (r->values[i].bad_count && (!found || r->values[i].bad_mark < found->bad_mark))
      found = &r->values[i];
  return found;
}
