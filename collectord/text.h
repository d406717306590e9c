/* Texts that come from a traced process, made fit for the store: UTF-8 and JSON. */
#ifndef CIRRON_TEXT_H
#define CIRRON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct text_bytes {
  const void *data;
  size_t len;
};

/* Is it one JSON object in valid UTF-8 and nothing else? */
bool text_is_json_object(const char *text, size_t len);

/* A copy that ends at the first zero byte and in which what is not UTF-8 is replaced by U+FFFD; from malloc, NULL: no memory. */
char *text_utf8(struct text_bytes in);

/* Writes a JSON string; what is not UTF-8 becomes U+FFFD. */
void text_json_string(FILE *out, struct text_bytes in);

#endif
