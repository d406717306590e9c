/* A process that shares no memory: what it sends goes into a segment and rings of ours, from where all else is as with shared ones.
 *
 * Nothing of it is trusted: a message that can not be right changes nothing, and its connection ends. Memory is ours here: a ring takes it
 * as it is filled, and gives it back when all of it is committed. While records of BATCH_SESSION_BYTES of one process, or of
 * BATCH_ALL_BYTES of all of them, are not committed, no more are read (conn.c); they wait in the process.
 */
#ifndef CIRRON_BATCH_H
#define CIRRON_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session.h"

#define BATCH_SESSION_BYTES (160ull << 20) /* many threads at a time, and what they need for bursts */
#define BATCH_ALL_BYTES (1ull << 30)
#define BATCH_FEW_BYTES (4ull << 20) /* those who have no more go on while others have too much */

typedef struct Cirron__Intern Cirron__Intern;
typedef struct Cirron__SpanBatch Cirron__SpanBatch;
typedef struct Cirron__Counters Cirron__Counters;

/* -EPROTO, -EBADMSG: the connection has to end. */
int batch_names(struct session *session, const Cirron__Intern *names);
int batch_counters(struct session *session, const Cirron__Counters *counters);
/* -EMFILE: a new ring, and one too many: it is not read. */
int batch_records(struct session *session, const Cirron__SpanBatch *batch, size_t max_rings, struct store *store);

/* Bytes of its records that are not committed; 0 for one that shares its memory. */
uint64_t batch_held(const struct session *session);

/* After a Hello: the process is to be told of all its rings. */
void batch_tell_all(struct session *session);
/* A ring of which the process does not know how far it is committed, and that position; false: it knows all. */
bool batch_next_told(struct session *session, uint32_t *ring_no, uint64_t *position);

#endif
