/* Snapshots as messages (SnapshotSent), where the collector cannot have the area: for pump.c, under link.c's lock and the GIL. */
#ifndef CIRRON_PUMP_SNAPSHOT_H
#define CIRRON_PUMP_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "pbwrite.h"

/* A new connection: what is not in the store is sent again. */
void pump_snapshot_restart(void);

/* Is there something to be sent? */
bool pump_snapshot_waits(void);
/* The next message. */
void pump_snapshot_put(struct pbwrite *pb);

/* The collector has it in its store, up to this request. */
void pump_snapshot_stored(uint64_t number);

#endif
