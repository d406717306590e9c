/* @scope(...): the Python half of the module.
 *
 * A decorated function has to stay what it was to everybody who looks at it - a function, a coroutine function, a generator, bound
 * as a method, found by pickle - and only a Python function is all that. So the wrapper is one, made by a few lines of Python that
 * are compiled when the first function is decorated. Each behaves as if the body stood inside `with scope(...)`. pytest and IPython
 * leave frames with __tracebackhide__ out of what they show of an error.
 */
#include "module_state.h"
#include "module_wrong.h"

static const char source[] = "from functools import wraps\n"
                             "def decorate(scope, function):\n"
                             "    if isinstance(function, (staticmethod, classmethod)):\n"
                             "        return type(function)(decorate(scope, function.__func__))\n"
                             "    flags = getattr(getattr(function, '__code__', None), 'co_flags', 0)\n"
                             "    if flags & 0x200:\n" /* CO_ASYNC_GENERATOR */
                             "        async def inside(*args, **kwargs):\n"
                             "            __tracebackhide__ = True\n"
                             "            with scope:\n"
                             "                inner = function(*args, **kwargs)\n"
                             "                step = inner.__anext__()\n"
                             "                while True:\n"
                             "                    try:\n"
                             "                        item = await step\n"
                             "                    except StopAsyncIteration:\n"
                             "                        return\n"
                             "                    try:\n"
                             "                        sent = yield item\n"
                             "                    except GeneratorExit:\n"
                             "                        await inner.aclose()\n"
                             "                        raise\n"
                             "                    except BaseException as error:\n"
                             "                        step = inner.athrow(error)\n"
                             "                    else:\n"
                             "                        step = inner.asend(sent)\n"
                             "    elif flags & 0x80:\n" /* CO_COROUTINE */
                             "        async def inside(*args, **kwargs):\n"
                             "            __tracebackhide__ = True\n"
                             "            with scope:\n"
                             "                return await function(*args, **kwargs)\n"
                             "    elif flags & 0x20:\n" /* CO_GENERATOR */
                             "        def inside(*args, **kwargs):\n"
                             "            __tracebackhide__ = True\n"
                             "            with scope:\n"
                             "                return (yield from function(*args, **kwargs))\n"
                             "    else:\n"
                             "        def inside(*args, **kwargs):\n"
                             "            __tracebackhide__ = True\n"
                             "            with scope:\n"
                             "                return function(*args, **kwargs)\n"
                             "    return wraps(function)(inside)\n";

static PyObject *build(void) {
  PyObject *globals = module_python(source);
  PyObject *decorate = globals ? py_dict_get(globals, "decorate") : NULL;
  if (decorate)
    py.Py_IncRef(decorate);
  module_drop(globals);
  return decorate;
}

PyObject *module_decorate(struct module_state *state, PyObject *scope, PyObject *function) {
  bool wrapped = module_is(function, py.PyStaticMethod_Type) || module_is(function, py.PyClassMethod_Type);
  const struct module_given given = {.who = "scope", .name = "function", .value = function};
  if (!wrapped && !py.PyCallable_Check(function))
    return module_wrong_type(&given, "a function or something else that can be called");
  if (!state->decorate) {
    PyObject *built = build();
    if (!built)
      return NULL;
    if (state->decorate) /* compiling can let another thread in */
      py.Py_DecRef(built);
    else
      state->decorate = built;
  }
  return py.PyObject_CallFunctionObjArgs(state->decorate, scope, function, NULL);
}
