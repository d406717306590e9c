#include "status.h"

#include <string.h>

#include "collective.h"

static bool same(const char *a, size_t a_len, const char *b, size_t b_len) {
  return a_len == b_len && memcmp(a, b, a_len) == 0;
}

static bool waits(const struct status_rank *r, int64_t now_ns) {
  return r->running && (r->op_len || r->backward) && now_ns - r->since_ns >= STATUS_WAIT_NS;
}

static bool same_group(const struct status_rank *a, const struct status_rank *b) {
  return a->op_len && b->op_len && same(a->group, a->group_len, b->group, b->group_len);
}

/* Are both in the same operation, or both in a backward? Where there is no number, the function has to do. */
static bool together(const struct status_rank *a, const struct status_rank *b) {
  if (!a->op_len || !b->op_len)
    return a->backward && b->backward;
  if (!same_group(a, b) || a->number != b->number)
    return false;
  return a->number != STATUS_NO_NUMBER || same(a->op, a->op_len, b->op, b->op_len);
}

/* How many wait where `r` does; *since_ns: the longest of them. */
static size_t with(const struct status_rank *ranks, size_t count, const struct status_rank *r, int64_t now_ns,
                   const struct status_rank **longest) {
  size_t n = 0;
  *longest = r;
  for (size_t i = 0; i < count; i++)
    if (waits(&ranks[i], now_ns) && together(&ranks[i], r)) {
      n++;
      if (ranks[i].since_ns < (*longest)->since_ns)
        *longest = &ranks[i];
    }
  return n;
}

bool status_wait_find(const struct status_rank *ranks, size_t count, int64_t now_ns, struct status_wait *out) {
  *out = (struct status_wait){0};
  for (size_t i = 0; i < count; i++) {
    const struct status_rank *longest, *best = out->first;
    if (!waits(&ranks[i], now_ns) || (best && together(best, &ranks[i])))
      continue;
    size_t n = with(ranks, count, &ranks[i], now_ns, &longest);
    /* A backward says less than a collective: it may just be long. */
    bool better = !best || (best->op_len == 0) > (longest->op_len == 0) ||
                  ((best->op_len == 0) == (longest->op_len == 0) &&
                   (n > out->waiting || (n == out->waiting && longest->since_ns < best->since_ns)));
    if (better)
      *out = (struct status_wait){.found = true, .first = longest, .since_ns = longest->since_ns, .waiting = n};
  }
  return out->found;
}

/* Does the wait need this rank, which does not wait itself? */
static bool needed(const struct status_rank *r, const struct status_rank *first) {
  if (!first->op_len)
    return !r->backward;
  if (first->peer >= 0)
    return r->rank == first->peer;
  if (!collective_holds(first->group, first->group_len, r->rank) || together(r, first))
    return false;
  bool passed = first->number != STATUS_NO_NUMBER && r->reached >= first->number;
  bool ahead = same_group(r, first) && r->number != STATUS_NO_NUMBER && r->number > first->number;
  return !passed && !ahead;
}

void status_judge(struct status_rank *ranks, size_t count, int64_t now_ns, int64_t patience_ns, struct status_wait *wait) {
  bool patient = !wait->found || now_ns - wait->since_ns < patience_ns;
  for (size_t i = 0; i < count; i++) {
    struct status_rank *r = &ranks[i];
    r->awaited = wait->found && !waits(r, now_ns) && needed(r, wait->first);
    wait->awaited += r->awaited;
    if (wait->found && r != wait->first && r->op_len && r->number != STATUS_NO_NUMBER && together(r, wait->first) &&
        !same(r->op, r->op_len, wait->first->op, wait->first->op_len))
      wait->differs = true;
    r->role = !r->known               ? STATUS_MISSING
              : !r->running           ? STATUS_ENDED
              : r->awaited && patient ? STATUS_LATE
              : r->awaited            ? STATUS_STALLED
                                      : STATUS_RUNS;
  }
  for (size_t i = 0; i < count; i++) /* a backward that nobody holds up is work */
    if (waits(&ranks[i], now_ns) && (ranks[i].op_len || wait->awaited))
      ranks[i].role = STATUS_WAITS;
}

const char *status_role_name(enum status_role role) {
  static const char *const names[] = {"runs", "waits", "late", "stalled", "ended", "missing"};
  return names[role];
}
