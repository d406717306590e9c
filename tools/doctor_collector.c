/* Who would take what an agent records here: the sockets in the agent's order, and whether it could start a collector of its own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../proto/link_abi.h"
#include "doctor.h"
#include "place.h"

#define REFUSED_WITHIN_MS 200

/* A socket that is there and does not take us. `only`: the agent would look for no other. */
static void trouble(struct doctor *d, const char *path, enum place_answer answer, uid_t owner, bool only) {
  enum doctor_status status = only ? DOCTOR_FAIL : DOCTOR_WARN;
  switch (answer) {
  case PLACE_NONE:
    if (only)
      doctor_find(d, status, "collector", "%s (CIRRON_SOCKET): no such socket; start collectord there, or unset it", path);
    break;
  case PLACE_STALE:
    doctor_find(d, status, "collector", "%s: nobody answers, its collector ended without tidying up; start it again", path);
    break;
  case PLACE_CLOSED:
    doctor_find(d, status, "collector", "%s: this user may not connect; join the socket's group (usermod -aG) and log in again",
                path);
    break;
  case PLACE_REFUSES:
    doctor_find(d, status, "collector",
                "%s: hangs up on this user; start collectord with --group or --any-user, or it is full (--max-user-sessions)",
                path);
    break;
  case PLACE_STRANGER:
    doctor_find(d, status, "collector",
                "%s: user %d answers, who does not own its folder, so no agent trusts it; chown the folder", path, (int)owner);
    break;
  default:
    doctor_find(d, status, "collector", "%s: %s; give another path", path, strerror(errno));
  }
}

static void look(struct doctor *d, const char *path, bool only) {
  uid_t owner = 0;
  enum place_answer answer = place_probe(path, REFUSED_WITHIN_MS, &owner);
  if (answer == PLACE_ANSWERS) {
    d->answered = true;
    doctor_find(d, DOCTOR_OK, "collector", "%s: answers (user %d)", path, (int)owner);
  } else {
    trouble(d, path, answer, owner, only);
  }
}

/* The version of the collectord that would be started; empty if it says none. */
static void version_of(const char *program, char *out, size_t len) {
  char command[2 * PATH_MAX + 32];
  size_t n = (size_t)snprintf(command, sizeof command, "'");
  for (const char *c = program; *c && n + 8 < sizeof command; c++)
    n += (size_t)snprintf(command + n, sizeof command - n, *c == '\'' ? "'\\''" : "%c", *c);
  snprintf(command + n, sizeof command - n, "' --version 2>/dev/null");
  out[0] = '\0';
  FILE *f = popen(command, "re"); /* NOLINT(cert-env33-c): the path is quoted */
  if (!f)
    return;
  if (!fgets(out, (int)len, f) || strncmp(out, "collectord ", 11) != 0)
    out[0] = '\0';
  (void)pclose(f);
  out[strcspn(out, "\n")] = '\0';
}

static bool program(struct doctor *d) {
  char path[PATH_MAX], version[64];
  if (place_program("collectord", path) != 0) {
    doctor_find(d, d->answered ? DOCTOR_WARN : DOCTOR_FAIL, "collector",
                "collectord is neither beside this program nor in PATH, so no agent can start one; install it");
    return false;
  }
  version_of(path, version, sizeof version);
  if (!version[0])
    doctor_find(d, DOCTOR_FAIL, "collector", "%s cannot be run; install it again", path);
  else if (strcmp(version + strlen("collectord "), CIRRON_VERSION) != 0)
    doctor_find(d, DOCTOR_WARN, "collector", "%s is %s, this is version %s; install both anew", path, version, CIRRON_VERSION);
  else
    doctor_find(d, DOCTOR_OK, "collector", "%s, %s", path, version);
  return version[0] != '\0';
}

static bool autostart(void) {
  static const char *const off[] = {"0", "false", "no", "off"};
  const char *set = getenv("CIRRON_AUTOSTART");
  for (size_t i = 0; set && i < sizeof off / sizeof *off; i++)
    if (strcasecmp(set, off[i]) == 0)
      return false;
  return true;
}

/* Nobody listens: can an agent help itself? */
static void private(struct doctor *d, bool runs) {
  char folder[] = LINK_PRIVATE_STORE;
  *strrchr(folder, '/') = '\0';
  const char *at = access(folder, F_OK) == 0 ? folder : ".";
  if (!autostart())
    doctor_find(d, DOCTOR_FAIL, "collector",
                "none runs and CIRRON_AUTOSTART forbids to start one; start collectord or unset it");
  else if (access(at, W_OK | X_OK) != 0)
    doctor_find(d, DOCTOR_FAIL, "collector",
                "none runs, and a private one cannot keep its store in %s (%s); go to another directory",
                strcmp(at, ".") == 0 ? "this directory" : at, strerror(errno));
  else if (runs)
    doctor_find(d, DOCTOR_OK, "collector", "none runs; the agent starts a private one that writes ./" LINK_PRIVATE_STORE);
}

void doctor_collector(struct doctor *d) {
  const char *set = getenv("CIRRON_SOCKET");
  char user[PATH_MAX];
  bool only = set && *set;
  if (only) {
    look(d, set, true);
  } else {
    if (place_user_socket(user))
      look(d, user, false);
    if (!d->answered)
      look(d, LINK_SYSTEM_SOCKET, false);
  }
  bool runs = program(d);
  if (!d->answered && !only)
  private(d, runs);
}
