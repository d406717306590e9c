/* What each span of a training goes through. Between two spans the processor has forgotten which lines and pages that is, so such
 * functions lie side by side, on three pages instead of thirteen, and so do the variables that they read. */
#ifndef CIRRON_HOT_H
#define CIRRON_HOT_H

#define HOT __attribute__((hot))
#define COLD __attribute__((cold, noinline))
#define HOT_DATA __attribute__((section(".bss.hot"))) /* of variables that begin as zero */

/* What hardly ever happens lies apart from what happens always. */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
