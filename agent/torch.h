/* What is observed of PyTorch, 1.13 to 2.13: one table of functions, and what each of them means. */
#ifndef CIRRON_TORCH_H
#define CIRRON_TORCH_H

#include <stdbool.h>

/* Before the interpreter is attached. */
void torch_add_probes(void);

/* In the child of a fork: nothing is under way here. */
void torch_forget(void);

/* Is nothing to be recorded in this process? By the settings, or because it is a worker of a loader. */
bool torch_off(void);

/* Observed calls make no spans from now on, or make them again. */
void torch_set_quiet(bool quiet);

#endif
