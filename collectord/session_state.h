/* A session's line in the store: state, how it ended, what was stored and what was lost. */
#ifndef CIRRON_SESSION_STATE_H
#define CIRRON_SESSION_STATE_H

#include <stdbool.h>

struct session;
struct store;

int session_state_write(struct session *session, struct store *store);
/* Are the numbers other ones than those last written? */
bool session_state_changed(const struct session *session);

#endif
