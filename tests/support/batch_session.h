/* A session's rings without quotas and a store: stand-ins for collectord/session.c, so that batch.c can be linked by itself. */
#ifndef CIRRON_TEST_BATCH_SESSION_H
#define CIRRON_TEST_BATCH_SESSION_H

#include <errno.h>

#include "collectord/batch.h"

struct ring_reader *session_ring(const struct session *session, uint32_t ring_no) {
  for (size_t i = 0; i < session->ring_count; i++)
    if (session->rings[i]->ring_no == ring_no)
      return session->rings[i];
  return NULL;
}

int session_add_ring(struct session *session, struct ring_reader *reader, size_t max_rings) {
  if (session->ring_count >= max_rings)
    return -EMFILE;
  session->rings[session->ring_count++] = reader;
  return 0;
}

#endif
