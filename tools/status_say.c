#include <string.h>

#include "../proto/ring_abi.h"
#include "status_job.h"
#include "text.h"
#include "units.h"

static void say_open(const struct status_open *o, bool utf8, struct buf *out) {
  bool collective = o->kind == SPAN_COLLECTIVE && o->module;
  text_show_cut(out, collective ? o->module : o->name, collective ? o->module_len : o->name ? o->name_len : 0, utf8, 60);
  if (o->index != SPAN_NO_INDEX)
    buf_printf(out, " %lld", (long long)o->index);
}

void status_say_chain(const struct status_place *r, bool utf8, struct buf *out) {
  for (size_t i = r->depth; i-- > 0;) {
    say_open(r->chain[i], utf8, out);
    buf_puts(out, i ? " > " : "");
  }
}

/* "rank 2", "ranks 0, 1, 3": those that wait, or are waited for. */
static void say_ranks(const struct status_rank *ranks, size_t count, bool awaited, struct buf *out) {
  size_t n = 0, said = 0;
  for (size_t i = 0; i < count; i++)
    n += awaited ? ranks[i].awaited : ranks[i].role == STATUS_WAITS;
  buf_puts(out, n == 1 ? "rank" : "ranks");
  for (size_t i = 0; i < count && said < STATUS_RANKS_SAID; i++)
    if (awaited ? ranks[i].awaited : ranks[i].role == STATUS_WAITS)
      buf_printf(out, "%s %lld", said++ ? "," : "", (long long)ranks[i].rank);
  if (n > said)
    buf_printf(out, " and %zu more", n - said);
}

static void say_wait(const struct status_wait *wait, bool utf8, struct buf *out) {
  const struct status_rank *first = wait->first;
  if (!first->op_len) {
    buf_puts(out, "backward, where gradients are exchanged");
    return;
  }
  text_show_cut(out, first->op, first->op_len, utf8, 40);
  if (first->number != STATUS_NO_NUMBER)
    buf_printf(out, " %lld", (long long)first->number);
  buf_puts(out, " of ");
  text_show_cut(out, first->group, first->group_len, utf8, 60);
}

/* "Rank 1 is stalled: in step 10, without a sign for 9.2 s." */
static void say_culprit(const struct status_job *job, size_t i, bool utf8, struct buf *out) {
  const struct status_place *r = &job->places[i];
  const struct status_rank *f = &job->ranks[i];
  char quiet[UNITS_MAX];
  buf_printf(out, "Rank %lld ", (long long)f->rank);
  if (f->role == STATUS_MISSING) {
    buf_puts(out, "has no session in this store.\n");
    return;
  }
  if (f->role == STATUS_ENDED) {
    buf_printf(out, "has ended (%s).\n", r->session->state);
    return;
  }
  buf_printf(out, "%s %s: in ", job->runs ? "is" : "was", status_role_name(f->role));
  if (r->depth)
    status_say_chain(r, utf8, out);
  else
    buf_puts(out, "no span");
  buf_printf(out, ", without a sign for %s.\n", units_duration(r->quiet_ns, quiet));
}

void status_say(const struct status_job *job, bool utf8, struct buf *out) {
  const struct status_wait *wait = &job->wait;
  char since[UNITS_MAX];
  if (!wait->found || (!wait->awaited && !wait->first->op_len))
    return;
  if (!job->runs)
    buf_puts(out, "When the first of the ranks ended:\n");
  for (size_t i = 0, said = 0; i < job->count && said < STATUS_RANKS_SAID; i++)
    if (job->ranks[i].awaited) {
      say_culprit(job, i, utf8, out);
      said++;
    }
  size_t at = out->len, one = wait->waiting == 1;
  say_ranks(job->ranks, job->count, false, out);
  if (out->len > at)
    out->data[at] = 'R';
  buf_puts(out, job->runs ? (one ? " waits" : " wait") : " waited");
  buf_puts(out, wait->awaited > 1 ? " for them in " : wait->awaited ? " for it in " : " in ");
  say_wait(wait, utf8, out);
  buf_printf(out, job->runs ? ", since %s.\n" : ", for %s.\n", units_duration(job->now_ns - wait->since_ns, since));
  if (wait->differs)
    buf_puts(out, "They have called different operations there, which can never meet.\n");
}
