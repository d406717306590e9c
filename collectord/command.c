#include "command.h"

#include <errno.h>

#include "cirron_gen.h"
#include "roster.h"

/* Is it a process that may still do it? */
static bool runs(const struct session *s) {
  return (s->phase == SESSION_LIVE || s->phase == SESSION_AWAY) && s->segment.memory && !s->goodbye;
}

static void tell(struct roster *roster, struct session *s) {
  if (s->by_messages) {
    s->commands++;
    if (s->connection)
      roster->acknowledge(s);
    return; /* who is away is told when it is back */
  }
  struct ring_segment *segment = s->segment.memory;
  (void)__atomic_add_fetch(&segment->snapshot_wanted, 1, __ATOMIC_RELEASE); /* nobody else writes it */
}

void command_pass_on(struct roster *roster, const Cirron__Command *command, uid_t uid, Cirron__CommandReply *reply) {
  bool refused = false;
  reply->sessions = 0;
  reply->error = command->kind == CIRRON__COMMAND__KIND__SNAPSHOT ? 0 : EOPNOTSUPP;
  for (struct session *s = roster->first; !reply->error && s; s = s->next) {
    if (!runs(s) || (command->session && command->session != s->prefix))
      continue;
    bool may = uid == 0 || s->row.uid == (int64_t)uid;
    refused |= !may;
    reply->sessions += may;
    if (may)
      tell(roster, s);
  }
  if (!reply->error && !reply->sessions)
    reply->error = refused ? EPERM : ESRCH;
}
