/* A host whose clock is wrong: in front of the agent, CLOCK_REALTIME is CLOCK_OFFSET_NS later for it. For it alone: others wait until a
 * time of that clock, which the kernel would not know. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int by_agent(const void *caller) {
  Dl_info info;
  return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libcirron_core") != NULL;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
  const char *text = clock == CLOCK_REALTIME ? getenv("CLOCK_OFFSET_NS") : NULL;
  long result = syscall(SYS_clock_gettime, clock, out);
  if (result == 0 && text && by_agent(__builtin_return_address(0))) {
    long long ns = (long long)out->tv_sec * 1000000000 + out->tv_nsec + atoll(text);
    out->tv_sec = (time_t)(ns / 1000000000);
    out->tv_nsec = (long)(ns % 1000000000);
  }
  return (int)result;
}
