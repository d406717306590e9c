/* The folder that batches are written to: FOLDER/<created_ns, 20 digits>-<batch id>.json, each first under another name.
 *
 * Its files together stay below a bound: the oldest go first, whoever wrote them. How much there is is found out by a look at the folder
 * now and then, not for each file. No descriptor is kept. Not thread-safe; the caller has a lock.
 */
#ifndef CIRRON_SPOOL_H
#define CIRRON_SPOOL_H

#include <limits.h>
#include <stdint.h>

#include "spool_json.h"

#define SPOOL_OLDEST 1024u /* files known by name, to be removed next */

struct spool_file {
  uint64_t created_ns, bytes;
  char id[33];
};

struct spool {
  char folder[PATH_MAX]; /* absolute */
  uint64_t max_bytes;
  uint64_t bytes;    /* of all files, as far as is known */
  uint64_t looked;   /* bytes written since the last look */
  uint64_t removed;  /* files, for want of room */
  uint64_t failures; /* batches that could not be written, each try */
  unsigned known, at;
  int is_known; /* bytes is: the folder was looked at */
  struct spool_file oldest[SPOOL_OLDEST];
};

/* `folder`: relative ones are taken from the working directory of now. Nothing is made yet. 0 or a negative errno. */
int spool_init(struct spool *spool, const char *folder, uint64_t max_bytes);

/* Writes one file, made with its folders if need be, and removes what is too much. 0 or a negative errno; then nothing is left of it. */
int spool_write(struct spool *spool, const struct spool_batch *batch);

#endif
