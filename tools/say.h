/* Messages for people, on stderr: one line, "cirron-query: ...", with everything escaped that could harm the terminal. */
#ifndef CIRRON_SAY_H
#define CIRRON_SAY_H

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
