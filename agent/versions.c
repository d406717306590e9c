/* See versions.h. */
#include "versions.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../proto/ring_abi.h"
#include "env.h"
#include "py.h"
#include "segment.h"
#include "session.h"

/* First and last version that the tests were run with, by hand or always (docs/testing.md). Only the first two numbers count. */
static struct known {
  struct version version;
  bool by_use; /* nothing of it itself is observed: versions_used */
  bool met;    /* its body, or that of a module of the tables, has run */
  bool used;
  bool said;    /* on stderr, in this process or one that it was forked from */
  bool changed; /* since the last mark of this session */
} known[] = {
    /* clang-format off */
    {.version = {"transformers", "4.41", "5.24"}},
    {.version = {"lightning", "2.0", "2.6"}},
    {.version = {"pytorch_lightning", "2.0", "2.6"}},
    {.version = {"keras", "2.13", "3.15"}},
    {.version = {"tf_keras", "2.15", "2.21"}},
    {.version = {"tensorflow", "2.15", "2.21"}, .by_use = true},
    {.version = {"torch", "1.13", "2.13"}},
    {.version = {"sklearn", "1.3", "1.9"}, .by_use = true},
    /* clang-format on */
};
#define KNOWN (sizeof known / sizeof known[0])

static const struct probe packages[] = {{.module = "transformers"}, {.module = "lightning"}, {.module = "pytorch_lightning"},
                                        {.module = "keras"},        {.module = "tf_keras"},  {.module = "tensorflow"},
                                        {.module = "torch"},        {.module = "sklearn"}};

static struct known *find(const char *module) {
  for (unsigned i = 0; i < KNOWN; i++) {
    size_t len = strlen(known[i].version.package);
    if (strncmp(module, known[i].version.package, len) == 0 && (module[len] == '.' || !module[len]))
      return &known[i];
  }
  return NULL;
}

/* --- numbers ------------------------------------------------------------------------------------------------------------- */

/* "4.41.0rc1" -> 4041; -1: it does not begin with two numbers. */
static long rank_of(const char *text) {
  long numbers[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 3)
      return -1;
    for (size_t at = 0; at < digits; at++)
      numbers[i] = 10 * numbers[i] + (text[at] - '0');
    if (i == 0 && text[digits] != '.')
      return -1;
    text += digits + 1;
  }
  return numbers[0] * 1000 + numbers[1];
}

static void judge(struct version *v) {
  long rank = rank_of(v->text);
  v->untested = rank < rank_of(v->from) || rank > rank_of(v->to);
}

/* What may stand in a version; so it needs no care in JSON and on a terminal. */
static size_t version_span(const char *text) {
  size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-_!");
  return n < VERSION_TEXT_MAX ? n : VERSION_TEXT_MAX - 1;
}

/* module.__version__ from its dictionary, or from where a lazy module of transformers has it. Borrowed or NULL. */
static PyObject *version_in(PyObject *dict) {
  PyObject *value = py_dict_get(dict, "__version__");
  PyObject *objects = value ? NULL : py_dict_get(dict, "_objects");
  if (objects && (void *)py_type(objects) == py.PyDict_Type)
    value = py_dict_get(objects, "__version__");
  return value;
}

static void read_version(struct known *k) {
  PyObject *module = k->version.text[0] ? NULL : py_module(k->version.package);
  PyObject *name = module ? py.PyUnicode_InternFromString("__dict__") : NULL;
  PyObject *dict = name ? py.PyObject_GenericGetAttr(module, name) : NULL;
  PyObject *value = dict && (void *)py_type(dict) == py.PyDict_Type ? version_in(dict) : NULL;
  bool text = value && ((void *)py_type(value) == py.PyUnicode_Type || py.PyType_IsSubtype(py_type(value), py.PyUnicode_Type));
  const char *bytes = text ? py.PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
  if (bytes && bytes[0]) {
    memcpy(k->version.text, bytes, version_span(bytes));
    judge(&k->version);
    k->changed = true;
  }
  PyObject *owned[] = {module, name, dict};
  for (unsigned i = 0; i < 3; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  py.PyErr_Clear();
}

/* --- what is said -------------------------------------------------------------------------------------------------------- */

bool version_is_odd(const struct version *version) {
  return version->untested || version->missing_count;
}

struct text {
  char bytes[4096];
  size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->bytes + t->len, sizeof t->bytes - t->len, format, args);
  va_end(args);
  if (n > 0 && t->len + (size_t)n < sizeof t->bytes)
    t->len += (size_t)n;
  t->bytes[t->len] = 0; /* what has no room is left out whole */
}

static void mark(struct scope *scope, struct known *k) {
  const struct version *v = &k->version;
  struct text name = {.len = 0}, attrs = {.len = 0};
  put(&name, "%s %s", v->package, v->text);
  put(&attrs, "{\"package\":\"%s\",\"version\":\"%s\",\"tested\":\"%s to %s\",\"in_range\":%s,\"observed\":%u,\"missing\":[",
      v->package, v->text, v->from, v->to, v->untested ? "false" : "true", v->observed);
  for (unsigned i = 0; i < v->named; i++)
    put(&attrs, "%s\"%s:%s\"", i ? "," : "", v->missing[i]->module, v->missing[i]->qualname);
  put(&attrs, "]}");
  struct scope_value value = {.type = MARK_STRING, .text = name.bytes, .text_len = name.len};
  scope_mark(scope, segment_name(FRAMEWORK_MARK, strlen(FRAMEWORK_MARK)), &value, false, attrs.bytes, attrs.len);
  k->changed = false;
}

/* Nobody reads eight times what eight ranks of a job say. */
static bool first_rank(void) {
  struct env_ranks ranks = session_ranks();
  return env_rank(&ranks) == 0;
}

static void say(struct scope *scope) {
  struct text line = {.len = 0};
  for (struct known *k = known; k < known + KNOWN; k++) {
    bool counts = k->met && (k->used || !k->by_use);
    if (!counts || !version_is_odd(&k->version))
      continue;
    if (k->changed)
      mark(scope, k);
    if (k->version.untested && !k->said)
      put(&line, "%s%s %s (%s to %s were)", line.len ? ", " : "", k->version.package, k->version.text, k->version.from,
          k->version.to);
    k->said = k->said || k->version.untested;
  }
  if (line.len && first_rank())
    env_complain("not tested with %s: what fits is recorded; cirron-query report and ci.health() say what does not",
                 line.bytes);
}

/* Nothing is said of a process in which nothing is recorded, as a loader's workers. */
static void look(struct scope *scope) {
  if (scope && !session_is_worker())
    say(scope);
}

static void begun(struct scope *scope) {
  if (py_in_main())
    look(scope);
}

/* --- what observe.c tells ------------------------------------------------------------------------------------------------ */

static void found(const struct probe *probe, int result) {
  struct known *k = find(probe->module);
  struct version *v = k ? &k->version : NULL;
  unsigned at = 0;
  if (!v || result == -EALREADY)
    return;
  while (at < v->named && v->missing[at] != probe)
    at++;
  bool listed = at < v->named;
  if (result == 0) {
    v->observed++;
    if (listed) { /* the module has run once more, and has it now */
      v->missing[at] = v->missing[--v->named];
      v->missing_count--;
    }
  } else if (!listed && !(result == -ENOENT && probe->optional)) {
    if (v->named < VERSION_MISSING_MAX)
      v->missing[v->named++] = probe;
    v->missing_count++;
  } else {
    return;
  }
  k->changed = true;
}

void versions_used(const char *package) {
  struct known *k = find(package);
  if (!k || k->used)
    return;
  k->used = true;
  look(scope_peek());
}

static void ran(const char *module) {
  struct known *k = find(module);
  if (!k)
    return;
  k->met = true;
  read_version(k);
  if (strstr(module, ".backend.tensorflow.") || strstr(module, ".engine.training")) /* of Keras 3 and 2 */
    versions_used("tensorflow");
  if (k->version.text[0])
    look(scope_peek());
}

const struct version *versions_at(unsigned i, bool *more) {
  *more = i < KNOWN;
  if (!*more || !known[i].met)
    return NULL;
  read_version(&known[i]);
  return &known[i].version;
}

void versions_start(void) {
  observe_add(packages, sizeof packages / sizeof packages[0]);
  observe_found = found;
  observe_ran = ran;
  scope_begun = begun;
}

void versions_forget(void) {
  for (unsigned i = 0; i < KNOWN; i++)
    known[i].changed = true;
}
