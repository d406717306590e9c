/* See module_trace.h.
 *
 * Here what is kept becomes rows of plain Python objects; everything else is the Python half's (module_trace_text.c). The logs are copied
 * first, and then nothing of ours is half done while Python code runs.
 */
#include "module_trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "keep.h"
#include "keep_moves.h"
#include "module_state.h"
#include "module_wrong.h"
#include "open.h"
#include "segment.h"
#include "session.h"

#define TEXTS 256u /* names of which the object is remembered while rows are made */

struct rows {
  const struct session *session;
  PyObject *spans, *marks;
  struct {
    uint32_t id;
    PyObject *text;
  } texts[TEXTS];
};

/* What a log has from *pos on, in memory of its own; without memory, or without anything there: nothing. */
struct copy {
  void *memory;
  size_t bytes, size;
};

static struct copy copy_log(enum keep_log log, uint64_t *pos) {
  static const size_t sizes[KEEP_LOGS] = {KEEP_SPANS_BYTES, KEEP_POINTS_BYTES, KEEP_SUMMARIES_BYTES};
  struct copy c = {.size = sizes[log]};
  c.memory = mmap(NULL, c.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (c.memory == MAP_FAILED)
    return (struct copy){0};
  c.bytes = keep_read(log, pos, c.memory, c.size, NULL);
  return c;
}

static void copy_free(struct copy *c) {
  if (c->memory)
    munmap(c->memory, c->size);
}

static long long wall(const struct rows *rows, uint64_t ns) {
  uint64_t wall_ns = rows->session->anchor_realtime_ns + (ns - rows->session->anchor_monotonic_ns);
  return (long long)wall_ns;
}

/* The text of a name, None for id 0. Borrowed from the table until the next one; NULL with an error. */
static PyObject *name_text(struct rows *rows, uint32_t id) {
  PyObject **text = &rows->texts[id % TEXTS].text;
  if (*text && rows->texts[id % TEXTS].id == id)
    return *text;
  size_t len;
  const char *bytes = segment_text(id, &len);
  PyObject *made = bytes ? py.PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)len, "replace") : module_none();
  module_drop(*text);
  rows->texts[id % TEXTS].id = id;
  return *text = made;
}

/* The same for a span or mark, which always shows one. */
static PyObject *name_of(struct rows *rows, uint32_t id) {
  PyObject *text = name_text(rows, id);
  if (text != py._Py_NoneStruct)
    return text;
  module_drop(text);
  return rows->texts[id % TEXTS].text = py.PyUnicode_InternFromString("");
}

static PyObject *time_or_none(int64_t ns) {
  return ns == SPAN_NO_TIME ? module_none() : py.PyLong_FromLongLong(ns);
}

static PyObject *json_or_none(const char *text, size_t len) {
  return len ? py.PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "replace") : module_none();
}

static const char *mode_of(uint8_t flags) {
  return flags & SPAN_MODE_TRAIN ? "train" : flags & SPAN_MODE_EVAL ? "eval" : NULL;
}

/* Takes over a row. */
static int add(PyObject *list, PyObject *row) {
  int r = row ? py.PyList_Append(list, row) : -1;
  module_drop(row);
  return r;
}

/* `end`: taken over. */
static int add_span(struct rows *rows, const struct ring_span *s, uint32_t tid, PyObject *end, const char *attrs,
                    size_t attrs_len) {
  PyObject *name = name_of(rows, s->name), *module, *exception;
  if (name) /* the table lets go of it when another comes to its place */
    py.Py_IncRef(name);
  module = name_text(rows, s->module);
  if (module)
    py.Py_IncRef(module);
  exception = name_text(rows, s->exception);
  if (exception)
    py.Py_IncRef(exception);
  PyObject *index = s->index == SPAN_NO_INDEX ? module_none() : py.PyLong_FromLongLong(s->index);
  PyObject *error = py.PyBool_FromLong(s->flags & SPAN_ERROR);
  return add(rows->spans,
             py.Py_BuildValue("KKNNLNNNzNNNk", (unsigned long long)s->id, (unsigned long long)s->parent, name, index,
                              wall(rows, s->start_ns), end, time_or_none(s->cpu_ns), json_or_none(attrs, attrs_len),
                              mode_of(s->flags), module, exception, error, (unsigned long)tid));
}

static PyObject *mark_value(const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  if (m->value_type == MARK_FLOAT)
    return py.PyFloat_FromDouble(m->value.f);
  if (m->value_type == MARK_BOOL)
    return py.PyBool_FromLong(m->value.i != 0);
  if (m->value_type == MARK_INT)
    return py.PyLong_FromLongLong(m->value.i);
  return py.PyUnicode_DecodeUTF8(keep_a(r), r->a_len, "replace");
}

static int add_mark(struct rows *rows, const struct keep_record *r) {
  const struct ring_mark *m = &r->as.mark;
  PyObject *name = name_of(rows, m->name);
  return name ? add(rows->marks,
                    py.Py_BuildValue("LKKONs", wall(rows, m->ts_ns), (unsigned long long)m->id, (unsigned long long)m->span,
                                     name, mark_value(r), m->flags & MARK_SUMMARY ? "summary" : "point"))
              : -1;
}

static int add_marks(struct rows *rows, enum keep_log log, uint64_t *pos) {
  struct copy c = copy_log(log, pos);
  const struct keep_record *r;
  int bad = 0;
  for (size_t at = 0; !bad && (r = keep_next(c.memory, c.bytes, &at));)
    bad = add_mark(rows, r);
  copy_free(&c);
  return bad;
}

static bool skipped(const struct module_trace_skip *skip, const struct keep_record *r, uint64_t end) {
  return skip && r->tid == skip->tid && end > skip->from && end <= skip->to;
}

static int add_closed(struct rows *rows, uint64_t *pos, const struct module_trace_skip *skip) {
  struct copy c = copy_log(KEEP_SPANS, pos);
  const struct keep_record *r;
  int bad = 0;
  keep_moves_apply(c.memory, c.bytes, SIZE_MAX);
  for (size_t at = skip ? 0 : keep_shown(c.memory, c.bytes); !bad && (r = keep_next(c.memory, c.bytes, &at));)
    if (r->as.type == RING_SPAN && !skipped(skip, r, *pos - c.bytes + at))
      bad = add_span(rows, &r->as.span, r->tid, py.PyLong_FromLongLong(wall(rows, r->as.span.end_ns)), keep_a(r), r->a_len);
  copy_free(&c);
  return bad;
}

/* What is known of it here only: the attributes of the calling thread's. */
static const struct span *live(uint64_t id) {
  struct scope *scope = scope_peek();
  struct span *s = scope ? scope_top(scope) : NULL;
  while (s && s->id != id)
    s = scope_below(scope, s);
  return s;
}

static int add_open(struct rows *rows, const struct open_span *open, size_t count) {
  int bad = 0;
  for (size_t i = 0; i < count && !bad; i++) {
    const struct span *mine = live(open[i].span.id);
    bad = add_span(rows, &open[i].span, open[i].tid, module_none(), mine ? mine->attrs : NULL, mine ? mine->attrs_len : 0);
  }
  return bad;
}

/* --- trace(format, name, last) --- */

PyObject *module_trace_rows(uint64_t at[KEEP_LOGS], const struct module_trace_skip *skip) {
  struct rows rows = {.session = session_seen(), .spans = py.PyList_New(0), .marks = py.PyList_New(0)};
  int bad = rows.spans && rows.marks ? 0 : -1;
  struct env_ranks ranks = session_ranks();
  unsigned long long prefix = rows.session ? rows.session->prefix : 0;
  if (rows.session && !bad) {
    size_t count = 0;
    struct open_span *open = skip ? NULL : open_spans(&count);
    bad = add_closed(&rows, &at[KEEP_SPANS], skip) || add_open(&rows, open, count) ||
          add_marks(&rows, KEEP_POINTS, &at[KEEP_POINTS]) || add_marks(&rows, KEEP_SUMMARIES, &at[KEEP_SUMMARIES]);
    free(open);
  }
  for (unsigned i = 0; i < TEXTS; i++)
    module_drop(rows.texts[i].text);
  PyObject *data =
      bad ? NULL
          : py.Py_BuildValue("NiiOO", py.PyUnicode_FromFormat("%08x%08x", (unsigned)(prefix >> 32), (unsigned)prefix),
                             (int)getpid(), env_rank(&ranks), rows.spans, rows.marks);
  module_drop(rows.spans);
  module_drop(rows.marks);
  return data;
}

static bool format_known(PyObject *format) {
  static const char *const known[] = {"tree", "dict", "json", "df"};
  for (size_t i = 0; i < sizeof known / sizeof known[0] && module_is(format, py.PyUnicode_Type); i++)
    if (py.PyUnicode_CompareWithASCIIString(format, known[i]) == 0)
      return true;
  const struct module_given given = {.who = "trace", .name = "format", .value = format};
  return module_wrong_word(&given, "'tree', 'dict', 'json' or 'df'");
}

/* `last` as a plain int, new reference; NULL with an error. */
static PyObject *last_of(PyObject *last) {
  const struct module_given given = {.who = "trace", .name = "last", .value = last};
  if (last == py._Py_NoneStruct)
    return module_none();
  PyObject *count = py.PyNumber_Index(last);
  if (count || !py.PyErr_ExceptionMatches(module_error(py.PyExc_TypeError)))
    return count; /* or what its __index__ raised */
  py.PyErr_Clear();
  return module_wrong_type(&given, "a whole number or None");
}

static bool name_known(PyObject *name) {
  const struct module_given given = {.who = "trace", .name = "name", .value = name};
  return name == py._Py_NoneStruct || module_is(name, py.PyUnicode_Type) || module_wrong_type(&given, "a string or None");
}

PyObject *module_trace_half(struct module_state *state, const char *name) {
  if (!state->trace) {
    PyObject *made = module_python(module_trace_text), *before = state->trace; /* compiling can let another thread in */
    if (!made)
      return NULL;
    if (before)
      module_drop(made);
    else
      state->trace = made;
  }
  return py_dict_get(state->trace, name);
}

PyObject *module_trace(PyObject *module, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"format", "name", "last", NULL};
  PyObject *format = NULL, *name = py._Py_NoneStruct, *last = py._Py_NoneStruct;
  if (!py.PyArg_ParseTupleAndKeywords(args, kwargs, "|OOO:trace", names, &format, &name, &last))
    return NULL;
  PyObject *text = format && format != py._Py_NoneStruct ? format : py.PyUnicode_InternFromString("tree");
  if (text == format)
    py.Py_IncRef(text);
  struct module_state *state = py.PyModule_GetState(module);
  PyObject *function = NULL, *count = NULL, *data = NULL, *result = NULL;
  if (text && format_known(text) && name_known(name))
    count = last_of(last);
  if (count)
    function = module_trace_half(state, "trace");
  if (function) {
    (void)keep_start(); /* no memory: what is open is all there is to see */
    uint64_t from_the_oldest[KEEP_LOGS] = {0};
    data = module_trace_rows(from_the_oldest, NULL);
  }
  if (data)
    result = py.PyObject_CallFunctionObjArgs(function, data, text, name, count, state->errors.dependency, NULL);
  module_drop(data);
  module_drop(count);
  module_drop(text);
  return result;
}

PyObject *module_trace_of_handle(PyObject *handle, PyObject *args, PyObject *kwargs) {
  PyObject *module = py.PyObject_GetAttrString(handle, "__cirron__");
  PyObject *result = module ? module_trace(module, args, kwargs) : NULL;
  module_drop(module);
  return result;
}
