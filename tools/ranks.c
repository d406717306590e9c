#include "ranks.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "select.h"

#define SLOW_SHARE 20 /* 1/20 of the steps' time */
#define NO_CLOCK INT64_MIN

/* One operation as one rank saw it; those of the same operation stand together. */
struct part {
  uint32_t group, rank; /* rank: index of the input */
  int64_t number;
  int64_t start_ns, end_ns;
};

struct event {
  size_t first, count; /* in the parts */
  size_t unit;
};

struct work {
  struct ranks_input *in;
  struct ranks_result *out;
  size_t n;
  unsigned *clock; /* of each rank: ranks of one clock are compared as they are */
  unsigned clocks;
  struct part *parts;
  size_t part_count;
  struct event *events;
  size_t event_count;
  /* [event * clocks + clock], where there are several: how far its end by that clock is behind that by the event's first, or NO_CLOCK; and
   * how far that clock is ahead just then. */
  int64_t *apart, *offsets;
  int64_t *waited, *caused; /* in the unit at hand */
};

static int64_t positive(int64_t value) {
  return value > 0 ? value : 0;
}

static void *zeroed(size_t count, size_t size) {
  void *memory = buf_alloc((count ? count : 1) * size);
  memset(memory, 0, (count ? count : 1) * size);
  return memory;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

/* Signed numbers in the order of unsigned ones. */
static uint64_t ordered(int64_t value) {
  return (uint64_t)value ^ UINT64_C(1) << 63;
}

static int64_t quantile(uint64_t *values, size_t count, double q) {
  return count ? (int64_t)(select_u64(values, 0, count, select_rank(q, count)) ^ UINT64_C(1) << 63) : 0;
}

/* --- rows ---------------------------------------------------------------------------------------------------------------- */

/* The step that a moment lies in, or NULL. */
static const struct ranks_step *step_at(const struct ranks_input *in, int64_t at_ns) {
  size_t low = 0, high = in->step_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (in->steps[middle].start_ns <= at_ns)
      low = middle + 1;
    else
      high = middle;
  }
  return low && at_ns < in->steps[low - 1].end_ns ? &in->steps[low - 1] : NULL;
}

static void fill_row(const struct ranks_input *in, struct ranks_row *row) {
  uint64_t *lengths = buf_alloc((in->step_count + 1) * sizeof *lengths);
  row->steps = (int64_t)in->step_count;
  for (size_t i = 0; i < in->step_count; i++) {
    const struct ranks_step *s = &in->steps[i];
    int64_t length = positive(s->end_ns - s->start_ns);
    row->total_ns += length;
    lengths[i] = ordered(length);
    for (unsigned p = 0; p < RANKS_PHASES; p++)
      row->phase_ns[p] += s->phase_ns[p];
  }
  row->mean_ns = row->steps ? row->total_ns / row->steps : 0;
  row->median_ns = quantile(lengths, in->step_count, 0.5);
  row->p95_ns = quantile(lengths, in->step_count, 0.95);
  for (size_t i = 0; i < in->call_count; i++)
    if (!in->step_count || step_at(in, in->calls[i].start_ns))
      row->collective_ns += positive(in->calls[i].end_ns - in->calls[i].start_ns);
  free(lengths);
}

/* --- units --------------------------------------------------------------------------------------------------------------- */

static int by_index(const void *a, const void *b) {
  const struct ranks_unit *x = a, *y = b;
  return (x->index > y->index) - (x->index < y->index);
}

static void units_from_steps(struct work *w) {
  size_t all = 0, kept = 0;
  struct ranks_unit *units;
  for (size_t r = 0; r < w->n; r++)
    all += w->in[r].step_count;
  units = zeroed(all, sizeof *units);
  all = 0;
  for (size_t r = 0; r < w->n; r++)
    for (size_t i = 0; i < w->in[r].step_count; i++) {
      const struct ranks_step *s = &w->in[r].steps[i];
      units[all++] =
          (struct ranks_unit){.index = s->index, .step_ns = positive(s->end_ns - s->start_ns), .slowest = -1, .ranks = 1};
    }
  if (all)
    qsort(units, all, sizeof *units, by_index);
  for (size_t i = 0; i < all; i++)
    if (kept && units[kept - 1].index == units[i].index) {
      units[kept - 1].ranks++;
      units[kept - 1].step_ns = units[i].step_ns > units[kept - 1].step_ns ? units[i].step_ns : units[kept - 1].step_ns;
    } else {
      units[kept++] = units[i];
    }
  w->out->units = units;
  w->out->unit_count = kept;
  w->out->by_steps = kept > 0;
}

/* Without steps each operation stands for itself. */
static void units_from_events(struct work *w) {
  free(w->out->units);
  w->out->units = zeroed(w->event_count, sizeof *w->out->units);
  w->out->unit_count = w->event_count;
  for (size_t e = 0; e < w->event_count; e++) {
    w->events[e].unit = e;
    w->out->units[e] = (struct ranks_unit){.index = (int64_t)e, .slowest = -1, .ranks = w->events[e].count};
  }
}

static size_t unit_find(const struct ranks_result *out, int64_t index) {
  const struct ranks_unit key = {.index = index},
                          *found = out->unit_count ? bsearch(&key, out->units, out->unit_count, sizeof key, by_index) : NULL;
  return found ? (size_t)(found - out->units) : SIZE_MAX;
}

/* --- events -------------------------------------------------------------------------------------------------------------- */

static int by_operation(const void *a, const void *b) {
  const struct part *x = a, *y = b;
  if (x->group != y->group)
    return x->group < y->group ? -1 : 1;
  if (x->number != y->number)
    return x->number < y->number ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static void gather_parts(struct work *w) {
  size_t all = 0;
  for (size_t r = 0; r < w->n; r++)
    all += w->in[r].call_count;
  w->parts = zeroed(all, sizeof *w->parts);
  for (size_t r = 0; r < w->n; r++)
    for (size_t i = 0; i < w->in[r].call_count; i++) {
      const struct ranks_call *c = &w->in[r].calls[i];
      if (c->meets && c->number != RANKS_NO_NUMBER && c->end_ns >= c->start_ns)
        w->parts[w->part_count++] = (struct part){c->group, (uint32_t)r, c->number, c->start_ns, c->end_ns};
    }
  if (w->part_count)
    qsort(w->parts, w->part_count, sizeof *w->parts, by_operation);
}

static bool same_operation(const struct part *a, const struct part *b) {
  return a->group == b->group && a->number == b->number;
}

/* The unit of an operation, by the first of its ranks that was in a step then. */
static size_t unit_of(const struct work *w, size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    const struct ranks_step *s = step_at(&w->in[w->parts[i].rank], w->parts[i].start_ns);
    if (s)
      return unit_find(w->out, s->index);
  }
  return SIZE_MAX;
}

static void gather_events(struct work *w) {
  w->events = zeroed(w->part_count, sizeof *w->events);
  for (size_t i = 0, end; i < w->part_count; i = end) {
    bool twice = false;
    for (end = i + 1; end < w->part_count && same_operation(&w->parts[i], &w->parts[end]); end++)
      twice |= w->parts[end].rank == w->parts[end - 1].rank;
    size_t unit = w->out->by_steps ? unit_of(w, i, end - i) : 0;
    if (end - i > 1 && !twice && unit != SIZE_MAX)
      w->events[w->event_count++] = (struct event){i, end - i, unit};
  }
  w->out->collectives = w->event_count;
}

/* --- clocks -------------------------------------------------------------------------------------------------------------- */

/* What `rank` had of the event, or NULL. Parts are in the order of ranks. */
static const struct part *part_of(const struct work *w, const struct event *e, size_t rank) {
  const struct part *parts = &w->parts[e->first];
  size_t low = 0, high = e->count;
  if (e->count == w->n)
    return &parts[rank];
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (parts[middle].rank < rank)
      low = middle + 1;
    else
      high = middle;
  }
  return low < e->count && parts[low].rank == rank ? &parts[low] : NULL;
}

/* A clock for each host, and one of its own for a rank that does not agree with the first of its host. */
static void find_clocks(struct work *w) {
  uint64_t *apart = zeroed(w->event_count, sizeof *apart);
  w->clock = zeroed(w->n, sizeof *w->clock);
  for (size_t r = 0; r < w->n; r++) {
    size_t first = 0, count = 0;
    while (w->in[first].host != w->in[r].host)
      first++;
    for (size_t e = 0; first != r && e < w->event_count; e++) {
      const struct part *mine = part_of(w, &w->events[e], r), *other = part_of(w, &w->events[e], first);
      if (mine && other)
        apart[count++] = ordered(mine->end_ns - other->end_ns);
    }
    int64_t by = quantile(apart, count, 0.5);
    bool own = first == r || by > RANKS_CLOCK_SLACK_NS || by < -RANKS_CLOCK_SLACK_NS;
    w->clock[r] = own ? w->clocks++ : w->clock[first];
  }
  free(apart);
}

/* By the first rank of each clock. */
static void fill_apart(struct work *w, size_t event) {
  const struct part *parts = &w->parts[w->events[event].first];
  int64_t *apart = &w->apart[event * w->clocks];
  for (unsigned c = 0; c < w->clocks; c++)
    apart[c] = NO_CLOCK;
  for (size_t i = 0; i < w->events[event].count; i++)
    if (apart[w->clock[parts[i].rank]] == NO_CLOCK)
      apart[w->clock[parts[i].rank]] = parts[i].end_ns - parts[0].end_ns;
}

static bool comparable(const struct work *w, size_t a, size_t b) {
  const struct part *x = &w->parts[w->events[a].first], *y = &w->parts[w->events[b].first];
  return x->group == y->group && w->clock[x->rank] == w->clock[y->rank];
}

static int64_t offset_near(const struct work *w, size_t event, unsigned clock) {
  uint64_t near[RANKS_CLOCK_WINDOW];
  size_t count = 0, from = event > RANKS_CLOCK_WINDOW / 2 ? event - RANKS_CLOCK_WINDOW / 2 : 0;
  for (size_t e = from; e < w->event_count && count < RANKS_CLOCK_WINDOW && e <= event + RANKS_CLOCK_WINDOW / 2; e++) {
    int64_t apart = comparable(w, e, event) ? w->apart[e * w->clocks + clock] : NO_CLOCK;
    if (apart != NO_CLOCK)
      near[count++] = ordered(apart);
  }
  return quantile(near, count, 0.5);
}

static void find_offsets(struct work *w) {
  if (w->clocks < 2)
    return;
  w->apart = zeroed(w->event_count * w->clocks, sizeof *w->apart);
  w->offsets = zeroed(w->event_count * w->clocks, sizeof *w->offsets);
  for (size_t e = 0; e < w->event_count; e++)
    fill_apart(w, e);
  for (size_t e = 0; e < w->event_count; e++)
    for (unsigned c = 0; c < w->clocks; c++)
      if (w->apart[e * w->clocks + c] != NO_CLOCK)
        w->offsets[e * w->clocks + c] = offset_near(w, e, c);
}

/* --- waiting ------------------------------------------------------------------------------------------------------------- */

/* All of these waited for `last`. */
static void add_waits(struct work *w, size_t last, size_t rank, int64_t wait_ns, int64_t *longest) {
  if (wait_ns <= 0 || rank == last)
    return;
  w->out->waits[rank * w->n + last] += wait_ns;
  w->out->rows[rank].waited_ns += wait_ns;
  w->waited[rank] += wait_ns;
  *longest = wait_ns > *longest ? wait_ns : *longest;
}

static void add_event(struct work *w, size_t index) {
  const struct event *e = &w->events[index];
  const int64_t *offsets = w->offsets ? &w->offsets[index * w->clocks] : NULL;
  const struct part *parts = &w->parts[e->first];
  size_t last = 0;
  int64_t longest = 0;
#define ARRIVAL(i) (parts[i].start_ns - (offsets ? offsets[w->clock[parts[i].rank]] : 0))
  for (size_t i = 1; i < e->count; i++)
    if (ARRIVAL(i) > ARRIVAL(last))
      last = i;
  for (size_t i = 0; i < e->count; i++) {
    int64_t wait = ARRIVAL(last) - ARRIVAL(i), length = parts[i].end_ns - parts[i].start_ns;
    add_waits(w, parts[last].rank, parts[i].rank, wait < length ? wait : length, &longest);
  }
#undef ARRIVAL
  w->caused[parts[last].rank] += longest;
}

static const struct ranks_step *step_of(const struct ranks_input *in, int64_t index, size_t *at) {
  while (*at < in->step_count && in->steps[*at].index < index)
    ++*at;
  return *at < in->step_count && in->steps[*at].index == index ? &in->steps[*at] : NULL;
}

static void add_backward(struct work *w, int64_t index, size_t *at) {
  size_t last = SIZE_MAX;
  int64_t least = INT64_MAX, longest = 0;
  for (size_t r = 0; r < w->n; r++) {
    const struct ranks_step *s = step_of(&w->in[r], index, &at[r]);
    if (s && s->phase_ns[RANKS_BACKWARD] > 0 && s->phase_ns[RANKS_BACKWARD] < least) {
      least = s->phase_ns[RANKS_BACKWARD];
      last = r;
    }
  }
  for (size_t r = 0; r < w->n && last != SIZE_MAX; r++) {
    const struct ranks_step *s = step_of(&w->in[r], index, &at[r]);
    if (s)
      add_waits(w, last, r, s->phase_ns[RANKS_BACKWARD] - least, &longest);
  }
  if (last != SIZE_MAX)
    w->caused[last] += longest;
}

static void close_unit(struct work *w, struct ranks_unit *unit) {
  size_t slowest = 0;
  for (size_t r = 0; r < w->n; r++) {
    unit->skew_ns = w->waited[r] > unit->skew_ns ? w->waited[r] : unit->skew_ns;
    slowest = w->caused[r] > w->caused[slowest] ? r : slowest;
    w->out->rows[r].caused_ns += w->caused[r];
  }
  if (unit->skew_ns >= RANKS_NOISE_NS && unit->skew_ns >= unit->step_ns / RANKS_NOISE_SHARE) {
    unit->slowest = (int64_t)slowest;
    w->out->rows[slowest].last++;
  }
}

static int by_unit(const void *a, const void *b) {
  const size_t *x = a, *y = b; /* unit, event */
  return x[0] != y[0] ? (x[0] < y[0] ? -1 : 1) : (x[1] > y[1]) - (x[1] < y[1]);
}

static void add_up(struct work *w) {
  size_t(*order)[2] = zeroed(w->event_count, sizeof *order), *at = zeroed(w->n, sizeof *at), next = 0;
  w->waited = zeroed(w->n, sizeof *w->waited);
  w->caused = zeroed(w->n, sizeof *w->caused);
  for (size_t e = 0; e < w->event_count; e++) {
    order[e][0] = w->events[e].unit;
    order[e][1] = e;
  }
  if (w->event_count)
    qsort(order, w->event_count, sizeof *order, by_unit);
  for (size_t u = 0; u < w->out->unit_count; u++) {
    memset(w->waited, 0, w->n * sizeof *w->waited);
    memset(w->caused, 0, w->n * sizeof *w->caused);
    for (; next < w->event_count && order[next][0] == u; next++)
      add_event(w, order[next][1]);
    if (w->out->by_backward)
      add_backward(w, w->out->units[u].index, at);
    close_unit(w, &w->out->units[u]);
  }
  free(order);
  free(at);
}

/* --- the whole ----------------------------------------------------------------------------------------------------------- */

static void find_skew(struct ranks_result *out) {
  uint64_t *skews = buf_alloc((out->unit_count + 1) * sizeof *skews);
  size_t count = 0;
  for (size_t u = 0; u < out->unit_count; u++)
    if (out->units[u].ranks > 1)
      skews[count++] = ordered(out->units[u].skew_ns);
  out->skew_median_ns = quantile(skews, count, 0.5);
  out->skew_p95_ns = quantile(skews, count, 0.95);
  free(skews);
}

/* How long that took which was compared: the steps, or all from the first operation to the last. */
static void find_time(struct work *w) {
  for (size_t u = 0; u < w->out->unit_count; u++)
    w->out->compared_ns += w->out->units[u].step_ns;
  for (size_t r = 0; r < w->n && !w->out->by_steps; r++) {
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < w->in[r].call_count; i++) {
      const struct ranks_call *c = &w->in[r].calls[i];
      first = c->start_ns < first ? c->start_ns : first;
      last = c->end_ns > last ? c->end_ns : last;
    }
    if (last - first > w->out->compared_ns)
      w->out->compared_ns = last - first;
  }
}

static void find_slow(struct ranks_result *out) {
  out->slow = -1;
  for (size_t u = 0; u < out->unit_count; u++)
    out->compared += out->units[u].ranks > 1;
  for (size_t r = 0; r < out->n; r++)
    if (2 * out->rows[r].last > out->compared && out->rows[r].caused_ns >= out->compared_ns / SLOW_SHARE)
      out->slow = (int64_t)r;
}

static void find_most(struct ranks_result *out) {
  for (size_t i = 0; i < out->n; i++) {
    out->rows[i].waits_most_for = i; /* its own wait is 0 */
    for (size_t j = 0; j < out->n; j++)
      if (out->waits[i * out->n + j] > out->waits[i * out->n + out->rows[i].waits_most_for])
        out->rows[i].waits_most_for = j;
  }
}

void ranks_compare(struct ranks_input *in, size_t n, struct ranks_result *out) {
  struct work w = {.in = in, .out = out, .n = n};
  *out = (struct ranks_result){.n = n, .slow = -1};
  out->rows = zeroed(n, sizeof *out->rows);
  out->waits = zeroed(n * n, sizeof *out->waits);
  out->by_backward = n > 1;
  for (size_t r = 0; r < n; r++) {
    fill_row(&in[r], &out->rows[r]);
    out->by_backward = out->by_backward && in[r].backward_meets;
  }
  units_from_steps(&w);
  gather_parts(&w);
  gather_events(&w);
  if (!out->by_steps)
    units_from_events(&w);
  find_clocks(&w);
  find_offsets(&w);
  add_up(&w);
  find_skew(out);
  find_time(&w);
  find_slow(out);
  find_most(out);
  void *memory[] = {w.clock, w.parts, w.events, w.apart, w.offsets, w.waited, w.caused};
  for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
    free(memory[i]);
}

void ranks_fini(struct ranks_result *result) {
  free(result->rows);
  free(result->waits);
  free(result->units);
  *result = (struct ranks_result){0};
}

enum ranks_phase ranks_excess(const struct ranks_result *result, size_t row, int64_t *excess_ns) {
  enum ranks_phase worst = RANKS_PHASES;
  uint64_t *others = buf_alloc((result->n + 1) * sizeof *others);
  *excess_ns = 0;
  for (unsigned p = 0; p < RANKS_PHASES; p++) {
    size_t count = 0;
    if (p == RANKS_BACKWARD && result->by_backward) /* waiting is in it */
      continue;
    for (size_t r = 0; r < result->n; r++)
      if (r != row && result->rows[r].steps)
        others[count++] = ordered(result->rows[r].phase_ns[p] / result->rows[r].steps);
    int64_t mine = result->rows[row].steps ? result->rows[row].phase_ns[p] / result->rows[row].steps : 0;
    int64_t more = count ? mine - quantile(others, count, 0.5) : 0;
    if (more > *excess_ns) {
      *excess_ns = more;
      worst = (enum ranks_phase)p;
    }
  }
  free(others);
  return worst;
}
