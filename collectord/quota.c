/* See quota.h. */
#include "quota.h"

#define SECOND_NS 1000000000u

void quota_visit(const struct quota *quota, struct quota_use *use, uint64_t now_ns) {
  uint64_t past = now_ns - use->filled_ns;
  use->now_ns = now_ns;
  if (!quota->rate)
    return;
  if (!use->filled_ns || past >= SECOND_NS) {
    use->left = quota->rate;
    use->filled_ns = now_ns;
    return;
  }
  uint64_t more = quota->rate * past / SECOND_NS;
  use->filled_ns += more * SECOND_NS / quota->rate; /* the rest of a record counts the next time */
  use->left = use->left + more < quota->rate ? use->left + more : quota->rate;
}

unsigned quota_allows(const struct quota *quota, const struct quota_use *use, unsigned cap) {
  if (quota->bytes && use->bytes >= quota->bytes)
    return 0;
  return quota->rate && use->left < cap ? (unsigned)use->left : cap;
}

bool quota_taken(const struct quota *quota, struct quota_use *use, unsigned records, uint64_t bytes, bool more) {
  use->bytes += bytes;
  use->left -= use->left < records ? use->left : records;
  bool spent = (quota->rate && !use->left) || (quota->bytes && use->bytes >= quota->bytes), first = !use->over_ns;
  if (!spent || !more)
    return false;
  use->over_ns = use->now_ns;
  return first;
}

bool quota_over(const struct quota_use *use) {
  return use->over_ns && use->now_ns - use->over_ns < SECOND_NS;
}
