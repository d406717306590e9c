/* How records travel where no memory is shared: what is packed in SpanBatch.records and SpanBatch.open (cirron.proto).
 *
 * All numbers are varints (varint.h) unless a size is given; "delta" is the zigzag of a difference. The numbers before the first
 * record are 0, so each message can be read by itself.
 *
 *   record   u8 type | bits << 3, then
 *     RING_SPAN     u8 kind, u8 flags, name, delta id - id before, delta id - parent, delta start - time before, delta end - start,
 *                   [delta index - index before] [delta cpu] [module] [exception] [text]
 *     RING_MARK     u8 value type, u8 flags, name, delta id - id before, delta id - span, delta time - time before,
 *                   MARK_FLOAT: 8 bytes, else delta value; [text]
 *     RING_MOVE     delta span - id before, delta parent - id before, delta since - time before
 *     RING_THREAD   tid, delta time - time before
 *     RING_AFTER    ring, position
 *     BATCH_RAW     64 bytes: a cell of any other type, or one that is damaged
 *   text     u8 cells, RING_MARK: u8 cells of the value; each cell: u8 bytes used, the bytes
 *   "before": id of the last span or mark, index of the last span that has one, end or time of the last span, mark or thread
 *
 *   open     an entry a taken slot, in their order: u8 bits, slot, u8 kind, u8 flags, depth, tid, name, delta id - id before,
 *            delta id - parent, delta start - time before, [delta index] [module]
 */
#ifndef CIRRON_SPAN_BATCH_H
#define CIRRON_SPAN_BATCH_H

#include <stdint.h>

#include "ring_abi.h"

#define BATCH_TYPE_MASK 7u
#define BATCH_BITS_SHIFT 3u
#define BATCH_RAW 7u

enum batch_bits { /* what a record has; which a type does not list it must not have */
                  BATCH_INDEX = 1,
                  BATCH_CPU = 2,
                  BATCH_MODULE = 4,
                  BATCH_EXCEPTION = 8,
                  BATCH_TEXT = 16,
};

#define BATCH_RECORD_MAX 96u                  /* bytes of a record without its text */
#define BATCH_TEXT_MAX (1u + RING_TEXT_BYTES) /* of a cell of text */
#define BATCH_OPEN_ENTRY_MAX 63u
#define BATCH_OPEN_MAX (RING_OPEN_SLOTS * BATCH_OPEN_ENTRY_MAX)

struct batch_before {
  uint64_t id, ns;
  int64_t index;
};

#endif
