/* Texts of Python as names: UTF-8 at any price, and the ids of names that are used again and again.
 *
 * A name in a script is nearly always a literal, so the same object each time. Its id is found by the object's address in a small
 * table that holds a reference, so that the address cannot come to mean another text. With the GIL a newcomer takes the place of
 * whoever is there. Free-threaded nobody may be sent away who is just being read, so there the first one stays.
 */
#include <string.h>

#include "module_state.h"
#include "segment.h"

#define REMEMBER_BYTES 256u /* longer names are looked up each time rather than kept alive */
#define CLAIMED ((PyObject *)1)

/* Surrogates as Python's "surrogatepass" writes them (ED A0..BF xx, never part of UTF-8) become U+FFFD, which is as long. */
static void replace_surrogates(char *text, size_t len) {
  for (size_t i = 0; i + 2 < len; i++)
    if ((unsigned char)text[i] == 0xed && (unsigned char)text[i + 1] >= 0xa0)
      memcpy(text + i, "\xef\xbf\xbd", 3);
}

bool module_text(PyObject *string, struct module_text *out) {
  Py_ssize_t len;
  const char *text = py.PyUnicode_AsUTF8AndSize(string, &len);
  if (text) {
    *out = (struct module_text){.text = text, .len = (size_t)len};
    return true;
  }
  py.PyErr_Clear();
  char *own;
  PyObject *bytes = py.PyUnicode_AsEncodedString(string, "utf-8", "surrogatepass");
  if (!bytes || py.PyBytes_AsStringAndSize(bytes, &own, &len) < 0) {
    py.PyErr_Clear();
    module_drop(bytes);
    return false;
  }
  replace_surrogates(own, (size_t)len); /* nobody else has seen these bytes yet */
  *out = (struct module_text){.text = own, .len = (size_t)len, .held = bytes};
  return true;
}

void module_text_drop(struct module_text *text) {
  module_drop(text->held);
  text->held = NULL;
}

static void remember(struct module_name_slot *slot, PyObject *string, uint32_t id, unsigned generation) {
  PyObject *old = atomic_load_explicit(&slot->text, memory_order_relaxed);
  bool stale = !old || atomic_load_explicit(&slot->generation, memory_order_relaxed) != generation;
  if (old == CLAIMED || (py.free_threaded && !stale) || !atomic_compare_exchange_strong(&slot->text, &old, CLAIMED))
    return;
  slot->id = id;
  atomic_store_explicit(&slot->generation, generation, memory_order_release);
  py.Py_IncRef(string);
  atomic_store_explicit(&slot->text, string, memory_order_release);
  module_drop(old);
}

static uint32_t name_slow(struct module_name_slot *slot, PyObject *string, unsigned generation) {
  struct module_text text;
  if (!module_text(string, &text))
    return 0;
  uint32_t id = segment_name(text.text, text.len);
  if (id && text.len <= REMEMBER_BYTES && py_type(string) == py.PyUnicode_Type)
    remember(slot, string, id, generation);
  module_text_drop(&text);
  return id;
}

uint32_t module_name(struct module_state *state, PyObject *string) {
  uintptr_t address = (uintptr_t)string >> 4;
  struct module_name_slot *slot = &state->names[(address ^ address >> 8) % MODULE_NAMES];
  unsigned generation = segment_generation();
  if (atomic_load_explicit(&slot->text, memory_order_acquire) == string &&
      atomic_load_explicit(&slot->generation, memory_order_acquire) == generation)
    return slot->id;
  return name_slow(slot, string, generation);
}

void module_names_free(struct module_state *state) {
  for (unsigned i = 0; i < MODULE_NAMES; i++) {
    PyObject *text = atomic_exchange(&state->names[i].text, NULL);
    module_drop(text);
  }
}

uint32_t module_exception(PyObject *type, PyObject *value) {
  const char *name = NULL;
  struct module_text text = {0};
  PyObject *attribute = NULL;
  if (value != py._Py_NoneStruct) {
    name = py_class_name(value);
    return segment_name(name, strlen(name));
  }
  attribute = py.PyObject_GetAttrString(type, "__name__"); /* __exit__ called by hand */
  uint32_t id = 0;
  if (attribute && module_is(attribute, py.PyUnicode_Type) && module_text(attribute, &text))
    id = segment_name(text.text, text.len);
  py.PyErr_Clear();
  module_text_drop(&text);
  module_drop(attribute);
  return id;
}
