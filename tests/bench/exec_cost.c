/* What the preload costs a program that it does not concern: start and end of /bin/true with and without it, in turns. The floor is
 * an object with nothing in it: what the loader takes for any preload.
 *
 *   exec_cost AGENT EMPTY ROUNDS
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

enum { NONE, NONE_AGAIN, EMPTY, AGENT, SIDES };
static const char *const labels[SIDES] = {"without", "without, again", "an empty object", "the agent"};

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  int rounds = atoi(argv[3]);
  char preload[2][4200];
  char *plain[] = {"PATH=/bin", NULL};
  char *with[2][3] = {{"PATH=/bin", preload[0], NULL}, {"PATH=/bin", preload[1], NULL}};
  for (int i = 0; i < 2; i++)
    snprintf(preload[i], sizeof preload[i], "LD_PRELOAD=%s", argv[2 - i]);
  char **environments[SIDES] = {plain, plain, with[0], with[1]};
  uint64_t *times[SIDES];
  for (int side = 0; side < SIDES; side++)
    times[side] = calloc((size_t)rounds, sizeof(uint64_t));
  for (int i = 0; i < rounds; i++)
    for (int side = 0; side < SIDES; side++)
      times[(side + i) % SIDES][i] = once(environments[(side + i) % SIDES]);
  for (int side = 0; side < SIDES; side++)
    qsort(times[side], (size_t)rounds, sizeof(uint64_t), ascending);
  int low = rounds / 20, middle = rounds / 2;
  for (int side = 0; side < SIDES; side++)
    printf("  %-16s  best %7.1f us, ratio %.3f   median %7.1f us, ratio %.3f\n", labels[side], (double)times[side][low] / 1e3,
           (double)times[side][low] / (double)times[NONE][low], (double)times[side][middle] / 1e3,
           (double)times[side][middle] / (double)times[NONE][middle]);
  return 0;
}
