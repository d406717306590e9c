"""The surface of `cirron`, on the fake stack (fake.c): run with PYTHONPATH at the built module, by every interpreter."""
import asyncio
import copy
import ctypes
import enum
import fractions
import functools
import gc
import inspect
import json
import operator
import os
import pickle
import sys
import threading
import unittest
import weakref

import cirron as ci

fake = ctypes.CDLL(ci.__file__)
fake.fake_take.restype = ctypes.c_char_p
fake.fake_session.argtypes = [ctypes.c_ulong]
ROOT = 1


def events():
    return [line.split(" ") for line in fake.fake_take().decode("utf-8", "surrogateescape").split("\n") if line]


def unescape(text):
    return text.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1").decode("utf-8")


class Spans:
    """The events as spans: opened, in order, with what is known of their end."""

    def __init__(self):
        self.events, self.spans, self.marks = events(), [], []
        by_id = {}
        for what, *rest in self.events:
            if what == "push":
                i, kind, name, index, parent = rest
                span = dict(id=int(i), kind=int(kind), name=unescape(name), index=None if index == "-" else int(index), parent=int(parent),
                            closed=False, error=None, attrs=None)
                by_id[span["id"]] = span
                self.spans.append(span)
            elif what == "pop":
                span = by_id[int(rest[0])] if int(rest[0]) in by_id else dict(id=int(rest[0]))
                span.update(closed=True, error=None if rest[1] == "-" else rest[1],
                            attrs=None if rest[2] == "-" else json.loads(unescape(rest[2])))
            elif what == "mark":
                i, name, kind, value, point, attrs = rest
                self.marks.append(dict(span=int(i), name=unescape(name), type=kind, value=unescape(value), kind=point,
                                       attrs=None if attrs == "-" else json.loads(unescape(attrs))))

    def names(self):
        return [s["name"] for s in self.spans]

    def __getitem__(self, name):
        found = [s for s in self.spans if s["name"] == name]
        assert len(found) == 1, (name, self.spans)
        return found[0]


class Test(unittest.TestCase):
    def setUp(self):
        gc.collect()
        events()


class Bad:
    def __float__(self):
        raise RuntimeError("no number")

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __index__ = __str__


class Stop:
    """Ctrl-C arrives while we ask for its value."""

    def __float__(self):
        raise KeyboardInterrupt

    __str__ = __float__


class Scopes(Test):
    def test_nesting(self):
        with ci.scope("a") as a:
            with ci.scope("b", 3, x=1) as b:
                self.assertEqual(b.parent_id, a.id)
        self.assertTrue(a.parent_id.endswith("0001"))
        got = Spans()
        self.assertEqual([(s["name"], s["parent"], s["index"], s["attrs"], s["closed"]) for s in got.spans],
                         [("a", ROOT, None, None, True), ("b", got["a"]["id"], 3, {"x": 1}, True)])
        self.assertEqual(int(a.id, 16) & 0xFFFFFFFF, got["a"]["id"])
        self.assertEqual((b.name, b.index, b.attrs), ("b", 3, {"x": 1}))
        self.assertEqual(len(a.id), 32)

    def test_begins_at_enter(self):
        s = ci.scope("late", index=7)
        self.assertEqual((events(), s.id, s.parent_id, s.index), ([], None, None, 7))
        with s:
            self.assertEqual(Spans()["late"]["index"], 7)

    def test_exception(self):
        for error in (ValueError("x"), KeyboardInterrupt(), SystemExit(3)):
            with self.assertRaises(type(error)) as caught, ci.scope("bad"):
                raise error
            self.assertIs(caught.exception, error)
            self.assertEqual(Spans()["bad"]["error"], type(error).__name__)

    def test_never_swallows(self):
        self.assertIsNone(ci.scope("x").__exit__(ValueError, ValueError(), None))
        s = ci.scope("x")
        s.__enter__()
        self.assertIsNone(s.__exit__(ValueError, None, None))
        self.assertEqual(Spans()["x"]["error"], "ValueError")

    def test_attrs_change(self):
        with ci.scope("a", x=1, y=2) as a:
            a.attrs["z"] = [1, {"k": None}]
            del a.attrs["y"]
        self.assertEqual(Spans()["a"]["attrs"], {"x": 1, "z": [1, {"k": None}]})
        with ci.scope("a") as a:
            a.attrs.update(q=1)
            a.attrs.clear()
        self.assertIsNone(Spans()["a"]["attrs"])

    def test_closes_what_is_above(self):
        outer, inner = ci.scope("outer"), ci.scope("inner", n=1)
        outer.__enter__()
        inner.__enter__().attrs["late"] = True
        outer.__exit__(None, None, None)
        got = Spans()
        self.assertEqual([(s["closed"], s["attrs"]) for s in got.spans], [(True, None), (True, {"n": 1, "late": True})])
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        self.assertEqual(events(), [])

    def test_closes_its_own(self):
        outer, inner = ci.scope("outer"), ci.scope("inner")
        outer.__enter__(), inner.__enter__()
        with ci.scope("top"):
            inner.__exit__(None, None, None)
            got = Spans()
            self.assertEqual([got["outer"]["closed"], got["inner"]["closed"], got["top"]["closed"]], [False, True, True])
        outer.__exit__(None, None, None)
        self.assertEqual([e[:2] for e in events()], [["pop", str(got["outer"]["id"])]])

    def test_reentrant(self):
        s = ci.scope("again", 5, a=1)
        with s as one:
            with s as two:
                two.attrs["b"] = 2
                with s as three:
                    pass
            one.attrs["c"] = 3
        with s as four:
            pass
        self.assertEqual(len({one.id, two.id, three.id, four.id}), 4)
        self.assertEqual([two.parent_id, three.parent_id], [one.id, two.id])
        got = Spans()
        self.assertEqual([x["attrs"] for x in got.spans], [{"a": 1, "c": 3}, {"a": 1, "b": 2}, {"a": 1}, {"a": 1}])
        self.assertEqual([x["index"] for x in got.spans], [5] * 4)

    def test_threads_share_one(self):
        s, gate, ids = ci.scope("shared"), threading.Barrier(4), []

        def run():
            for _ in range(50):
                gate.wait()
                with s as mine:
                    gate.wait()
                    ids.append((mine.id, mine.parent_id))

        threads = [threading.Thread(target=run) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        got = Spans()
        self.assertEqual(len({i for i, _ in ids}), 200)
        self.assertEqual({x["parent"] for x in got.spans}, {ROOT})
        self.assertTrue(all(x["closed"] for x in got.spans))

    def test_too_deep(self):
        before = ci.health()["scope_drop_count"]

        def down(n):
            with ci.scope("d", level=n) as s:
                self.assertEqual((s.attrs, s.name), ({"level": n}, "d"))
                if n < 100:
                    down(n + 1)
                else:
                    self.assertIsNone(s.id)
                    ci.mark("deep", n)

        down(1)
        got = Spans()
        self.assertEqual(len(got.spans), 63)
        self.assertTrue(all(x["closed"] for x in got.spans))
        self.assertEqual([x["parent"] for x in got.spans], [ROOT] + [x["id"] for x in got.spans[:-1]])
        self.assertEqual(got.marks[0]["span"], got.spans[-1]["id"])
        self.assertEqual(ci.health()["scope_drop_count"] - before, 37)

    def test_dropped_object(self):
        def gen():
            with ci.scope("gen"):
                yield 1
                yield 2

        g = gen()
        next(g)
        del g
        gc.collect()
        got = Spans()["gen"]
        self.assertEqual((got["closed"], got["error"]), (True, None))
        ci.scope("hand").__enter__()
        self.assertTrue(Spans()["hand"]["closed"])

    def test_cycles_are_collected(self):
        """Through attributes that were given, or came later; of the object itself, and of a further use of it; open and closed."""

        class Owner:
            pass

        def given(owner):
            owner.scope = ci.scope("given", owner=owner)

        def later(owner):
            owner.scope = ci.scope("later")
            with owner.scope as s:
                s.attrs["owner"] = owner

        def left_open(owner):
            owner.scope = ci.scope("left_open", a=1)
            owner.scope.__enter__().attrs["owner"] = owner

        def second_use(owner):
            owner.scope = ci.scope("second_use")
            with owner.scope:
                owner.scope.__enter__().attrs["owner"] = owner

        def name_of_its_own(owner):
            class Name(str):
                pass

            name = Name("name_of_its_own")
            name.owner, name.scope = owner, ci.scope(name)

        gc.collect()
        for make in (given, later, left_open, second_use, name_of_its_own):
            owner = Owner()
            make(owner)
            gone = weakref.ref(owner)
            del owner
            gc.collect()
            self.assertIsNone(gone(), make.__name__)
        got = Spans()
        self.assertEqual([(s["name"], s["closed"]) for s in got.spans], [("later", True), ("left_open", True), ("second_use", True), ("second_use", True)])

    def test_cycle_through_a_further_use(self):
        class Owner:
            pass

        owner = Owner()
        scope = ci.scope("plain")
        scope.__enter__()
        scope.__enter__().attrs["all"] = scope, owner  # which is never left
        gone = weakref.ref(owner)
        del owner, scope
        gc.collect()
        self.assertIsNone(gone())

    def test_dies_while_what_it_holds_leaves_another(self):
        outer = ci.scope("outer")

        class Leaves:
            def __del__(self):
                outer.__exit__(None, None, None)

        outer.__enter__()
        dying = ci.scope("dying")
        dying.__enter__().attrs["x"] = 1
        dying.__enter__().attrs["d"] = Leaves()
        del dying
        gc.collect()
        for i in range(1000):
            with ci.scope("after", i, a=1):
                pass
        got = Spans()
        self.assertTrue(all(s["closed"] for s in got.spans))
        self.assertEqual(len(got.spans), 1003)

    def test_attributes_of_a_scope_that_was_collected(self):
        """A finalizer may still hold it."""
        seen = []

        class Owner:
            def __del__(self):
                seen.append((self.scope.name, self.scope.attrs.get("n"), repr(self.scope)))

        owner = Owner()
        owner.scope = ci.scope("held", n=7, owner=owner)
        del owner
        gc.collect()
        self.assertEqual(seen, [("held", 7, "<cirron scope 'held'>")])

    def test_plain_ones_are_not_tracked(self):
        self.assertFalse(gc.is_tracked(ci.scope("plain")))
        with ci.scope("plain") as s:
            self.assertFalse(gc.is_tracked(s))
            s.attrs
            self.assertTrue(gc.is_tracked(s))
        self.assertTrue(gc.is_tracked(ci.scope("given", a=1)))

    def test_dies_on_another_thread(self):
        box = [ci.scope("mine", a=1)]
        box[0].__enter__().attrs["b"] = 2
        t = threading.Thread(target=box.clear)
        t.start(), t.join()
        gc.collect()
        self.assertEqual([e[0] for e in events()], ["push"])
        with ci.scope("next"):
            pass
        self.assertEqual([e[0] for e in events()], ["pop", "push", "pop"])

    def test_left_on_another_thread(self):
        def gen():
            with ci.scope("wanders"):
                yield 1

        for first in (True, False):
            g = gen()
            next(g)
            around = ci.scope("opened before") if first else None
            if around:
                around.__enter__()
            t = threading.Thread(target=g.close)
            t.start(), t.join()
            if around is None:
                ci.mark("m", 1)
                self.assertEqual([e[0] for e in events()], ["push", "pop", "mark"])
            else:
                around.__exit__(None, None, None)
                self.assertEqual([e[0] for e in events()], ["push", "push", "pop", "pop"])

    def test_iterator_left_on_another_thread(self):
        it = ci.batches(range(2))
        next(it)
        t = threading.Thread(target=it.close)
        t.start(), t.join()
        with ci.scope("after"):
            got = Spans()
        self.assertEqual(([e[0] for e in got.events], got["after"]["parent"]), (["push", "pop", "push"], ROOT))

    def test_iterator_wanders(self):
        it = ci.batches(range(100))
        for _ in range(50):
            threads = [threading.Thread(target=next, args=(it,)) for _ in range(2)]
            [(t.start(), t.join()) for t in threads]
        events()

    def test_fork_like(self):
        a = ci.scope("a")
        a.__enter__()
        fake.fake_session(0x99)
        with ci.scope("b") as b:  # takes the place and the id that `a` had
            events()
            a.__exit__(None, None, None)
            self.assertEqual(events(), [])
            self.assertTrue(b.id.startswith("0000000000000099"))
        self.assertEqual(len(events()), 1)

    def test_off(self):
        fake.fake_off(1)
        try:
            with ci.scope("x", a=1) as s:
                s.attrs["b"] = 1
                ci.mark("m", 1)
            for i in ci.epochs([1]):
                pass
            self.assertIsNone(s.id)
        finally:
            fake.fake_off(0)
        self.assertEqual(events(), [])

    def test_names(self):
        names = ["", "データ", "emoji 🚂", "tab\tnew\nline", "x" * 10000, "zero\x00one", "zero\x00two", "quote ' \" ;", "%s %n {0}"]
        for n in names * 2:
            with ci.scope(n):
                ci.mark(n, 1)
        got = Spans()
        self.assertEqual(got.names(), names * 2)
        self.assertEqual([m["name"] for m in got.marks], names * 2)

    def test_surrogates(self):
        with ci.scope("a\udc80b", x="\ud800"):
            ci.mark("m", "\udfff!")
        got = Spans()
        self.assertEqual((got["a\ufffdb"]["attrs"], got.marks[0]["value"]), ({"x": "\ufffd"}, "\ufffd!"))

    def test_odd_arguments(self):
        class Text(str):
            pass

        with ci.scope(Text("sub")), ci.scope(17), ci.scope(Bad()), ci.scope(name="kw", index=True):
            pass
        self.assertEqual([(s["name"], s["index"]) for s in Spans().spans], [("sub", None), ("17", None), ("<Bad>", None), ("kw", 1)])
        for index in (2**70, 1.5, "x"):
            with ci.scope("i", index):
                pass
            got = Spans()["i"]
            self.assertEqual((got["index"], got["attrs"]), (None, {"index": str(index) if isinstance(index, int) else index}))
        for args, kwargs in (((), {}), (("a", 1, 2), {}), (("a",), {"name": "b"}), (("a", 1), {"index": 2})):
            with self.assertRaises(TypeError):
                ci.scope(*args, **kwargs)
        with self.assertRaises(TypeError):
            ci.Scope()
        with self.assertRaises(TypeError):
            type(ci.epochs([]))([])

    def test_many_names(self):
        for i in range(2000):
            with ci.scope("n%d" % i):
                pass
        self.assertEqual(Spans().names(), ["n%d" % i for i in range(2000)])

    def test_does_not_leak(self):
        class Held:
            pass

        held = Held()
        gone = weakref.ref(held)
        refs = sys.getrefcount(ci.Scope)
        for _ in range(100):
            with ci.scope("x", 1, held=held) as s:
                s.attrs["more"] = held
        del held, s
        gc.collect()
        self.assertIsNone(gone())
        self.assertLess(abs(sys.getrefcount(ci.Scope) - refs), 5)


class Attributes(Test):
    def encoded(self, **attrs):
        with ci.scope("a", **attrs):
            pass
        return Spans()["a"]["attrs"]

    def test_values(self):
        given = dict(s="x", b=True, f=False, i=-(2**63), fl=0.1, none=None, l=[1, (2, [3])], d={"k": {"n": 1.0}}, e="")
        expected = dict(given, l=[1, [2, [3]]])
        self.assertEqual(self.encoded(**given), expected)
        self.assertEqual(self.encoded(n=float("nan"), p=float("inf"), m=float("-inf"), t=1e300, z=-0.0),
                         {"n": "NaN", "p": "Infinity", "m": "-Infinity", "t": 1e300, "z": -0.0})

    def test_other_types(self):
        class Color(enum.IntEnum):
            RED = 3

        self.assertEqual(self.encoded(a=2**80, b=b"raw", c=1 + 2j, e=Color.RED, f=fractions.Fraction(1, 2), bad=Bad(), s={1}),
                         {"a": str(2**80), "b": "b'raw'", "c": "(1+2j)", "e": 3, "f": 0.5, "bad": "<Bad>", "s": "{1}"})

    def test_escapes(self):
        text = "".join(map(chr, range(0x80))) + '"\\/é🚂'
        self.assertEqual(self.encoded(x=text), {"x": text})
        self.assertEqual(self.encoded(**{'k"\x00\n': 1}), {'k"\x00\n': 1})
        self.assertEqual(self.encoded(d={1: 2, None: 3, "a": 4}), {"d": {"1": 2, "None": 3, "a": 4}})

    def test_limits(self):
        got = self.encoded(long="é" * 10000, short=1)
        self.assertEqual((got["long"], got["short"]), ("é" * 2048, 1))
        self.assertEqual(self.encoded(big=list(range(100000)), d={i: i for i in range(5000)}, k=1),
                         {"big": "<list of 100000>", "d": "<dict of 5000>", "k": 1})
        got = self.encoded(a=list(range(2000)), b=list(range(2000)))
        self.assertEqual((got["a"], got["b"]), (list(range(2000)), "<list of 2000>"))
        loop = []
        loop.append(loop)
        got = self.encoded(loop=loop)["loop"]
        for _ in range(7):
            got = got[0]
        self.assertEqual(got, ["<list of 1>"])
        wide = [1]
        for _ in range(20):
            wide = [wide] * 4
        self.assertEqual(self.encoded(wide=wide), {"wide": "<list of 4>"})

    def test_left_out(self):
        got = self.encoded(**{"k%d" % i: "x" * 1000 for i in range(100)})
        left = got.pop("cirron.left_out")
        self.assertEqual(len(got) + left, 100)
        self.assertGreater(len(got), 10)
        ci.mark("m", 1, **{"k%d" % i: "x" * 1000 for i in range(100)})
        self.assertGreater(Spans().marks[0]["attrs"]["cirron.left_out"], 90)

    def lost(self, do):
        """What health() counts more after do(): attributes that are not there as given, and that are not there."""
        before = ci.health()
        do()
        after = ci.health()
        return tuple(after[k] - before[k] for k in ("attr_coerced_count", "attr_drop_count"))

    def test_counted(self):
        class Color(enum.IntEnum):
            RED = 3

        for attrs, expected in ((dict(a=1, b="x" * 4096, c=[1, {"k": None}], d=float("nan"), e=Color.RED, f=fractions.Fraction(1, 2), g=True), (0, 0)),
                                (dict(a=object(), b=Bad(), c=1, d={1, 2}, e=b"raw", f=2**80), (5, 0)), (dict(a="x" * 4097), (1, 0)),
                                (dict(a=[object(), object(), 1], b={"k": {"l": 1j}}, c={1: 2}, d={"x" * 257: 1}), (4, 0)),
                                (dict(a=list(range(100000)), b=1), (1, 0)), ({"k" * 257: 1}, (1, 0)),
                                ({"k%d" % i: "x" * 1000 for i in range(100)}, (0, 86)), ({"k%d" % i: Bad() for i in range(3)}, (3, 0))):
            self.assertEqual(self.lost(lambda: self.encoded(**attrs)), expected, list(attrs))
            self.assertEqual(self.lost(lambda: ci.scope("a", **attrs)), (0, 0))  # not entered
            left_out = expected if expected[1] == 0 else (0, 95)
            self.assertEqual(self.lost(lambda: ci.mark("m", 1, **attrs)), left_out, list(attrs))

    def test_counted_once(self):
        """Attributes that are written again count as they are in the end."""
        def more():
            with ci.scope("a", x=Bad()) as a:
                a.attrs["y"] = Bad()

        def less():
            with ci.scope("a", x=Bad(), y=Bad()) as a:
                del a.attrs["y"]
                with ci.scope("b"):
                    pass

        def same():
            with ci.scope("a", x=Bad()) as a:
                a.attrs, ci.mark("m", 1)

        self.assertEqual([self.lost(x) for x in (more, less, same)], [(2, 0), (1, 0), (1, 0)])

    def test_not_counted_when_off(self):
        class Asked:
            def __str__(self):
                raise KeyboardInterrupt

        def do():
            with ci.scope("a", x=Asked()):
                ci.mark("m", 1, x=Asked())

        fake.fake_off(1)
        try:
            self.assertEqual(self.lost(do), (0, 0))
        finally:
            fake.fake_off(0)
        self.assertEqual(self.lost(lambda: self.assertRaises(ValueError, ci.mark, "m", 1, x=Asked(), kind="x")), (0, 0))

    def test_changing_while_encoded(self):
        class Sly:
            def __str__(self):
                target.clear()
                lst.clear()
                with ci.scope("inside"):
                    return "sly"

        lst = [Sly(), 1, 2]
        with ci.scope("a") as a:
            target = a.attrs
            target.update({"x": lst, "y": 2, "z": Sly()})
        got = Spans()
        self.assertEqual(got["a"]["attrs"], {"x": ["sly", 1, 2], "y": 2, "z": "sly"})
        self.assertTrue(all(s["closed"] for s in got.spans))

    def test_closing_while_encoded(self):
        class Closer:
            def __str__(self):
                s.__exit__(None, None, None)
                outer.__exit__(None, None, None)
                return "closer"

        with ci.scope("outer") as outer:
            with ci.scope("a") as s:
                s.attrs["c"] = Closer()
        got = Spans()
        self.assertTrue(all(x["closed"] for x in got.spans))
        self.assertEqual(len(got.events), 4)

    def test_interrupt_goes_on(self):
        with self.assertRaises(KeyboardInterrupt):
            with ci.scope("a", x=Stop()):
                self.fail("not entered")
        self.assertEqual(events(), [])
        with self.assertRaises(KeyboardInterrupt):
            with ci.scope("a") as a:
                a.attrs["x"] = Stop()
        self.assertTrue(Spans()["a"]["closed"])
        with self.assertRaises(KeyboardInterrupt):
            ci.mark("m", Stop())
        with self.assertRaises(KeyboardInterrupt):
            ci.mark("m", 1, x=Stop())


class Decorator(Test):
    def test_function(self):
        @ci.scope("f", part=1)
        def f(a, *, b=2):
            """doc"""
            return a + b

        self.assertEqual((f(1), f(1, b=1), f.__name__, f.__doc__, str(inspect.signature(f))), (3, 2, "f", "doc", "(a, *, b=2)"))
        got = Spans()
        self.assertEqual([(s["name"], s["attrs"], s["closed"]) for s in got.spans], [("f", {"part": 1}, True)] * 2)

    def test_recursion(self):
        @ci.scope("r")
        def r(n):
            return n and 1 + r(n - 1)

        self.assertEqual(r(100), 100)
        got = Spans()
        self.assertEqual(len(got.spans), 63)
        self.assertTrue(all(s["closed"] for s in got.spans))

    def test_raises(self):
        @ci.scope("f")
        def f():
            raise LookupError

        with self.assertRaises(LookupError):
            f()
        self.assertEqual(Spans()["f"]["error"], "LookupError")

    def test_methods(self):
        class C:
            @ci.scope("m")
            def m(self):
                return self

            @ci.scope("s")
            @staticmethod
            def s(x):
                return x

            @classmethod
            @ci.scope("c")
            def c(cls):
                return cls

            @ci.scope("c2")
            @classmethod
            def c2(cls):
                return cls

        c = C()
        self.assertEqual((c.m(), C.s(3), c.s(4), C.c(), c.c2()), (c, 3, 4, C, C))
        self.assertEqual(Spans().names(), ["m", "s", "s", "c", "c2"])

    def test_generator(self):
        @ci.scope("g")
        def g():
            got = yield 1
            try:
                yield got
            except KeyError:
                yield "caught"
            return 9

        self.assertTrue(inspect.isgeneratorfunction(g))
        it = g()
        self.assertEqual(events(), [])
        self.assertEqual((next(it), it.send(5), it.throw(KeyError())), (1, 5, "caught"))
        with self.assertRaises(StopIteration) as stop:
            next(it)
        self.assertEqual(stop.exception.value, 9)
        self.assertTrue(Spans()["g"]["closed"])
        it = g()
        next(it)
        it.close()
        got = Spans()["g"]
        self.assertEqual((got["closed"], got["error"]), (True, None))

    def test_coroutines(self):
        @ci.scope("co")
        async def co(x):
            await asyncio.sleep(0)
            return x

        @ci.scope("ag")
        async def ag():
            try:
                got = yield 1
                yield got
            except KeyError:
                yield "caught"

        async def main():
            a = ag()
            first = await a.__anext__()
            return await co(4), [x async for x in ag()], first, await a.asend(7), await a.athrow(KeyError()), await a.aclose()

        self.assertTrue(inspect.iscoroutinefunction(co) and inspect.isasyncgenfunction(ag))
        self.assertEqual(asyncio.run(main()), (4, [1, None], 1, 7, "caught", None))
        self.assertTrue(all(s["closed"] for s in Spans().spans))

    def test_not_callable(self):
        for thing in (3, None, "f"):
            with self.assertRaises(TypeError):
                ci.scope("x")(thing)
        self.assertEqual(ci.scope("len")(len)([1]), 1)
        self.assertEqual(ci.scope("p")(functools.partial(int, "7"))(), 7)


def module_level():
    return 1


plain_level, module_level = module_level, ci.scope("top")(module_level)


class Pickles(Test):
    def test_decorated(self):
        self.assertIs(pickle.loads(pickle.dumps(module_level)), module_level)
        self.assertIs(copy.deepcopy(module_level), module_level)


class Marks(Test):
    def stored(self, value):
        ci.mark("m", value)
        got = Spans()
        return (got.marks[0]["type"], got.marks[0]["value"]) if got.marks else got.events

    def test_types(self):
        class F(float):
            pass

        class S(str):
            pass

        class E(enum.IntEnum):
            A = 4

        class Index:
            def __index__(self):
                return 12

        for value, expected in ((True, ("bool", "1")), (False, ("bool", "0")), (3, ("int", "3")), (-(2**63), ("int", str(-(2**63)))),
                                (2**63 - 1, ("int", str(2**63 - 1))), (1e308, ("float", "1e+308")), ("text", ("string", "text")),
                                ("a\x00b", ("string", "a\x00b")), ("", ("string", "")), (F(1.5), ("float", "1.5")),
                                (S("s"), ("string", "s")), (E.A, ("int", "4")), (Index(), ("int", "12")),
                                (fractions.Fraction(1, 4), ("float", "0.25")), (float("nan"), ("float", "nan")),
                                (float("inf"), ("float", "inf")), (float("-inf"), ("float", "-inf"))):
            self.assertEqual(self.stored(value), expected, value)

    def test_refused(self):
        class Items:
            def item(self):
                raise ValueError("more than one")

        class Complex:
            def item(self):
                return 1j

            def __float__(self):
                return 1.0

        for value in (2**63, -(2**63) - 1, None, b"raw", bytearray(b"1"), [1], (1,), {}, 1j, Bad(), object(), int, Items(), Complex(), len):
            before = ci.health()["mark_refused_count"]
            self.assertEqual(self.stored(value), [["refused"]], value)
            self.assertEqual(ci.health()["mark_refused_count"], before + 1)

    def test_long_text(self):
        self.assertEqual(self.stored("é" * 9000), ("string", "é" * 4500))

    def test_target(self):
        ci.mark("a", 1)
        with ci.scope("s"):
            ci.mark("b", 2)
            t = threading.Thread(target=ci.mark, args=("c", 3))
            t.start(), t.join()
        got = Spans()
        self.assertEqual([m["span"] for m in got.marks], [ROOT, got["s"]["id"], ROOT])

    def test_arguments(self):
        ci.mark("a", 1, kind="summary", unit="s", n=2)
        ci.mark(name="b", value=2, kind="point")
        ci.mark("c", value=3)
        ci.mark(4, 4)
        got = Spans().marks
        self.assertEqual([(m["name"], m["value"], m["kind"], m["attrs"]) for m in got],
                         [("a", "1", "summary", {"unit": "s", "n": 2}), ("b", "2", "point", None), ("c", "3", "point", None),
                          ("4", "4", "point", None)])
        for args, kwargs in (((), {}), (("a",), {}), ((), {"value": 1}), (("a", 1, 2), {})):
            with self.assertRaises(TypeError):
                ci.mark(*args, **kwargs)
        for kind in ("Summary", 3, None):
            with self.assertRaisesRegex(ValueError, "kind"):
                ci.mark("a", 1, kind=kind)

    def test_numpy(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no numpy")
        for value, expected in ((np.float32(1.5), ("float", "1.5")), (np.float64(0.1), ("float", "%.17g" % 0.1)), (np.int64(-3), ("int", "-3")),
                                (np.bool_(True), ("bool", "1")), (np.uint8(255), ("int", "255")), (np.array(2.5), ("float", "2.5")),
                                (np.array([[7]]), ("int", "7")), (np.array([False]), ("bool", "0")), (np.float16(0.5), ("float", "0.5")),
                                (np.longdouble(0.25), ("float", "0.25")), (np.str_("text"), ("string", "text"))):
            self.assertEqual(self.stored(value), expected, repr(value))
        for value in (np.array([1, 2]), np.uint64(2**63), np.complex64(1j), np.array([]), np.array(["a", "b"])):
            self.assertEqual(self.stored(value), [["refused"]], repr(value))
        with ci.scope("a", lr=np.float32(0.5), a=np.array([1, 2])):
            pass
        self.assertEqual(Spans()["a"]["attrs"], {"lr": 0.5, "a": "[1 2]"})

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        w = torch.tensor(2.5, requires_grad=True)
        loss = w * 1.0
        alive = weakref.ref(loss)
        for value, expected in ((loss, ("float", "2.5")), (torch.tensor(3), ("int", "3")), (torch.tensor([True]), ("bool", "1")),
                                (torch.tensor(0.5, dtype=torch.bfloat16), ("float", "0.5")), (torch.nn.Parameter(torch.ones(1)), ("float", "1"))):
            self.assertEqual(self.stored(value), expected, repr(value))
        del loss, value
        gc.collect()
        self.assertIsNone(alive())
        for value in (torch.zeros(2), torch.zeros(0), torch.tensor(1j), torch.zeros(1, device="meta")):
            self.assertEqual(self.stored(value), [["refused"]], repr(value))


class Loops(Test):
    def test_items_and_spans(self):
        things = [object() for _ in range(3)]
        seen = []
        for x in ci.epochs(things):
            for y in ci.batches("ab"):
                ci.mark(y, len(seen))
            seen.append(x)
        self.assertTrue(all(a is b for a, b in zip(seen, things)) and len(seen) == 3)
        got = Spans()
        epochs = [s for s in got.spans if s["name"] == "epoch"]
        batches = [s for s in got.spans if s["name"] == "batch"]
        self.assertEqual([(s["kind"], s["index"], s["parent"]) for s in epochs], [(2, i, ROOT) for i in range(3)])
        self.assertEqual([(s["kind"], s["index"], s["parent"]) for s in batches], [(9, i, e["id"]) for e in epochs for i in range(2)])
        self.assertTrue(all(s["closed"] for s in got.spans))

    def test_fetching_is_outside(self):
        def gen():
            for i in range(2):
                ci.mark("fetch", i)
                yield i
            ci.mark("fetch", 2)

        list(ci.batches(gen()))
        self.assertEqual([m["span"] for m in Spans().marks], [ROOT] * 3)

    def test_break(self):
        for e in ci.epochs(range(5)):
            for b in ci.batches([1, 2, 3]):
                if b == 2:
                    break
            if e == 1:
                break
        with ci.scope("after"):
            pass
        got = Spans()
        self.assertEqual((got.names().count("epoch"), got.names().count("batch"), got["after"]["parent"]), (2, 4, ROOT))
        self.assertTrue(all(s["closed"] for s in got.spans))

    def test_raise_in_body(self):
        with self.assertRaises(LookupError):
            for _ in ci.epochs(range(3)):
                raise LookupError
        gc.collect()
        self.assertTrue(Spans()["epoch"]["closed"])

    def test_close(self):
        gone = []

        def gen():
            try:
                yield from range(5)
            finally:
                gone.append(1)

        it = ci.batches(gen())
        next(it)
        it.close()
        self.assertTrue(Spans()["batch"]["closed"])
        self.assertEqual((gone, list(it)), ([1], []))
        it.close()
        self.assertEqual(events(), [])

    def test_len(self):
        self.assertEqual((len(ci.epochs(range(7))), len(ci.batches([])), bool(ci.batches([])), bool(ci.batches([1]))), (7, 0, False, True))
        it = ci.batches(x for x in [1, 2])
        with self.assertRaisesRegex(TypeError, "len"):
            len(it)
        self.assertTrue(it)
        self.assertEqual((list(it), operator.length_hint(ci.epochs("abc"))), ([1, 2], 3))

        class Odd(list):
            def __len__(self):
                raise OSError("no")

        with self.assertRaises(OSError):
            len(ci.batches(Odd([1])))

    def test_errors_pass(self):
        def gen():
            yield 1
            raise OSError("disk")

        it = ci.batches(gen())
        self.assertEqual(next(it), 1)
        with self.assertRaisesRegex(OSError, "disk"):
            next(it)
        self.assertTrue(Spans()["batch"]["closed"])
        self.assertEqual(list(it), [])
        for thing in (5, None):
            with self.assertRaisesRegex(TypeError, "can be iterated over"):
                ci.epochs(thing)
        with self.assertRaises(TypeError):
            ci.epochs()

    def test_resumes_after_end(self):
        class Feed:
            items = [1, None, 2, None]

            def __iter__(self):
                return self

            def __next__(self):
                x = self.items.pop(0)
                if x is None:
                    raise StopIteration
                return x

        it = ci.batches(Feed())
        self.assertEqual((list(it), list(it)), ([1], [2]))
        self.assertEqual([s["index"] for s in Spans().spans], [0, 1])

    def test_is_its_own_iterator(self):
        it = ci.epochs([1])
        self.assertIs(iter(it), it)

    def test_cycle_is_collected(self):
        class Node:
            def __iter__(self):
                return iter([1, 2])

        node = Node()
        node.it = ci.epochs(node)
        next(node.it)
        gone = weakref.ref(node)
        del node
        gc.collect()
        self.assertIsNone(gone())
        self.assertTrue(Spans()["epoch"]["closed"])

    def test_session_changes(self):
        it = ci.epochs(range(3))
        next(it)
        fake.fake_session(0x55)
        with ci.scope("b"):
            events()
            next(it)
            got = Spans()
            self.assertEqual(([e[0] for e in got.events], got.names()), (["push"], ["epoch"]))
        it.close()

    def test_closing_itself(self):
        def gen():
            yield 1
            it.close()
            yield 2

        it = ci.batches(gen())
        self.assertEqual((next(it), next(it)), (1, 2))
        self.assertEqual([s["closed"] for s in Spans().spans], [True])
        self.assertRaises(StopIteration, next, it)


class Profile(Test):
    def test_health(self):
        h = ci.health()
        self.assertLessEqual({"enabled", "scope_drop_count", "mark_drop_count", "spool_drop_count", "spool_dir", "spool_bytes", "flush_mode",
                              "flush_restart_count", "flush_latency_ns", "frameworks_installed", "installed_hooks", "transport", "platform_context", "scope_depth", "detail_shed_count", "overhead_ns", "overhead_ratio", "watched"}, set(h))
        self.assertEqual((h["enabled"], h["transport"], h["platform_context"]), (True, None, {"rank": 3, "world_size": 8, "run_id": "run7"}))
        with ci.scope("a"), ci.scope("b"):
            self.assertEqual(ci.health()["scope_depth"], 2)

    def test_exceptions(self):
        bases = {"CirronError": (Exception,), "CirronDependencyError": (ci.CirronError, ImportError), "CirronYamlError": (Exception,)}
        for name, expected in bases.items():
            kind = getattr(ci, name)
            self.assertEqual((kind.__bases__, kind.__name__, kind.__module__), (expected, name, "cirron"))
            self.assertTrue(kind.__doc__)
            error = pickle.loads(pickle.dumps(kind("why", 3)))
            self.assertEqual((type(error), error.args, str(error)), (kind, ("why", 3), "('why', 3)"))
            with self.assertRaises(expected[-1]):
                raise type("Derived", (kind,), {})("x")
        self.assertEqual(ci.CirronDependencyError("no pandas").msg, "no pandas")

    def test_module(self):
        self.assertEqual((ci.__version__, ci.__name__), ("test", "cirron"))
        for name in ("scope", "mark", "epochs", "batches", "watch", "wrap", "profile", "flush", "health", "shutdown"):
            self.assertTrue(inspect.signature(getattr(ci, name)) and getattr(ci, name).__doc__, name)


class ZLast(Test):
    """Turns everything off, so it comes last."""

    def test_disabled(self):
        p = ci.profile(enabled=False)
        self.assertEqual((p.enabled, ci.health()["enabled"], ci.health()["flush_mode"], events()), (False, False, "stopped", [["close"]]))
        with ci.scope("x"):
            ci.mark("m", 1)
        self.assertEqual((events(), p.enabled, ci.shutdown()), ([], False, None))


if __name__ == "__main__":
    if os.environ.get("CIRRON_TEST_NO_NUMPY"):
        sys.modules["numpy"] = sys.modules["torch"] = None
    unittest.main(verbosity=1)
