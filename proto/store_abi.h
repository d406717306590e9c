/* What writer and readers of a store agree on, beside the tables themselves (collectord/schema.c, docs/schema.md). */
#ifndef CIRRON_STORE_ABI_H
#define CIRRON_STORE_ABI_H

#define STORE_APPLICATION_ID 0x4349524e /* "CIRN", PRAGMA application_id */
#define STORE_SCHEMA_VERSION 2          /* PRAGMA user_version and table schema_version */

/* sessions.state */
#define SESSION_RUNNING "running"
#define SESSION_FINISHED "finished" /* said goodbye, or exited by itself */
#define SESSION_KILLED "killed"     /* by a signal: exit_signal */
#define SESSION_LOST "lost"         /* its end was not seen */
#define SESSION_ERASED "erased"     /* on its way out (proto/erase.h): no reader shows it */

/* rollups.histogram: counts of durations by size, so that quantiles can be merged and read without a scan.
 * Bin 0 holds durations of 0 ns; otherwise with e = floor(log2(ns)), bin = 1 + 8*e + the three bits below the leading one. Each
 * bin is at most 12.5 % wide. Stored as pairs of variable-length integers (LEB128): gap to the bin before, count. */
#define HISTOGRAM_BINS 513

#endif
