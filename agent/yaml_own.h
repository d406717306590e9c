/* What the parts of the YAML reader share: yaml.c (indentation), yaml_flow.c (brackets), yaml_text.c (texts). */
#ifndef CIRRON_YAML_OWN_H
#define CIRRON_YAML_OWN_H

#include "yaml.h"

struct yaml {
  const char *at, *line_start; /* in doc->source, which ends with a zero byte and holds no other */
  unsigned line;
  struct doc *doc;
};

#define YAML_FAIL(y, ...) doc_fail((y)->doc, (y)->line, __VA_ARGS__)

static inline bool yaml_blank(char c) {
  return c == ' ' || c == '\t';
}

static inline bool yaml_eol(char c) {
  return c == '\n' || c == 0;
}

static inline bool yaml_gap(char c) { /* ends an indicator such as '-' or ':' */
  return yaml_blank(c) || yaml_eol(c);
}

static inline bool yaml_bracket(char c) {
  return c == ',' || c == '[' || c == ']' || c == '{' || c == '}';
}

static inline int yaml_column(const struct yaml *y) {
  return (int)(y->at - y->line_start);
}

static inline void yaml_next_line(struct yaml *y) { /* at '\n' */
  y->line_start = ++y->at;
  y->line++;
}

/* A '#' here begins a comment: there is a blank before it, or nothing. */
static inline bool yaml_comment(const struct yaml *y, const char *at) {
  return *at == '#' && (at == y->line_start || yaml_blank(at[-1]));
}

/* Is this the begin of a line that ends the document: '---' or '...'? */
bool yaml_marker(const struct yaml *y, const char *at);

/* Goes on to the next value or key, over blanks, comments and empty lines. False: a tab stands in the indentation. */
bool yaml_next_content(struct yaml *y);
bool yaml_at_end(const struct yaml *y); /* of the document */

/* The ':' behind the key that begins here and ends in this line, or NULL: there is none. */
const char *yaml_colon(const struct yaml *y);
const char *yaml_plain_colon(const struct yaml *y); /* where quotes and brackets are only characters */

/* May a text without quotes begin here? Else NULL with a message. `flow`: inside brackets. */
bool yaml_plain_first(struct yaml *y, bool flow);

/* Appends what so many line ends inside a text come to. */
bool yaml_put_breaks(struct doc *doc, unsigned breaks);

/* A text with quotes, at the first one; may go over several lines. Leaves `y` behind the last one. */
bool yaml_quoted(struct yaml *y, struct doc_text *out);

/* Text without quotes, `|` and `>` as values of something that is indented by `parent`. */
struct doc_node *yaml_plain(struct yaml *y, int parent);
struct doc_node *yaml_block_text(struct yaml *y, int parent);

/* '[' or '{' and what is inside. Leaves `y` behind the last bracket. */
struct doc_node *yaml_flow(struct yaml *y, unsigned depth);

#endif
