/* A document of settings in memory: what cirron.yaml, cirron.json and config.toml are read into.
 *
 * A tree of nodes in one block of memory, made whole and freed whole; no node or text outlives it. All is bounded (DOC_...), and so
 * is the time to read any file. No locks: a document belongs to the thread that made it. Needs nothing of Python.
 */
#ifndef CIRRON_DOC_H
#define CIRRON_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOC_BYTES_MAX 65536u /* of a file */
#define DOC_NODES_MAX 16384u
#define DOC_ENTRIES_MAX 1024u /* of one map: each new key is compared with all before */
#define DOC_DEPTH_MAX 32u
#define DOC_ERROR_MAX 256u

enum doc_kind { DOC_NULL, DOC_BOOL, DOC_INT, DOC_FLOAT, DOC_TEXT, DOC_LIST, DOC_MAP };

struct doc_text { /* UTF-8, a zero byte behind it; may hold zero bytes itself */
  const char *bytes;
  size_t len;
};

struct doc_node {
  enum doc_kind kind;
  unsigned line;                 /* where it begins, from 1 */
  struct doc_text key;           /* in a map; bytes NULL elsewhere */
  struct doc_text text;          /* of all but lists and maps: as it is written */
  int64_t whole;                 /* DOC_INT; DOC_BOOL: 0 or 1 */
  double number;                 /* DOC_FLOAT, DOC_INT */
  struct doc_node *first, *last; /* of a list or map, in the file's order */
  struct doc_node *next;
  unsigned count;
  unsigned note; /* the reader's own, while it reads */
};

struct doc {
  struct doc_node *root; /* NULL: nothing was read, or it failed */
  unsigned error_line;   /* of what is wrong; 0: of no line */
  char error[DOC_ERROR_MAX];
  unsigned node_count;
  size_t text_used;
  struct doc_node nodes[DOC_NODES_MAX];
  char source[DOC_BYTES_MAX + 1];
  char texts[2 * DOC_BYTES_MAX + 2 * DOC_NODES_MAX];
};

struct doc *doc_new(void);      /* NULL: no memory */
void doc_init(struct doc *doc); /* one that lies somewhere already, and is never freed */
void doc_free(struct doc *doc);

/* Notes what is wrong, the first time only, as one line. Always NULL. */
void *doc_fail(struct doc *doc, unsigned line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Copies the text to doc->source, without the mark of byte order and with \n for \r\n. False, with the error noted: it is longer than
 * DOC_BYTES_MAX, no UTF-8, or has control characters. */
bool doc_take(struct doc *doc, const char *text, size_t len);

/* Building: NULL or false where it does not fit or is not allowed, with the error noted. */
struct doc_node *doc_node(struct doc *doc, enum doc_kind kind, unsigned line);
bool doc_put(struct doc *doc, const char *bytes, size_t len);      /* to the text that is being made */
bool doc_put_code(struct doc *doc, uint32_t code);                 /* a Unicode character, as UTF-8 */
bool doc_text(struct doc *doc, size_t from, struct doc_text *out); /* ends it; it began where text_used was `from` */
struct doc_node *doc_entry(const struct doc_node *map, const struct doc_text *key); /* of a map, or NULL */
bool doc_key_free(struct doc *doc, const struct doc_node *map, const struct doc_text *key, unsigned line);
void doc_add(struct doc_node *parent, struct doc_node *child);

/* What a text without quotes stands for: sets kind, whole and number. A whole number beyond 64 bits is a DOC_FLOAT. */
void doc_resolve(struct doc_node *node);

/* The entry of a map, or NULL: there is none, or `map` is no map (NULL included). */
const struct doc_node *doc_find(const struct doc_node *map, const char *key);
bool doc_is(const struct doc_text *text, const char *word);

#endif
