/* Loops that a framework runs: for as long as one does, it owns the names epoch, step, batch and eval on this stack.
 *
 * What torch sees below (requests, forwards, backwards, updates) are spans, but decides nothing: loop.c stands still while there is a
 * run. A run ends with the framework's function, however that is left, and the names are torch's again. Runs may lie in one another;
 * one that begins in an epoch of another (a callback that fits a model of its own) has neither epochs nor steps, as epochs are
 * siblings. An epoch that the script made by hand keeps the name, too; the steps in it are the framework's.
 *
 * A step or batch begins with the first item that was loaded for it, like those of plain loops, although frameworks say that it begins
 * after that. One that is begun and never ended was none: there were items left over, or none.
 */
#ifndef CIRRON_LOOP_OWN_H
#define CIRRON_LOOP_OWN_H

#include "loop.h"

/* A run begins; of an evaluation this opens its span. Its number, or 0: too many inside one another. */
uint64_t own_begin(struct scope *scope, enum loop_run_kind kind, const void *object);
/* It ends, and with it what began inside and is still there. `exception`: it was left by one, 0 if not. */
void own_end(struct scope *scope, uint64_t number, uint32_t exception);

/* Is it still under way? */
bool own_has(struct scope *scope, uint64_t number);

/* The innermost run, the innermost one that trains; NULL: there is none. Good until a run begins or ends. */
struct loop_run *own_run(struct scope *scope);
struct loop_run *own_training(struct scope *scope);

/* An epoch begins; one that is open ends. SPAN_NO_INDEX: the one after the last. */
void own_epoch_begin(struct scope *scope, struct loop_run *run, int64_t index);
void own_epoch_end(struct scope *scope, struct loop_run *run, uint32_t exception);

/* A step or batch begins, and ends: what was opened by hand at or after `since_ns`, and is open still, is not in it. */
void own_step_begin(struct scope *scope, struct loop_run *run, enum span_kind kind, int64_t index);
void own_step_end(struct scope *scope, struct loop_run *run, uint64_t since_ns);

/* The span that the framework's numbers of now belong to. `*summary`: they are about an epoch or a run as a whole. 0: they are not
 * to be kept. */
uint64_t own_place(struct scope *scope, bool *summary);

/* The same of numbers that are about the run's present epoch. */
uint64_t own_epoch_place(struct scope *scope, const struct loop_run *run);

/* For loop.c. */
struct span *own_load_begin(struct scope *scope);
void own_load_end(struct scope *scope, struct span *load, bool handed_out);
bool own_quiet(struct scope *scope);

#endif
