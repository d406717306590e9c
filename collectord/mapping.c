#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

int mapping_open(int fd, size_t bytes, struct mapping *out) {
  const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & wanted) != wanted)
    return -EPERM;
  struct stat st;
  if (fstat(fd, &st) != 0)
    return -errno;
  if (!S_ISREG(st.st_mode) || (uintmax_t)st.st_size != bytes)
    return -EMSGSIZE;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return -errno;
  *out = (struct mapping){.memory = memory, .bytes = bytes, .dev = st.st_dev, .ino = st.st_ino};
  return 0;
}

int mapping_own(size_t bytes, struct mapping *out) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return -ENOMEM;
  *out = (struct mapping){.memory = memory, .bytes = bytes};
  return 0;
}

void mapping_close(struct mapping *mapping) {
  if (mapping->memory)
    (void)munmap(mapping->memory, mapping->bytes); /* of our own mapping: cannot fail */
  mapping->memory = NULL;
}
