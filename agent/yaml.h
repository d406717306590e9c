/* YAML as files of settings use it: maps and lists, by indentation or in brackets; texts plain, quoted, or as blocks (| and >);
 * comments; one document. Numbers and truth values are those of YAML 1.2, and yes, no, on, off.
 *
 * Refused, each with a message of its own: anchors, aliases and tags; keys that are no text; tabs in the indentation; a key twice;
 * directives; several documents. Whatever the bytes are, reading ends after time and memory that DOC_BYTES_MAX bounds.
 */
#ifndef CIRRON_YAML_H
#define CIRRON_YAML_H

#include "doc.h"

/* 0 and doc->root, or -EINVAL and doc->error. The document must be new. An empty file is a DOC_NULL. */
int yaml_read(struct doc *doc, const char *text, size_t len);

#endif
