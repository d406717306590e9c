/* What the parts of the TOML reader share: toml.c (tables, keys, brackets), toml_text.c (texts), toml_word.c (numbers and the like). */
#ifndef CIRRON_TOML_OWN_H
#define CIRRON_TOML_OWN_H

#include "toml.h"

struct toml {
  const char *at; /* in doc->source, which ends with a zero byte and holds no other */
  unsigned line;
  struct doc *doc;
};

#define TOML_FAIL(t, ...) doc_fail((t)->doc, (t)->line, __VA_ARGS__)

/* A text, at its first quote. Leaves `t` behind the last one. `lines`: one with three quotes may be of several lines, else there is none
 * such. False with the error noted. */
bool toml_text(struct toml *t, bool lines, struct doc_text *out);

/* A number, truth value, date or time. Leaves `t` behind it. NULL with the error noted. */
struct doc_node *toml_word(struct toml *t);

#endif
