/* The memory that a traced process shares with collectord.
 *
 * The process writes, collectord reads. There is one *segment* a process (counters and the text of all names) and one
 * *ring* a thread. Both are sealed memfds (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) handed over the control socket, so
 * what was written outlives the process, however it ends.
 *
 *   ring:     [struct ring_header, one page][RING_OPEN_SLOTS x struct ring_open][cells x 64 bytes]
 *   segment:  [struct ring_segment, one page][names: 4-byte aligned { uint32 length, bytes }]
 *
 * The begin of a span is an entry in the ring's table of open spans; its end is one RING_SPAN record among the cells, which
 * carries everything, and frees the entry. So the spans that were open when a process died are known as well as the closed ones.
 *
 * Writer: fill the cells, then store `head` with release. A record is one cell, followed by `text_cells` cells of RING_TEXT;
 * all are published by the same store. A record that does not fit is dropped and counted. The last RING_RESERVED cells are
 * kept for spans of kind root, epoch, eval and step, for RING_MOVE, RING_THREAD and RING_AFTER, and for the ends of spans that
 * were open when the ring became full.
 * A thread whose ring is full may go on in another one, and come back; RING_AFTER then says in which order the two are to be read.
 * Its open spans stay in the table of the ring it began with.
 * Reader: load `head` with acquire, copy once, trust nothing. It moves `tail` only after what it read is committed.
 *
 * An open slot is written with id last (release) and freed by id = 0. Ids are never used twice, so a reader that sees the same
 * id before and after its copy has a whole entry. parent, flags and name of an open entry may change while it is open.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. Names are ids: the entry's byte offset in the segment's names, divided by 4; 0 is
 * "none". Span and mark ids come from one counter a process, in begin order within a
 * thread; SPAN_ROOT is the root span `cirron.session`, which
 * is open from the Hello on and has no slot.
 */
#ifndef CIRRON_RING_ABI_H
#define CIRRON_RING_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x31676e6972726963ull  /* "cirring1", little endian */
#define SEGMENT_MAGIC 0x31676573726963ull /* "cirseg1" */
#define RING_ABI_MAJOR 1
#define RING_ABI_MINOR 3 /* 1: RING_AFTER, 2: SPAN_COLLECTIVE, 3: snapshot_wanted */

#define RING_PAGE 4096u
#define RING_CELL 64u
#define RING_OPEN_SLOTS 256u
#define RING_MIN_CELLS 1024u     /* 64 KiB */
#define RING_MAX_CELLS 1048576u  /* 64 MiB */
#define RING_RESERVED 64u        /* cells that only structural records may use */
#define RING_TEXT_BYTES 60u      /* text in one RING_TEXT cell */
#define RING_TEXT_MAX_CELLS 255u /* so at most 15,300 bytes a text */

#define SEGMENT_BYTES (1u << 20)
#define NAME_MAX_BYTES 4096u /* longer names are cut at a character boundary */

#define SPAN_ROOT 1ull
#define SPAN_NO_INDEX INT64_MIN
#define SPAN_NO_TIME (-1ll) /* cpu_ns, gpu_ns not measured */

enum ring_type {
  RING_SPAN = 1,   /* struct ring_span, then its attributes as JSON text */
  RING_MARK = 2,   /* struct ring_mark, then its text value, then its attributes as JSON text */
  RING_TEXT = 3,   /* struct ring_text: continuation of the record before it */
  RING_MOVE = 4,   /* struct ring_move */
  RING_THREAD = 5, /* struct ring_thread */
  RING_AFTER = 6,  /* struct ring_after */
};

/* What a span is, apart from its name: the collector sums steps and epochs by this. */
enum span_kind {
  SPAN_USER = 0,
  SPAN_SESSION = 1, /* cirron.session */
  SPAN_EPOCH = 2,
  SPAN_EVAL = 3, /* a pass over a loader without an update */
  SPAN_STEP = 4,
  SPAN_DATA_LOAD = 5,
  SPAN_FORWARD = 6,
  SPAN_BACKWARD = 7,
  SPAN_OPTIMIZER = 8, /* optimizer_step */
  SPAN_BATCH = 9,
  SPAN_FETCH = 10,
  SPAN_COLLECTIVE = 11,
  SPAN_KINDS
};

enum span_flag {
  SPAN_ERROR = 1,      /* left by an exception */
  SPAN_MODE_TRAIN = 2, /* forward: the module's training flag was set */
  SPAN_MODE_EVAL = 4,  /* forward: it was not */
  SPAN_CUT = 8,        /* closed by the end of the process or thread, not by its own end */
  SPAN_LENT = 32,      /* only in a record: something begins in it that may outlast it (a task) */
  SPAN_DOUBTFUL = 16,  /* only in an open slot: if the process dies now, this span never was; its children are its parent's */
};

/* Marks of the agent's own: a pair of blocks of an overhead check; detail that is left out from then on; a framework of a version that
 * was not tested, or in which functions that should be observed were not found. */
#define OVERHEAD_CHECK_MARK "cirron.overhead_check"
#define SHED_MARK "cirron.shed"
#define FRAMEWORK_MARK "cirron.framework"

enum mark_type { MARK_FLOAT = 1, MARK_INT = 2, MARK_BOOL = 3, MARK_STRING = 4 };
enum mark_flag { MARK_SUMMARY = 1 };

struct ring_span {
  uint8_t type, kind, flags, text_cells;
  uint32_t name;
  uint64_t id, parent;
  uint64_t start_ns, end_ns;
  int64_t index;      /* or SPAN_NO_INDEX */
  int64_t cpu_ns;     /* CPU time of the span's thread, or SPAN_NO_TIME */
  uint32_t module;    /* class name of the module or optimizer, or 0 */
  uint32_t exception; /* class name of the exception, or 0 */
};

struct ring_mark {
  uint8_t type, value_type, flags, text_cells; /* text_cells: value and attributes together */
  uint32_t name;
  uint64_t id, span;
  uint64_t ts_ns;
  union {
    double f;
    int64_t i; /* MARK_INT, MARK_BOOL */
  } value;
  uint8_t value_cells; /* of text_cells, those of the text value (MARK_STRING) */
  uint8_t pad[23];
};

struct ring_text {
  uint8_t type, pad;
  uint16_t used; /* bytes of text in this cell */
  char text[RING_TEXT_BYTES];
};

/* The direct children of `span`, open or closed, that began at or after `since_ns` belong to `parent` from now on; `parent` itself,
 * should it be one of them, is excepted. Comes before the RING_SPAN of `span`, if it has one; a span that is dissolved has none. */
struct ring_move {
  uint8_t type, pad[7];
  uint64_t span, parent;
  uint64_t since_ns;
  uint64_t pad2[4];
};

/* What follows in this ring was written by native thread `tid`. First record of each ring, and again when a ring is reused. */
struct ring_thread {
  uint8_t type, pad[3];
  uint32_t tid;
  uint64_t ts_ns;
  uint64_t pad2[6];
};

/* What follows in this ring was written after the cells before `position` of ring `ring_no`, by the same thread. */
struct ring_after {
  uint8_t type, pad[3];
  uint32_t ring_no;
  uint64_t position;
  uint64_t pad2[6];
};

struct ring_open {
  uint64_t id; /* 0: free. Atomic, release/acquire. */
  uint64_t parent;
  uint64_t start_ns;
  int64_t index;
  uint32_t name, module;
  uint8_t kind, flags;
  uint16_t depth; /* open spans below it in its thread or task */
  uint32_t tid;
  uint64_t pad[2];
};

struct ring_header {
  uint64_t magic;
  uint16_t abi_major, abi_minor;
  uint32_t cells;      /* power of two, RING_MIN_CELLS to RING_MAX_CELLS */
  uint32_t open_slots; /* RING_OPEN_SLOTS */
  uint32_t ring_no;    /* from 1, as in RingAttach */
  uint64_t session;    /* the session's prefix */
  uint8_t pad0[32];
  /* writer's line; head is atomic, the counters are written by the writer alone and may be read at any time */
  uint64_t head;                         /* cells ever published */
  uint64_t emitted_spans, emitted_marks; /* asked for, dropped ones included */
  uint64_t dropped_spans, dropped_marks; /* no room in the ring */
  uint64_t dropped_moves;
  uint64_t pad1[2];
  /* reader's line */
  uint64_t tail; /* cells read and committed; atomic */
  uint64_t pad2[7];
};

struct ring_segment {
  uint64_t magic;
  uint16_t abi_major, abi_minor;
  uint32_t bytes; /* of the whole segment: SEGMENT_BYTES */
  uint64_t session;
  uint32_t names_used; /* bytes of the names area in use; atomic, release after the entry is whole */
  /* The rank as the script has it by now (launchers of threads and spawned processes set it late); -1: not set. Atomics. */
  int32_t rank, local_rank, world_size;
  uint32_t ranks_known; /* 0: those of the Hello hold. Atomic, release after the ranks. */
  /* counters: relaxed atomics */
  uint64_t dropped_depth; /* scopes beyond the deepest level */
  uint64_t refused_marks; /* values of a type that cannot be kept */
  uint64_t dropped_names; /* no room for the text; the records show no name */
  uint64_t dropped_rings; /* spans and marks of threads for which no ring could be made */
  uint64_t overhead_ns;   /* what the agent measured of its own cost */
  uint64_t pad1[3];
  /* From the collector, and the only thing here that it writes: counts up when a snapshot is asked for at the end of the next step. */
  uint64_t snapshot_wanted;
  uint64_t pad2[7];
};

static_assert(sizeof(struct ring_span) == RING_CELL, "ring_span is one cell");
static_assert(sizeof(struct ring_mark) == RING_CELL, "ring_mark is one cell");
static_assert(sizeof(struct ring_text) == RING_CELL, "ring_text is one cell");
static_assert(sizeof(struct ring_move) == RING_CELL, "ring_move is one cell");
static_assert(sizeof(struct ring_thread) == RING_CELL, "ring_thread is one cell");
static_assert(sizeof(struct ring_after) == RING_CELL, "ring_after is one cell");
static_assert(sizeof(struct ring_open) == RING_CELL, "ring_open is one cell");
static_assert(offsetof(struct ring_header, head) == 64, "the writer has a cache line of its own");
static_assert(offsetof(struct ring_header, tail) == 128, "the reader has a cache line of its own");
static_assert(sizeof(struct ring_header) <= RING_PAGE && sizeof(struct ring_segment) <= RING_PAGE, "headers fit");
static_assert(offsetof(struct ring_span, start_ns) == 24 && offsetof(struct ring_span, module) == 56, "layout is fixed");
static_assert(offsetof(struct ring_mark, value) == 32, "layout is fixed");

/* Offsets inside a ring of `cells` cells. */
#define RING_OPEN_OFFSET RING_PAGE
#define RING_CELLS_OFFSET (RING_PAGE + RING_OPEN_SLOTS * (uint32_t)sizeof(struct ring_open))
#define RING_BYTES(cells) ((size_t)RING_CELLS_OFFSET + (size_t)(cells)*RING_CELL)
#define SEGMENT_NAMES_OFFSET RING_PAGE
#define SEGMENT_NAMES_BYTES (SEGMENT_BYTES - SEGMENT_NAMES_OFFSET)

#endif
