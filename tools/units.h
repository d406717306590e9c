/* Numbers in words and units, the same in every locale. All functions write at most UNITS_MAX bytes and end them. */
#ifndef CIRRON_UNITS_H
#define CIRRON_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define UNITS_MAX 48

/* What a terminal without UTF-8 gets: "us" for microseconds. Once, at the start. */
void units_init(bool utf8);

/* Three significant digits and the unit: "850 ns", "12.3 µs", "1.50 s", "1 m 02 s", "2 h 05 m", "3 d 04 h". */
const char *units_duration(int64_t ns, char out[UNITS_MAX]);
/* "31 %", "0.4 %", "< 0.1 %"; "-" where there is no whole. */
const char *units_share(int64_t part, int64_t whole, char out[UNITS_MAX]);
const char *units_count(int64_t n, char out[UNITS_MAX]);    /* "1,234,567" */
const char *units_real(double value, char out[UNITS_MAX]);  /* six significant digits; NaN, Infinity, -Infinity */
const char *units_exact(double value, char out[UNITS_MAX]); /* the shortest text that reads back as the same number */
const char *units_rate(double per_second, char out[UNITS_MAX]);
const char *units_time(int64_t wall_ns, char out[UNITS_MAX]); /* "2026-11-29 19:24:43", local time */
const char *units_signal(int number, char out[UNITS_MAX]);    /* "SIGKILL"; "signal 77" where it has no name */

/* "1 step", "2 steps", "3 passes": the number and the noun in its form. */
const char *units_of(int64_t n, const char *one, const char *many, char out[UNITS_MAX]);

#endif
