/* JSON in ASCII on its way into a file, for spool*.c: through a small buffer; the first error is kept and ends the writing. */
#ifndef CIRRON_SPOOL_OUT_H
#define CIRRON_SPOOL_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUT_BUFFER 16384u

struct out {
  int fd, error;   /* a negative errno */
  uint64_t prefix; /* of the session, for ids */
  uint64_t written;
  size_t len;
  char buf[OUT_BUFFER];
};

void out_flush(struct out *o);
void out_put(struct out *o, const char *text, size_t len);
void out_puts(struct out *o, const char *text);
void out_putf(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Bytes that are no UTF-8 become U+FFFD. Of text that is JSON already only what is not ASCII is written anew. */
void out_escaped(struct out *o, const char *text, size_t len, bool is_json);
void out_string(struct out *o, const char *text, size_t len);
void out_id(struct out *o, uint64_t id);
/* So that it is read back as the same, whatever the job's locale takes for a decimal point; special ones are strings. */
void out_number(struct out *o, double value);

#endif
