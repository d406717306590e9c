/* A host whose clock is wrong: in front of the agent, CLOCK_REALTIME is CLOCK_OFFSET_NS later for this process. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out) {
  const char *text = getenv("CLOCK_OFFSET_NS");
  long result = syscall(SYS_clock_gettime, clock, out);
  if (result == 0 && clock == CLOCK_REALTIME && text) {
    long long ns = (long long)out->tv_sec * 1000000000 + out->tv_nsec + atoll(text);
    out->tv_sec = (time_t)(ns / 1000000000);
    out->tv_nsec = (long)(ns % 1000000000);
  }
  return (int)result;
}
