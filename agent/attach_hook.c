/* CPython allocates an audit hook's entry with the raw allocator of that moment and frees it at its end with the one of that
 * moment. With PYTHONMALLOC=debug, -X dev or a debug build these differ when the hook was added before Py_Initialize, and the
 * process would be aborted. So the entry's address is remembered when it is allocated, and when the allocator has changed meanwhile
 * the one call that frees it is led to the allocator it came from. Nothing of this is in place while the program runs.
 *
 * Threads: the constructor, or the thread that ends the interpreter; no others exist or run Python then.
 */
#include "attach_hook.h"

#include <errno.h>

static void *entry;                     /* of the hook that was added last */
static struct py_allocator entry_owner; /* where it came from */
static struct py_allocator current;     /* what stood there when the entry was about to be freed */

static void *remember_malloc(void *context, size_t size) {
  (void)context;
  return entry = entry_owner.malloc(entry_owner.context, size);
}

static void *remember_calloc(void *context, size_t count, size_t size) {
  (void)context;
  return entry = entry_owner.calloc(entry_owner.context, count, size);
}

static void *remember_realloc(void *context, void *block, size_t size) {
  (void)context;
  return entry_owner.realloc(entry_owner.context, block, size);
}

static void remember_free(void *context, void *block) {
  (void)context;
  entry_owner.free(entry_owner.context, block);
}

static void *current_malloc(void *context, size_t size) {
  (void)context;
  return current.malloc(current.context, size);
}

static void *current_calloc(void *context, size_t count, size_t size) {
  (void)context;
  return current.calloc(current.context, count, size);
}

static void *current_realloc(void *context, void *block, size_t size) {
  (void)context;
  return current.realloc(current.context, block, size);
}

static void current_free(void *context, void *block) {
  (void)context;
  if (block != entry || !block) {
    current.free(current.context, block);
    return;
  }
  entry = NULL;
  py.PyMem_SetAllocator(PY_MEM_RAW, &current); /* has served */
  entry_owner.free(entry_owner.context, block);
}

int attach_hook_add(int (*callback)(const char *, PyObject *, void *)) {
  struct py_allocator remember = {NULL, remember_malloc, remember_calloc, remember_realloc, remember_free};
  entry = NULL;
  py.PyMem_GetAllocator(PY_MEM_RAW, &entry_owner);
  py.PyMem_SetAllocator(PY_MEM_RAW, &remember);
  int result = py.PySys_AddAuditHook(callback, NULL);
  py.PyMem_SetAllocator(PY_MEM_RAW, &entry_owner);
  return result == 0 ? 0 : -ENOTSUP;
}

static bool allocator_equal(const struct py_allocator *a, const struct py_allocator *b) {
  return a->context == b->context && a->malloc == b->malloc && a->calloc == b->calloc && a->realloc == b->realloc &&
         a->free == b->free;
}

void attach_hook_before_free(void) {
  struct py_allocator shim = {NULL, current_malloc, current_calloc, current_realloc, current_free};
  if (!entry)
    return;
  py.PyMem_GetAllocator(PY_MEM_RAW, &current);
  if (!allocator_equal(&current, &entry_owner))
    py.PyMem_SetAllocator(PY_MEM_RAW, &shim);
}
