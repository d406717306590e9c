/* What is observed of the Trainer of Lightning, 2.0 to 2.6, under both of its names: one table of functions, and what each of them means. */
#ifndef CIRRON_LIGHTNING_H
#define CIRRON_LIGHTNING_H

/* Before the interpreter is attached. */
void lightning_add_probes(void);
void lightning_forget(void); /* in the child of a fork */

#endif
