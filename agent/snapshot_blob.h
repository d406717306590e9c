/* Where the raw tensors of a snapshot go: <output_dir>/snapshots/<span id>/weights.safetensors and gradients.safetensors.
 *
 * The process makes the directory and hands its descriptor on; who reads the tensors writes the files (proto/safetensors.h). All
 * directories together stay below CIRRON_SNAPSHOT_MAX_BYTES: the oldest go first, of whichever session they are.
 *
 * GIL held. What cannot be is said once, on stderr.
 */
#ifndef CIRRON_SNAPSHOT_BLOB_H
#define CIRRON_SNAPSHOT_BLOB_H

#include <stdbool.h>
#include <stdint.h>

#include "env.h"
#include "fd.h"

/* output_dir, absolute or from the working directory of now; NULL: there is none. */
void blob_folder_set(const char *output_dir);

/* Does the present snapshot have raw tensors? `sampled` is decided by a generator of our own: never Python's, whose numbers are the
 * job's; CIRRON_SAMPLE_SEED makes it the same in each run. */
bool blob_wanted(enum env_snapshots mode, double sample_rate);

/* Makes the directory for a span's tensors of so many bytes. 0; or a negative errno, of which was told. The one before is let go. */
int blob_open(uint64_t session, uint64_t span, uint64_t bytes);
struct owned_fd *blob_folder(void); /* of the directory, for the taking */
const char *blob_uri(void);         /* file:// and its path, as a URI; "": none */
uint64_t blob_removed(void);        /* directories that made way */
void blob_close(void);

#endif
