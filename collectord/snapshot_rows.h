/* From a pass to its rows. */
#ifndef CIRRON_SNAPSHOT_ROWS_H
#define CIRRON_SNAPSHOT_ROWS_H

#include <stdbool.h>
#include <stdint.h>

struct pass;
struct session;
struct store;

/* Was the tensor changed before or while it was read? */
bool snapshot_row_torn(const struct pass *pass, uint32_t i);
int snapshot_row_write(const struct session *session, const struct pass *pass, uint32_t i, struct store *store);
/* The row of the pass itself. */
int snapshot_rows_end(const struct session *session, const struct pass *pass, struct store *store);

#endif
