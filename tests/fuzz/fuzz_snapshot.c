// links: collectord/session.c collectord/session_state.c collectord/snapshot.c collectord/snapshot_rows.c collectord/pass.c collectord/pass_sent.c collectord/area.c collectord/mapping.c collectord/blob.c collectord/ahead.c collectord/reader.c collectord/quota.c collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/ring_reader.c collectord/process.c collectord/text.c collectord/utf8.c collectord/clock.c collectord/log.c proto/histogram.c proto/safetensors.c proto/tensor_read.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* An area whose entries, text and request are the input, read out of this very process, and once more as one that computed itself: the
 * first bytes say which, and how many entries there are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectord/area.h"
#include "collectord/cirron_gen.h"
#include "collectord/pass.h"
#include "collectord/process.h"
#include "collectord/session.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_store.h"
#include "tests/support/ring_maker.h"

#define PREFIX 0x1122334455667788ull
#define ENTRIES 8u
#define TEXT 2048u
#define BYTES SNAPSHOT_BYTES(ENTRIES, TEXT)

static struct session session;
static struct snapshot_area *head;
static uint64_t number;

static void prepare(void) {
  if (head)
    return;
  void *memory;
  int fd = maker_memfd(BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, &memory);
  head = memory;
  *head = (struct snapshot_area){
      .magic = SNAPSHOT_MAGIC, .abi = SNAPSHOT_ABI, .entries = ENTRIES, .bytes = BYTES, .text_bytes = TEXT, .session = PREFIX};
  session = (struct session){.prefix = PREFIX, .pid = getpid(), .pidfd = process_open(getpid()), .row.uid = (int64_t)geteuid()};
  if (snapshots_area(&session, fd, BYTES) != 0)
    abort();
  close(fd);
}

/* The input, a part after the other, cut where it ends. */
static const uint8_t *part(const uint8_t **data, size_t *len, size_t want, void *to) {
  size_t n = want < *len ? want : *len;
  memcpy(to, *data, n);
  *data += n;
  *len -= n;
  return *data;
}

static void to_the_store(struct store *store) {
  for (int i = 0; i < 4; i++) {
    snapshots_look(&session, (uint64_t)i * 3000000000ull + 1);
    if (snapshots_write(&session, store) != 0)
      abort();
    if (i == 1)
      snapshots_undone(&session);
    else
      snapshots_committed(&session);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static struct store store;
  static int64_t numbers[64];
  uint8_t how[4] = {0};
  prepare();
  part(&data, &len, sizeof how, how);
  struct snapshot_entry *entries = (void *)((char *)head + SNAPSHOT_ENTRIES_OFFSET);
  char *text = (char *)head + SNAPSHOT_TEXT_OFFSET(ENTRIES);
  memset(entries, 0, ENTRIES * sizeof *entries);
  memset(text, 0, TEXT);
  part(&data, &len, (how[1] % (ENTRIES + 1)) * sizeof *entries, entries);
  part(&data, &len, TEXT, text);
  for (unsigned i = 0; i < ENTRIES; i++) /* an address that can be read, most times */
    if (entries[i].address < 512)
      entries[i].address += (uintptr_t)numbers;
  head->number = ++number;
  head->count = how[1] % (ENTRIES + 2);
  head->gradients = how[2] % (ENTRIES + 2);
  head->reason = how[2] >> 4;
  head->flags = how[3] & 7;
  head->done = how[0] >> 4;
  head->finished = how[0] & 1 ? number : 0;
  head->stored = 0;
  head->settled = how[0] & 2 ? number : 0;
  head->torn_from = how[3] >> 4;
  session.phase = SESSION_LIVE;
  session.snapshots.refused = how[0] & 8;
  if (snapshots_request(&session, number, -1) != 0)
    abort();
  to_the_store(&store);
  if (how[0] & 4)
    session.phase = SESSION_ENDED;
  head->finished = head->settled = number;
  to_the_store(&store);
  if (session.snapshots.first)
    abort(); /* all came to an end */
  return 0;
}
