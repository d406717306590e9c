/* A frame-evaluation hook (PEP 523) for one frame: installed in the `exec` event of a module's body, which is the next frame this
 * thread evaluates, and gone before that body runs.
 *
 * While it is in place the interpreter makes no inlined calls, and whoever installs a hook of his own would chain to ours. So it
 * stays for as few frames as can be: other audit hooks written in Python may come before the body, or refuse it, hence a budget
 * of frames instead of one. If somebody did put his hook on top of ours meanwhile, ours cannot be taken out any more; it then
 * stays as a link in his chain that passes everything on, and is not installed a second time: that would make a circle.
 *
 * Threads: everything here happens with the GIL held; free-threaded builds are refused. What is armed belongs to its thread.
 */
#include <errno.h>

#include "observe.h"
#include "trigger.h"

#define FRAME_BUDGET 10000 /* frames that may pass before the body */

/* Frame evaluation as it really is. 3.8 has no thread state among the arguments: (frame, int). */
typedef PyObject *(*eval_fn)(void *thread, void *frame, int throwing);
typedef PyObject *(*eval_38_fn)(void *frame, int throwing);

static struct {
  py_eval_fn previous;
  void *interpreter;
  unsigned budget;
  bool installed, buried; /* buried: below somebody else's hook */
  size_t slot_38;         /* 3.8: offset of the hook in the interpreter's state */
} hook;

/* Address only, for comparison: the body is run at once or not at all. */
static _Thread_local struct {
  PyObject *code;
  const char *module;
} armed;

/* 3.8 has no function for this. The slot is found by its content, once, and only if it is the only one. It is followed there
 * by an array of 2040 bytes, so that all that is read belongs to the state. */
static py_eval_fn *slot_38(void *interpreter) {
  enum { SEARCHED = 2048 };
  void *wanted = (void *)py._PyEval_EvalFrameDefault;
  if (!hook.slot_38)
    for (size_t at = 0; at < SEARCHED; at += sizeof(void *))
      if (*(void **)((char *)interpreter + at) == wanted) {
        if (hook.slot_38)
          return hook.slot_38 = 0, NULL;
        hook.slot_38 = at;
      }
  return hook.slot_38 ? (py_eval_fn *)((char *)interpreter + hook.slot_38) : NULL;
}

static bool hook_supported(void *interpreter) {
  if (py.free_threaded)
    return false;
  if (py.version == 308)
    return py._PyEval_EvalFrameDefault && slot_38(interpreter);
  if (py.version >= 312 && !py.PyUnstable_InterpreterFrame_GetCode)
    return false;
  return py._PyInterpreterState_GetEvalFrameFunc && py._PyInterpreterState_SetEvalFrameFunc;
}

static py_eval_fn hook_get(void *interpreter) {
  return py.version == 308 ? *slot_38(interpreter) : py._PyInterpreterState_GetEvalFrameFunc(interpreter);
}

static void hook_set(void *interpreter, py_eval_fn function) {
  if (py.version == 308)
    *slot_38(interpreter) = function;
  else
    py._PyInterpreterState_SetEvalFrameFunc(interpreter, function);
}

/* The frame's code, for comparison only. Up to 3.11 it is the third pointer after the head of a frame object, or the fifth of an
 * interpreter frame: the same offset. */
static PyObject *frame_code(void *frame) {
  if (py.version < 312)
    return *(PyObject **)((char *)frame + 32);
  PyObject *code = py.PyUnstable_InterpreterFrame_GetCode(frame);
  py.Py_DecRef(code);
  return code;
}

static py_eval_fn hook_function(void);

static void hook_remove(void) {
  if (!hook.installed)
    return;
  hook.installed = false;
  if (hook_get(hook.interpreter) == hook_function())
    hook_set(hook.interpreter, hook.previous);
  else
    hook.buried = true;
}

/* Is this frame the body? Then the hook has served. */
static const char *frame_enter(void *frame) {
  if (!armed.code || frame_code(frame) != armed.code) {
    if (hook.installed && --hook.budget == 0)
      hook_remove();
    return NULL;
  }
  const char *module = armed.module;
  armed.code = NULL;
  hook_remove();
  return module;
}

static PyObject *frame_eval(void *thread, void *frame, int throwing) {
  eval_fn previous = (eval_fn)hook.previous; /* read before: it may be another one after */
  const char *module = frame_enter(frame);
  PyObject *result = previous(thread, frame, throwing);
  if (module && result)
    observe_module_ready(module);
  return result;
}

static PyObject *frame_eval_38(void *frame, int throwing) {
  eval_38_fn previous = (eval_38_fn)hook.previous;
  const char *module = frame_enter(frame);
  PyObject *result = previous(frame, throwing);
  if (module && result)
    observe_module_ready(module);
  return result;
}

static py_eval_fn hook_function(void) {
  return py.version == 308 ? (py_eval_fn)frame_eval_38 : (py_eval_fn)frame_eval;
}

int trigger_frame_arm(PyObject *code, const char *module) {
  void *interpreter = py.PyInterpreterState_Get();
  if (!hook_supported(interpreter))
    return -ENOTSUP;
  if (!hook.installed && !hook.buried) {
    hook.previous = hook_get(interpreter);
    hook.interpreter = interpreter;
    hook_set(interpreter, hook_function());
    hook.installed = true;
  }
  hook.budget = FRAME_BUDGET;
  armed.code = code;
  armed.module = module;
  return 0;
}

void trigger_frame_forget(void) {
  hook.installed = hook.buried = false; /* `previous` stays: a chain may still lead through us */
  armed.code = NULL;
}
