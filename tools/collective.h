/* What the text beside a `collective` span says (docs/spans.md): "all_reduce", "all_reduce 2[0,4-7]", "recv from 3". It comes from a traced
 * program and may be anything. */
#ifndef CIRRON_COLLECTIVE_H
#define CIRRON_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collective {
  const char *op, *group; /* in the text; group is "world" where it names none */
  size_t op_len, group_len;
  int64_t peer; /* -1: none */
};

void collective_parse(const char *text, size_t len, struct collective *out);

/* Is this rank in the group, by its name? Groups that do not say who is in them hold everybody. */
bool collective_holds(const char *group, size_t len, int64_t rank);

/* Do all ranks of the group wait for all? Else (broadcast, reduce, scatter, gather) some need not, and the lengths say less. */
bool collective_meets(const char *op, size_t len);

#endif
