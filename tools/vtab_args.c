/* Conditions of SQL on their way to the filter of the stream (vtab_args.h). */
#include "vtab_args.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>

#include "spans_internal.h"

/* ---- planning ---- */

/* The letters of idxStr. */
enum {
  ARG_SESSION_ID = 'S',
  ARG_SID = 's',
  ARG_ID = 'I',
  ARG_SPAN = 'i',
  ARG_NAME = 'N',
  ARG_NAME_NO = 'n',
  ARG_MIN_START = 'a',
  ARG_MAX_START = 'b',
  ARG_START = 'c',
  ARG_MIN_END = 'd',
  ARG_MAX_END = 'e',
  ARG_END = 'f',
  ARG_MIN_DUR = 'g'
};

static char equal_arg(int column) {
  switch (column) {
  case COL_SESSION_ID:
    return ARG_SESSION_ID;
  case COL_SID:
    return ARG_SID;
  case COL_ID:
    return ARG_ID;
  case COL_SPAN:
    return ARG_SPAN;
  case COL_NAME:
    return ARG_NAME;
  case COL_NAME_NO:
    return ARG_NAME_NO;
  case COL_START:
    return ARG_START;
  case COL_END:
    return ARG_END;
  case COL_DUR:
    return ARG_MIN_DUR;
  default:
    return 0;
  }
}

static char range_arg(int column, bool lower) {
  switch (column) {
  case COL_START:
    return lower ? ARG_MIN_START : ARG_MAX_START;
  case COL_END:
    return lower ? ARG_MIN_END : ARG_MAX_END;
  case COL_DUR:
    return lower ? ARG_MIN_DUR : 0;
  default:
    return 0;
  }
}

/* A text compared in another order than byte by byte can't be looked up. */
static char arg_of(sqlite3_index_info *info, int at) {
  const struct sqlite3_index_constraint *c = &info->aConstraint[at];
  bool text = c->iColumn == COL_SESSION_ID || c->iColumn == COL_ID || c->iColumn == COL_NAME;
  if (!c->usable || (text && sqlite3_stricmp(sqlite3_vtab_collation(info, at), "BINARY")))
    return 0;
  switch (c->op) {
  case SQLITE_INDEX_CONSTRAINT_EQ:
    return equal_arg(c->iColumn);
  case SQLITE_INDEX_CONSTRAINT_GT:
  case SQLITE_INDEX_CONSTRAINT_GE:
    return range_arg(c->iColumn, true);
  case SQLITE_INDEX_CONSTRAINT_LT:
  case SQLITE_INDEX_CONSTRAINT_LE:
    return range_arg(c->iColumn, false);
  default:
    return 0;
  }
}

/* Rough parts of all rows that pass. */
static double part_of(char arg) {
  switch (arg) {
  case ARG_ID:
  case ARG_SPAN:
    return 1e-6;
  case ARG_SESSION_ID:
  case ARG_SID:
  case ARG_NAME:
  case ARG_NAME_NO:
    return 0.1;
  case ARG_START:
  case ARG_END:
    return 1e-4;
  case ARG_MIN_DUR:
    return 0.1;
  default:
    return 0.3;
  }
}

int vtab_args_plan(sqlite3_index_info *info) {
  char *args = sqlite3_malloc(info->nConstraint + 1);
  if (!args)
    return SQLITE_NOMEM;
  int n = 0;
  double rows = 1e6;
  for (int i = 0; i < info->nConstraint; i++) {
    char arg = arg_of(info, i);
    if (!arg)
      continue;
    args[n++] = arg;
    info->aConstraintUsage[i].argvIndex = n;
    rows *= part_of(arg);
  }
  args[n] = 0;
  info->idxStr = args;
  info->needToFreeIdxStr = 1;
  info->estimatedRows = rows < 1 ? 1 : (sqlite3_int64)rows;
  info->estimatedCost = 2000 + rows; /* one block at least is unpacked */
  return SQLITE_OK;
}

/* ---- reading ---- */

static int session_number(sqlite3 *db, const char *id, size_t len, int64_t *sid) {
  sqlite3_stmt *s;
  int rc = sqlite3_prepare_v2(db, "SELECT sid FROM sessions WHERE id = ?1", -1, &s, NULL);
  if (rc)
    return spans_errno(rc);
  rc = sqlite3_bind_text64(s, 1, id, len, SQLITE_STATIC, SQLITE_UTF8);
  rc = rc ? rc : sqlite3_step(s);
  if (rc == SQLITE_ROW)
    *sid = sqlite3_column_int64(s, 0);
  (void)sqlite3_finalize(s); /* rc is known */
  return rc == SQLITE_ROW ? 0 : rc == SQLITE_DONE ? -ENOENT : spans_errno(rc);
}

static void limit_sid(struct vtab_args_limits *c, int64_t sid) {
  c->none |= !sid || (c->filter.sid && c->filter.sid != sid);
  c->filter.sid = sid;
}

static void limit_span(struct vtab_args_limits *c, uint64_t span) {
  c->none |= !span || (c->filter.span && c->filter.span != span);
  c->filter.span = span;
}

static void limit_name(struct vtab_args_limits *c, uint32_t name) {
  c->none |= c->filter.names && c->name != name;
  c->name = name;
  c->filter.names = &c->name;
  c->filter.names_count = 1;
}

/* 0 stands for "no limit" in a filter, so a limit of 0 is passed as the next looser one, or not at all. */
static void limit_min(int64_t *limit, int64_t value) {
  if (value > 0 && value > *limit)
    *limit = value;
}

static void limit_max(int64_t *limit, int64_t value) {
  if (value > 0 && (!*limit || value < *limit))
    *limit = value;
}

static int apply_text(sqlite3 *db, struct vtab_args_limits *c, char arg, sqlite3_value *value) {
  if (sqlite3_value_type(value) == SQLITE_BLOB)
    return 0;
  const char *text = (const char *)sqlite3_value_text(value);
  size_t len = (size_t)sqlite3_value_bytes(value);
  uint64_t prefix, span;
  uint32_t name;
  int64_t sid = 0;
  int rc;
  if (!text)
    return -ENOMEM;
  if (arg == ARG_NAME) {
    rc = spans_name_find(db, text, len, &name);
    if (!rc)
      limit_name(c, name);
  } else if (arg == ARG_SESSION_ID) {
    rc = session_number(db, text, len, &sid);
    if (!rc)
      limit_sid(c, sid);
  } else {
    char id[33];
    rc = spans_id_parse(text, len, &prefix, &span) ? 0 : -ENOENT;
    if (!rc) {
      spans_id_text(prefix, 0, id);
      rc = session_number(db, id, 32, &sid);
    }
    if (!rc) {
      limit_sid(c, sid);
      limit_span(c, span);
    }
  }
  if (rc == -ENOENT) {
    c->none = true;
    return 0;
  }
  return rc;
}

/* The whole number next to value on the side that rules out less. False: none can be said. */
static bool whole(sqlite3_value *value, bool lower, int64_t *out) {
  int type = sqlite3_value_numeric_type(value);
  if (type == SQLITE_INTEGER) {
    *out = sqlite3_value_int64(value);
    return true;
  }
  if (type != SQLITE_FLOAT)
    return false;
  double d = sqlite3_value_double(value);
  d = lower ? floor(d) : ceil(d);
  if (!(d > -9.2e18 && d < 9.2e18))
    return false;
  *out = (int64_t)d;
  return true;
}

static void apply_number(struct vtab_args_limits *c, char arg, sqlite3_value *value) {
  struct spans_filter *f = &c->filter;
  int64_t low, high;
  if (!whole(value, true, &low) || !whole(value, false, &high))
    return;
  bool exact = low == high;
  switch (arg) {
  case ARG_SID:
    exact ? limit_sid(c, low) : (void)(c->none = true);
    break;
  case ARG_SPAN:
    exact ? limit_span(c, (uint64_t)low) : (void)(c->none = true);
    break;
  case ARG_NAME_NO:
    exact &&low >= 0 && low <= UINT32_MAX ? limit_name(c, (uint32_t)low) : (void)(c->none = true);
    break;
  case ARG_MIN_START:
    limit_min(&f->min_start_ns, low);
    break;
  case ARG_MAX_START:
    limit_max(&f->max_start_ns, high);
    break;
  case ARG_START:
    limit_min(&f->min_start_ns, low);
    limit_max(&f->max_start_ns, high);
    break;
  case ARG_MIN_END:
    limit_min(&f->min_end_ns, low);
    break;
  case ARG_MAX_END:
    limit_max(&f->max_end_ns, high);
    break;
  case ARG_END:
    limit_min(&f->min_end_ns, low);
    limit_max(&f->max_end_ns, high);
    break;
  default:
    limit_min(&f->min_dur_ns, low);
    break;
  }
}

int vtab_args_read(sqlite3 *db, const char *args, int argc, sqlite3_value **argv, struct vtab_args_limits *c) {
  for (int i = 0; i < argc; i++) {
    if (sqlite3_value_type(argv[i]) == SQLITE_NULL) {
      c->none = true; /* nothing is equal to, less or greater than NULL */
      return 0;
    }
    if (args[i] == ARG_SESSION_ID || args[i] == ARG_ID || args[i] == ARG_NAME) {
      int rc = apply_text(db, c, args[i], argv[i]);
      if (rc)
        return rc;
    } else {
      apply_number(c, args[i], argv[i]);
    }
  }
  return 0;
}
