/* The memory in which a snapshot's tensors are listed and their statistics come back (proto/snapshot_abi.h).
 *
 * The session has a few such areas, of which one is the present one: as long as the records of a request are not in the store, the next
 * request goes into another. They are made when they are needed, and larger when more has to go in.
 *
 * GIL held by whoever calls.
 */
#ifndef CIRRON_SNAPSHOT_AREA_H
#define CIRRON_SNAPSHOT_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/snapshot_abi.h"
#include "fd.h"

/* Makes one the present one that is free, with room for so many entries and bytes of text: -EBUSY where all wait for the store, or another
 * negative errno; the present one stays it then. `text` says what text is meant: 0 where it holds that already, 1 where it has to
 * be written. `shared`: so that a collector can have it; where memfd_create is refused the memory is private all the same. */
int snapshot_area_take(uint64_t session, uint32_t entries, size_t text_bytes, uint64_t text, bool shared);

struct snapshot_area *snapshot_area_get(void); /* the present one; NULL: there is none */
struct snapshot_entry *snapshot_area_entries(void);
struct snapshot_result *snapshot_area_results(void);
char *snapshot_area_text(void);

/* Of those that wait for the store, the one with the smallest number is not waited for any more. */
void snapshot_area_give_up_oldest(void);

/* The text, written from its beginning on: names and dimensions, each giving the offset of what it put there. Room was asked for.
 * What was written up to snapshot_area_text_keep stays from one request to the next. */
void snapshot_area_text_begin(void); /* after what was kept, if this text is there */
void snapshot_area_text_keep(void);
uint32_t snapshot_area_put_name(const char *text, size_t len);
uint32_t snapshot_area_put_dims(const int64_t *dims, unsigned n);
#define SNAPSHOT_TEXT_OF_NAME(len) (((size_t)(len) + 4 + 3) & ~(size_t)3)
#define SNAPSHOT_TEXT_OF_DIMS(n) ((size_t)(n)*8 + 4)

/* The directory for the raw tensors of the request: its descriptor is taken over, and closed when another takes its place; its URI is copied. */
void snapshot_area_folder(struct owned_fd *folder, const char *uri);
int snapshot_area_folder_fd(void); /* -1: none, or lost */

/* For link.c: the request with the smallest number above `after` whose records are not in the store. False: there is none. */
struct snapshot_asked {
  const struct snapshot_area *area;
  int fd, folder;      /* -1: lost, or none */
  const char *uri;     /* of the folder, good until the area is used again; or NULL */
  unsigned generation; /* of this memory: another one for each that is made */
};
bool snapshot_area_asked(uint64_t after, struct snapshot_asked *out);

/* The collector, which shares no memory, has said that it has its records. */
void snapshot_area_stored(const struct snapshot_area *area);

unsigned snapshot_area_generation(void); /* of the present one */

/* Waits until `done` of the request is at least so much, `finished` says that nobody goes on with it, or it is until_ns. `done` then. One
 * short sleep at most: the caller looks around and comes back. Needs no GIL; before it is given up and after it is there again,
 * snapshot_area_waits: the memory stays meanwhile. */
uint32_t snapshot_area_wait(struct snapshot_area *area, uint32_t want, uint64_t until_ns);
void snapshot_area_waits(bool begins);

void snapshot_area_forget(void); /* in the child of a fork, or the session is over */

#endif
