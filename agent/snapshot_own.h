/* Reading tensors in the process itself, where nobody else may or can: by the same code that collectord has (proto/tensor_read.h), one
 * after the other, on the calling thread.
 */
#ifndef CIRRON_SNAPSHOT_OWN_H
#define CIRRON_SNAPSHOT_OWN_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the entries from `from` on of the request in the area, and says in it that it is done. GIL held; an entry that only this
 * process can read is asked of the list (snapshot_list.h),
 * and one that is not what was listed any more is left out. False: code that ran meanwhile has begun another session. */
bool own_read(uint32_t from);

#endif
