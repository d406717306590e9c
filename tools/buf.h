/* Text that grows. Out of memory ends the program: this is a command-line tool and has nothing to save. */
#ifndef CIRRON_BUF_H
#define CIRRON_BUF_H

#include <stddef.h>

struct buf {
  char *data; /* always ended by a zero byte once something was added */
  size_t len, cap;
};

void buf_add(struct buf *buf, const char *text, size_t len);
void buf_puts(struct buf *buf, const char *text);
void buf_putc(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(struct buf *buf);             /* keeps the memory */
void buf_fini(struct buf *buf);              /* accepts a zeroed one */
const char *buf_text(const struct buf *buf); /* "" for one that nothing was added to */

/* malloc, realloc and strdup that end the program instead of failing. */
void *buf_alloc(size_t size);
void *buf_realloc(void *memory, size_t size);
char *buf_strdup(const char *text);

#endif
