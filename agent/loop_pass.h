/* Passes over loaders: which of those that are unfinished is the epoch? For loop.c.
 *
 * Of passes inside one another the outermost is the epoch, and those inside are none of their own. But an outer pass that gives
 * nothing any more (an iterator that was asked once, to look at a batch, and is kept) must not swallow the epochs of a whole run.
 * So an outer pass that was not asked since something inside it began is set aside: the inner pass is the epoch for the time
 * being, beside it and not below. Asked again, the outer pass is the epoch after all and takes over the inner one's span. If the
 * inner pass ends, and another begins before the outer is asked, it ended when the inner began.
 */
#ifndef CIRRON_LOOP_PASS_H
#define CIRRON_LOOP_PASS_H

#include "loop.h"

/* NULL: not known on this thread. */
struct loop_pass *pass_of(struct loop *l, const void *iterator);
struct loop_pass *pass_of_span(struct loop *l, const struct span *span);

void pass_begin(struct scope *scope, struct loop *l, const void *loader, const void *iterator, uint64_t now);
/* Its iterator is asked. Settles what waited for that. Returns the pass with an open span, if it is to have one; or NULL. */
struct loop_pass *pass_ask(struct scope *scope, struct loop *l, const void *iterator, uint64_t now);
void pass_finish(struct scope *scope, struct loop *l, struct loop_pass *pass, uint64_t end_ns, bool exhausted);
/* The pass's span is the innermost open one: closes it under its name, or takes it back if nothing happened in it. */
void pass_close(struct scope *scope, struct loop_pass *pass, uint64_t end_ns, uint8_t flags);
/* One that ends is told of, if it is an epoch. */
void pass_tell_epoch(const struct span *span);
void pass_forget(struct loop *l, struct loop_pass *pass);

/* Is there a sign that its batch was only looked at: an evaluation, an optimizer made, or another pass over the
 * same loader since? */
bool pass_looked_at(const struct loop *l, const struct loop_pass *pass);

/* Training happens: an earlier pass over the same loader, left without an end, has ended. */
void pass_supersede(struct scope *scope, struct loop *l);
/* An update happened: which pass is the epoch? */
void pass_updated(struct scope *scope, struct loop *l);
/* Ends what waited for a scope to close. */
void pass_settle_waiting(struct scope *scope, struct loop *l, uint64_t end_ns);

/* The index of an evaluation. */
int64_t pass_eval_index(void);

void pass_forget_all(void); /* in the child of a fork: indices start anew */

#endif
