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

/* A Trainer of transformers trains by torch, so that is where it is seen. */
static bool wants_torch(unsigned bits) {
  return bits & (ENV_TORCH | ENV_TRANSFORMERS);
}

unsigned frameworks_chosen(void) {
  if (!decided) {
    int saved = errno;
    decided = true;
    chosen = from_file(session_env.frameworks);
    torch_set_quiet(!wants_torch(chosen));
    errno = saved;
  }
  return chosen;
}

/* Of those that are there, what is observed. */
static void tell_root(void) {
  root_frameworks(wants_torch(chosen) ? seen : seen & ~(unsigned)ENV_TORCH);
}

bool frameworks_allow(const char *module) {
  if (strncmp(module, "torch", 5) != 0)
    return true;
  unsigned bits = frameworks_chosen();
  seen |= ENV_TORCH;
  tell_root();
  return wants_torch(bits);
}

void frameworks_choose(unsigned bits) {
  bool before = !decided || wants_torch(chosen);
  decided = true;
  chosen = bits;
  torch_set_quiet(!wants_torch(bits));
  tell_root();
  if (!before && wants_torch(bits) && attach_done())
    observe_modules_present();
}
