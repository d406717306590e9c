/* Parents that were settled with hindsight: the moves of a log, applied to its spans. */
#ifndef CIRRON_KEEP_MOVES_H
#define CIRRON_KEEP_MOVES_H

#include <stddef.h>

#define KEEP_MOVED 64 /* a flag of a span in such a copy only */

/* Changes the parents of the spans in a copy that keep_read has made of KEEP_SPANS, by all the moves that follow each of them. Those that
 * a move behind offset `from` has changed get the flag KEEP_MOVED. Without memory for that they stay as they were. */
void keep_moves_apply(void *buf, size_t bytes, size_t from);

#endif
