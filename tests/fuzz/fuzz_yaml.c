// links: agent/doc.c agent/yaml.c agent/yaml_text.c agent/yaml_flow.c agent/json.c agent/toml.c agent/toml_text.c agent/toml_word.c agent/config_check.c
/* Files of settings, as YAML, as JSON, as TOML, and as cirron.yaml with its rules. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config_check.h"
#include "agent/json.h"
#include "agent/toml.h"
#include "agent/yaml.h"
#include "tests/fuzz/fuzz.h"

static void expect(bool holds) {
  if (!holds)
    abort();
}

static void check_text(const struct doc *doc, const struct doc_text *text) {
  if (*text->bytes == 0 && text->len == 0)
    return;
  expect(text->bytes >= doc->texts && text->bytes + text->len < doc->texts + doc->text_used && text->bytes[text->len] == 0);
}

static unsigned check_node(const struct doc *doc, const struct doc_node *node, unsigned depth, unsigned lines) {
  unsigned count = 0, all = 1;
  expect(depth <= DOC_DEPTH_MAX + 1 && node->line >= 1 && node->line <= lines);
  check_text(doc, &node->text);
  for (const struct doc_node *n = node->first; n; n = n->next, count++) {
    expect((n->key.bytes != NULL) == (node->kind == DOC_MAP));
    if (n->key.bytes)
      check_text(doc, &n->key);
    all += check_node(doc, n, depth + 1, lines);
  }
  expect(count == node->count && (count == 0 || node->kind >= DOC_LIST));
  return all;
}

static void read_one(int (*read)(struct doc *, const char *, size_t), const char *text, size_t len, unsigned lines) {
  static struct doc document;
  struct doc *doc = &document;
  struct config_complaint complaint = {.text = ""};
  doc_init(doc);
  if (read(doc, text, len) == 0) {
    expect(doc->root && !doc->error[0]);
    expect(check_node(doc, doc->root, 0, lines) <= doc->node_count);
    int r = config_check(doc->root, &complaint);
    expect(r == 0 || r == -ENOENT || (complaint.text[0] && !strchr(complaint.text, '\n') && complaint.line <= lines));
    expect(r != 0 || doc_find(doc->root, "name"));
  } else {
    expect(!doc->root && doc->error[0] && !strchr(doc->error, '\n') && doc->error_line <= lines);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  unsigned lines = 1;
  for (size_t i = 0; i < len; i++)
    lines += data[i] == '\n';
  read_one(yaml_read, (const char *)data, len, lines);
  read_one(json_read, (const char *)data, len, lines);
  read_one(toml_read, (const char *)data, len, lines);
  return 0;
}
