/* What is observed of Keras 3, with any backend: one table of functions, and what each of them means. */
#ifndef CIRRON_KERAS_H
#define CIRRON_KERAS_H

/* Before the interpreter is attached. */
void keras_add_probes(void);

/* In the child of a fork: nothing is under way here. */
void keras_forget(void);

#endif
