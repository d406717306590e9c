// links: ALL
/* What a process may leave in its segment and rings (rings.h), all the way into SQLite. fuzz_drain.c is the same without, and quicker. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/rings.h"
#include "tests/fuzz/stage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len < 3)
    return 0;
  struct store *store = stage_store();
  int64_t spans;
  (void)rings_session(data, len, store, &spans);
  store_rollback(store);
  return 0;
}
