/* Mapping a memfd that a traced process handed over.
 *
 * Only sealed ones of exactly the size that was announced: a process that could shrink the file could kill us with SIGBUS.
 */
#ifndef CIRRON_MAPPING_H
#define CIRRON_MAPPING_H

#include <stddef.h>
#include <sys/types.h>

struct mapping {
  void *memory;
  size_t bytes;
  dev_t dev;
  ino_t ino;
};

/* Maps fd, which stays the caller's. -EPERM: not a memfd with the seals; -EMSGSIZE: another size; or the error of mmap. */
int mapping_open(int fd, size_t bytes, struct mapping *out);
/* Memory of our own, zeroed. 0 or -ENOMEM. */
int mapping_own(size_t bytes, struct mapping *out);
void mapping_close(struct mapping *mapping); /* accepts a zeroed one */

#endif
