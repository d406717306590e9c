#include "units.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool has_utf8 = true;

void units_init(bool utf8) {
  has_utf8 = utf8;
}

/* `value` with three significant digits; below 1,000. */
static void three_digits(double value, const char *unit, char out[UNITS_MAX]) {
  int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  snprintf(out, UNITS_MAX, "%.*f %s", decimals, value, unit);
}

const char *units_duration(int64_t ns, char out[UNITS_MAX]) {
  double t = (double)ns;
  int64_t s = ns / 1000000000 + (ns % 1000000000 >= 500000000);
  if (ns < 0)
    snprintf(out, UNITS_MAX, "-");
  else if (ns < 1000)
    snprintf(out, UNITS_MAX, "%" PRId64 " ns", ns);
  else if (t < 999.5e3)
    three_digits(t / 1e3, has_utf8 ? "µs" : "us", out);
  else if (t < 999.5e6)
    three_digits(t / 1e6, "ms", out);
  else if (t < 59.95e9)
    three_digits(t / 1e9, "s", out);
  else if (s < 3600)
    snprintf(out, UNITS_MAX, "%" PRId64 " m %02" PRId64 " s", s / 60, s % 60);
  else if (s < 86400)
    snprintf(out, UNITS_MAX, "%" PRId64 " h %02" PRId64 " m", s / 3600, s / 60 % 60);
  else
    snprintf(out, UNITS_MAX, "%" PRId64 " d %02" PRId64 " h", s / 86400, s / 3600 % 24);
  return out;
}

const char *units_share(int64_t part, int64_t whole, char out[UNITS_MAX]) {
  double share = whole > 0 ? 100.0 * (double)part / (double)whole : -1;
  if (share < 0)
    snprintf(out, UNITS_MAX, "-");
  else if (part == 0)
    snprintf(out, UNITS_MAX, "0 %%");
  else if (share < 0.05)
    snprintf(out, UNITS_MAX, "< 0.1 %%");
  else if (share < 0.95)
    snprintf(out, UNITS_MAX, "%.1f %%", share);
  else
    snprintf(out, UNITS_MAX, "%.0f %%", share);
  return out;
}

const char *units_count(int64_t n, char out[UNITS_MAX]) {
  char digits[UNITS_MAX];
  int len = snprintf(digits, sizeof digits, "%" PRId64, n);
  char *to = out;
  for (int i = 0; i < len; i++) {
    if (i > 0 && (len - i) % 3 == 0 && digits[i - 1] != '-')
      *to++ = ',';
    *to++ = digits[i];
  }
  *to = 0;
  return out;
}

static bool special(double value, char out[UNITS_MAX]) {
  if (isnan(value))
    snprintf(out, UNITS_MAX, "NaN");
  else if (isinf(value))
    snprintf(out, UNITS_MAX, value < 0 ? "-Infinity" : "Infinity");
  else
    return false;
  return true;
}

const char *units_real(double value, char out[UNITS_MAX]) {
  if (!special(value, out)) /* whole thousands read better without an exponent */
    snprintf(out, UNITS_MAX, fabs(value) >= 1e6 && fabs(value) < 1e15 ? "%.0f" : "%.6g", value);
  return out;
}

const char *units_exact(double value, char out[UNITS_MAX]) {
  if (special(value, out))
    return out;
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(out, UNITS_MAX, "%.*g", digits, value);
    if (strtod(out, NULL) == value)
      break;
  }
  /* A number without a point or exponent would read back as an integer. */
  if (!strpbrk(out, ".e"))
    strcat(out, ".0");
  return out;
}

const char *units_rate(double per_second, char out[UNITS_MAX]) {
  if (per_second >= 9.95 && per_second < 1e15)
    units_count((int64_t)(per_second + 0.5), out);
  else
    snprintf(out, UNITS_MAX, "%.*f", per_second < 0.995 ? 2 : 1, per_second);
  return out;
}

const char *units_time(int64_t wall_ns, char out[UNITS_MAX]) {
  time_t seconds = (time_t)(wall_ns / 1000000000);
  struct tm tm;
  if (!localtime_r(&seconds, &tm) || !strftime(out, UNITS_MAX, "%Y-%m-%d %H:%M:%S", &tm))
    snprintf(out, UNITS_MAX, "-");
  return out;
}

const char *units_signal(int number, char out[UNITS_MAX]) {
  const char *name = sigabbrev_np(number);
  if (name)
    snprintf(out, UNITS_MAX, "SIG%s", name);
  else
    snprintf(out, UNITS_MAX, "signal %d", number);
  return out;
}

const char *units_of(int64_t n, const char *one, const char *many, char out[UNITS_MAX]) {
  char count[UNITS_MAX];
  snprintf(out, UNITS_MAX, "%.25s %.14s", units_count(n, count), n == 1 ? one : many);
  return out;
}
