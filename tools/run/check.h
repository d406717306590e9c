/* cirron run --overhead-check: the command runs as a child, and what its recording cost is said on stderr when it has ended. */
#ifndef CIRRON_RUN_CHECK_H
#define CIRRON_RUN_CHECK_H

/* Signals sent to us go to the command. Returns its exit status; one that a signal killed takes us with it, by the same signal. */
int check_run(char **command);

#endif
