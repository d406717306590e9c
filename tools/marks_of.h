/* Which marks lie on a span: the numbers of a session's marks, by span. Holds 16 bytes a mark of one session at a time. */
#ifndef CIRRON_MARKS_OF_H
#define CIRRON_MARKS_OF_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

struct marks_of_pair {
  uint64_t span, mark;
};

struct marks_of {
  int64_t sid; /* 0: nothing loaded */
  struct marks_of_pair *pairs;
  size_t count, cap;
};

/* The marks on a span, in order; *count of them. Good until the next call. Loads the session if it is another than before. */
const struct marks_of_pair *marks_of_span(struct marks_of *marks, sqlite3 *db, int64_t sid, uint64_t span, size_t *count);
void marks_of_fini(struct marks_of *marks);

#endif
