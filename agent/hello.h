/* What a process says about itself when it meets a collector (Hello in proto/cirron.proto). */
#ifndef CIRRON_HELLO_H
#define CIRRON_HELLO_H

#include "pbwrite.h"
#include "session.h"

/* Writes the Envelope with the Hello of this session. Reads /proc, the environment and the working directory; link.c calls it once
 * a session, under its own lock. */
void hello_write(struct pbwrite *pb, const struct session *session);

#endif
