/* Which frameworks are observed by themselves: all that we know, or those that the settings name.
 *
 * Said by profile(frameworks=...), else `profiling: frameworks:` of cirron.yaml, else CIRRON_FRAMEWORKS. Decided when profile() is
 * called or the first module of a framework has run, so a program without any looks for no file. Needs the GIL.
 */
#ifndef CIRRON_FRAMEWORKS_H
#define CIRRON_FRAMEWORKS_H

#include <stdbool.h>

/* A module of the probe tables has run: are its functions to be observed? For observe.c. */
bool frameworks_allow(const char *module);

/* profile() says so: bits of env.h. What is observed already stays so and records no more where it is not among them; what is not
 * yet observed and should be is, from now on. */
void frameworks_choose(unsigned bits);

/* The bits; decides if that has not been done. */
unsigned frameworks_chosen(void);

/* Names of the packages that we know how to observe, the highest first: where one trains by another, its spans are the outer ones.
 * NULL: there are no more. */
const char *frameworks_name(unsigned i);

#endif
