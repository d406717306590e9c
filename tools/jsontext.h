/* JSON that lies in the store as text. It came from a traced program and is checked before it is passed on. */
#ifndef CIRRON_JSONTEXT_H
#define CIRRON_JSONTEXT_H

#include <jansson.h>
#include <stddef.h>

#include "buf.h"

/* The text's value, or NULL if it is no JSON of this type. Integers that are too large become reals. */
json_t *jsontext_parse(const char *text, size_t len, json_type type);

/* Adds the text as one line of JSON; where it is not of this type: `instead`. */
void jsontext_add(struct buf *out, const char *text, size_t len, json_type type, const char *instead);

/* Adds a value as one line. */
void jsontext_dump(struct buf *out, const json_t *value);

#endif
