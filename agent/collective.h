/* What is observed of torch.distributed: a span `collective` for each of its operations that the script, or a library in Python, calls.
 *
 * The operations of one group are numbered in each process, and all processes of a group call them in the same order: so the same
 * number of the same group is the same operation, whatever the clocks of the hosts say. Operations between two ranks (send, recv) and
 * those that make groups have no number. What the C++ parts of torch start by themselves - the gradients of
 * DistributedDataParallel above all - passes no function of Python's and is not seen.
 */
#ifndef CIRRON_COLLECTIVE_H
#define CIRRON_COLLECTIVE_H

/* Before the interpreter is attached. */
void collective_add_probes(void);

/* In the child of a fork: nothing is under way here, and there are no groups. */
void collective_forget(void);

#endif
