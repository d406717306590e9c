/* Comparing the ranks of a job: who is slow, and who waits for whom. Pure: arrays in, arrays out; cmd_ranks.c reads them from the store.
 *
 * Ranks are laid beside each other by their collectives: the same number of the same group is the same operation. The last to arrive is
 * the one that the others wait for. On one host clocks agree, so arrivals are compared as they are. Between hosts nothing is believed
 * of clocks but that they run evenly for a while: an operation that all wait for ends on all of them at nearly the same moment, so the median
 * difference of the ends of neighbouring operations is how far the clocks are apart just then.
 *
 * Where gradients are exchanged within `backward` and unseen (DistributedDataParallel), the steps of the same index are laid beside each other: all
 * leave that backward together, so who came last has the shortest.
 */
#ifndef CIRRON_RANKS_H
#define CIRRON_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_NOISE_NS 100000                  /* ranks closer together than this, */
#define RANKS_NOISE_SHARE 50                   /* or than this part of a step (1/50), came together */
#define RANKS_CLOCK_SLACK_NS INT64_C(20000000) /* further apart, clocks of one host do not agree after all */
#define RANKS_CLOCK_WINDOW 31                  /* neighbouring operations that tell how clocks differ */
#define RANKS_NO_NUMBER (-1)

enum ranks_phase { RANKS_DATA, RANKS_FORWARD, RANKS_BACKWARD, RANKS_OPTIMIZER, RANKS_OTHER, RANKS_PHASES };

struct ranks_step {
  int64_t index, start_ns, end_ns;
  int64_t phase_ns[RANKS_PHASES]; /* other: what is left of it, without collectives that lie in no phase */
};

struct ranks_call {
  int64_t number; /* in its group; RANKS_NO_NUMBER: compares with nothing */
  uint32_t group; /* the same number for the same group on all ranks */
  bool meets;     /* all wait for all in it, and the call lasts as long as the operation */
  int64_t start_ns, end_ns;
};

struct ranks_input {
  int64_t rank;
  unsigned host;            /* the same for ranks of one host */
  bool backward_meets;      /* gradients are exchanged in it */
  struct ranks_step *steps; /* by start */
  size_t step_count;
  struct ranks_call *calls; /* in any order; get sorted */
  size_t call_count;
};

struct ranks_row {
  int64_t steps;
  int64_t total_ns, mean_ns, median_ns, p95_ns; /* of its steps */
  int64_t phase_ns[RANKS_PHASES];
  int64_t collective_ns; /* in collectives; where there are steps, within them */
  int64_t waited_ns;     /* for others, in what was compared */
  int64_t caused_ns;     /* the longest that anyone waited for it, added up over steps */
  int64_t last;          /* steps in which it was the slowest */
  size_t waits_most_for; /* index of a row, or its own: for nobody */
};

struct ranks_unit { /* a step; without steps, a collective */
  int64_t index;
  int64_t skew_ns; /* the longest that a rank waited in it for others */
  int64_t step_ns; /* the longest step; 0 without steps */
  int64_t slowest; /* index of the row that was waited for most, or -1: they came together */
  size_t ranks;    /* how many took part */
};

struct ranks_result {
  struct ranks_row *rows; /* as the inputs */
  int64_t *waits;         /* [i * n + j]: how long i waited for j */
  size_t n;
  struct ranks_unit *units; /* by index; those that could be compared */
  size_t unit_count;
  bool by_steps;       /* units are steps */
  int64_t compared;    /* units in which several ranks took part */
  int64_t compared_ns; /* how long they took */
  size_t collectives;  /* operations that were laid beside each other */
  bool by_backward;    /* lengths of backward were compared */
  int64_t skew_median_ns, skew_p95_ns;
  int64_t
      slow; /* index of the row that stands out: slowest in more than half of the units, waited for 5 % of the time; or -1 */
};

void ranks_compare(struct ranks_input *in, size_t n, struct ranks_result *out);
void ranks_fini(struct ranks_result *result);

/* The phase in which a rank spends the most time a step beyond the median of the others, and how much; RANKS_PHASES: none. */
enum ranks_phase ranks_excess(const struct ranks_result *result, size_t row, int64_t *excess_ns);

#endif
