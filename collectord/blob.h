/* The files of a pass: its gradients and its weights, in the folder that came with the request. Written while the tensors are
 * read, each tensor once; on the first error both are given up. The reader's threads only. */
#ifndef CIRRON_BLOB_H
#define CIRRON_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pass;

/* Begins them both; an error is in the pass. */
void blob_open(struct pass *pass);
bool blob_is_open(const struct pass *pass);

/* Entry i is about to be read: does it go into a file? Then its bytes follow, and the end. */
bool blob_begin(struct pass *pass, uint32_t i);
void blob_put(struct pass *pass, const void *data, size_t bytes);
/* err: with which its reading ended. True: it is in the file. */
bool blob_end(struct pass *pass, int err);

/* whole: all was read. The files get their names, once they are on the disk; pass->blobs and blob_error tell. Or they are removed. */
void blob_close(struct pass *pass, bool whole);

/* file:// of the folder, into pass->blob_uri, if there is a file. */
void blob_find_uri(struct pass *pass);

#endif
