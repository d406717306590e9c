#include "log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

static struct {
  uint64_t next_ns; /* earliest time of the next line; 0: at once */
  unsigned long left_out;
} limits[LOG_KINDS];

/* One write a line, so that lines of several processes on one terminal do not mix. */
static void put(const char *component, int err, unsigned long left_out, const char *format, va_list args) {
  char text[1024], tail[160] = "";
  vsnprintf(text, sizeof text, format, args);
  size_t used = 0;
  if (err)
    used = (size_t)snprintf(tail, sizeof tail, " (%s)", strerror(-err));
  if (left_out && used < sizeof tail)
    snprintf(tail + used, sizeof tail - used, " [%lu more of this kind were not shown]", left_out);
  fprintf(stderr, "collectord: %s: %s%s\n", component, text, tail);
}

void log_line(const char *component, int err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  put(component, err, 0, format, args);
  va_end(args);
}

void log_limited(enum log_kind kind, const char *component, int err, const char *format, ...) {
  uint64_t now = clock_monotonic_ns();
  if (now < limits[kind].next_ns) {
    limits[kind].left_out++;
    return;
  }
  va_list args;
  va_start(args, format);
  put(component, err, limits[kind].left_out, format, args);
  va_end(args);
  limits[kind].left_out = 0;
  limits[kind].next_ns = now + LOG_PAUSE_NS;
}

void log_reset(enum log_kind kind) {
  limits[kind].next_ns = 0;
}
