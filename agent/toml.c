/* See toml.h. Here: the document, tables, keys and brackets.
 *
 * A table may be made by its own header, on the way to another one's, by a key with dots, or in braces, and only some of them
 * may be added to later: doc_node.note of each map and list says which it is.
 */
#include "toml.h"

#include <errno.h>
#include <string.h>

#include "toml_own.h"

enum note {
  ON_THE_WAY, /* to another table: its own header may still come */
  HEADER,     /* [table] or [[table]] */
  DOTTED,     /* a.b = 1 makes a table of `a` */
  CLOSED,     /* {...}, and [...] */
  TABLES,     /* a list of tables, by [[...]] */
};

struct place { /* a table, and how deep it lies */
  struct doc_node *map;
  unsigned depth;
};

static struct doc_node *value(struct toml *t, unsigned depth);

static void blanks(struct toml *t) {
  t->at += strspn(t->at, " \t");
}

static void comment(struct toml *t) {
  if (*t->at == '#')
    t->at += strcspn(t->at, "\n");
}

/* Over blanks, comments and line ends, to what comes next. */
static char gap(struct toml *t) {
  for (;;) {
    blanks(t);
    comment(t);
    if (*t->at != '\n')
      return *t->at;
    t->at++;
    t->line++;
  }
}

static bool end_of_line(struct toml *t) {
  blanks(t);
  comment(t);
  return *t->at == '\n' || *t->at == 0 || TOML_FAIL(t, "unexpected text at the end of the line: %.20s", t->at);
}

static bool deep(struct toml *t, unsigned depth) {
  return depth > DOC_DEPTH_MAX && !TOML_FAIL(t, "values are nested more than %u deep", DOC_DEPTH_MAX);
}

/* --- keys --- */

static bool key_part(struct toml *t, struct doc_text *out) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  size_t len = strspn(t->at, plain), from = t->doc->text_used;
  if (*t->at == '"' || *t->at == '\'')
    return toml_text(t, false, out);
  if (len == 0)
    return TOML_FAIL(t, "a key is expected, of letters, digits, '_' and '-', or in quotes");
  const char *begin = t->at;
  t->at += len;
  return doc_put(t->doc, begin, len) && doc_text(t->doc, from, out);
}

/* A new map or list of this name. */
static struct doc_node *add(struct toml *t, struct doc_node *map, const struct doc_text *key, enum doc_kind kind,
                            enum note note) {
  struct doc_node *node = doc_key_free(t->doc, map, key, t->line) ? doc_node(t->doc, kind, t->line) : NULL;
  if (!node)
    return NULL;
  node->key = *key;
  node->note = note;
  doc_add(map, node);
  return node;
}

/* The table that this part of a key leads to, made where there is none. `how`: on the way to a header's table, or by dots. */
static bool step(struct toml *t, struct place *at, const struct doc_text *key, enum note how) {
  struct doc_node *there = doc_entry(at->map, key);
  if (deep(t, ++at->depth))
    return false;
  if (!there) {
    at->map = add(t, at->map, key, DOC_MAP, how);
    return at->map != NULL;
  }
  if (how == ON_THE_WAY && there->note == TABLES && !deep(t, ++at->depth))
    there = there->last;
  bool map = there->kind == DOC_MAP;
  if (map && how == DOTTED && there->note == ON_THE_WAY)
    there->note = DOTTED;
  at->map = there;
  return (map && (how == DOTTED ? there->note == DOTTED : there->note != CLOSED)) ||
         TOML_FAIL(t, "the key '%.60s' of line %u cannot be added to", key->bytes, there->line);
}

/* Reads a key and goes to the table that its last part, *out, belongs to. */
static bool key_path(struct toml *t, struct place *at, enum note how, struct doc_text *out) {
  while (key_part(t, out)) {
    blanks(t);
    if (*t->at != '.')
      return true;
    t->at++;
    blanks(t);
    if (!step(t, at, out, how))
      return false;
  }
  return false;
}

/* key = value */
static bool entry(struct toml *t, struct place at) {
  struct doc_text key;
  unsigned line = t->line;
  if (!key_path(t, &at, DOTTED, &key))
    return false;
  if (*t->at != '=')
    return TOML_FAIL(t, "'=' is expected behind a key");
  t->at++;
  blanks(t);
  struct doc_node *node = doc_key_free(t->doc, at.map, &key, line) ? value(t, at.depth + 1) : NULL;
  if (!node)
    return false;
  node->key = key;
  doc_add(at.map, node);
  return true;
}

/* --- brackets --- */

/* Goes on to what is next in the bracket that began in line `begin`: 1: an entry, 0: its end, which is passed over, -1 with an error. */
static int next(struct toml *t, char close, unsigned begin) {
  char c = gap(t);
  if (c == 0)
    return (void)doc_fail(t->doc, begin, "the bracket that begins here has no end"), -1;
  t->at += c == close;
  return c != close;
}

/* The same behind an entry. */
static int next_after(struct toml *t, char close, unsigned begin) {
  char c = gap(t);
  if (c != ',')
    return c == close || c == 0 ? next(t, close, begin)
                                : ((void)TOML_FAIL(t, "',' or '%c' is expected, not %.20s", close, t->at), -1);
  t->at++;
  return next(t, close, begin);
}

static struct doc_node *array(struct toml *t, unsigned depth) {
  struct doc_node *list = doc_node(t->doc, DOC_LIST, t->line);
  unsigned begin = t->line;
  t->at++;
  int more = list ? next(t, ']', begin) : -1;
  while (more > 0) {
    struct doc_node *item = value(t, depth + 1);
    if (!item)
      return NULL;
    doc_add(list, item);
    more = next_after(t, ']', begin);
  }
  return more < 0 ? NULL : list;
}

static struct doc_node *inline_table(struct toml *t, unsigned depth) {
  struct doc_node *map = doc_node(t->doc, DOC_MAP, t->line);
  unsigned begin = t->line;
  t->at++;
  int more = map ? next(t, '}', begin) : -1;
  while (more > 0)
    more = entry(t, (struct place){.map = map, .depth = depth}) ? next_after(t, '}', begin) : -1;
  return more < 0 ? NULL : map;
}

static struct doc_node *value(struct toml *t, unsigned depth) {
  struct doc_node *node;
  if (deep(t, depth))
    return NULL;
  if (*t->at == '[' || *t->at == '{') {
    node = *t->at == '[' ? array(t, depth) : inline_table(t, depth);
    if (node)
      node->note = CLOSED;
    return node;
  }
  if (*t->at != '"' && *t->at != '\'')
    return toml_word(t);
  node = doc_node(t->doc, DOC_TEXT, t->line);
  return node && toml_text(t, true, &node->text) ? node : NULL;
}

/* --- tables --- */

/* The one that [key] begins. */
static struct doc_node *begin_table(struct toml *t, struct doc_node *map, const struct doc_text *key) {
  struct doc_node *there = doc_entry(map, key);
  if (!there || there->kind != DOC_MAP || there->note != ON_THE_WAY)
    return add(t, map, key, DOC_MAP, HEADER);
  there->note = HEADER;
  return there;
}

/* The one that [[key]] begins. */
static struct doc_node *begin_item(struct toml *t, struct doc_node *map, const struct doc_text *key) {
  struct doc_node *list = doc_entry(map, key);
  if (!list || list->note != TABLES)
    list = add(t, map, key, DOC_LIST, TABLES);
  struct doc_node *item = list ? doc_node(t->doc, DOC_MAP, t->line) : NULL;
  if (!item)
    return NULL;
  item->note = HEADER;
  doc_add(list, item);
  return item;
}

/* [a.b] or [[a.b]]: where the entries of the lines below go. */
static bool header(struct toml *t, struct doc_node *root, struct place *out) {
  struct place at = {.map = root};
  struct doc_text key;
  bool item = t->at[1] == '[';
  t->at += item ? 2 : 1;
  blanks(t);
  if (!key_path(t, &at, ON_THE_WAY, &key))
    return false;
  if (strncmp(t->at, "]]", item ? 2 : 1) != 0)
    return TOML_FAIL(t, "'%s' is expected behind the name of a table", item ? "]]" : "]");
  t->at += item ? 2 : 1;
  out->map = item ? begin_item(t, at.map, &key) : begin_table(t, at.map, &key);
  out->depth = at.depth + (item ? 2 : 1);
  return out->map && !deep(t, out->depth) && end_of_line(t);
}

int toml_read(struct doc *doc, const char *text, size_t len) {
  if (!doc_take(doc, text, len))
    return -EINVAL;
  struct toml t = {.at = doc->source, .line = 1, .doc = doc};
  struct place here = {.map = doc_node(doc, DOC_MAP, 1)};
  struct doc_node *root = here.map;
  bool good = root != NULL;
  while (good && gap(&t) != 0)
    good = *t.at == '[' ? header(&t, root, &here) : entry(&t, here) && end_of_line(&t);
  if (!good)
    return -EINVAL;
  doc->root = root;
  return 0;
}
