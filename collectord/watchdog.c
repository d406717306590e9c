#include "watchdog.h"

#include <errno.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "listener.h"

/* Microseconds within which a sign is expected from this process; 0: none is. */
static uint64_t wanted_us(void) {
  const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
  if (!us || (pid && strtol(pid, NULL, 10) != (long)getpid()))
    return 0;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(us, &end, 10);
  return errno || end == us || *end || *us == '-' ? 0 : value;
}

static void give_sign(evutil_socket_t fd, short what, void *arg) {
  (void)fd;
  (void)what;
  (void)arg;
  listener_notify("WATCHDOG=1");
}

int watchdog_start(struct watchdog *watchdog, struct event_base *base) {
  uint64_t us = wanted_us() / 2; /* twice as often: one that comes late is no reason to be killed */
  if (!us)
    return 0;
  struct timeval period = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
  watchdog->timer = event_new(base, -1, EV_PERSIST, give_sign, NULL);
  return watchdog->timer && event_add(watchdog->timer, &period) == 0 ? 0 : -ENOMEM;
}

void watchdog_stop(struct watchdog *watchdog) {
  if (watchdog->timer)
    event_free(watchdog->timer);
  watchdog->timer = NULL;
}
