#include "schema.h"

/* Ids of spans and marks are stored as their sequence number within the session; the whole id is sessions.prefix as 16 hex
 * digits followed by the number as 16 hex digits. Times are wall-clock nanoseconds. docs/schema.md explains each column. */
const char schema_sql[] =
    "CREATE TABLE schema_version(version INTEGER NOT NULL, written_by TEXT NOT NULL);"

    "CREATE TABLE sessions("
    " sid INTEGER PRIMARY KEY,"
    " id TEXT NOT NULL UNIQUE," /* 32 hex digits: prefix, then zeroes */
    " prefix TEXT NOT NULL,"    /* 16 hex digits */
    " state TEXT NOT NULL,"
    " pid INTEGER NOT NULL, ppid INTEGER, uid INTEGER,"
    " rank INTEGER, local_rank INTEGER, world_size INTEGER,"
    " host TEXT, exe TEXT, argv TEXT, cwd TEXT, python_version TEXT, run_id TEXT, agent_version TEXT,"
    " attrs TEXT NOT NULL DEFAULT '{}',"
    " start_ns INTEGER NOT NULL, end_ns INTEGER," /* of the process; end_ns is NULL while it runs */
    " last_ns INTEGER,"                           /* the end of the latest span */
    " exit_code INTEGER, exit_signal INTEGER,"
    " spans INTEGER NOT NULL DEFAULT 0, marks INTEGER NOT NULL DEFAULT 0," /* stored */
    " emitted_spans INTEGER NOT NULL DEFAULT 0, emitted_marks INTEGER NOT NULL DEFAULT 0,"
    " dropped TEXT NOT NULL DEFAULT '{}'," /* JSON: reason -> count, reasons with 0 left out */
    " dropped_total INTEGER NOT NULL DEFAULT 0,"
    " overhead_ns INTEGER NOT NULL DEFAULT 0);"

    "CREATE TABLE names(name INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);"

    "CREATE TABLE epochs("
    " sid INTEGER NOT NULL, span INTEGER NOT NULL, parent INTEGER NOT NULL,"
    " kind TEXT NOT NULL,"                                     /* epoch, eval */
    " idx INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER," /* end_ns NULL: unfinished */
    " cpu_ns INTEGER, rank INTEGER, tid INTEGER,"
    " PRIMARY KEY(sid, span)) WITHOUT ROWID;"

    "CREATE TABLE steps("
    " sid INTEGER NOT NULL, span INTEGER NOT NULL, parent INTEGER NOT NULL,"
    " epoch INTEGER," /* the span of the epoch around it */
    " idx INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,"
    " data_load_ns INTEGER NOT NULL, forward_ns INTEGER NOT NULL,"
    " backward_ns INTEGER NOT NULL, optimizer_ns INTEGER NOT NULL," /* of its direct children of these kinds */
    " data_loads INTEGER NOT NULL, forwards INTEGER NOT NULL,"
    " backwards INTEGER NOT NULL, optimizers INTEGER NOT NULL,"
    " cpu_ns INTEGER, gpu_ns INTEGER, rank INTEGER, tid INTEGER, error INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(sid, span)) WITHOUT ROWID;"

    "CREATE TABLE marks("
    " sid INTEGER NOT NULL, mark INTEGER NOT NULL, span INTEGER NOT NULL, name INTEGER NOT NULL,"
    " ts_ns INTEGER NOT NULL, kind TEXT NOT NULL," /* point, summary */
    " value_type TEXT NOT NULL,"                   /* float, int, bool, string */
    " value," /* NaN and infinities are the texts NaN, Infinity, -Infinity with value_type float */
    " attrs TEXT,"
    " PRIMARY KEY(sid, mark)) WITHOUT ROWID;"

    "CREATE TABLE snapshots("
    " sid INTEGER NOT NULL, snapshot INTEGER NOT NULL, span INTEGER NOT NULL,"
    " tensor_name TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, mode TEXT NOT NULL,"
    " stats TEXT, blob_uri TEXT, ts_ns INTEGER NOT NULL, attrs TEXT,"
    " PRIMARY KEY(sid, snapshot)) WITHOUT ROWID;"

    "CREATE TABLE rollups("
    " sid INTEGER NOT NULL, epoch INTEGER NOT NULL," /* span of the epoch or eval around it, 0: none */
    " name INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " count INTEGER NOT NULL, errors INTEGER NOT NULL, total_ns INTEGER NOT NULL,"
    " self_ns INTEGER NOT NULL," /* total less the time of direct children */
    " min_ns INTEGER NOT NULL, max_ns INTEGER NOT NULL, histogram BLOB NOT NULL,"
    " PRIMARY KEY(sid, epoch, name, kind)) WITHOUT ROWID;"

    "CREATE TABLE kernels("
    " sid INTEGER NOT NULL, span INTEGER NOT NULL, name INTEGER NOT NULL,"
    " count INTEGER NOT NULL, total_ns INTEGER NOT NULL,"
    " PRIMARY KEY(sid, span, name)) WITHOUT ROWID;"

    /* Raw spans. A session's last block is rewritten at each commit until it is full. */
    "CREATE TABLE blocks(block INTEGER PRIMARY KEY, data BLOB NOT NULL);"
    "CREATE TABLE block_meta("
    " block INTEGER PRIMARY KEY, sid INTEGER NOT NULL, sealed INTEGER NOT NULL, count INTEGER NOT NULL,"
    " min_id INTEGER NOT NULL, max_id INTEGER NOT NULL,"
    " min_start_ns INTEGER NOT NULL, max_end_ns INTEGER NOT NULL, max_dur_ns INTEGER NOT NULL,"
    " names TEXT NOT NULL);" /* JSON array of the names in it, ascending */
    "CREATE INDEX block_meta_session ON block_meta(sid, min_id);"

    /* Spans without an end: those open now while the session runs, those that were open when it ended for ever. */
    "CREATE TABLE open_spans("
    " sid INTEGER NOT NULL, span INTEGER NOT NULL, parent INTEGER NOT NULL, name INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " idx INTEGER, start_ns INTEGER NOT NULL, tid INTEGER, flags INTEGER NOT NULL, module INTEGER NOT NULL,"
    " PRIMARY KEY(sid, span)) WITHOUT ROWID;"

    /* Children of `span` in sealed blocks that began at or after since_ns belong to `parent`; applied while reading, in order. */
    "CREATE TABLE moves("
    " move INTEGER PRIMARY KEY, sid INTEGER NOT NULL, span INTEGER NOT NULL, since_ns INTEGER NOT NULL, parent INTEGER NOT "
    "NULL);"
    "CREATE INDEX moves_session ON moves(sid);"

    /* How far each ring was read, in the same transaction as what was read. */
    "CREATE TABLE rings("
    " sid INTEGER NOT NULL, ring_no INTEGER NOT NULL, tail INTEGER NOT NULL,"
    " PRIMARY KEY(sid, ring_no)) WITHOUT ROWID;";

/* Snapshots of tensors, one row a tensor and one a pass over all of them. Nothing ever wrote the table that stood in their place. */
const char schema_2_sql[] =
    "DROP TABLE snapshots;"
    "CREATE TABLE snapshots("
    " sid INTEGER NOT NULL, snapshot INTEGER NOT NULL, pass INTEGER NOT NULL, span INTEGER NOT NULL,"
    " tensor_name TEXT NOT NULL, model TEXT NOT NULL,"
    " kind TEXT NOT NULL,"                        /* weight, gradient */
    " shape TEXT NOT NULL, dtype TEXT NOT NULL,"  /* shape: a JSON array */
    " mode TEXT NOT NULL,"                        /* stats; sampled, full: it lies in the blob */
    " count INTEGER, nans INTEGER, infs INTEGER," /* all of these are NULL where it was not read */
    " neg_infs INTEGER, zeros INTEGER,"
    " mean REAL, std REAL, min REAL, max REAL, norm REAL," /* of the finite numbers; NULL: there are none */
    " histogram TEXT, magnitude TEXT,"                     /* JSON arrays of 16 and of 32 counts */
    " blob_uri TEXT, ts_ns INTEGER NOT NULL, torn INTEGER NOT NULL, attrs TEXT NOT NULL,"
    " PRIMARY KEY(sid, snapshot)) WITHOUT ROWID;"
    /* Both grow at their end. The second is empty while all is well, and finds the first bad one among millions. */
    "CREATE INDEX snapshots_pass ON snapshots(sid, pass);"
    "CREATE INDEX snapshots_bad ON snapshots(sid, pass) WHERE nans > 0 OR infs > 0 OR neg_infs > 0;"

    "CREATE TABLE snapshot_passes("
    " sid INTEGER NOT NULL, pass INTEGER NOT NULL, span INTEGER NOT NULL,"
    " epoch INTEGER, step INTEGER,"                /* indices */
    " reason TEXT NOT NULL,"                       /* epoch, steps, command */
    " mode TEXT NOT NULL, ts_ns INTEGER NOT NULL," /* mode: the setting */
    " records INTEGER NOT NULL,"
    " list_ns INTEGER NOT NULL, read_ns INTEGER NOT NULL, wait_ns INTEGER NOT NULL,"
    " torn INTEGER NOT NULL, own INTEGER NOT NULL,"
    " blobs INTEGER NOT NULL, blob_error INTEGER," /* 1: weights, 2: gradients; an errno or NULL */
    " PRIMARY KEY(sid, pass)) WITHOUT ROWID;";
