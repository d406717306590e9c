/* TOML 1.0, for files of settings: tables, arrays of tables, keys with dots, and all kinds of values. Of 1.1 it takes inline tables that
 * go over several lines or end with a comma, and \e and \x.
 *
 * Dates and times are texts, as they are written. Whatever the bytes are, reading ends after time and memory that DOC_BYTES_MAX bounds.
 */
#ifndef CIRRON_TOML_H
#define CIRRON_TOML_H

#include "doc.h"

/* 0 and doc->root, a map; or -EINVAL and doc->error. The document must be new. */
int toml_read(struct doc *doc, const char *text, size_t len);

#endif
