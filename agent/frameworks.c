/* See frameworks.h. */
#include "frameworks.h"

#include <errno.h>
#include <string.h>

#include "attach.h"
#include "config_file.h"
#include "observe.h"
#include "root.h"
#include "session.h"
#include "torch.h"

static bool decided;
static unsigned chosen, seen;

static unsigned bits_of(const struct doc_node *list) {
  unsigned bits = 0;
  for (const struct doc_node *n = list->first; n; n = n->next)
    bits |= env_framework(n->text.bytes, n->text.len);
  return bits;
}

/* What the file says, else `otherwise`. */
static unsigned from_file(unsigned otherwise) {
  char path[PATH_MAX];
  struct config_complaint why = {0};
  struct doc *doc = NULL;
  int r = config_find(NULL, path);
  if (r == 0)
    r = config_load(path, &doc, &why);
  if (r != 0) {
    if (r != -ENOENT && why.text[0])
      env_complain("%s:%u: %s; the file is not used", path, why.line, why.text);
    return otherwise;
  }
  const struct doc_node *list = doc_find(doc_find(doc->root, "profiling"), "frameworks");
  unsigned bits = list && list->kind == DOC_LIST ? bits_of(list) : otherwise;
  doc_free(doc);
  return bits;
}

/* Packages, and which of the settings' words want them: a Trainer of transformers or Lightning trains by torch, so that is seen below it,
 * and Keras is what tensorflow is trained by. */
static const struct package {
  const char *name;
  unsigned bit, wanted_by;
} packages[] = {
    /* clang-format off */
    {"transformers", ENV_TRANSFORMERS, ENV_TRANSFORMERS},
    {"lightning", ENV_LIGHTNING, ENV_LIGHTNING},
    {"pytorch_lightning", ENV_LIGHTNING, ENV_LIGHTNING},
    {"keras", ENV_KERAS, ENV_KERAS | ENV_TENSORFLOW},
    {"tf_keras", ENV_KERAS, ENV_KERAS | ENV_TENSORFLOW},
    {"torch", ENV_TORCH, ENV_TORCH | ENV_TRANSFORMERS | ENV_LIGHTNING},
    /* clang-format on */
};
#define PACKAGES (sizeof packages / sizeof packages[0])

/* The bits of the packages that are wanted. */
static unsigned wanted(unsigned bits) {
  unsigned found = 0;
  for (unsigned i = 0; i < PACKAGES; i++)
    found |= bits & packages[i].wanted_by ? packages[i].bit : 0;
  return found;
}

static void choose(unsigned bits) {
  decided = true;
  chosen = bits;
  torch_set_quiet(!(wanted(bits) & ENV_TORCH));
  root_frameworks(wanted(bits) & seen);
}

unsigned frameworks_chosen(void) {
  if (!decided) {
    int saved = errno;
    decided = true; /* the file's complaints, if there are any, are made once */
    choose(from_file(session_env.frameworks));
    errno = saved;
  }
  return chosen;
}

bool frameworks_allow(const char *module) {
  for (unsigned i = 0; i < PACKAGES; i++) {
    size_t len = strlen(packages[i].name);
    if (strncmp(module, packages[i].name, len) != 0 || (module[len] != '.' && module[len]))
      continue;
    unsigned now = wanted(frameworks_chosen());
    if (module[len]) /* of the package alone nothing is observed */
      seen |= packages[i].bit;
    root_frameworks(now & seen);
    return now & packages[i].bit;
  }
  return true;
}

void frameworks_choose(unsigned bits) {
  unsigned before = wanted(decided ? chosen : ENV_FRAMEWORKS_ALL);
  choose(bits);
  if (wanted(bits) & ~before && attach_done())
    observe_modules_present();
}

const char *frameworks_name(unsigned i) {
  return i < PACKAGES ? packages[i].name : NULL;
}
