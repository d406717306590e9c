/* Signs of life for a service manager that asked for them (WATCHDOG_USEC): from a timer of the event loop, so that a loop that
 * hangs gives none. */
#ifndef CIRRON_WATCHDOG_H
#define CIRRON_WATCHDOG_H

struct event;
struct event_base;

struct watchdog {
  struct event *timer; /* NULL: nobody asked */
};

/* 0, also where nobody asked; -ENOMEM. */
int watchdog_start(struct watchdog *watchdog, struct event_base *base);
void watchdog_stop(struct watchdog *watchdog);

#endif
