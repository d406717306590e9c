/* zero_grad(), observed only while gradients are read: one that fills them with zeros in place has to wait for the reader; one that lets
 * go of them has not, since we hold them. */
#ifndef CIRRON_SNAPSHOT_ZERO_H
#define CIRRON_SNAPSHOT_ZERO_H

/* `fills` is called before gradients are filled, on the thread that does it. NULL: no longer. Holds the GIL. */
void zero_observe(void (*fills)(void));

#endif
