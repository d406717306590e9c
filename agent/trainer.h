/* What is observed of the Trainer of transformers, 4.41 to 5.24: one table of functions, and what each of them means. */
#ifndef CIRRON_TRAINER_H
#define CIRRON_TRAINER_H

/* Before the interpreter is attached. */
void trainer_add_probes(void);

#endif
