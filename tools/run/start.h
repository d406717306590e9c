/* cirron run: a command with the agent loaded into it. */
#ifndef CIRRON_RUN_START_H
#define CIRRON_RUN_START_H

/* What env(1) uses, so that a status tells whose it is. */
enum { START_TROUBLE = 125, START_CANNOT = 126, START_NOT_FOUND = 127 };

/* argv[0] is "run". Becomes the command; returns an exit status when it cannot, or when only help was asked for. */
int start(int argc, char **argv);

/* One line on stderr, "cirron: ...". Returns the status it is given. */
int start_say(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
