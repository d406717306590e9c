/* One pass: the tensors of one SnapshotRequest, from the request to its rows in the store.
 *
 *   WAITS ──► QUEUED ──► READ ──► (rows, snapshot.c) ──► freed
 *     ▲                   │
 *     └──── refused ──────┘
 *
 * WAITS: the process computes itself, or has to now. QUEUED: it belongs to the reader (reader.h). In the other states it belongs to the thread of
 * the event loop. What the process wrote is copied once and checked here; all that is done later goes by the copies.
 */
#ifndef CIRRON_PASS_H
#define CIRRON_PASS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../proto/snapshot_abi.h"
#include "../proto/tensor_read.h"
#include "area.h"

/* Memory that all passes may hold together. A small one is always taken: there are at most PASS_MAX of each session. */
#define PASS_ALL_BYTES (1ull << 30)
#define PASS_SMALL_BYTES (32ull << 20)
#define PASS_MAX 8u

enum pass_state { PASS_WAITS, PASS_QUEUED, PASS_READ };

struct blob;
typedef struct Cirron__SnapshotSent Cirron__SnapshotSent;

struct pass {
  struct pass *next;   /* of its session, oldest first */
  struct pass *queued; /* reader's */
  struct area *area;   /* NULL: it came by messages */
  uint64_t number, prefix;
  pid_t pid;
  int pidfd;     /* a duplicate; -1: none */
  int directory; /* for blobs; -1: none */
  bool own;      /* it is only copied, not read */
  _Atomic int state;
  atomic_bool stop; /* the process is gone, or the request is void: nothing more is read */
  bool let_go;      /* nobody waits for it: the reader frees it; under the reader's lock */

  /* The reader's, as long as it is QUEUED. */
  bool begun, copied;
  uint64_t bytes; /* of memory that it holds */
  struct snapshot_area head;
  struct snapshot_entry *entries;
  struct snapshot_result *results;
  char *text;
  size_t text_bytes, text_room; /* text_room, rows_room: of one that is put together from messages */
  uint32_t rows_room;
  uint32_t at; /* the results before it are there */
  int error;   /* negative: the request cannot be right, or there is no memory for it */
  int refused; /* the errno, positive, with which reading was refused */
  bool gone;   /* the process was, before all was read */
  bool resumed;
  uint64_t read_ns;
  uint32_t blobs;
  int blob_error;                 /* positive */
  char *blob_uri;                 /* of the folder, or NULL */
  struct blob *blob[2], *writing; /* blob.c's */

  /* The event loop's. */
  uint64_t since_ns; /* when it was found to be READ */
  bool settled;
  uint32_t torn_from;
  uint64_t wait_ns;
  uint32_t torn;               /* records of it, counted as they are written */
  uint32_t written, committed; /* entries */
  bool replaced;               /* another request came in its place */
  bool ready;                  /* to be written */
  bool all;                    /* in the present transaction the last of it was written */
  bool again;                  /* it was kept before it was settled: what is torn is written once more */
};

/* From the area, which is referenced; `pidfd` is duplicated, `directory` becomes the pass's, also after an error. -ENOMEM. */
int pass_new(struct area *area, uint64_t number, uint64_t prefix, pid_t pid, int pidfd, int directory, struct pass **out);
/* Without an area. */
struct pass *pass_new_sent(uint64_t number, uint64_t prefix);
void pass_free(struct pass *pass); /* accepts NULL */

/* Copies request and entries: 0; -EPROTO: it cannot be right; -ENOMEM. */
int pass_copy(struct pass *pass);
/* Copies the results that are there, and the rest of what the process says of them. */
void pass_copy_results(struct pass *pass);
/* Makes the pass hold `bytes` more; -ENOMEM: all of them hold too much. */
int pass_hold(struct pass *pass, uint64_t bytes);
/* Are the entries in bounds of the pass's own text? */
bool pass_check(const struct pass *pass);

/* What a message says of a pass without an area. 0; -EPROTO: it cannot be right; -ENOMEM. */
int pass_sent_add(struct pass *pass, const Cirron__SnapshotSent *sent);

/* Texts of entries that were checked. */
struct pass_text {
  const char *data;
  size_t len;
};
struct pass_text pass_text(const struct pass *pass, uint32_t offset); /* empty for 0 */
/* How entry i lies in its process: of a complex tensor the parts, as one dimension more. */
struct pass_view {
  struct tensor_view view;
  int64_t shape[TENSOR_MAX_DIMS + 1], strides[TENSOR_MAX_DIMS + 1];
};
void pass_view(const struct pass *pass, uint32_t i, struct pass_view *out);

/* Does the entry have numbers that can be read? */
bool pass_readable(const struct pass *pass, uint32_t i);

#endif
