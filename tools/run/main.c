/* cirron: `cirron run` starts a command under the agent; every other word is a command of cirron-query. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../place.h"
#include "start.h"

enum { USAGE = 2 };

static void help(void) {
  printf("Usage: cirron run [OPTION ...] [--] COMMAND [ARGUMENT ...]\n"
         "       cirron COMMAND-OF-CIRRON-QUERY [ARGUMENT ...]\n"
         "The flight recorder for training runs.\n\n"
         "  cirron run -- python train.py   record a training\n"
         "  cirron report                   what cirron-query says of the last one; see cirron-query --help\n"
         "  cirron doctor                   what is wrong, and what to do\n\n"
         "Options:\n"
         "  %-19s %s\n  %-19s %s\n\n"
         "Options of run: see cirron run --help.\n",
         "--help", "this text", "--version", "the version");
}

/* cirron-query takes our place, with the same arguments. */
static int ask(char **argv) {
  char program[PATH_MAX];
  if (place_program("cirron-query", program) != 0)
    return start_say(START_TROUBLE, "cirron-query was not found beside this program or in PATH; install it");
  argv[0] = program;
  execv(program, argv);
  return start_say(START_CANNOT, "%s: %s", program, strerror(errno));
}

int main(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  if (argc < 2) {
    start_say(0, "what is to be done? cirron run -- COMMAND, cirron report; see cirron --help");
    return USAGE;
  }
  if (strcmp(verb, "run") == 0)
    return start(argc - 1, argv + 1);
  if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
    help();
    return fflush(stdout) == 0 ? 0 : 1;
  }
  if (strcmp(verb, "--version") == 0) {
    printf("cirron %s\n", CIRRON_VERSION);
    return fflush(stdout) == 0 ? 0 : 1;
  }
  if (verb[0] == '-') {
    start_say(0, "no option %s; see cirron --help", verb);
    return USAGE;
  }
  return ask(argv);
}
