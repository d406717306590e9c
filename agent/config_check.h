/* The rules of cirron.yaml: which keys have to be there, and what their values may be (docs/settings.md). Needs nothing of Python. */
#ifndef CIRRON_CONFIG_CHECK_H
#define CIRRON_CONFIG_CHECK_H

#include "doc.h"

struct config_complaint {
  unsigned line; /* 0: of no line */
  char text[DOC_ERROR_MAX];
};

/* 0; -EINVAL, and *out says what is wrong, in one line; -ENOENT: the file is of a folder of several projects (`workspace:` and no
 * `name:`) and says nothing about any of them; *out says so, too. */
int config_check(const struct doc_node *root, struct config_complaint *out);

/* The first key of the file that is none of ours, or NULL. */
const struct doc_node *config_unknown(const struct doc_node *root);

/* What a value is, for people: "a list", or as it is written. Good as long as the document. */
const char *config_shown(const struct doc_node *node);

#endif
