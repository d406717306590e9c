/* Descriptors of a guest: numbered high, close-on-exec, and looked at before each use.
 *
 * Scripts close descriptors that are not theirs, and the number then names a file of the script. So a descriptor is kept with
 * the identity of what it stood for; when the number stands for something else it is forgotten, never closed or written to.
 * No allocation; any thread. They change errno: callers in the job's threads keep it.
 */
#ifndef CIRRON_FD_H
#define CIRRON_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct owned_fd {
  int fd; /* -1: none */
  uint64_t dev, ino;
};

#define OWNED_FD_NONE ((struct owned_fd){.fd = -1})

/* Takes over `fd`: moves it to a high number, and notes what it stands for. Returns 0, or a negative errno with `fd` closed:
 * where the limits leave none to spare, ours are not taken from what the job may have. */
int fd_own(int fd, struct owned_fd *out);

/* Are so many of ours open that those which can be had again are better closed? `more`: how many beyond that are borne for a
 * moment. The measure is what the job itself may have. */
bool fd_many(unsigned more);

/* Are there none at all to spare for us? */
bool fd_none(void);

/* May a file grow to so many bytes? More would be a signal that ends the job. */
bool fd_size_allowed(size_t bytes);

/* Does the number still stand for what it stood for? */
bool fd_ours(const struct owned_fd *owned);

/* Closes it if it is ours; *owned is empty afterwards. */
void fd_drop(struct owned_fd *owned);

/* A sealed memfd (its size and seals are fixed), mapped for reading and writing; `populate`: no page fault later. Returns 0 or a
 * negative errno. */
int fd_memory(const char *name, size_t bytes, bool populate, void **out, struct owned_fd *owned);

/* Puts a new memfd with the same content (the first `used` bytes) in the place of the one mapped at `at`, whose descriptor was
 * lost: it can be handed to a collector again. Whoever has the old memory mapped sees no further writes. Nobody may write to it
 * meanwhile. Returns 0, or a negative errno with everything as it was. */
int fd_memory_renew(const char *name, size_t bytes, size_t used, bool populate, void *at, struct owned_fd *owned);

#endif
