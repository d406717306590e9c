/* The agent's file, how it is preloaded, and the settings that keep it from recording. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "place.h"

#define AGENT "libcirron_agent.so" /* what is preloaded; it loads the rest from its own folder */
#define CORE "libcirron_core.so"

/* NULL: a library that this machine's loader would load; else what it is not. */
static const char *look_at(const char *path) {
  Elf64_Ehdr head;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return strerror(errno);
  ssize_t n = read(fd, &head, sizeof head);
  close(fd);
  if (n != (ssize_t)sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    return "not a library (a copy that was cut off?)";
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != EM_X86_64 || head.e_type != ET_DYN)
    return "a library for another machine";
  return NULL;
}

/* One of the two: not there, not whole, or not for everybody. True: nothing is wrong with it. */
static bool library(struct doctor *d, const char *path) {
  const char *wrong = look_at(path);
  struct stat st;
  if (wrong)
    doctor_find(d, DOCTOR_FAIL, "agent", "%s: %s; install it again", path, wrong);
  else if (stat(path, &st) == 0 && (st.st_mode & 0444) != 0444)
    doctor_find(d, DOCTOR_WARN, "agent", "%s: not every user can read it; chmod a+r", path);
  else
    return true;
  return false;
}

static void file(struct doctor *d, char found[PATH_MAX]) {
  if (place_agent(found) != 0) {
    found[0] = '\0';
    doctor_find(d, DOCTOR_FAIL, "agent", AGENT " is not where this program's installation has it; install it again");
    return;
  }
  char core[PATH_MAX + sizeof CORE];
  snprintf(core, sizeof core, "%.*s/" CORE, (int)(strrchr(found, '/') - found), found);
  bool well = library(d, found);
  if (library(d, core) && well)
    doctor_find(d, DOCTOR_OK, "agent", "%s", found);
}

static void preloaded(struct doctor *d, const char *entry, const char *found) {
  char real[PATH_MAX];
  const char *base = strrchr(entry, '/');
  if (strcmp(base ? base + 1 : entry, AGENT) != 0)
    return;
  if (!base) /* a bare name: the loader has its own folders */
    doctor_find(d, DOCTOR_WARN, "agent", "LD_PRELOAD names %s without a folder; give the whole path%s%s", entry,
                *found ? ", " : "", found);
  else if (look_at(entry))
    doctor_find(d, DOCTOR_FAIL, "agent", "LD_PRELOAD names %s: %s; correct it or use cirron run", entry, look_at(entry));
  else if (*found && realpath(entry, real) && strcmp(real, found) != 0)
    doctor_find(d, DOCTOR_WARN, "agent", "LD_PRELOAD names %s, which is not the one of this installation; use %s", entry,
                found);
  else
    doctor_find(d, DOCTOR_OK, "agent", "LD_PRELOAD names it");
}

static void preload(struct doctor *d, const char *found) {
  const char *list = getenv("LD_PRELOAD");
  char entry[PATH_MAX];
  for (size_t n; list && *list; list += n + (list[n] != '\0')) {
    n = strcspn(list, ": ");
    if (n && n < sizeof entry) {
      memcpy(entry, list, n);
      entry[n] = '\0';
      preloaded(d, entry, found);
    }
  }
}

static void settings(struct doctor *d) {
  static const char *const off[] = {"0", "false", "no", "off"};
  const char *enabled = getenv("CIRRON_ENABLED");
  for (size_t i = 0; enabled && i < sizeof off / sizeof *off; i++)
    if (strcasecmp(enabled, off[i]) == 0)
      doctor_find(d, DOCTOR_WARN, "agent", "CIRRON_ENABLED=%s: the agent does nothing; unset it to record", enabled);
}

void doctor_agent(struct doctor *d) {
  char found[PATH_MAX];
  file(d, found);
  preload(d, found);
  settings(d);
}
