#include "moment.h"

#include "db.h"

/* Numbers of steps and epochs are in order of begin, like those of marks, so the one before the mark's is the last that had begun. */
void moment_find(sqlite3 *db, int64_t sid, uint64_t number, int64_t ts_ns, struct moment *out) {
  sqlite3_stmt *stmt =
      db_query(db, "SELECT idx, start_ns, end_ns FROM steps WHERE sid = ? AND span < ? ORDER BY span DESC LIMIT 1", sid,
               (sqlite3_int64)number);
  *out = (struct moment){MOMENT_NO_INDEX, MOMENT_NO_INDEX, false};
  if (db_step(stmt)) {
    if (sqlite3_column_type(stmt, 0) != SQLITE_NULL)
      out->step = sqlite3_column_int64(stmt, 0);
    out->in_step = sqlite3_column_int64(stmt, 2) >= ts_ns;
    sqlite3_finalize(stmt);
  }
  out->epoch = db_value(db, MOMENT_NO_INDEX,
                        "SELECT idx FROM epochs WHERE sid = ?1 AND span < ?2 AND kind = 'epoch' AND start_ns <= ?3"
                        " AND coalesce(end_ns, ?3) >= ?3 ORDER BY span DESC LIMIT 1",
                        sid, (sqlite3_int64)number, ts_ns);
}

void moment_say(const struct moment *m, struct buf *out) {
  bool step = m->step != MOMENT_NO_INDEX;
  if (step)
    buf_printf(out, m->in_step ? " at step %lld" : " after step %lld", (long long)m->step);
  if (m->epoch != MOMENT_NO_INDEX)
    buf_printf(out, step ? " of epoch %lld" : " in epoch %lld", (long long)m->epoch);
}
