/* The check of what recording costs (CIRRON_OVERHEAD_CHECK, `cirron run --overhead-check`): blocks of steps that are observed and
 * blocks that are not take turns in the one run.
 *
 * In a block that is not, the functions of the probe table are as they were before the agent came, but for those that tell the pace:
 * an optimizer's step, a loader's iter and next. Each of these costs a table look-up, and no more. Blocks begin and end between two
 * steps, where no span of ours is open but passes and scopes made by hand; a pass over a loader that begins or ends, or an
 * optimizer that is constructed, ends a block early, and what is around it is always observed: so epochs and evaluation passes are
 * all there. The steps of the other blocks are missing in the store.
 *
 * Two blocks, one of each kind and turned around in every other pair, are a mark `cirron.overhead_check` with their times.
 * Training by several threads, and builds without the GIL, are not checked.
 */
#ifndef CIRRON_CHECK_H
#define CIRRON_CHECK_H

/* Once, before the first function is observed. */
void check_start(void);
void check_forget(void); /* in the child of a fork: everything is observed again */

#endif
