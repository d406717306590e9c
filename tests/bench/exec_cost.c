/* What the preload costs a program that it does not concern: start and end of /bin/true with and without it, in turns.
 *
 *   exec_cost AGENT ROUNDS
 */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t once(char *const env[]) {
  char *argv[] = {"/bin/true", NULL};
  pid_t pid;
  int status;
  uint64_t begin = now_ns();
  if (posix_spawn(&pid, argv[0], NULL, NULL, argv, env) != 0 || waitpid(pid, &status, 0) != pid || status != 0)
    exit(1);
  return now_ns() - begin;
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  int rounds = atoi(argv[2]);
  char preload[4200];
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[1]);
  char *plain[] = {"PATH=/bin", NULL}, *agent[] = {"PATH=/bin", preload, NULL};
  char **sides[] = {plain, agent, plain}; /* the third shows the noise */
  uint64_t *times[3];
  for (int side = 0; side < 3; side++)
    times[side] = calloc((size_t)rounds, sizeof(uint64_t));
  for (int i = 0; i < rounds; i++)
    for (int side = 0; side < 3; side++)
      times[(side + i) % 3][i] = once(sides[(side + i) % 3]);
  for (int side = 0; side < 3; side++)
    qsort(times[side], (size_t)rounds, sizeof(uint64_t), ascending);
  for (int side = 1; side < 3; side++) {
    const uint64_t *a = times[0], *b = times[side];
    int low = rounds / 20, middle = rounds / 2;
    printf("  %-16s  best %7.1f us, ratio %.3f   median %7.1f us, ratio %.3f\n",
           side == 1 ? "with the agent" : "without, again", (double)b[low] / 1e3, (double)b[low] / (double)a[low],
           (double)b[middle] / 1e3, (double)b[middle] / (double)a[middle]);
  }
  return 0;
}
