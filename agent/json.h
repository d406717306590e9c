/* JSON (RFC 8259) into a document (doc.h): nothing beyond it is accepted, a key twice is refused. */
#ifndef CIRRON_JSON_H
#define CIRRON_JSON_H

#include "doc.h"

/* 0 and doc->root, or -EINVAL and doc->error. The document must be new. */
int json_read(struct doc *doc, const char *text, size_t len);

#endif
