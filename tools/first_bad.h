/* The first snapshot in which a weight or a gradient was not finite, and the last one before it. */
#ifndef CIRRON_FIRST_BAD_H
#define CIRRON_FIRST_BAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "moment.h"
#include "pick.h"
#include "snaps.h"

struct first_bad_tensor {
  char *name, *model, *shape;
  size_t name_len, model_len;
  enum snaps_kind what;
  int64_t count, nans, infs, neg_infs;
  bool torn;
  double good_norm; /* in the last good snapshot; NaN: it was not in it */
};

struct first_bad {
  bool kept; /* the store is one that has snapshots */
  struct snaps_passes passes;
  const struct snaps_pass *pass, *good; /* NULL: none is bad; none is before it. Where none is bad, good is the last. */
  struct moment at, good_at;            /* the steps before them */
  struct first_bad_tensor *tensors;     /* of `pass` those that are bad: gradients, then weights, each in the model's order */
  size_t count;
  /* Of `pass`, or of the last one where none is bad: */
  int64_t records, unread, torn, gradients;
};

void first_bad_find(const struct pick_session *session, struct first_bad *out);
void first_bad_fini(struct first_bad *bad);

/* "head.weight.grad and 3 more of 322 tensors are not finite in the snapshot after epoch 2". There has to be one. */
void first_bad_say(const struct first_bad *bad, bool utf8, struct buf *out);

/* The steps in which it began, as far as two snapshots tell: after step *from, up to and with step *to. False: not known. */
bool first_bad_steps(const struct first_bad *bad, int64_t *from, int64_t *to);

#endif
