// links: agent/observe.c agent/observe_swap.c agent/observe_retype.c agent/observe_table.c agent/py.c agent/preload/symbol.c agent/cost.c agent/clock.c
/* What needs no interpreter: file names, arguments, the table of functions, and a process without CPython. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/env.h"
#include "agent/glibc.h"
#include "agent/observe.h"
#include "agent/observe_table.h"
#include "agent/preload/symbol.h"
#include "agent/session.h"

struct env session_env;

void env_debug(const char *format, ...) {
  (void)format;
}

static const struct probe probes[] = {
    {.module = "torch.optim.optimizer", .qualname = "Optimizer.__init__"},
    {.module = "torch._tensor", .qualname = "Tensor.backward"},
    {.module = "torch", .qualname = "compile"},
};

static void test_wanted_module(void **state) {
  (void)state;
  const char *optimizer = probes[0].module, *torch = probes[2].module;
  const struct {
    const char *file, *module;
  } cases[] = {
      {"/venv/lib/torch/optim/optimizer.py", optimizer},
      {"torch/optim/optimizer.py", optimizer},
      {"/app.zip/torch/optim/optimizer.py", optimizer},
      {"/venv/torch/optim/optimizer/__init__.py", optimizer},
      {"/venv/torch/__init__.py", torch},
      {"/home/me/torch.py", torch},
      {"torch.py", torch},
      {"/venv/torch/_tensor.py", probes[1].module},
      {"/venv/mytorch/optim/optimizer.py", NULL},
      {"/venv/torch/optim/optimizer.pyc", NULL},
      {"/venv/torch/optim/optimizer", NULL},
      {"/venv/torch/optim/my_optimizer.py", NULL},
      {"/venv/torch.optim.optimizer.py", NULL},
      {"optim/optimizer.py", NULL},
      {"optimizer.py", NULL},
      {"/venv/torch/optim/__init__.py", NULL},
      {"__init__.py", NULL},
      {"/__init__.py", NULL},
      {".py", NULL},
      {"<string>", NULL},
      {"", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *found = observe_wanted_module(cases[i].file);
    if (found != cases[i].module)
      fail_msg("%s: %s, expected %s", cases[i].file, found ? found : "none", cases[i].module ? cases[i].module : "none");
  }
}

/* Tuples and strings of the test's own: an object is the address of a C string. */
struct fake_tuple {
  Py_ssize_t n;
  const char *items[4];
};

static Py_ssize_t fake_size(PyObject *tuple) {
  return ((struct fake_tuple *)tuple)->n;
}

static PyObject *fake_item(PyObject *tuple, Py_ssize_t i) {
  return (PyObject *)((struct fake_tuple *)tuple)->items[i];
}

static int fake_compare(PyObject *a, PyObject *b) {
  return strcmp((const char *)a, (const char *)b);
}

static void test_arguments(void **state) {
  (void)state;
  py.PyTuple_Size = fake_size;
  py.PyTuple_GetItem = fake_item;
  py.PyUnicode_Compare = fake_compare;
  char lr[] = "lr", same_text[] = "lr", self[1], a[1], by_lr[1], by_x[1];
  struct fake_tuple names = {2, {"x", lr}};
  PyObject *args[] = {(PyObject *)self, (PyObject *)a, (PyObject *)by_x, (PyObject *)by_lr};
  struct observe_call call = {.args = args, .nargs = 2, .kwnames = (PyObject *)&names};
  assert_ptr_equal(observe_arg(&call, 0, NULL), self);
  assert_ptr_equal(observe_arg(&call, 1, (PyObject *)lr), a); /* the position is taken: the name is somebody else's */
  assert_ptr_equal(observe_arg(&call, 2, (PyObject *)lr), by_lr);
  assert_ptr_equal(observe_arg(&call, 2, (PyObject *)same_text), by_lr);
  assert_null(observe_arg(&call, 2, NULL));
  assert_null(observe_arg(&call, 2, (PyObject *)"other"));
  call.kwnames = NULL;
  assert_null(observe_arg(&call, 2, (PyObject *)lr));
}

static void test_table(void **state) {
  (void)state;
  size_t kept = 0;
  static char functions[OBSERVE_TABLE_SLOTS * 160];
  for (; kept < OBSERVE_TABLE_SLOTS; kept++) {
    int result = observe_put((PyObject *)&functions[kept * 160], &probes[kept % 3]);
    if (result != 0) {
      assert_int_equal(result, -ENOSPC);
      break;
    }
  }
  assert_int_equal(kept, OBSERVE_TABLE_MAX);
  for (size_t i = 0; i < kept; i++)
    assert_ptr_equal(observe_find((PyObject *)&functions[i * 160]), &probes[i % 3]);
  assert_null(observe_find((PyObject *)&functions[kept * 160]));
  assert_int_equal(observe_put((PyObject *)functions, &probes[2]), 0); /* an address that is there may change its probe */
  assert_ptr_equal(observe_find((PyObject *)functions), &probes[2]);
  PyObject *last = (PyObject *)&functions[(kept - 1) * 160];
  assert_int_equal(observe_put(last, &probes[(kept + 1) % 3]), 0);
  assert_ptr_equal(observe_find(last), &probes[(kept + 1) % 3]);
}

static void test_no_interpreter(void **state) {
  (void)state;
  assert_int_equal(py_find(RTLD_DEFAULT), -ENOTSUP);
}

static void test_versions(void **state) {
  (void)state;
  const struct {
    const char *text;
    int version;
    bool free_threaded;
  } cases[] = {
      {"3.8.18 (default, May  9 2026, 07:33:04) \n[GCC 12.2.0]", 308, false},
      {"3.10.0rc1 (main) [GCC]", 310, false},
      {"3.15.0 (main, Oct  9 2026, 19:59:52) [GCC 16.2.0]", 315, false},
      {"3.13.15 experimental free-threading build (main, Nov 30 2026, 06:45:04) [GCC 12.2.0]", 313, true},
      {"3.14.8 free-threading build (main) [GCC]", 314, true},
      {"3.16.0a1 (main) [GCC]", 0, false},
      {"3.99.0", 0, false},
      {"3.108.0", 0, false},
      {"3.7.16 (default) [GCC]", 0, false},
      {"2.7.18 (default) [GCC]", 0, false},
      {"4.8.0", 0, false},
      {"3", 0, false},
      {"3.", 0, false},
      {"", 0, false},
      {"PyPy 3.10", 0, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bool free_threaded = false;
    assert_int_equal(py_version_read(cases[i].text, &free_threaded), cases[i].version);
    assert_int_equal(free_threaded, cases[i].free_threaded);
  }
}

static void test_symbol_search(void **state) {
  (void)state;
  const char *names[] = {"setlocale", "getpid", "malloc_usable_size", "dlsym"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    assert_non_null(symbol_search(names[i]));
    assert_ptr_equal(symbol_search(names[i]), symbol_next(names[i]));
  }
  assert_null(symbol_search("no_function_has_this_name"));
  assert_null(symbol_search(""));
}

int main(void) {
  observe_add(probes, sizeof probes / sizeof *probes);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wanted_module),  cmocka_unit_test(test_arguments),     cmocka_unit_test(test_table),
      cmocka_unit_test(test_no_interpreter), cmocka_unit_test(test_symbol_search), cmocka_unit_test(test_versions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
