/* From single events to steps, epochs and evaluation passes (rules R6 to R8, docs/spans.md). */
#ifndef CIRRON_LOOP_H
#define CIRRON_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct scope;
struct span;

/* A pass over a loader begins: iter(loader) gave `iterator`. */
void loop_pass_begin(struct scope *scope, const void *loader, const void *iterator);
/* The iterator was exhausted, dropped or is begun anew: its pass ends. Any thread; ends a pass of this thread only. */
void loop_pass_end(const void *iterator);

/* The iterator is asked for an item. Returns the data_load span, or NULL when it is nested in another or nothing is recorded. */
struct span *loop_load_begin(struct scope *scope, const void *iterator);
/* It gave one (or, `handed_out` false, it did not: exhausted or failed; then nothing was loaded). */
void loop_load_end(struct scope *scope, struct span *load, bool handed_out);

void loop_forward(struct scope *scope, bool training);       /* a forward begins */
void loop_backward(struct scope *scope);                     /* a backward begins */
void loop_update_begin(struct scope *scope);                 /* an optimizer's step begins */
void loop_update_end(struct scope *scope, uint64_t end_ns);  /* and has been done */

/* Before a span of the user is closed: ends the steps and passes that were begun inside it. */
void loop_before_pop(struct scope *scope, struct span *span, uint64_t end_ns);
/* At the end of the thread or process: the same for all. */
void loop_end_thread(struct scope *scope, uint64_t end_ns);
void loop_forget(void); /* in the child of a fork */

#endif
