// links: agent/launch.c agent/env.c
/* Starting a private collector: a shell script stands in for collectord, and tells what it was started as through a FIFO. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/launch.h"

static char folder[64], job[100], bin[100], fifo[100], socket_path[108];
static char report[65536]; /* what the last collector said */
static volatile sig_atomic_t signals;

static void on_signal(int sig) {
  (void)sig;
  signals++;
}

static void write_file(const char *path, mode_t mode, const char *text) {
  FILE *file = fopen(path, "we");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
  assert_int_equal(chmod(path, mode), 0);
}

static void write_collector(const char *dir) {
  char path[250], text[1000];
  snprintf(path, sizeof(path), "%s/collectord", dir);
  snprintf(text, sizeof(text),
           "#!/bin/sh\n"
           "{\n"
           "  for a in \"$0\" \"$@\"; do echo \"arg $a\"; done\n"
           "  echo \"cwd $(pwd)\"\n"
           "  grep -E '^(SigBlk|SigIgn):' /proc/self/status\n" /* inherited; the shell's own mask changes while it forks */
           "  grep -E '^(PPid|Pid):' /proc/$$/status\n"
           "  echo \"sid $(cut -d' ' -f6 /proc/$$/stat)\"\n"
           "  for f in /proc/$$/fd/*; do echo \"fd ${f##*/} $(readlink $f)\"; done\n"
           "  env | sed 's/^/env /'\n"
           "  echo end\n"
           "} > %s\n",
           fifo);
  write_file(path, 0755, text);
}

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/test_launch_XXXXXX");
  if (!mkdtemp(folder))
    return -1;
  snprintf(job, sizeof(job), "%s/job", folder);
  snprintf(bin, sizeof(bin), "%s/bin", folder);
  snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
  snprintf(socket_path, sizeof(socket_path), "%s/private.sock", folder);
  if (mkdir(job, 0755) || mkdir(bin, 0755) || mkfifo(fifo, 0600) || chdir(job))
    return -1;
  write_collector(bin);
  char path[200];
  snprintf(path, sizeof(path), "relative::%s:/usr/bin:/bin", bin);
  setenv("PATH", path, 1);
  setenv("XDG_RUNTIME_DIR", folder, 1);
  alarm(60); /* a collector that does not come up fails the test instead of holding it */
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[100];
  if (chdir("/"))
    return -1;
  setenv("PATH", "/usr/bin:/bin", 1);
  snprintf(command, sizeof(command), "rm -rf %s", folder);
  return system(command);
}

static void read_report(void) {
  FILE *file = fopen(fifo, "re");
  assert_non_null(file);
  size_t n = fread(report, 1, sizeof(report) - 1, file);
  report[n] = '\0';
  (void)fclose(file);
  assert_non_null(strstr(report, "\nend\n"));
}

static bool has_line(const char *format, const char *value) {
  char line[PATH_MAX];
  snprintf(line, sizeof(line), format, value);
  return strstr(report, line) != NULL;
}

static unsigned long long number_after(const char *key, int base) {
  const char *at = strstr(report, key);
  assert_non_null(at);
  return strtoull(at + strlen(key), NULL, base);
}

static void started_as_it_has_to_be(void **state) {
  (void)state;
  int inherited = open("/dev/null", O_RDONLY); /* no close-on-exec: the job's, not for the collector */
  int high = fcntl(inherited, F_DUPFD, 900);
  setenv("LD_PRELOAD", "", 1);
  setenv("CIRRON_SOCKET", "x", 1);
  setenv("NOTIFY_SOCKET", "/x", 1);
  setenv("KEPT_FOR_IT", "yes", 1);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);
  sigset_t some, before, after;
  sigemptyset(&some);
  sigaddset(&some, SIGTERM);
  sigprocmask(SIG_BLOCK, &some, &before);

  assert_int_equal(launch_collector(socket_path), 0);
  read_report();

  sigprocmask(SIG_SETMASK, &before, &after);
  assert_true(sigismember(&after, SIGTERM) == 1 && sigismember(&after, SIGUSR2) == 0); /* ours is as it was */
  signal(SIGPIPE, SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
  close(inherited);
  close(high);
  unsetenv("LD_PRELOAD");
  unsetenv("CIRRON_SOCKET");
  unsetenv("NOTIFY_SOCKET");

  char args[1000];
  snprintf(args, sizeof(args),
           "arg %s/collectord\narg --foreground\narg --socket\narg %s\narg --db\narg %s/.cirron/traces.db\narg "
           "--idle-exit\narg 30\n",
           bin, socket_path, job);
  assert_true(has_line("%s", args));
  assert_true(has_line("cwd %s\n", "/"));
  assert_int_equal(number_after("SigBlk:", 16), 0);
  /* 32 and 33 are libc's own: no program can set them, and some pass them on ignored (posix_spawn of older make) */
  assert_int_equal(number_after("SigIgn:", 16) & ~0x180000000ull, 0);
  assert_int_equal(number_after("sid ", 10), number_after("\nPid:", 10)); /* a session of its own */
  assert_true(number_after("PPid:", 10) != (unsigned long long)getpid());
  assert_true(has_line("\nfd 0 %s\n", "/dev/null"));
  assert_true(has_line("\nfd 2 %s\n", "/dev/null"));
  for (const char *at = report; (at = strstr(at, "\nfd ")); at++)
    assert_true(atoi(at + 4) < 3 || strstr(at, bin) != NULL ||
                strstr(at, "collectord") != NULL); /* the shell holds its script */
  assert_false(has_line("/dev/null\nfd %s", "900"));
  assert_true(has_line("env KEPT_FOR_IT=%s\n", "yes"));
  assert_false(has_line("env %s", "CIRRON_"));
  assert_false(has_line("env %s", "LD_PRELOAD"));
  assert_false(has_line("env %s", "NOTIFY_SOCKET"));
  struct stat st;
  assert_int_equal(stat(".cirron", &st), 0);
  assert_true(S_ISDIR(st.st_mode));
}

/* Neither the start nor the end of the collector can be noticed by what a script does about its children. */
static void script_sees_no_child_and_no_signal(void **state) {
  (void)state;
  struct sigaction action = {.sa_handler = on_signal}, before;
  sigaction(SIGCHLD, &action, &before);
  signals = 0;
  errno = 0;
  for (int i = 0; i < 5; i++) {
    assert_int_equal(launch_collector(socket_path), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    read_report();                                             /* ends when the collector's writing end is closed */
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1); /* not even to those who ask for all kinds */
    assert_int_equal(errno, ECHILD);
  }
  assert_int_equal(signals, 0);
  sigaction(SIGCHLD, &before, NULL);

  pid_t pid = fork(); /* the script's own children are waited for as ever */
  if (pid == 0)
    _exit(9);
  int status;
  assert_int_equal(wait(&status), pid);
  assert_int_equal(WEXITSTATUS(status), 9);
}

static void ignored_sigchld_makes_no_difference(void **state) {
  (void)state;
  signal(SIGCHLD, SIG_IGN);
  assert_int_equal(launch_collector(socket_path), 0);
  signal(SIGCHLD, SIG_DFL);
  read_report();
}

static void adopter_of_orphans_gets_none(void **state) {
  (void)state;
  assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
  assert_int_equal(launch_collector(socket_path), -EBUSY);
  assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
  assert_int_equal(access(".cirron", F_OK), -1);
}

static void no_program_no_launch(void **state) {
  (void)state;
  char path[200];
  snprintf(path, sizeof(path), "%s/collectord", bin);
  setenv("PATH", "", 1);
  assert_int_equal(launch_collector(socket_path), -ENOENT);
  unsetenv("PATH");
  assert_int_equal(launch_collector(socket_path), -ENOENT);
  setenv("PATH", bin, 1);
  assert_int_equal(chmod(path, 0644), 0);
  assert_int_equal(launch_collector(socket_path), -ENOENT);
  assert_int_equal(access(".cirron", F_OK), -1);
  write_file(path, 0755, "#!/no/such/interpreter\n");
  assert_int_equal(launch_collector(socket_path), -ENOENT); /* what exec said, brought back */
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void no_folder_no_launch(void **state) {
  (void)state;
  write_file(".cirron", 0644, "a file in the place of the folder");
  assert_int_equal(launch_collector(socket_path), -ENOTDIR);
  unlink(".cirron");
  assert_int_equal(chdir(folder), 0);
  assert_int_equal(rmdir(job), 0);
  assert_int_equal(mkdir(job, 0755), 0);
  assert_int_equal(chdir(job), 0);
  assert_int_equal(rmdir(job), 0); /* we stand in a folder that is gone */
  assert_true(launch_collector(socket_path) < 0);
  char path[108];
  assert_true(launch_socket_path(path, sizeof(path)) < 0);
}

static void store_stays_with_the_socket(void **state) {
  (void)state;
  char path[108];
  assert_int_equal(launch_socket_path(path, sizeof(path)), 0);
  assert_int_equal(chdir("/"), 0); /* the script goes elsewhere; the collector is started again */
  assert_int_equal(launch_collector(path), 0);
  read_report();
  assert_true(has_line("arg %s/.cirron/traces.db\n", job));
}

static void socket_paths(void **state) {
  (void)state;
  char first[108], second[108], wanted[200];
  struct stat st;
  assert_int_equal(launch_socket_path(first, sizeof(first)), 0);
  snprintf(wanted, sizeof(wanted), "%s/cirron/", folder);
  assert_int_equal(strncmp(first, wanted, strlen(wanted)), 0);
  assert_int_equal(stat(wanted, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0700);
  assert_int_equal(launch_socket_path(second, sizeof(second)), 0);
  assert_string_equal(first, second); /* ranks of one directory share it */

  assert_int_equal(symlink(job, "../link"), 0);
  assert_int_equal(chdir("../link"), 0);
  assert_int_equal(launch_socket_path(second, sizeof(second)), 0);
  assert_string_equal(first, second);
  assert_int_equal(chdir(bin), 0);
  assert_int_equal(launch_socket_path(second, sizeof(second)), 0);
  assert_string_not_equal(first, second);
}

static void assert_in_tmp(void) {
  char path[108], wanted[64];
  struct stat st;
  assert_int_equal(launch_socket_path(path, sizeof(path)), 0);
  snprintf(wanted, sizeof(wanted), "/tmp/cirron-%u/", geteuid());
  assert_int_equal(strncmp(path, wanted, strlen(wanted)), 0);
  assert_int_equal(stat(wanted, &st), 0);
  assert_int_equal(st.st_mode & 07777, 0700);
}

static void odd_runtime_folders_are_not_used(void **state) {
  (void)state;
  char path[200];
  unsetenv("XDG_RUNTIME_DIR");
  assert_in_tmp();
  setenv("XDG_RUNTIME_DIR", "", 1);
  assert_in_tmp();
  setenv("XDG_RUNTIME_DIR", "job", 1);
  assert_in_tmp();
  setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
  assert_in_tmp();
  setenv("XDG_RUNTIME_DIR", folder, 1);
  assert_int_equal(chmod(folder, 0777), 0); /* anybody may write to it */
  assert_in_tmp();
  assert_int_equal(chmod(folder, 0700), 0);
  snprintf(path, sizeof(path), "%s/cirron", folder);
  assert_int_equal(symlink(bin, path), 0);
  assert_in_tmp();
  assert_int_equal(unlink(path), 0);
  if (geteuid() == 0) {
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, 65534, (gid_t)-1), 0);
    assert_in_tmp();
    assert_int_equal(rmdir(path), 0);
  }
  char deep[300];
  snprintf(deep, sizeof(deep), "%s/%0120d", folder, 0); /* no socket fits below it */
  assert_int_equal(mkdir(deep, 0700), 0);
  setenv("XDG_RUNTIME_DIR", deep, 1);
  assert_in_tmp();
}

/* As another user whose folder in /tmp was made by somebody else before. */
static void taken_tmp_folder_is_refused(void **state) {
  (void)state;
  const uid_t user = 64123;
  char path[64], out[108];
  if (geteuid() != 0)
    skip();
  unsetenv("XDG_RUNTIME_DIR");
  snprintf(path, sizeof(path), "/tmp/cirron-%u", user);
  assert_int_equal(chmod(folder, 0755), 0);
  for (int how = 0; how < 4; how++) {
    int r = how == 0 ? mkdir(path, 0700) : how == 1 ? symlink(job, path) : mkdir(path, 0700);
    assert_int_equal(r, 0);
    if (how >= 2)
      assert_int_equal(chown(path, user, (gid_t)-1), 0);
    if (how == 2)
      assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(seteuid(user), 0);
    r = launch_socket_path(out, sizeof(out));
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(how == 1 ? unlink(path) : rmdir(path), 0);
    if (how == 3)
      assert_int_equal(r, 0);
    else
      assert_true(r < 0);
  }
}

/* Run as a copy of this program, which has a collectord in the folder given. */
static int launch_only(void) {
  return launch_collector(socket_path) == 0 ? 0 : 1;
}

static void found_beside_the_agent(void **state) {
  (void)state;
  static const struct {
    const char *agent, *program;
  } places[] = {
      {"lib", "lib"}, {"lib", "bin"}, {"lib", "sbin"}, {"lib/cirron", "bin"}, {"lib/x86_64-linux-gnu/cirron", "sbin"}};
  char copy[250], dir[200], command[800];
  setenv("PATH", "/usr/bin:/bin", 1);
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
    snprintf(dir, sizeof(dir), "%s/prefix/%s", folder, places[i].program);
    snprintf(command, sizeof(command), "mkdir -p %s %s/prefix/%s", dir, folder, places[i].agent);
    assert_int_equal(system(command), 0);
    write_collector(dir);
    snprintf(copy, sizeof(copy), "%s/prefix/%s/agent", folder, places[i].agent);
    snprintf(command, sizeof(command), "cp /proc/%d/exe %s && %s launch %s", getpid(), copy, copy, socket_path);
    assert_int_equal(system(command), 0);
    read_report();
    assert_true(has_line("%s", "prefix/"));
    assert_true(has_line("%s/collectord\n", places[i].program));
    snprintf(command, sizeof(command), "rm %s/collectord", dir);
    assert_int_equal(system(command), 0);
  }
}

#define LAUNCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "launch") == 0) {
    snprintf(socket_path, sizeof(socket_path), "%s", argv[2]);
    return launch_only();
  }
  const struct CMUnitTest tests[] = {
      LAUNCH(started_as_it_has_to_be),
      LAUNCH(script_sees_no_child_and_no_signal),
      LAUNCH(ignored_sigchld_makes_no_difference),
      LAUNCH(adopter_of_orphans_gets_none),
      LAUNCH(no_program_no_launch),
      LAUNCH(no_folder_no_launch),
      LAUNCH(store_stays_with_the_socket),
      LAUNCH(socket_paths),
      LAUNCH(odd_runtime_folders_are_not_used),
      LAUNCH(taken_tmp_folder_is_refused),
      LAUNCH(found_beside_the_agent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
