// links: collectord/session.c collectord/session_state.c collectord/snapshot.c collectord/snapshot_rows.c collectord/pass.c collectord/pass_sent.c collectord/area.c collectord/blob.c collectord/ahead.c collectord/reader.c collectord/quota.c collectord/ingest.c collectord/ingest_open.c collectord/ingest_write.c collectord/names.c collectord/tree.c collectord/rollup.c collectord/idmap.c collectord/ring_reader.c collectord/process.c collectord/text.c collectord/utf8.c collectord/clock.c collectord/log.c proto/histogram.c proto/safetensors.c proto/tensor_read.c proto/tensor_scalar.c proto/tensor_stats.c proto/tensor_stats_avx2.c proto/tensor_stats_avx512.c
/* What a process may leave in its segment and rings (rings.h), into a store that only counts: as many spans must be in it as were taken,
 * each once. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_mapping.h"
#include "tests/fuzz/no_store.h"
#include "tests/fuzz/rings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len < 3)
    return 0;
  static struct store store;
  rings_prepare(no_mapping_add);
  no_store_clear(&store);
  rings_store_commit = store_commit;
  int64_t spans;
  if (rings_session(data, len, &store, &spans) && no_store_rows(&store) != spans)
    abort();
  return 0;
}
