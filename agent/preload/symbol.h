/* Originals of the functions of libc that the agent interposes. */
#ifndef CIRRON_SYMBOL_H
#define CIRRON_SYMBOL_H

/* The next definition of a function after ours, or NULL. Any thread. */
void *symbol_next(const char *name);

/* The same without libdl, which programs on glibc before 2.34 need not have: the first object that defines it, ourselves apart.
 * For symbol_next and its test. */
void *symbol_search(const char *name);

#endif
