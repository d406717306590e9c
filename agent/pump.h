/* Records as messages, where the collector cannot have the memory: what lies in the rings and in the segment is put into a buffer that
 * link.c empties into the socket. proto/cirron.proto and proto/span_batch.h say what is sent.
 *
 *   ring:   done (= tail, committed) ──── sent ──── head        in shared memory collectord moves the tail; here Committed does
 *
 * A *pass* goes over all rings once, the spare ones last. The open spans of a ring go in one message with its last records: looked at
 * before the head up to which these go, so that a span which is in neither can not be, and after the head up to which others were sent
 * before, so that none is shown open that ended in them. A pass that does not fit into the socket goes on at the next tick. All functions are called by link.c under its lock.
 */
#ifndef CIRRON_PUMP_H
#define CIRRON_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A new connection, after its Hello: all that is not known to be committed is sent again, and half a message is forgotten. */
void pump_restart(void);

/* Adds messages as long as there is room for one more. True: the pass is through. */
bool pump_fill(void);
/* Was nothing left when the last pass was through? */
bool pump_complete(void);
/* As the last message; false: there is no room yet. */
bool pump_goodbye(void);

/* What is to be sent now, and how much of it was. */
const uint8_t *pump_pending(size_t *len);
void pump_sent(size_t len);

/* What the collector said. False: that is no collector. */
bool pump_heard(const uint8_t *data, size_t len);

#endif
