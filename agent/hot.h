/* What each span of a training goes through. Such functions lie side by side, on three pages instead of thirteen: between two spans
 * the processor has forgotten which pages they are. */
#ifndef CIRRON_HOT_H
#define CIRRON_HOT_H

#define HOT __attribute__((hot))

#endif
