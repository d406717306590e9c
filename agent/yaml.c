/* See yaml.h. Here: maps and lists by indentation, and the document.
 *
 * A value is read where it begins; whoever reads it leaves `y` behind it, in its line or at the beginning of a later one. What comes
 * next belongs to the map or list whose column it stands in; a column that is nobody's is an error.
 */
#include "yaml.h"

#include <errno.h>
#include <string.h>

#include "yaml_own.h"

static struct doc_node *block(struct yaml *y, int parent, unsigned depth);

bool yaml_marker(const struct yaml *y, const char *at) {
  return at == y->line_start && (strncmp(at, "---", 3) == 0 || strncmp(at, "...", 3) == 0) && yaml_gap(at[3]);
}

bool yaml_at_end(const struct yaml *y) {
  return *y->at == 0 || yaml_marker(y, y->at);
}

static void to_eol(struct yaml *y) {
  y->at += strcspn(y->at, "\n");
}

bool yaml_next_content(struct yaml *y) {
  for (;;) {
    const char *spaces = y->at + strspn(y->at, " ");
    const char *at = spaces + strspn(spaces, " \t");
    if (yaml_comment(y, at)) {
      y->at = at;
      to_eol(y);
    } else if (yaml_eol(*at)) {
      y->at = at;
    } else if (at != spaces) {
      return YAML_FAIL(y, "a tab stands in the indentation; use spaces");
    } else {
      y->at = at;
      return true;
    }
    if (*y->at == 0)
      return true;
    yaml_next_line(y);
  }
}

/* Behind a value only a comment may follow in the line. */
static bool end_of_line(struct yaml *y) {
  y->at += strspn(y->at, " \t");
  if (yaml_comment(y, y->at))
    to_eol(y);
  return yaml_eol(*y->at) || YAML_FAIL(y, "unexpected text behind the value: %.20s", y->at);
}

/* --- keys --- */

const char *yaml_plain_colon(const struct yaml *y) {
  for (const char *at = y->at; !yaml_eol(*at) && !yaml_comment(y, at); at++)
    if (*at == ':' && yaml_gap(at[1]))
      return at;
  return NULL;
}

const char *yaml_colon(const struct yaml *y) {
  const char *at = y->at;
  char quote = *at;
  if (quote == '[' || quote == '{')
    return NULL;
  if (quote != '"' && quote != '\'')
    return yaml_plain_colon(y);
  for (at++; *at != quote || (quote == '\'' && at[1] == quote); at++) {
    at += *at == (quote == '"' ? '\\' : '\''); /* escaped, or the first of two */
    if (yaml_eol(*at))
      return NULL;
  }
  at++;
  at += strspn(at, " \t");
  return *at == ':' && yaml_gap(at[1]) ? at : NULL;
}

static bool read_key(struct yaml *y, const char *colon, struct doc_text *out) {
  if (*y->at == '"' || *y->at == '\'')
    return yaml_quoted(y, out);
  if (!yaml_plain_first(y, false))
    return false;
  const char *end = colon;
  while (end > y->at && yaml_blank(end[-1]))
    end--;
  size_t from = y->doc->text_used;
  return doc_put(y->doc, y->at, (size_t)(end - y->at)) && doc_text(y->doc, from, out);
}

static bool is_dash(const struct yaml *y) {
  return *y->at == '-' && yaml_gap(y->at[1]);
}

/* --- values --- */

static struct doc_node *quoted(struct yaml *y) {
  struct doc_node *node = doc_node(y->doc, DOC_TEXT, y->line);
  return node && yaml_quoted(y, &node->text) ? node : NULL;
}

/* A value that begins here, in the line of its key or in one of its own, and is no map or list by indentation. */
static struct doc_node *inline_value(struct yaml *y, int parent, unsigned depth) {
  struct doc_node *node;
  char c = *y->at;
  if (c == '|' || c == '>')
    return yaml_block_text(y, parent);
  if (c == '"' || c == '\'')
    node = quoted(y);
  else if (c == '[' || c == '{')
    node = yaml_flow(y, depth);
  else
    return yaml_plain_first(y, false) ? yaml_plain(y, parent) : NULL;
  return node && end_of_line(y) ? node : NULL;
}

static bool rest_is_empty(struct yaml *y) {
  y->at += strspn(y->at, " \t");
  if (yaml_comment(y, y->at))
    to_eol(y);
  return yaml_eol(*y->at);
}

/* Behind the ':' of a key in column `column`. */
static struct doc_node *map_value(struct yaml *y, int column, unsigned depth) {
  unsigned line = y->line;
  if (!rest_is_empty(y)) {
    if (is_dash(y))
      return YAML_FAIL(y, "a list begins in a line of its own");
    if (yaml_colon(y) && *y->at != '"' && *y->at != '\'')
      return YAML_FAIL(y, "a value that holds ': ' has to be put in quotes");
    return inline_value(y, column, depth);
  }
  if (!yaml_next_content(y))
    return NULL;
  int here = yaml_column(y);
  if (!yaml_at_end(y) && (here > column || (here == column && is_dash(y))))
    return block(y, column, depth);
  return doc_node(y->doc, DOC_NULL, line);
}

static struct doc_node *block_map(struct yaml *y, unsigned depth) {
  int column = yaml_column(y);
  struct doc_node *map = doc_node(y->doc, DOC_MAP, y->line);
  while (map) {
    const char *colon = yaml_colon(y);
    struct doc_text key;
    unsigned line = y->line;
    if (!colon)
      return YAML_FAIL(y, "'key: value' is expected, not %.40s", y->at);
    if (!read_key(y, colon, &key) || !doc_key_free(y->doc, map, &key, line))
      return NULL;
    y->at = colon + 1;
    struct doc_node *value = map_value(y, column, depth + 1);
    if (!value || !yaml_next_content(y))
      return NULL;
    value->key = key;
    doc_add(map, value);
    if (yaml_at_end(y) || yaml_column(y) < column)
      return map;
    if (yaml_column(y) > column)
      return YAML_FAIL(y, "the indentation fits no key above");
  }
  return NULL;
}

/* Behind the '-' in column `column`. */
static struct doc_node *list_item(struct yaml *y, int column, unsigned depth) {
  unsigned line = y->line;
  const char *behind = y->at;
  if (!rest_is_empty(y)) {
    if (!is_dash(y) && !yaml_colon(y))
      return inline_value(y, column, depth);
    if (memchr(behind, '\t', (size_t)(y->at - behind)))
      return YAML_FAIL(y, "a tab stands in the indentation; use spaces");
    return block(y, column, depth);
  }
  if (!yaml_next_content(y))
    return NULL;
  return !yaml_at_end(y) && yaml_column(y) > column ? block(y, column, depth) : doc_node(y->doc, DOC_NULL, line);
}

static struct doc_node *block_list(struct yaml *y, unsigned depth) {
  int column = yaml_column(y);
  struct doc_node *list = doc_node(y->doc, DOC_LIST, y->line);
  while (list) {
    y->at++;
    struct doc_node *item = list_item(y, column, depth + 1);
    if (!item || !yaml_next_content(y))
      return NULL;
    doc_add(list, item);
    if (yaml_at_end(y) || yaml_column(y) < column || (yaml_column(y) == column && !is_dash(y)))
      return list; /* in its own column, the next key of a map that the list belongs to */
    if (yaml_column(y) > column)
      return YAML_FAIL(y, "the indentation fits no item above");
  }
  return NULL;
}

static struct doc_node *block(struct yaml *y, int parent, unsigned depth) {
  if (depth > DOC_DEPTH_MAX)
    return YAML_FAIL(y, "values are nested more than %u deep", DOC_DEPTH_MAX);
  if (is_dash(y))
    return block_list(y, depth);
  if (*y->at == '?' && yaml_gap(y->at[1]))
    return YAML_FAIL(y, "keys that begin with '?' are not supported");
  return yaml_colon(y) ? block_map(y, depth) : inline_value(y, parent, depth);
}

/* --- the document --- */

static bool begin(struct yaml *y) {
  if (!yaml_next_content(y))
    return false;
  if (*y->at == '%' && y->at == y->line_start)
    return YAML_FAIL(y, "directives ('%%...') are not supported");
  if (!yaml_marker(y, y->at))
    return true;
  bool begins = *y->at == '-';
  y->at += 3;
  if (!end_of_line(y) || !yaml_next_content(y))
    return false;
  return begins || *y->at == 0 || YAML_FAIL(y, "there is text behind the end of the document");
}

static bool end(struct yaml *y) {
  if (!yaml_next_content(y))
    return false;
  if (yaml_marker(y, y->at) && *y->at == '.') {
    y->at += 3;
    if (!end_of_line(y) || !yaml_next_content(y))
      return false;
  }
  if (*y->at == 0)
    return true;
  return yaml_marker(y, y->at) ? YAML_FAIL(y, "there is more than one document in the file")
                               : YAML_FAIL(y, "the indentation fits nothing above: %.20s", y->at);
}

int yaml_read(struct doc *doc, const char *text, size_t len) {
  if (!doc_take(doc, text, len))
    return -EINVAL;
  struct yaml y = {.at = doc->source, .line_start = doc->source, .line = 1, .doc = doc};
  if (!begin(&y))
    return -EINVAL;
  struct doc_node *root = yaml_at_end(&y) ? doc_node(doc, DOC_NULL, y.line) : block(&y, -1, 0);
  if (!root || !end(&y))
    return -EINVAL;
  doc->root = root;
  return 0;
}
