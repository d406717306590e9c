/* See yaml.h. Here: maps and lists in brackets, which may go over several lines. */
#include <string.h>

#include "yaml_own.h"

static struct doc_node *value(struct yaml *y, unsigned depth);

/* Over blanks, line ends and comments. False: the document ends. */
static bool gap(struct yaml *y, unsigned begin) {
  for (;;) {
    y->at += strspn(y->at, " \t");
    if (yaml_comment(y, y->at))
      y->at += strcspn(y->at, "\n");
    if (yaml_at_end(y))
      return doc_fail(y->doc, begin, "the bracket that opens here is not closed");
    if (*y->at != '\n')
      return true;
    yaml_next_line(y);
  }
}

static bool ends_plain(const struct yaml *y) {
  char c = *y->at;
  return yaml_eol(c) || yaml_bracket(c) || yaml_comment(y, y->at) ||
         (c == ':' && (yaml_gap(y->at[1]) || yaml_bracket(y->at[1])));
}

static bool put_line(struct yaml *y) {
  const char *begin = y->at, *end;
  while (!ends_plain(y))
    y->at++;
  for (end = y->at; end > begin && yaml_blank(end[-1]);)
    end--;
  return doc_put(y->doc, begin, (size_t)(end - begin));
}

/* A text without quotes, which may go on in the lines below. */
static bool plain_text(struct yaml *y, struct doc_text *out) {
  size_t from = y->doc->text_used;
  if (!yaml_plain_first(y, true) || !put_line(y))
    return false;
  while (*y->at == '\n') {
    struct yaml below = *y;
    unsigned breaks = 0;
    for (; *below.at == '\n'; below.at += strspn(below.at, " \t"), breaks++)
      yaml_next_line(&below);
    if (yaml_at_end(&below) || ends_plain(&below))
      break;
    *y = below;
    if (!yaml_put_breaks(y->doc, breaks) || !put_line(y))
      return false;
  }
  return doc_text(y->doc, from, out);
}

/* The ',' between two, or the closing bracket: 1, 0, or -1 with an error. */
static int separator(struct yaml *y, char close, unsigned begin) {
  if (!gap(y, begin))
    return -1;
  if (*y->at != ',' && *y->at != close) {
    (void)YAML_FAIL(y, *y->at == ':' && close == ']' ? "pairs in a list have to be put in braces" : "',' or '%c' is expected",
                    close);
    return -1;
  }
  return *y->at++ == ',';
}

static struct doc_node *list(struct yaml *y, unsigned depth) {
  unsigned begin = y->line;
  struct doc_node *node = doc_node(y->doc, DOC_LIST, begin);
  y->at++;
  for (int more = 1; node && more;) {
    if (!gap(y, begin))
      return NULL;
    if (*y->at == ']') {
      y->at++;
      return node;
    }
    struct doc_node *item = value(y, depth + 1);
    more = item ? separator(y, ']', begin) : -1;
    if (more < 0)
      return NULL;
    doc_add(node, item);
  }
  return node;
}

static bool read_key(struct yaml *y, struct doc_text *out) {
  if (*y->at == '"' || *y->at == '\'')
    return yaml_quoted(y, out);
  if (*y->at == '[' || *y->at == '{')
    return YAML_FAIL(y, "a key has to be a text");
  return plain_text(y, out);
}

/* The value behind a key, where there is one. */
static struct doc_node *map_value(struct yaml *y, unsigned begin, unsigned depth) {
  unsigned line = y->line;
  if (!gap(y, begin))
    return NULL;
  if (*y->at == ':') {
    y->at++;
    if (!gap(y, begin))
      return NULL;
    if (*y->at != ',' && *y->at != '}')
      return value(y, depth + 1);
  }
  return doc_node(y->doc, DOC_NULL, line);
}

static struct doc_node *map(struct yaml *y, unsigned depth) {
  unsigned begin = y->line;
  struct doc_node *node = doc_node(y->doc, DOC_MAP, begin);
  y->at++;
  for (int more = 1; node && more;) {
    if (!gap(y, begin))
      return NULL;
    if (*y->at == '}') {
      y->at++;
      return node;
    }
    struct doc_text key;
    unsigned line = y->line;
    if (!read_key(y, &key) || !doc_key_free(y->doc, node, &key, line))
      return NULL;
    struct doc_node *entry = map_value(y, begin, depth);
    more = entry ? separator(y, '}', begin) : -1;
    if (more < 0)
      return NULL;
    entry->key = key;
    doc_add(node, entry);
  }
  return node;
}

static struct doc_node *value(struct yaml *y, unsigned depth) {
  if (*y->at == '[' || *y->at == '{')
    return yaml_flow(y, depth);
  struct doc_node *node = doc_node(y->doc, DOC_TEXT, y->line);
  if (!node)
    return NULL;
  if (*y->at == '"' || *y->at == '\'')
    return yaml_quoted(y, &node->text) ? node : NULL;
  if (!plain_text(y, &node->text))
    return NULL;
  doc_resolve(node);
  return node;
}

struct doc_node *yaml_flow(struct yaml *y, unsigned depth) {
  if (depth > DOC_DEPTH_MAX)
    return YAML_FAIL(y, "values are nested more than %u deep", DOC_DEPTH_MAX);
  return *y->at == '[' ? list(y, depth) : map(y, depth);
}
