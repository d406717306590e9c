#include "start.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "../../proto/link_abi.h"
#include "../place.h"
#include "check.h"
#include "options.h"

int start_say(int status, const char *format, ...) {
  char line[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  for (char *c = line; *c; c++) /* one line, whatever a value holds */
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      *c = '?';
  fprintf(stderr, "cirron: %s\n", line);
  return status;
}

static bool is_off(const char *setting) {
  static const char *const words[] = {"0", "false", "no", "off"};
  const char *text = getenv(setting);
  for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
    if (strcasecmp(text, words[i]) == 0)
      return true;
  return false;
}

static int no_answer(const char *path, enum place_answer answer) {
  static const char *const why[] = {
      [PLACE_NONE] = "there is no such socket; start collectord there",
      [PLACE_STALE] = "nobody answers; start collectord there",
      [PLACE_CLOSED] = "this user may not connect; join the group it is for",
      [PLACE_STRANGER] = "another user's, not trusted; its folder has to be that user's",
  };
  if (answer == PLACE_ERROR)
    return start_say(START_TROUBLE, "collector %s: %s (--no-check starts all the same)", path, strerror(errno));
  return start_say(START_TROUBLE, "collector %s: %s (--no-check starts all the same)", path, why[answer]);
}

/* Can the agent start a private collector? It keeps its store below the working directory. */
static int check_private(void) {
  char program[PATH_MAX];
  if (is_off("CIRRON_AUTOSTART"))
    return start_say(START_TROUBLE,
                     "no collector runs and none may be started; start collectord (--no-check starts all the same)");
  if (place_program("collectord", program) != 0)
    return start_say(START_TROUBLE,
                     "no collector runs and collectord was not found; install it beside this program or in PATH (--no-check "
                     "starts all the same)");
  char folder[] = LINK_PRIVATE_STORE;
  *strrchr(folder, '/') = '\0';
  if (access(access(folder, F_OK) == 0 ? folder : ".", W_OK | X_OK) != 0)
    return start_say(
        START_TROUBLE,
        "no collector runs, and the store of a private one cannot be made in this directory (%s); go to another or "
        "start collectord (--no-check starts all the same)",
        strerror(errno));
  return 0;
}

/* Will somebody take what the agent records? The agent asks the same again, later and without a word. */
static int check_collector(void) {
  const char *set = getenv("CIRRON_SOCKET");
  char user[PATH_MAX];
  uid_t owner;
  if (set && *set) {
    enum place_answer answer = place_probe(set, 0, &owner);
    return answer == PLACE_ANSWERS ? 0 : no_answer(set, answer);
  }
  if (place_user_socket(user) && place_probe(user, 0, &owner) == PLACE_ANSWERS)
    return 0;
  if (place_probe(LINK_SYSTEM_SOCKET, 0, &owner) == PLACE_ANSWERS)
    return 0;
  return check_private();
}

static int find_agent(const char *given, char out[PATH_MAX]) {
  if (!given && place_agent(out) != 0)
    return start_say(START_TROUBLE, "libcirron_agent.so was not found beside this program; install it or give --agent FILE");
  if (given && (!realpath(given, out) || access(out, R_OK) != 0))
    return start_say(START_TROUBLE, "--agent %s: %s", given, strerror(errno));
  if (strpbrk(out, ": \t"))
    return start_say(START_TROUBLE, "%s: the loader cannot load a file with a blank or colon in its path; move it", out);
  return 0;
}

static bool listed(const char *list, const char *path) {
  size_t len = strlen(path);
  for (size_t n; *list; list += n + (list[n] != '\0')) {
    n = strcspn(list, ": ");
    if (n == len && memcmp(list, path, n) == 0)
      return true;
  }
  return false;
}

/* Behind what is there: others may have reasons to be the first. */
static int preload(const char *agent) {
  const char *before = getenv("LD_PRELOAD");
  char *list = NULL;
  if (before && listed(before, agent))
    return 0;
  int failed = asprintf(&list, "%s%s%s", before ? before : "", before && *before ? ":" : "", agent) < 0 ||
               setenv("LD_PRELOAD", list, 1) != 0;
  if (failed)
    return start_say(START_TROUBLE, "out of memory");
  free(list);
  return 0;
}

int start(int argc, char **argv) {
  struct options options;
  char agent[PATH_MAX];
  switch (options_parse(argc, argv, &options)) {
  case OPTIONS_HELP:
    options_help();
    return fflush(stdout) == 0 ? 0 : START_TROUBLE;
  case OPTIONS_WRONG:
    return START_TROUBLE;
  case OPTIONS_RUN:
    break;
  }
  int status = find_agent(options.agent, agent);
  if (!status && !options.no_check && !is_off("CIRRON_ENABLED"))
    status = check_collector();
  if (!status)
    status = preload(agent);
  if (status)
    return status;
  if (options.overhead_check)
    return check_run(options.command);
  execvp(options.command[0], options.command);
  return start_say(errno == ENOENT ? START_NOT_FOUND : START_CANNOT, "%s: %s", options.command[0], strerror(errno));
}
