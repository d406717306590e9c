/* Checkpoints on a thread of their own: what is committed goes from the WAL into the database, and is synced, without the thread that
 * writes waiting for the disk.
 *
 * The thread has its own connection and is started by the first call that needs it: most stores never grow a WAL worth one. All
 * functions are called by the store's thread.
 */
#ifndef CIRRON_STORE_CHECKPOINT_H
#define CIRRON_STORE_CHECKPOINT_H

#include <stdbool.h>

struct store_checkpoint;

/* `path` is copied. Returns 0 or -ENOMEM. */
int store_checkpoint_new(const char *path, struct store_checkpoint **out);

/* Asks for a checkpoint and goes on; one that is under way counts. Where no thread can be made it returns a negative errno, and the
 * caller may do the work itself. */
int store_checkpoint_ask(struct store_checkpoint *c);

/* The pages that a reader (or a failing disk) kept in the WAL at the last checkpoint; 0 after one that was complete. */
int store_checkpoint_left(struct store_checkpoint *c);

/* Did the last checkpoint leave only a little, which came during it? True once for each. */
bool store_checkpoint_almost(struct store_checkpoint *c);

/* Waits until the checkpoints that were asked for are over. For tests. */
void store_checkpoint_wait(struct store_checkpoint *c);

/* Ends the thread, after the checkpoint that is under way. Accepts NULL. */
void store_checkpoint_free(struct store_checkpoint *c);

#endif
