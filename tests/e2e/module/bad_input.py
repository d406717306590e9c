"""What is wrong with an argument: the exception, what it says, and that nothing has happened; on the fake stack. Run like surface.py."""
import ctypes
import gc
import logging
import os
import sys
import unittest

import cirron as ci
from yaml_file import Files

fake = ctypes.CDLL(ci.__file__)
fake.fake_take.restype = ctypes.c_char_p

SNAPSHOTS = "'stats', 'sampled', 'full' or 'off'"
RATE, SECONDS = "a number between 0 and 1", "a number of seconds above 0"
SINKS = "'spool', 'stdout', 'log' or 'none'"
COUNT = "a whole number above 0, of at most 63 bits"
PATH = "a path of at most 4000 bytes, without a zero byte"
MODEL, ESTIMATOR, AGAIN = "one model, an object that can be weakly referenced", "an object with fit(), predict()", "make an object of it first"


class Bad:
    """Its repr fails."""

    def __repr__(self):
        raise RuntimeError("no text")


class Long:
    def __repr__(self):
        return "long " * 10**6


class Never:
    """Is not asked for its repr."""

    def __len__(self):
        return 10**9

    def __repr__(self):
        raise AssertionError("asked")


class Stop:
    def __repr__(self):
        raise KeyboardInterrupt


class Class:
    pass


class Fit:
    def fit(self):
        return self


#: argument, value, exception, what is allowed, how the value is shown; for profile() and where it has the field, Cirron()
SETTINGS = [
    ("snapshots", "all", ValueError, SNAPSHOTS, "'all'"), ("snapshots", "", ValueError, SNAPSHOTS, "''"), ("snapshots", 3, TypeError, SNAPSHOTS, "3 (int)"),
    ("snapshots", ["stats"], TypeError, SNAPSHOTS, "['stats'] (list)"), ("snapshots", True, TypeError, SNAPSHOTS, "True (bool)"),
    ("sample_rate", 1.5, ValueError, RATE, "1.5"), ("sample_rate", -1, ValueError, RATE, "-1"), ("sample_rate", float("nan"), ValueError, RATE, "nan"),
    ("sample_rate", "1", TypeError, RATE, "'1' (str)"), ("sample_rate", False, TypeError, RATE, "False (bool)"),
    ("sample_rate", 10**400, ValueError, RATE, "1000"), ("sample_rate", b"x", TypeError, RATE, "b'x' (bytes)"), ("sample_rate", 1j, TypeError, RATE, "1j (complex)"),
    ("flush_interval", 0, ValueError, SECONDS, "0"), ("flush_interval", -0.5, ValueError, SECONDS, "-0.5"), ("flush_interval", float("inf"), ValueError, SECONDS, "inf"),
    ("flush_interval", True, TypeError, SECONDS, "True (bool)"), ("flush_interval", "1s", TypeError, SECONDS, "'1s' (str)"),
    ("output", "disk", ValueError, SINKS, "'disk' is not valid"), ("output", ["spool", "x"], ValueError, SINKS, "'x' is not valid"),
    ("output", ["spool", 3], ValueError, "strings", "not 3"), ("output", 3, TypeError, SINKS, "3 (int)"), ("output", {"log"}, TypeError, SINKS, "{'log'} (set)"),
]
PROFILE = [
    ("frameworks", "torch", TypeError, "a list of strings", "'torch' (str)"), ("frameworks", 3, TypeError, "a list of strings", "3 (int)"),
    ("frameworks", ["torch", 3], ValueError, "strings", "not 3"), ("frameworks", [b"torch"], ValueError, "strings", "not b'torch'"),
    ("config", [], TypeError, "a dict", "[] (list)"), ("config", "cirron.yaml", TypeError, "a dict", "'cirron.yaml' (str)"),
    ("path", 3, TypeError, PATH, "3 (int)"), ("path", "a\0b", ValueError, PATH, r"'a\x00b'"), ("path", "x" * 4001, ValueError, PATH, "'xxx"),
    ("path", "\ud800", ValueError, PATH, r"'\ud800'"),
    ("enabled", "yes", TypeError, "True or False", "'yes' (str)"), ("enabled", [], TypeError, "True or False", "[] (list)"),
    ("enabled", 2, ValueError, "True or False", "2"), ("enabled", 0.5, TypeError, "True or False", "0.5 (float)"), ("enabled", "", TypeError, "True or False", "'' (str)"),
]
CIRRON = [
    *(row for name in ("spool_max_bytes", "trace_buffer_max_spans", "load_warn_bytes", "load_max_bytes")
      for row in ((name, 0, ValueError, COUNT, "0"), (name, -3, ValueError, COUNT, "-3"), (name, 2**63, ValueError, COUNT, str(2**63)),
                  (name, 1.5, TypeError, COUNT, "1.5 (float)"), (name, "9", TypeError, COUNT, "'9' (str)"), (name, True, TypeError, COUNT, "True (bool)"))),
    *(row for name in ("api_key", "api_endpoint", "workspace_id", "ingest_path")
      for row in ((name, 3, TypeError, "a string", "3 (int)"), (name, b"k", TypeError, "a string", "b'k' (bytes)"))),
    ("output_dir", 3, TypeError, PATH, "3 (int)"), ("output_dir", b"a\0", ValueError, PATH, r"b'a\x00'"), ("output_dir", "x" * 5000, ValueError, PATH, "'xxx"),
]
#: function, arguments, argument that is named, exception, what is allowed, how the value is shown
CALLS = [
    *((who, (), {name: value}, name, *rest) for who in ("profile", "Cirron") for name, value, *rest in SETTINGS),
    *(("profile", ({name: value},), {}, name, *rest) for name, value, *rest in SETTINGS if name != "output"),
    *(("profile", (), {name: value}, name, *rest) for name, value, *rest in PROFILE),
    *(("Cirron", (), {name: value}, name, *rest) for name, value, *rest in CIRRON),
    *(("mark", ("m", 1), {"kind": value, "x": Bad()}, "kind", ValueError, "'point' or 'summary'", shown)
      for value, shown in (("Summary", "'Summary'"), (3, "3"), (None, "None"), (b"point", "b'point'"))),
    *((who, (value,), {}, "iterable", TypeError, "something that can be iterated over", shown)
      for who in ("epochs", "batches") for value, shown in ((5, "5 (int)"), (None, "None (NoneType)"), (Class, "(type)"), (len, "<built-in function len>"))),
    *(("watch", (value,), {}, "model", TypeError, MODEL, shown)
      for value, shown in ((5, "5 (int)"), ("model", "'model' (str)"), ([1, {}], "[1, {}] (list)"), (Class, "bad_input.Class'> (type)" if __name__ == "bad_input" else "Class'> (type)"))),
    ("watch", (Class,), {}, "model", TypeError, AGAIN, "Class"),
    ("watch", (Class(), 3), {}, "name", TypeError, "a string or None", "3 (int)"), ("watch", (Class(), ""), {}, "name", ValueError, "at least one character", "''"),
    ("watch", (None, "x"), {}, "name", TypeError, "None where model is None", "'x' (str)"),
    *(("wrap", (value,), {}, "estimator", TypeError, ESTIMATOR, shown)
      for value, shown in ((5, "5 (int)"), ("passthrough", "'passthrough' (str)"), (None, "None (NoneType)"), ([Fit], "(list)"), (Class(), "(Class)"))),
    ("wrap", (Fit,), {}, "estimator", TypeError, AGAIN, "Fit'> (type)"),
    *(("trace", (value,), {}, "format", ValueError, "'tree', 'dict', 'json' or 'df'", shown + " is not valid") for value, shown in (("xml", "'xml'"), (3, "3"), ("", "''"))),
    ("trace", ("dict", 3), {}, "name", TypeError, "a string or None", "3 (int)"), ("trace", ("dict", b"x"), {}, "name", TypeError, "a string or None", "b'x' (bytes)"),
    ("trace", ("dict", None, "1"), {}, "last", TypeError, "a whole number or None", "'1' (str)"), ("trace", ("dict", None, 1.5), {}, "last", TypeError, "a whole number", "1.5"),
    *((who, (value,), {}, name, error, PATH, shown) for who, name in (("find_cirron_yaml", "start"), ("load_cirron_yaml", "path"))
      for value, error, shown in ((3, TypeError, "3 (int)"), ("a\0b", ValueError, r"'a\x00b'"), ("x" * 5000, ValueError, "'xxx"), ([], TypeError, "[] (list)"))),
    *(("scope", ("s",), value, "function", TypeError, "something else that can be called", shown)  # @scope("s") of what is no function
      for value, shown in ((3, "3 (int)"), (None, "None (NoneType)"), ("f", "'f' (str)"))),
]


def call(who, args, kwargs):
    if who == "scope":
        return ci.scope(*args)(kwargs)
    return getattr(ci, who)(*args, **kwargs)


class Tests(Files):
    def setUp(self):
        super().setUp()
        ci.shutdown()
        ci.watch(None)
        self.addCleanup(ci.watch, None)
        self.addCleanup(ci.shutdown)
        ci.profile()
        ci.shutdown()
        fake.fake_take()

    def nothing(self):
        """What has happened so far: no handle, no span, no file, nothing counted."""
        h = ci.health()
        return (fake.fake_take(), h["enabled"], h["watched"], h["mark_drop_count"], h["attr_coerced_count"], h["attr_drop_count"], fake.fake_frameworks(),
                sorted(os.listdir(str(self.top))), sorted(os.listdir(str(self.deep))), ci.Cirron().trace_buffer_max_spans)

    def test_all(self):
        before = self.nothing()
        for who, args, kwargs, name, error, allowed, shown in CALLS:
            with self.assertRaises(error, msg=(who, args, kwargs)) as caught:
                call(who, args, kwargs)
            text = str(caught.exception)
            self.assertIs(type(caught.exception), error, text)
            self.assertTrue(text.startswith(who + "(): "), text)
            for part in (name, allowed, shown):
                self.assertIn(part, text)
            self.assertLess(len(text), 400, text)
            self.assertEqual(self.nothing(), before, text)
        with self.assertLogs("cirron.profiler", "WARNING") as logs:
            logging.getLogger("cirron.profiler").warning("one")
            ci.profile()
        self.assertEqual(len(logs.output), 1, logs.output)  # none of those was the first call

    def test_handle(self):
        p = ci.profile()
        fake.fake_take()
        for args, name in ((("xml",), "format"), (("dict", 3), "name"), (("dict", None, "x"), "last")):
            with self.assertRaisesRegex((TypeError, ValueError), r"trace\(\): " + name):
                p.trace(*args)
        for function in (p.flush, p.shutdown, p.health, ci.flush, ci.shutdown, ci.health, ci.get_default):
            self.assertRaises(TypeError, function, 1)
        self.assertEqual((fake.fake_take(), p.enabled), (b"", True))

    def test_signatures(self):
        """What no function of Python would take, either; the argument is named where there is one."""
        before = self.nothing()
        for who, args, kwargs, text in (("scope", (), {}, "name"), ("scope", ("a", 1, 2), {}, "3 given"), ("scope", ("a",), {"name": "b"}, "name"),
                                        ("mark", (), {}, "name"), ("mark", ("a",), {}, "value"), ("mark", ("a", 1, 2), {}, "3 were given"),
                                        ("mark", (), {"value": 1, "x": Bad()}, "name"), ("epochs", (), {}, ""), ("batches", (1, 2), {}, ""),
                                        ("watch", (), {}, "model"), ("watch", (Class(),), {"namespace": "x"}, "namespace"), ("wrap", (), {}, "estimator"),
                                        ("profile", (), {"sampling": 1}, "sampling"), ("Cirron", ("key",), {}, ""), ("Cirron", (), {"other": 1}, "other"),
                                        ("trace", (), {"first": 1}, "first"), ("find_cirron_yaml", (), {"path": "x"}, "path"), ("load_cirron_yaml", (1, 2), {}, "")):
            with self.assertRaisesRegex(TypeError, text, msg=(who, args, kwargs)):
                getattr(ci, who)(*args, **kwargs)
            self.assertEqual(self.nothing(), before, who)
        for cls in (ci.Scope, ci.LoopIterator, ci.Profiler, ci.WrappedEstimator):
            self.assertRaises(TypeError, cls)

    def shown(self, value):
        with self.assertRaises(TypeError) as caught:
            ci.profile(snapshots=value)
        begin, end = "profile(): snapshots must be " + SNAPSHOTS + ", not ", " (%s)" % type(value).__name__
        text = str(caught.exception)
        self.assertTrue(text.startswith(begin) and text.endswith(end), text)
        return text[len(begin):-len(end)]

    def test_how_a_value_is_shown(self):
        nested = [1]
        for _ in range(40):
            nested = [nested] * 4
        itself = []
        itself.append(itself)
        deep = ()
        for _ in range(400):
            deep = (deep,)
        array = bytearray(10**6)
        for value, expected in ((b"y" * 10**8, repr(b"y" * 100) + "..."), (list(range(10**6)), "<list of 1000000>"), ({i: i for i in range(10**5)}, "<dict of 100000>"),
                                (["x" * 10**8], "<list of 1>"), ({"k": ("x" * 10**8,)}, "<dict of 1>"), (nested, "<list of 4>"), (10**10**6, "<int of 3321929 bits>"),
                                ([10**10**6], "<list of 1>"), (array, "<bytearray of 1000000>"), (range(10**9), "<range of 1000000000>"), (set(range(5000)), "<set of 5000>"),
                                (itself, "<list of 1>"), (deep, "(" * 100 + "..."), (Bad(), "<Bad>"), ([Bad()], "<list of 1>"), (Never(), "<Never of 1000000000>"),
                                (Long(), ("long " * 10**6)[:100] + "..."), (list(range(60)), repr(list(range(60)))[:100] + "..."), (3, "3"), (None.__class__, "<class 'NoneType'>"),
                                ({"a": [1, (2.5, None)]}, "{'a': [1, (2.5, None)]}")):
            self.assertEqual(self.shown(value), expected)
        with self.assertRaises(ValueError) as caught:
            ci.profile(snapshots="é\n\ud800" * 10**6)
        self.assertEqual(str(caught.exception).split(" not ")[1], repr(("é\n\ud800" * 40)[:100]) + "...")
        self.assertRaises(KeyboardInterrupt, ci.profile, snapshots=Stop())
        self.assertRaises(KeyboardInterrupt, ci.epochs, Stop())
        self.assertRaises(KeyboardInterrupt, ci.profile, snapshots=[Stop()])

    def test_what_the_value_itself_raises(self):
        class Raises:
            def __iter__(self):
                raise TypeError("mine")

            def __fspath__(self):
                raise LookupError("mine")

            def __index__(self):
                raise LookupError("mine")

        class NoIter:
            __iter__ = None

        self.assertRaisesRegex(TypeError, "^mine$", ci.epochs, Raises())
        self.assertRaisesRegex(LookupError, "^mine$", ci.profile, path=Raises())
        self.assertRaisesRegex(LookupError, "^mine$", ci.trace, "dict", None, Raises())
        self.assertRaisesRegex(TypeError, r"epochs\(\): iterable must be .*NoIter", ci.epochs, NoIter())

    def test_numbers_of_all_kinds(self):
        class Index:
            def __index__(self):
                return 7

        class Item:
            def item(self):
                return 0.25

        c = ci.Cirron(spool_max_bytes=Index(), sample_rate=Item(), flush_interval=Index(), output_dir=b"/caf\xc3\xa9 \xff")
        self.assertEqual((c.spool_max_bytes, c.sample_rate, c.flush_interval, c.output_dir), (7, 0.25, 7.0, "/caf\u00e9 \udcff"))
        try:
            import numpy as np
        except ImportError:
            return
        c = ci.Cirron(spool_max_bytes=np.int64(5), sample_rate=np.float32(0.5), flush_interval=np.array(2))
        self.assertEqual((c.spool_max_bytes, c.sample_rate, c.flush_interval), (5, 0.5, 2.0))
        self.assertRaises(TypeError, ci.Cirron, sample_rate=np.bool_(True))
        self.assertRaises(TypeError, ci.Cirron, sample_rate=np.array([1, 2]))
        self.assertFalse(ci.profile(enabled=np.bool_(False)).enabled)

    def test_memory(self):
        def pages():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1])

        def run(n):
            for _ in range(n):
                for who, args, kwargs, _, error, _, _ in CALLS:
                    try:
                        call(who, args, kwargs)
                    except error:
                        pass
            gc.collect()

        run(400)
        before, blocks = pages(), sys.getallocatedblocks()
        run(1200)
        self.assertLess(sys.getallocatedblocks() - blocks, 1000)  # less than one object a round
        self.assertLess(pages() - before, 500)


if __name__ == "__main__":
    unittest.main(verbosity=1)
