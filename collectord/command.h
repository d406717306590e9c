/* What cirron-query asks of running jobs. */
#ifndef CIRRON_COMMAND_H
#define CIRRON_COMMAND_H

#include <sys/types.h>

struct roster;
typedef struct Cirron__Command Cirron__Command;
typedef struct Cirron__CommandReply Cirron__CommandReply;

/* Passes the command of a process of `uid` on to the sessions it is for: those of the same user, all of them for root. */
void command_pass_on(struct roster *roster, const Cirron__Command *command, uid_t uid, Cirron__CommandReply *reply);

#endif
