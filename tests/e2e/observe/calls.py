"""Calls the observed functions in every way and compares the counts. Prints one line when all is right."""
import copy
import ctypes
import functools
import gc
import inspect
import os
import pickle
import sys
import threading
import types
import weakref

agent = ctypes.CDLL(os.environ["TEST_AGENT"])
holding = ctypes.PyDLL(os.environ["TEST_AGENT"])
agent.test_argument.restype = ctypes.c_void_p
agent.test_exception.restype = holding.test_class_name.restype = ctypes.c_char_p
holding.test_observe.argtypes = holding.test_class_name.argtypes = [ctypes.py_object]
holding.test_attr_true.argtypes = [ctypes.py_object, ctypes.py_object]
assert agent.test_attached(), "not attached"
assert agent.test_search() == -1, "symbol %d" % agent.test_search()

import observed
from observed import things

mistakes = []


def expect(what, got, wanted):
    if got != wanted:
        mistakes.append("%s: %r, expected %r" % (what, got, wanted))


class counted:
    """with counted("plain", 3): ... makes three calls that return (and `failures` that raise)."""

    def __init__(self, name, leaves, failures=0):
        self.name, self.wanted = name.encode(), (leaves + failures, leaves, failures)

    def now(self):
        return agent.test_enters(self.name), agent.test_leaves(self.name), agent.test_failures(self.name)

    def __enter__(self):
        self.before = self.now()

    def __exit__(self, *_):
        expect(self.name.decode(), tuple(a - b for a, b in zip(self.now(), self.before)), self.wanted)


def argument(name):
    return agent.test_argument(name.encode())


def many(function, *args):
    for _ in range(500):
        function(*args)


def by_name():
    with counted("plain", 9):
        key = object()
        expect("result", things.plain(1, key), (1, key))
        expect("key by position", argument("plain"), id(key))
        expect("nargs", agent.test_nargs(b"plain"), 2)
        expect("result", things.plain(1, key=key), (1, key))
        expect("key by keyword", argument("plain"), id(key))
        expect("nargs", agent.test_nargs(b"plain"), 1)
        things.plain(key=key, a=2)
        expect("key first", argument("plain"), id(key))
        things.plain(**{"a": 1, "".join(["k", "ey"]): key})
        expect("key, name not interned", argument("plain"), id(key))
        things.plain(1)
        expect("no key", argument("plain"), None)
        things.plain(*[1, key])
        list(map(things.plain, [1]))
        functools.partial(things.plain, 1)()
        getattr(things, "plain")(*(), **{"a": 1})
    with counted("plain", 500):
        many(things.plain, 1)
    with counted("top", 1):
        expect("top", observed.top(), "top")


def methods():
    with counted("Base.__init__", 501):
        expect("super", things.Sub(1).b, 3)
        many(things.Sub, 1)
    if sys.version_info < (3, 13):  # later ones enter __init__ without a call when a class is instantiated often
        with counted("Base.__init__", 501):
            things.Base(1)
            many(things.Base, 1)
    with counted("Base.static", 2):
        expect("static", (things.Base.static(1), things.Sub(1).static(2)), (1, 2))
    with counted("Base.of_class", 2):
        expect("classmethod", (things.Base.of_class(1), things.Sub(1).of_class(2)), ((things.Base, 1), (things.Sub, 2)))
    with counted("Outer.Inner.method", 1):
        expect("inner", things.Outer.Inner().method(), "inner")
    expect("property", things.Base(4).value, 4)


def slots():
    with counted("Callable._call", 503):
        expect("call", things.Callable()(1, k=2), ((1,), {"k": 2}))
        things.SubCallable()(*[1])
        things.SubCallable()(x=1)
        many(things.Callable())
    with counted("Stream.__iter__", 3), counted("Stream.__next__", 8, 3):
        for _ in things.Stream(3):
            pass
        expect("list", list(things.SubStream(3)), [2, 1, 0])
        stream = iter(things.Stream(2))
        expect("next", [next(stream), next(stream), next(stream, "end")], [1, 0, "end"])
    expect("stop", agent.test_stop(b"Stream.__next__"), 1)


def exceptions():
    with counted("fails", 0, 2):
        try:
            things.fails("x")
        except KeyError as e:
            expect("args", e.args, ("x",))
            frames = inspect.getinnerframes(e.__traceback__, 0)
            expect("traceback", [f.function for f in frames], ["exceptions", "fails"])
        try:
            try:
                1 / 0
            except ZeroDivisionError:
                things.fails()
        except KeyError as e:
            expect("context", type(e.__context__), ZeroDivisionError)
    expect("exception", (agent.test_exception(b"fails"), agent.test_stop(b"fails")), (b"KeyError", 0))
    with counted("plain", 0, 1):
        try:
            things.plain()
        except TypeError as e:
            expect("wrong call", str(e), "plain() missing 1 required positional argument: 'a'")
    with counted("recursive", 51):
        expect("recursive", things.recursive(50), 50)
    before = [f(b"recursive") for f in (agent.test_enters, agent.test_leaves, agent.test_failures)]
    try:
        things.recursive(10**6)
    except RecursionError:
        pass
    enters, leaves, failures = (f(b"recursive") - n for f, n in zip((agent.test_enters, agent.test_leaves, agent.test_failures), before))
    expect("deep recursion", (enters == leaves + failures, leaves, enters > 100), (True, 0, True))


def threads():
    with counted("plain", 4000):
        running = [threading.Thread(target=lambda: [things.plain(1) for _ in range(1000)]) for _ in range(4)]
        [t.start() for t in running]
        [t.join() for t in running]


def unchanged():
    for f in (things.plain, things.Base.__init__, things.Callable.__call__):
        expect("isfunction", (inspect.isfunction(f), isinstance(f, types.FunctionType), type(f).__name__), (True, True, "function"))
        expect("module", (f.__module__, f.__doc__), ("observed.things", None))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            if protocol >= 4 or "." not in f.__qualname__:
                expect("pickle", pickle.loads(pickle.dumps(f, protocol)) is f, True)
        expect("copy", (copy.copy(f) is f, copy.deepcopy(f) is f), (True, True))
    expect("python pickle", pickle._loads(pickle._dumps(things.plain)) is things.plain, True)
    expect("signature", str(inspect.signature(things.plain)), "(a, key=None)")
    expect("source", inspect.getsource(things.plain).split("\n")[0], "def plain(a, key=None):")
    expect("repr", repr(things.plain)[:16], "<function plain ")
    expect("repr of type", repr(type(things.plain)), "<class 'function'>")
    expect("alias", things.Callable.__call__ is things.Callable._call, True)
    expect("vars", vars(things.plain), {})
    expect("new function", type(things.plain)(things.plain.__code__, {})(1, 2), (1, 2))
    expect("weakref", weakref.ref(things.plain)() is things.plain, True)
    expect("bound", types.MethodType(things.Callable._call, 1)(), ((), {}))
    if sys.version_info < (3, 11) or sys.version_info >= (3, 12):
        expect("type", type(things.plain) is types.FunctionType, True)


def at_run_time():
    run = things.Run()
    for _ in range(500):
        run.time()  # a call site that is specialised already
    expect("observe", holding.test_observe(things.Run.time), 0)
    expect("observe again", holding.test_observe(things.Run.time), -114)
    expect("observe a class", holding.test_observe(things.Run), -95)
    expect("observe a builtin", holding.test_observe(len), -95)
    expect("observe a bound method", holding.test_observe(run.time), -95)
    with counted("time", 100):
        for _ in range(100):
            run.time()
    holding.test_observe(things.Run.decorated)
    with counted("time", 1):  # the decorator's code is shared, its function is not
        expect("decorated", (run.decorated(), run.other()), ("decorated", "other"))
    with counted("time", 300):
        for i in range(300):  # functions that die, and others in their place
            scope = {}
            exec("def short(): return %d" % i, scope)
            short = scope["short"]
            expect("short", (holding.test_observe(short), short()), (0, i))
            dead = weakref.ref(short)
            del short, scope
            gc.collect() if dead() else None
            expect("kept alive", dead(), None)
    with counted("time", 0):
        [exec("def f(): pass\nf()", {}) for _ in range(300)]


def reload():
    import importlib

    importlib.reload(things)
    with counted("plain", 1):
        things.plain(1)


def broken():
    for _ in range(3):
        try:
            import observed.broken
        except ValueError:
            pass
    import observed.late  # gives back what the broken one took

    if sys.version_info >= (3, 12):
        expect("tools", [sys.monitoring.get_tool(i) for i in range(6)], [None] * 6)


def helpers():
    yes, no, bad = types.SimpleNamespace(training=1), types.SimpleNamespace(training=False), object()
    expect("attr_true", [holding.test_attr_true(x, "training") for x in (yes, no, bad)], [1, 0, -1])
    expect("class names", [holding.test_class_name(x) for x in (1, things.Sub(1), KeyError(), type)], [b"int", b"Sub", b"KeyError", b"type"])
    expect("builtin module", ("cirron" in sys.builtin_module_names, __import__("cirron").__name__), (True, "cirron"))
    sys.audit("exec")
    sys.audit("exec", 5)
    sys.audit("cpython._PySys_ClearAuditHooks")
    expect("still attached", agent.test_attached(), 1)
    expect("hooks", (sys.getprofile(), sys.gettrace()), (None, None))


for part in (by_name, methods, slots, exceptions, threads, unchanged, at_run_time, reload, broken, helpers):
    part()
print("\n".join(mistakes) if mistakes else "all right")
sys.exit(len(mistakes))
