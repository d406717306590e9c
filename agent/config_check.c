/* See config_check.h. One table names each key, its kind, and what is allowed. */
#include "config_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum kind { TEXT, WORD, FRACTION, POSITIVE, TEXTS, LIST, TEXT_MAP, MAP, ANY };

struct rule {
  const char *key;
  enum kind kind;
  bool required;
  const char *words; /* of WORD, with bars between */
};

#define SNAPSHOTS "stats|sampled|full|off"

static const struct rule top_rules[] = {
    {"name", TEXT, true, NULL},
    {"framework", WORD, true, "tensorflow|sklearn|onnx|pytorch"},
    {"type", WORD, true, "classification|regression|time-series|embedding|computer-vision"},
    {"version", TEXT, true, NULL},
    {"description", TEXT, false, NULL},
    {"servingConfig", MAP, false, NULL},
    {"serving_config", MAP, false, NULL},
    {"profiling", MAP, false, NULL},
    {"env", TEXT_MAP, false, NULL},
    {"secrets", LIST, false, NULL},
    {"data", TEXT_MAP, false, NULL},
};

static const struct rule profiling_rules[] = {
    {"snapshots", WORD, false, SNAPSHOTS},
    {"sample_rate", FRACTION, false, NULL},
    {"flush_interval", POSITIVE, false, NULL},
    {"frameworks", TEXTS, false, NULL},
};

static const struct rule serving_rules[] = {
    {"runtime", WORD, false, "onnx|sklearn-joblib|pytorch|tensorflow-serving"},
    {"class_labels", LIST, false, NULL},
    {"feature_order", LIST, false, NULL},
    {"input_schema", ANY, false, NULL},
    {"output_schema", ANY, false, NULL},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *config_shown(const struct doc_node *node) {
  switch (node->kind) {
  case DOC_LIST:
    return "a list";
  case DOC_MAP:
    return "a map";
  case DOC_NULL:
    return "nothing";
  default:
    return node->text.bytes;
  }
}

static bool is_number(const struct doc_node *node) {
  return node->kind == DOC_INT || node->kind == DOC_FLOAT;
}

/* A word such as `off` stands for a truth value elsewhere. */
static bool is_word(const struct doc_node *node, const char *words) {
  if (node->kind >= DOC_LIST || node->kind == DOC_NULL)
    return false;
  for (size_t n; *words; words += n + (words[n] == '|')) {
    n = strcspn(words, "|");
    if (node->text.len == n && memcmp(node->text.bytes, words, n) == 0)
      return true;
  }
  return false;
}

/* All entries texts? */
static bool all_texts(const struct doc_node *node, enum doc_kind kind) {
  if (node->kind != kind)
    return false;
  for (const struct doc_node *n = node->first; n; n = n->next)
    if (n->kind != DOC_TEXT)
      return false;
  return true;
}

static bool holds(const struct rule *rule, const struct doc_node *node) {
  switch (rule->kind) {
  case TEXT:
    return node->kind == DOC_TEXT && node->text.len > 0;
  case WORD:
    return is_word(node, rule->words);
  case FRACTION:
    return is_number(node) && node->number >= 0 && node->number <= 1;
  case POSITIVE:
    return is_number(node) && node->number > 0 && node->number < 1e300; /* not without end */
  case TEXTS:
    return all_texts(node, DOC_LIST);
  case LIST:
    return node->kind == DOC_LIST;
  case TEXT_MAP:
    return all_texts(node, DOC_MAP);
  case MAP:
    return node->kind == DOC_MAP;
  case ANY:
    return true;
  }
  return true;
}

static const char *allowed(const struct rule *rule) {
  static const char *const texts[] = {
      [TEXT] = "a text (a number has to be put in quotes)",
      [FRACTION] = "a number from 0 to 1",
      [POSITIVE] = "a number above 0",
      [TEXTS] = "a list of texts",
      [LIST] = "a list",
      [TEXT_MAP] = "a map of texts (numbers have to be put in quotes)",
      [MAP] = "a map",
      [ANY] = "anything",
  };
  return rule->kind == WORD ? rule->words : texts[rule->kind];
}

/* Something that is optional may be there and empty. */
static int check_map(const struct doc_node *map, const char *prefix, const struct rule *rules, size_t n,
                     struct config_complaint *out) {
  for (size_t i = 0; i < n; i++) {
    const struct doc_node *node = doc_find(map, rules[i].key);
    if (!node && rules[i].required) {
      out->line = map->line;
      (void)snprintf(out->text, sizeof out->text, "%s%s is missing", prefix, rules[i].key);
      return -EINVAL;
    }
    if (!node || (node->kind == DOC_NULL && !rules[i].required) || holds(&rules[i], node))
      continue;
    out->line = node->line;
    (void)snprintf(out->text, sizeof out->text, "%s%s must be %s, not %.60s", prefix, rules[i].key, allowed(&rules[i]),
                   config_shown(node));
    for (char *at = out->text; *at; at++)
      if ((unsigned char)*at < 0x20 || *at == 0x7f) /* of a text in quotes or a block */
        *at = '?';
    return -EINVAL;
  }
  return 0;
}

int config_check(const struct doc_node *root, struct config_complaint *out) {
  if (root->kind != DOC_MAP) {
    out->line = root->line;
    (void)snprintf(out->text, sizeof out->text, "the file must be a map of keys and values, not %.60s",
                   root->kind == DOC_TEXT ? "a text" : config_shown(root));
    return -EINVAL;
  }
  if (doc_find(root, "workspace") && !doc_find(root, "name")) {
    out->line = root->line;
    (void)snprintf(out->text, sizeof out->text, "name is missing: the file is of several projects");
    return -ENOENT;
  }
  int r = check_map(root, "", top_rules, COUNT(top_rules), out);
  const struct doc_node *profiling = doc_find(root, "profiling"), *serving = doc_find(root, "servingConfig");
  if (!serving || serving->kind == DOC_NULL)
    serving = doc_find(root, "serving_config");
  if (r == 0)
    r = check_map(profiling, "profiling.", profiling_rules, COUNT(profiling_rules), out);
  return r == 0 ? check_map(serving, "servingConfig.", serving_rules, COUNT(serving_rules), out) : r;
}

const struct doc_node *config_unknown(const struct doc_node *root) {
  for (const struct doc_node *n = root->first; n; n = n->next) {
    size_t i = 0;
    while (i < COUNT(top_rules) && !doc_is(&n->key, top_rules[i].key))
      i++;
    if (i == COUNT(top_rules))
      return n;
  }
  return NULL;
}
