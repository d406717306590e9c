/* See snapshot_zero.h. */
#include "snapshot_zero.h"

#include <stdbool.h>
#include <stddef.h>

#include "observe.h"
#include "py.h"

static struct {
  bool on;
  void (*fills)(void);
  bool lets_go; /* where nothing is said it drops gradients, it does not fill them */
} zero;

/* A gradient that is let go of is no matter: we hold it. One that is filled with zeros is. */
static bool zero_enter(struct observe_call *call) {
  static PyObject *name;
  if (!name)
    name = py.PyUnicode_InternFromString("set_to_none");
  PyObject *given = observe_arg(call, 1, name);
  if (given ? given != py._Py_TrueStruct : !zero.lets_go)
    zero.fills();
  return false;
}

static const struct probe meanwhile[] = {
    {.module = "torch.optim.optimizer", .qualname = "Optimizer.zero_grad", .direct = true, .enter = zero_enter},
    {.module = "torch.nn.modules.module", .qualname = "Module.zero_grad", .direct = true, .enter = zero_enter},
};

/* Does zero_grad() let go of gradients where nothing is said? From PyTorch 2.0 on. */
static bool lets_go(void) {
  PyObject *module = py_module("torch.optim.optimizer"),
           *class = module ? py.PyObject_GetAttrString(module, "Optimizer") : NULL;
  PyObject *function = class ? py.PyObject_GetAttrString(class, "zero_grad") : NULL;
  PyObject *defaults = function ? py.PyObject_GetAttrString(function, "__defaults__") : NULL;
  bool is = defaults && (void *)py_type(defaults) == py.PyTuple_Type && py.PyTuple_Size(defaults) == 1 &&
            py.PyTuple_GetItem(defaults, 0) == py._Py_TrueStruct;
  PyObject *owned[] = {defaults, function, class, module};
  for (unsigned i = 0; i < 4; i++)
    if (owned[i])
      py.Py_DecRef(owned[i]);
  py.PyErr_Clear();
  return is;
}

void zero_observe(void (*fills)(void)) {
  bool on = fills != NULL;
  if (zero.on == on)
    return;
  zero.on = on;
  if (on) { /* when it ends, another thread may still be inside */
    zero.fills = fills;
    zero.lets_go = lets_go();
  }
  for (unsigned i = 0; i < sizeof meanwhile / sizeof *meanwhile; i++)
    observe_meanwhile(&meanwhile[i], on);
}
