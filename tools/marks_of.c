#include "marks_of.h"

#include <stdlib.h>

#include "buf.h"
#include "db.h"

static int compare(const void *a, const void *b) {
  const struct marks_of_pair *x = a, *y = b;
  if (x->span != y->span)
    return x->span < y->span ? -1 : 1;
  return x->mark < y->mark ? -1 : x->mark > y->mark;
}

static void load(struct marks_of *marks, sqlite3 *db, int64_t sid) {
  marks->sid = sid;
  marks->count = 0;
  for (sqlite3_stmt *stmt = db_query(db, "SELECT span, mark FROM marks WHERE sid = ? ORDER BY mark", sid); db_step(stmt);) {
    if (marks->count == marks->cap) {
      marks->cap = marks->cap ? 2 * marks->cap : 256;
      marks->pairs = buf_realloc(marks->pairs, marks->cap * sizeof *marks->pairs);
    }
    marks->pairs[marks->count++] =
        (struct marks_of_pair){(uint64_t)sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1)};
  }
  if (marks->count)
    qsort(marks->pairs, marks->count, sizeof *marks->pairs, compare);
}

const struct marks_of_pair *marks_of_span(struct marks_of *marks, sqlite3 *db, int64_t sid, uint64_t span, size_t *count) {
  size_t low = 0, high;
  if (marks->sid != sid)
    load(marks, db, sid);
  for (high = marks->count; low < high;) { /* the first of this span */
    size_t middle = low + (high - low) / 2;
    if (marks->pairs[middle].span < span)
      low = middle + 1;
    else
      high = middle;
  }
  for (high = low; high < marks->count && marks->pairs[high].span == span;)
    high++;
  *count = high - low;
  return marks->pairs + low;
}

void marks_of_fini(struct marks_of *marks) {
  free(marks->pairs);
  *marks = (struct marks_of){0};
}
