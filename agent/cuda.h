/* CUDA as far as the program has it: nothing of it is loaded or started by us. */
#ifndef CIRRON_CUDA_H
#define CIRRON_CUDA_H

/* How many devices the program's CUDA driver shows it; 0 where it has loaded none or not started it. Asks the driver only what it
 * knows already. Any thread. */
int cuda_devices(void);

#endif
