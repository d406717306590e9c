/* The options of `cirron run`: one table parses, checks and explains them. Most are settings of the agent by another name; a value
 * that the agent would not take is refused here, before anything runs. */
#ifndef CIRRON_RUN_OPTIONS_H
#define CIRRON_RUN_OPTIONS_H

#include <stdbool.h>

struct options {
  const char *agent; /* NULL: looked for */
  bool no_check, overhead_check;
  char **command; /* ends with NULL; the first is never NULL */
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG };

/* Reads the options and puts the settings into the environment. OPTIONS_WRONG: has said what. */
enum options_result options_parse(int argc, char **argv, struct options *out);

void options_help(void);

#endif
