/* Attributes as JSON.
 *
 * Truth values, numbers, texts and None as they are; NaN and the infinities as the strings "NaN", "Infinity", "-Infinity"; lists,
 * tuples and dicts of these; everything else as a number if it is one (module_value), else as its str(). Whole numbers beyond 64
 * bits are written as strings, because few readers take them.
 * What is too long is shortened: texts are cut at a character, a list or dict for which there is no room, or which lies too deep,
 * becomes "<list of 5000>". Only when not even that fits is an entry left out, and "cirron.left_out" says how many were.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "module_state.h"
#include "utf8.h"

#define MAX_DEPTH 8
#define TEXT_BYTES 4096u /* of a str */
#define STR_BYTES 1024u  /* of the str() of something else */
#define KEY_BYTES 256u
#define MANY 4096      /* items: no list this long has room */
#define TAIL_BYTES 40u /* for the count of what was left out, and the closing brace */

static int put_value(struct module_json *json, PyObject *value, int depth);

static int put(struct module_json *json, const char *text, size_t len) {
  if ((size_t)(json->end - json->at) < len)
    return -ENOSPC;
  memcpy(json->at, text, len);
  json->at += len;
  return 0;
}

static int put_escaped(struct module_json *json, unsigned char c) {
  static const char names[] = "\bb\ff\nn\rr\tt\"\"\\\\";
  for (const char *n = names; *n; n += 2)
    if ((unsigned char)*n == c)
      return put(json, (char[]){'\\', n[1]}, 2);
  char code[8];
  return put(json, code, (size_t)snprintf(code, sizeof code, "\\u%04x", c));
}

static int put_text(struct module_json *json, const char *text, size_t len) {
  int r = put(json, "\"", 1);
  for (size_t i = 0, plain = 0; i < len && r == 0; i += 1 + plain) {
    for (plain = 0; i + plain < len; plain++) {
      unsigned char c = (unsigned char)text[i + plain];
      if (c < 0x20 || c == '"' || c == '\\')
        break;
    }
    r = put(json, text + i, plain);
    if (r == 0 && i + plain < len)
      r = put_escaped(json, (unsigned char)text[i + plain]);
  }
  return r ? r : put(json, "\"", 1);
}

/* Not more than so many bytes of it. */
static int put_cut(struct module_json *json, const char *text, size_t len, size_t max) {
  json->changed = json->changed || len > max;
  return put_text(json, text, utf8_cut(text, len, max));
}

static int put_string(struct module_json *json, PyObject *string, size_t max) {
  struct module_text text;
  if (!module_text(string, &text)) {
    json->changed = true;
    return put(json, "null", 4);
  }
  int r = put_cut(json, text.text, text.len, max);
  module_text_drop(&text);
  return r;
}

/* Anything as its str(), or its class name where that fails. */
static int put_str(struct module_json *json, PyObject *value, size_t max) {
  PyObject *string = py.PyObject_Str(value);
  json->changed = true;
  if (string) {
    int r = put_string(json, string, max);
    py.Py_DecRef(string);
    return r;
  }
  if (!module_swallow())
    return -ECANCELED;
  char text[STR_BYTES];
  int len = snprintf(text, sizeof text, "<%s>", py_class_name(value));
  return put_text(json, text, len < (int)sizeof text ? (size_t)len : sizeof text - 1);
}

static int put_float(struct module_json *json, double value) {
  if (value != value)
    return put(json, "\"NaN\"", 5);
  if (value - value != 0)
    return value > 0 ? put(json, "\"Infinity\"", 10) : put(json, "\"-Infinity\"", 11);
  char *digits = py.PyOS_double_to_string(value, 'r', 0, 2 /* Py_DTSF_ADD_DOT_0 */, NULL);
  if (!digits) {
    py.PyErr_Clear();
    return put(json, "null", 4);
  }
  int r = put(json, digits, strlen(digits));
  py.PyMem_Free(digits);
  return r;
}

static int put_int(struct module_json *json, int64_t value) {
  char digits[24], *at = digits + sizeof digits;
  uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
  do
    *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0)
    *--at = '-';
  return put(json, at, (size_t)(digits + sizeof digits - at));
}

static int put_scalar(struct module_json *json, PyObject *value) {
  struct scope_value scalar;
  struct module_text text;
  int r = module_value(value, &scalar, &text);
  if (r == -ECANCELED)
    return r;
  if (r < 0)
    return put_str(json, value, STR_BYTES);
  if (scalar.type == MARK_STRING)
    r = put_cut(json, scalar.text, scalar.text_len, TEXT_BYTES);
  else if (scalar.type == MARK_FLOAT)
    r = put_float(json, scalar.f);
  else if (scalar.type == MARK_BOOL)
    r = scalar.i ? put(json, "true", 4) : put(json, "false", 5);
  else
    r = put_int(json, scalar.i);
  module_text_drop(&text);
  return r;
}

/* str() of the value may run anything, so loops go over copies that nobody else has. */
static int put_items(struct module_json *json, PyObject *tuple, int depth) {
  Py_ssize_t n = py.PyTuple_Size(tuple);
  int r = put(json, "[", 1);
  for (Py_ssize_t i = 0; i < n && r == 0; i++) {
    r = i ? put(json, ",", 1) : 0;
    if (r == 0)
      r = put_value(json, py.PyTuple_GetItem(tuple, i), depth);
  }
  return r ? r : put(json, "]", 1);
}

static int put_member(struct module_json *json, PyObject *key, PyObject *value, int depth) {
  int r = module_is(key, py.PyUnicode_Type) ? put_string(json, key, KEY_BYTES) : put_str(json, key, KEY_BYTES);
  if (r == 0)
    r = put(json, ":", 1);
  return r ? r : put_value(json, value, depth);
}

static int put_members(struct module_json *json, PyObject *pairs, int depth) {
  Py_ssize_t n = py.PyObject_Size(pairs);
  int r = put(json, "{", 1);
  for (Py_ssize_t i = 0; i < n && r == 0; i++) {
    PyObject *pair = py.PyList_GetItem(pairs, i);
    r = i ? put(json, ",", 1) : 0;
    if (r == 0)
      r = put_member(json, py.PyTuple_GetItem(pair, 0), py.PyTuple_GetItem(pair, 1), depth);
  }
  return r ? r : put(json, "}", 1);
}

static bool is_container(PyObject *value) {
  return module_is(value, py.PyList_Type) || module_is(value, py.PyTuple_Type) || module_is(value, py.PyDict_Type);
}

/* How many items there are, without asking a subclass; a copy of them, or NULL. */
static PyObject *container_copy(PyObject *value, Py_ssize_t *n) {
  PyObject *copy = NULL;
  if (module_is(value, py.PyDict_Type)) {
    *n = py.PyDict_Size(value);
    copy = *n < MANY ? py.PyDict_Items(value) : NULL;
  } else if (module_is(value, py.PyTuple_Type)) {
    *n = py.PyTuple_Size(value);
    if (*n < MANY) {
      copy = value;
      py.Py_IncRef(copy);
    }
  } else {
    PyObject *slice = py.PyList_GetSlice(value, 0, MANY);
    *n = slice ? py.PyObject_Size(slice) : 0;
    copy = slice && *n < MANY ? py.PySequence_Tuple(slice) : NULL;
    if (*n >= MANY)
      *n = py.PyObject_Size(value);
    module_drop(slice);
  }
  py.PyErr_Clear();
  return copy;
}

static int put_summary(struct module_json *json, PyObject *value) {
  char text[STR_BYTES];
  Py_ssize_t n = 0;
  json->changed = true;
  module_drop(container_copy(value, &n));
  int len = snprintf(text, sizeof text, "<%.200s of %zd>", py_class_name(value), n);
  return put_text(json, text, (size_t)len);
}

static int put_container(struct module_json *json, PyObject *value, int depth) {
  Py_ssize_t n = 0;
  PyObject *copy = depth < MAX_DEPTH ? container_copy(value, &n) : NULL;
  if (!copy)
    return depth < MAX_DEPTH ? -ENOSPC : put_summary(json, value);
  int r = module_is(value, py.PyDict_Type) ? put_members(json, copy, depth + 1) : put_items(json, copy, depth + 1);
  py.Py_DecRef(copy);
  return r;
}

static int put_value(struct module_json *json, PyObject *value, int depth) {
  if (value == py._Py_NoneStruct)
    return put(json, "null", 4);
  return is_container(value) ? put_container(json, value, depth) : put_scalar(json, value);
}

void module_json_begin(struct module_json *json, char *buffer, size_t size) {
  *json = (struct module_json){.begin = buffer, .at = buffer, .end = buffer + size - TAIL_BYTES};
  *json->at++ = '{';
}

int module_json_entry(struct module_json *json, PyObject *key, PyObject *value) {
  char *before = json->at;
  int r = before == json->begin + 1 ? 0 : put(json, ",", 1);
  char *after_comma = json->at;
  json->changed = false;
  if (r == 0)
    r = put_member(json, key, value, 0);
  if (r == -ENOSPC && is_container(value)) {
    json->at = after_comma;
    r = put_string(json, key, KEY_BYTES);
    if (r == 0)
      r = put(json, ":", 1);
    if (r == 0)
      r = put_summary(json, value);
  }
  if (r < 0)
    json->at = before;
  json->losses.coerced += r == 0 && json->changed;
  json->losses.left_out += r == -ENOSPC;
  return r == -ECANCELED ? r : 0;
}

static int put_own(struct module_json *json, PyObject *dict) {
  PyObject *key, *value;
  Py_ssize_t at = 0;
  int r = 0;
  while (r == 0 && py.PyDict_Next(dict, &at, &key, &value))
    r = module_json_entry(json, key, value);
  return r;
}

int module_json_dict(struct module_json *json, PyObject *dict, bool own) {
  if (own)
    return put_own(json, dict);
  PyObject *pairs = py.PyDict_Items(dict);
  if (!pairs) {
    py.PyErr_Clear();
    return 0;
  }
  Py_ssize_t n = py.PyObject_Size(pairs);
  int r = 0;
  for (Py_ssize_t i = 0; i < n && r == 0; i++) {
    PyObject *pair = py.PyList_GetItem(pairs, i);
    r = module_json_entry(json, py.PyTuple_GetItem(pair, 0), py.PyTuple_GetItem(pair, 1));
  }
  py.Py_DecRef(pairs);
  return r;
}

size_t module_json_end(struct module_json *json) {
  if (json->losses.left_out) {
    const char *comma = json->at == json->begin + 1 ? "" : ",";
    json->at += snprintf(json->at, TAIL_BYTES - 1, "%s\"cirron.left_out\":%u", comma, json->losses.left_out);
  }
  if (json->at == json->begin + 1)
    return 0;
  *json->at++ = '}';
  return (size_t)(json->at - json->begin);
}

/* --- what was lost --- */

static _Atomic uint64_t coerced, left_out;

static void count(_Atomic uint64_t *total, unsigned now, unsigned before) {
  if (now != before)
    atomic_fetch_add_explicit(total, (uint64_t)now - before, memory_order_relaxed); /* may go down: modulo 2^64 */
}

void module_json_count(const struct module_json *json, struct module_json_losses *counted) {
  count(&coerced, json->losses.coerced, counted->coerced);
  count(&left_out, json->losses.left_out, counted->left_out);
  *counted = json->losses;
}

struct module_json_totals module_json_totals(void) {
  return (struct module_json_totals){.coerced = atomic_load_explicit(&coerced, memory_order_relaxed),
                                     .left_out = atomic_load_explicit(&left_out, memory_order_relaxed)};
}

void module_json_forget(void) {
  atomic_store(&coerced, 0);
  atomic_store(&left_out, 0);
}
