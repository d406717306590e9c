/* The memory in which a traced process lists the tensors of a snapshot and finds what was read of them: one sealed memfd a session
 * (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), handed over by a SnapshotArea message; a larger one takes its place when it is needed.
 *
 *   [struct snapshot_area, one page][entries x struct snapshot_entry][entries x struct snapshot_result][text]
 *
 * The process writes all of a request - entries, text, the `request` part of the area - and then says SnapshotRequest with its number.
 * collectord copies the entries once, trusts nothing in them, and reads the tensors in their order out of the process's
 * memory. After each one it writes the result, then raises `done` (release) and wakes who waits there (a futex). After the last it sets
 * `finished` to the request's number. A process that finds out that it cannot be read, or has no reader, does all of this itself;
 * then SNAPSHOT_OWN is set in `flags`, and collectord just keeps what is there once it is finished.
 *
 * One request at a time: a new one is written only when `stored` is the number of the one before. Until then collectord may need
 * what is here once more (the verdict; all of it, if it is killed), so a process that does not wait for that, which is some
 * milliseconds after `settled`, writes it into a new area. One that is the last of eight which are not stored may be left out.
 *
 * Before the training changes what is being read, the process waits at `done`, within CIRRON_SNAPSHOT_WAIT_MS. When it goes on it says what
 * came of it: `torn_from`, the first entry that was not read by then (SNAPSHOT_WHOLE: none), SNAPSHOT_TORN in the flags of single
 * entries whose tensor was changed or exchanged while it was read, `wait_ns`; and `settled`, the request's number. collectord keeps the
 * records when both `finished` and `settled` are there, or the process is gone, or 2 s after `finished`; in the latter case
 * it keeps those that are torn once more when it is settled.
 *
 * The records of a request have the ids first_record, first_record + 1, ... in the order of the entries.
 */
#ifndef CIRRON_SNAPSHOT_ABI_H
#define CIRRON_SNAPSHOT_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor_stats.h"

#define SNAPSHOT_MAGIC 0x31617370616e73ull /* "snapsa1", little endian */
#define SNAPSHOT_ABI 1
#define SNAPSHOT_PAGE 4096u
#define SNAPSHOT_MAX_ENTRIES (1u << 20)
#define SNAPSHOT_MAX_TEXT (1u << 28)
#define SNAPSHOT_NAME_MAX 1024u /* bytes; longer names are cut at a character boundary */

#define SNAPSHOT_WHOLE UINT32_MAX

enum snapshot_reason {
  SNAPSHOT_EPOCH = 1,   /* an epoch ended */
  SNAPSHOT_STEPS = 2,   /* CIRRON_SNAPSHOT_STEPS */
  SNAPSHOT_COMMAND = 3, /* asked for by cirron-query snapshot now */
};

enum snapshot_request_flag {
  SNAPSHOT_OWN = 1,     /* the process computes itself; addresses mean nothing to others */
  SNAPSHOT_BLOBS = 2,   /* raw tensors are to be written: the SnapshotRequest carries the directory */
  SNAPSHOT_SAMPLED = 4, /* the setting was `sampled` */
};

enum snapshot_entry_flag {
  SNAPSHOT_GRADIENT = 1,
  SNAPSHOT_TORN = 2,
  SNAPSHOT_COMPLEX =
      4, /* dtype is that of the parts, shape and strides (in complex numbers) those of the tensor: two parts lie next to each other */
  SNAPSHOT_SPARSE = 8, /* what is listed are the values of a sparse tensor that are stored; shape is that of the values */
  SNAPSHOT_COPY = 16,  /* what is listed is a copy in host memory (of a device's) */
};

/* Times are CLOCK_MONOTONIC nanoseconds. */
struct snapshot_area {
  uint64_t magic;
  uint32_t abi, entries;      /* room for so many */
  uint64_t bytes, text_bytes; /* of the whole, and of its text */
  uint64_t session;           /* the session's prefix */
  uint64_t pad0[3];
  /* the request */
  uint64_t number; /* 1, 2, ...; atomic, release, last of the request */
  uint64_t span;   /* epoch or step that the records belong to */
  uint64_t first_record;
  uint64_t ts_ns;            /* when the tensors were as they are recorded */
  int64_t epoch, step;       /* indices, or SPAN_NO_INDEX */
  uint32_t count, gradients; /* entries of this request, and how many of them have SNAPSHOT_GRADIENT */
  uint32_t reason, flags;
  uint64_t list_ns; /* what the listing took on the training's thread */
  uint64_t pad1[7];
  /* the reader's line */
  uint32_t done;      /* entries of the request whose results are there; atomic, futex */
  int32_t refused;    /* the errno (positive) with which the first reading was refused: the process goes on itself */
  uint64_t finished;  /* number of the last request that was read as a whole, or given up; atomic */
  uint64_t stored;    /* number of the last request whose records are in the store; atomic */
  uint64_t read_ns;   /* what reading and computing of the finished one took */
  uint32_t blobs;     /* of the finished one: 1: weights.safetensors is there, 2: gradients.safetensors */
  int32_t blob_error; /* errno (positive) of a blob that could not be written, or 0 */
  uint64_t pad2[3];
  /* the verdict */
  uint64_t settled;         /* atomic, release */
  uint64_t wait_ns;         /* how long the training waited for the reader */
  uint32_t torn_from, torn; /* `torn`: how many entries have SNAPSHOT_TORN */
  uint64_t pad3[5];
};

struct snapshot_entry {
  uint64_t address;
  uint32_t name; /* offsets in the text: name; shape and strides as ndim int64_t each, 8-byte aligned */
  uint32_t shape;
  uint32_t strides;    /* SNAPSHOT_CONTIGUOUS: none needed */
  uint32_t model;      /* name of the model; its length is before the text as for all names */
  uint32_t reason;     /* why it has no numbers that could be read ("meta", "float8_e4m3fn"), or 0: it has */
  uint32_t dtype_name; /* where dtype is TENSOR_NONE: what it is called; else 0 */
  uint8_t dtype, ndim, flags, pad0;
  uint32_t pad1;
  uint64_t pad2[3];
};
#define SNAPSHOT_CONTIGUOUS UINT32_MAX
/* A name in the text: uint32_t length, then the bytes; 4-byte aligned. Offset 0 is never a name's. */

struct snapshot_result {
  int32_t error;  /* 0, or the errno (positive) with which reading ended: no stats */
  uint32_t flags; /* SNAPSHOT_IN_BLOB */
  struct tensor_stats stats;
  uint64_t pad[1];
};
#define SNAPSHOT_IN_BLOB 1u

static_assert(sizeof(struct snapshot_area) <= SNAPSHOT_PAGE, "the head of the area is one page");
static_assert(offsetof(struct snapshot_area, number) == 64 && offsetof(struct snapshot_area, done) == 192 &&
                  offsetof(struct snapshot_area, settled) == 256,
              "each side has cache lines of its own");
static_assert(sizeof(struct snapshot_entry) == 64 && sizeof(struct snapshot_result) == 480, "layout is fixed");
static_assert(sizeof(struct tensor_stats) % 8 == 0, "no padding");

#define SNAPSHOT_ENTRIES_OFFSET SNAPSHOT_PAGE
#define SNAPSHOT_RESULTS_OFFSET(entries) (SNAPSHOT_PAGE + (uint64_t)(entries) * sizeof(struct snapshot_entry))
#define SNAPSHOT_TEXT_OFFSET(entries) (SNAPSHOT_RESULTS_OFFSET(entries) + (uint64_t)(entries) * sizeof(struct snapshot_result))
#define SNAPSHOT_BYTES(entries, text) (SNAPSHOT_TEXT_OFFSET(entries) + (uint64_t)(text))

#endif
