#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../db.h"
#include "../place.h"
#include "start.h"

#define PATIENCE_MS 5000 /* for the collector to see the end of the command */
#define STEP_MS 200

static volatile sig_atomic_t child;

static const int passed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
static const int from_terminal[] = {SIGINT, SIGQUIT}; /* the command gets them there, too */

static void pass_on(int number) {
  int error = errno;
  if (child > 0)
    kill(child, number);
  errno = error;
}

static void signals_ours(void) {
  struct sigaction pass = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
  for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
    sigaction(passed_on[i], &pass, NULL);
  for (size_t i = 0; i < sizeof from_terminal / sizeof *from_terminal; i++)
    sigaction(from_terminal[i], &ignore, NULL);
}

/* The signals wait until the command is there to get them. 0: this is the command's process, as it would be without us. */
static pid_t split(void) {
  sigset_t held, before;
  sigemptyset(&held);
  for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
    sigaddset(&held, passed_on[i]);
  sigprocmask(SIG_BLOCK, &held, &before);
  pid_t pid = fork();
  if (pid > 0) {
    child = pid;
    signals_ours();
  }
  sigprocmask(SIG_SETMASK, &before, NULL);
  return pid;
}

static int wait_for(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return -errno;
  return status;
}

/* Its exit status, or a negative number where it could not be run. `out`: where what it prints goes. */
static int query(const char *program, const char *store, const char *since, int out) {
  const char *argv[] = {program, "overhead", since, store ? "--db" : NULL, store, NULL};
  pid_t pid = fork();
  if (pid == 0) {
    if (out >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0)
      execv(program, (char *const *)argv);
    _exit(START_CANNOT);
  }
  int status = pid < 0 ? -errno : wait_for(pid);
  return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The store that has the answer: the one that cirron-query finds, or that of the machine's collector. */
static bool find_answer(const char *program, const char *since, const char **store) {
  static const char *const stores[] = {NULL, DB_SYSTEM_STORE};
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  for (int waited = 0;; waited += STEP_MS) {
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
      if (query(program, stores[i], since, null) == 0) {
        *store = stores[i];
        close(null);
        return true;
      }
    if (waited >= PATIENCE_MS)
      break;
    nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000l}, NULL);
  }
  close(null);
  return false;
}

static void tell(const struct timespec *begun) {
  char program[PATH_MAX], since[32];
  const char *store;
  snprintf(since, sizeof since, "%lld%09ld", (long long)begun->tv_sec, begun->tv_nsec);
  if (place_program("cirron-query", program) != 0) {
    start_say(0, "cirron-query was not found beside this program or in PATH: it would say what recording cost");
    return;
  }
  fflush(stderr);
  if (!find_answer(program, since, &store) || query(program, store, since, STDERR_FILENO) != 0)
    start_say(
        0, "what recording cost is not known: no training was recorded into the store that cirron-query reads (CIRRON_DB names "
           "another)");
}

static int end_as(int status) {
  if (WIFEXITED(status))
    return WEXITSTATUS(status);
  int number = WTERMSIG(status);
  sigset_t set;
  prctl(PR_SET_DUMPABLE, 0); /* the core, if any, is the command's */
  signal(number, SIG_DFL);
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  raise(number);
  return 128 + number;
}

int check_run(char **command) {
  struct timespec begun;
  clock_gettime(CLOCK_REALTIME, &begun);
  pid_t pid = split();
  if (pid < 0)
    return start_say(START_TROUBLE, "no process for the command: %s", strerror(errno));
  if (pid == 0) {
    execvp(command[0], command);
    _exit(start_say(errno == ENOENT ? START_NOT_FOUND : START_CANNOT, "%s: %s", command[0], strerror(errno)));
  }
  int status = wait_for(pid);
  if (status < 0)
    return start_say(START_TROUBLE, "waiting for the command: %s", strerror(-status));
  child = 0;
  bool ran = !WIFEXITED(status) || (WEXITSTATUS(status) != START_NOT_FOUND && WEXITSTATUS(status) != START_CANNOT);
  if (ran)
    tell(&begun);
  return end_as(status);
}
