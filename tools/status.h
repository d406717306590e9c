/* Who waits for whom in a job that runs: from what each of its ranks has open. Pure; cmd_status.c reads it from the store. */
#ifndef CIRRON_STATUS_H
#define CIRRON_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STATUS_WAIT_NS INT64_C(1000000000) /* open for that long, it counts as waiting */
#define STATUS_NO_NUMBER INT64_MIN

enum status_role {
  STATUS_RUNS,    /* goes on */
  STATUS_WAITS,   /* for other ranks */
  STATUS_LATE,    /* others wait for it */
  STATUS_STALLED, /* and have done so for too long */
  STATUS_ENDED,   /* its process has ended */
  STATUS_MISSING, /* the store does not know it */
};

struct status_rank {
  int64_t rank;
  bool known, running; /* it has a session; which has not ended */
  /* The collective that it is in, group and op borrowed, or op_len 0. */
  const char *op, *group;
  size_t op_len, group_len;
  int64_t number;        /* in the group, or STATUS_NO_NUMBER */
  int64_t peer;          /* the other rank of a send or recv, or -1 */
  int64_t since_ns;      /* its begin, or that of the backward */
  bool backward;         /* it is in one that meets the other ranks, and in no collective */
  int64_t reached;       /* number of the last collective that it ended in the group of the wait, or -1; see status_wait_find */
  enum status_role role; /* found out */
  bool awaited;          /* others wait for it: late, stalled, ended or missing */
};

struct status_wait {
  bool found;
  const struct status_rank *first; /* of those that wait in the same, the one that waits the longest; says in what */
  int64_t since_ns;                /* since when */
  size_t waiting, awaited;
  bool differs; /* ranks have called different operations as the same number of a group: they wait for ever */
};

/* Where most ranks wait. False: nobody does. The caller then fills in `reached` of the ranks that are in no collective, for the group of
 * out->first, if that has a number. */
bool status_wait_find(const struct status_rank *ranks, size_t count, int64_t now_ns, struct status_wait *out);

/* Gives each rank its role. Waiting for longer than patience_ns makes the one that is waited for stalled. */
void status_judge(struct status_rank *ranks, size_t count, int64_t now_ns, int64_t patience_ns, struct status_wait *wait);

const char *status_role_name(enum status_role role);

#endif
