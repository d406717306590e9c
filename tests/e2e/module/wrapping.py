"""cirron.wrap and cirron.watch on the fake stack, with estimators made up here: run like surface.py, by every interpreter."""
import collections.abc
import copy
import copyreg
import ctypes
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import traceback
import types
import unittest
import weakref

import cirron as ci
from surface import ROOT, Spans, Stop, Test, events, fake

watched_now = ctypes.PyDLL(ci.__file__).fake_watched
watched_now.restype = ctypes.py_object


def watched():
    """What the C interface gives to the snapshots: a list of (model, name), or None."""
    return watched_now() or None


class Estimator:
    """Behaves as sklearn's do, and calls itself."""

    kind = "plain"

    def __init__(self, alpha=1.0):
        self.alpha = alpha

    def get_params(self, deep=True):
        return {"alpha": self.alpha}

    def set_params(self, **params):
        self.__dict__.update(params)
        return self

    def fit(self, X, y=None, *, weight=None):
        """Learns."""
        self.coef_ = [self.alpha * x for x in X]
        return self

    def predict(self, X):
        return [self.coef_[0] * x for x in X]

    def fit_predict(self, X):
        return self.fit(X).predict(X)

    def score(self, X, y):
        ci.mark("inside", 1)
        return sum(a == b for a, b in zip(self.predict(X), y))

    def kneighbors(self, n=2):
        return list(range(n))

    def broken(self):
        raise LookupError("no such neighbour")

    def stopped(self):
        raise KeyboardInterrupt

    def _private(self):
        return self

    @property
    def size(self):
        return len(self.coef_)

    @staticmethod
    def helper(x):
        return x


class Compound(Estimator):
    """With parts, and with what the interpreter asks of types."""

    def __init__(self, steps):
        self.steps = steps

    def fit(self, X, y=None):
        for _, part, *_ in self.steps:
            if hasattr(part, "fit"):
                part.fit(X)
        return self

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, i):
        return self.steps[i][1]

    def __setitem__(self, i, part):
        self.steps[i] = (self.steps[i][0], part)

    def __contains__(self, name):
        return name in [n for n, *_ in self.steps]

    def __call__(self, x):
        return x + 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.left = error[0]

    def __add__(self, other):
        return Compound(self.steps + other.steps)

    def __iadd__(self, other):
        self.steps += other.steps
        return self

    def __str__(self):
        return "a compound"

    def __eq__(self, other):
        return isinstance(other, Compound) and [n for n, *_ in self.steps] == [n for n, *_ in other.steps]

    __hash__ = None


class Cloning(Estimator):
    def __sklearn_clone__(self):
        return type(self)(**self.get_params())


class Slotted:
    __slots__ = ("x", "__weakref__")

    def fit(self, x):
        self.x = x
        return self


class Named:
    """Pickles as a name."""

    def fit(self):
        return self

    def __reduce__(self):
        return "NAMED"


NAMED = Named()


class Registered:
    def __init__(self, x):
        self.x = x

    def fit(self):
        return self


copyreg.pickle(Registered, lambda r: (Registered, (r.x + 1,)))


class Watching(type):
    """A class whose subclasses are counted: types of ours are none."""

    made = []

    def __new__(cls, *args):
        made = super().__new__(cls, *args)
        cls.made.append(made.__name__)
        return made


class Counted(metaclass=Watching):
    def __init_subclass__(cls, required):
        raise AssertionError

    def fit(self):
        return self


class Wrap(Test):
    def test_spans(self):
        e = ci.wrap(Estimator(2))
        self.assertIs(e.fit([1, 2]), e)
        self.assertEqual((e.predict([3]), e.fit_predict([1]), e.kneighbors(n=1), e.score([1], [2])), ([6], [2], [0], 1))
        got = Spans()
        self.assertEqual([(s["name"], s["kind"], s["parent"], s["index"], s["error"], s["attrs"]) for s in got.spans],
                         [(n, 0, ROOT, None, None, {"estimator": "Estimator"}) for n in ("fit", "predict", "fit_predict", "kneighbors", "score")])
        self.assertTrue(all(s["closed"] for s in got.spans))
        self.assertEqual(got.marks[0]["span"], got["score"]["id"])

    def test_no_spans(self):
        e = ci.wrap(Estimator())
        self.assertIs(e.set_params(alpha=3), e)
        self.assertEqual((e.get_params(), e.kind, e.alpha, e.helper(4), type(e._private())), ({"alpha": 3}, "plain", 3, 4, Estimator))
        self.assertEqual(events(), [])

    def test_nests(self):
        e = ci.wrap(Estimator())
        with ci.scope("around"):
            e.fit([1])
        got = Spans()
        self.assertEqual(got["fit"]["parent"], got["around"]["id"])

    def test_exceptions(self):
        e = ci.wrap(Estimator())
        for method, args, error in (("broken", (), LookupError), ("stopped", (), KeyboardInterrupt), ("predict", ([1],), AttributeError)):
            try:
                getattr(e, method)(*args)
                self.fail("no exception")
            except error as caught:
                names = [frame.name for frame in traceback.extract_tb(caught.__traceback__)]
            self.assertEqual([n for n in names if n[0] != "<"], ["test_exceptions", method])  # no frame of ours
            got = Spans()
            self.assertEqual([(s["closed"], s["error"]) for s in got.spans], [(True, error.__name__)])
        with self.assertRaisesRegex(TypeError, "fit"):
            e.fit()
        self.assertEqual(Spans()["fit"]["error"], "TypeError")
        with self.assertRaisesRegex(AttributeError, "'Estimator' object has no attribute 'nothing'"):
            e.nothing

    def test_off_too_deep_and_forked(self):
        e = ci.wrap(Estimator())
        fake.fake_off(1)
        try:
            self.assertIs(e.fit([1]), e)
        finally:
            fake.fake_off(0)
        self.assertEqual(events(), [])

        def down(n):
            with ci.scope("d"):
                return down(n - 1) if n else e.fit([1])

        self.assertIs(down(70), e)
        self.assertNotIn("fit", Spans().names())

        class Forks(Estimator):
            def fit(self, X):
                fake.fake_session(0x77)

        ci.wrap(Forks()).fit([1])
        self.assertEqual([x[0] for x in events()], ["push"])

    def test_threads(self):
        e = ci.wrap(Estimator())
        with ci.scope("around"):
            threads = [threading.Thread(target=lambda: [e.fit([1]) for _ in range(50)]) for _ in range(4)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        got = Spans()
        self.assertEqual([s["parent"] for s in got.spans if s["name"] == "fit"], [ROOT] * 200)
        self.assertTrue(all(s["closed"] for s in got.spans))

    def test_seen_as_the_estimator(self):
        inner = Estimator(5)
        e = ci.wrap(inner)
        self.assertTrue(isinstance(e, Estimator) and e.__class__ is Estimator and not isinstance(e, Compound))
        self.assertTrue(isinstance(e, ci.WrappedEstimator) and not isinstance(inner, ci.WrappedEstimator))
        self.assertEqual((type(e).__name__, type(e).__module__, repr(type(e)), type(e).__qualname__), ("Estimator", __name__, repr(Estimator), "Estimator"))
        self.assertEqual((type(e).mro(), type(e).__mro__, type(e).__doc__), (Estimator.mro(), Estimator.__mro__, Estimator.__doc__))
        self.assertEqual((repr(e), str(e), format(e), hash(e), dir(e), vars(e)), (repr(inner), str(inner), format(inner), hash(inner), dir(inner), vars(inner)))
        self.assertTrue(e == inner and inner == e and e == ci.wrap(inner) and not e != inner and e != Estimator(5))
        self.assertEqual({e: 1}[inner], 1)
        self.assertIs(e.__wrapped__, inner)
        e.beta = 7
        self.assertEqual(inner.beta, 7)
        del e.beta
        self.assertFalse(hasattr(inner, "beta") or hasattr(e, "beta") or hasattr(e, "size"))
        e.fit([1])
        self.assertEqual((e.size, e.coef_, bool(e), weakref.ref(e)()), (1, [5], True, e))
        for check in (collections.abc.Sized, collections.abc.Iterable, collections.abc.Callable, collections.abc.Container):
            self.assertFalse(isinstance(e, check), check)
        self.assertFalse(callable(e))
        for wrong in (len, iter, next, lambda x: x[0], lambda x: x(), lambda x: x + 1, lambda x: 1 in x, lambda x: x < x):
            with self.assertRaises(TypeError):
                wrong(e)
        other = type(e)(alpha=9)
        self.assertTrue(isinstance(other, ci.WrappedEstimator) and other.alpha == 9)
        self.assertIs(type(other), type(e))
        with self.assertRaises(TypeError):
            ci.WrappedEstimator()

    def test_methods_are_methods(self):
        e = ci.wrap(Estimator())
        self.assertTrue(inspect.ismethod(e.fit) and callable(e.fit))
        self.assertEqual((str(inspect.signature(e.fit)), e.fit.__name__, e.fit.__doc__), ("(X, y=None, *, weight=None)", "fit", "Learns."))
        self.assertEqual((e.fit, hash(e.fit)), (e.fit, hash(e.__wrapped__.fit)))
        self.assertEqual((repr(e.fit), e.fit.__func__), (repr(e.__wrapped__.fit), Estimator.fit))
        self.assertIs(e.fit.__self__, e)
        self.assertNotEqual(e.fit, e.predict)
        self.assertEqual(pickle.loads(pickle.dumps(e.fit)).__self__.alpha, 1.0)
        with self.assertRaises(AttributeError):
            e.fit.note = 1
        self.assertEqual(events(), [])

    def test_interpreter_methods(self):
        e = ci.wrap(Compound([("a", Estimator()), ("b", Estimator())]))
        self.assertEqual((len(e), e(1), "a" in e, "z" in e, str(e)), (2, 2, True, False, "a compound"))
        e[1] = "drop"
        self.assertEqual((e[1], e.steps[1]), ("drop", ("b", "drop")))
        with e as inside:
            self.assertIs(inside, e)
        self.assertIsNone(e.left)
        self.assertTrue(isinstance(e, collections.abc.Sized) and isinstance(e, collections.abc.Callable) and callable(e))
        self.assertEqual([n for n, *_ in (e + e).steps], ["a", "b", "a", "b"])
        same = e
        e += Compound([("c", None)])
        self.assertIs(e, same)
        self.assertEqual(len(e), 3)
        self.assertTrue(e == Compound([("a", 1), ("b", 1), ("c", 1)]))
        with self.assertRaises(TypeError):
            hash(e)
        events()

    def test_parts(self):
        inner = Compound([("inner", Estimator()), ("off", "passthrough"), ("none", None)])
        steps = [("scale", Estimator()), ("sub", inner), ["list", Estimator()], ("class", Estimator), ("cols", Estimator(), [1])]
        pipe = Compound(steps)
        e = ci.wrap(pipe)
        self.assertIs(pipe.steps, steps)
        kinds = [isinstance(s[1], ci.WrappedEstimator) for s in steps] + [isinstance(s[1], ci.WrappedEstimator) for s in inner.steps]
        self.assertEqual(kinds, [True, True, False, False, True, True, False, False])
        self.assertEqual((inner.steps[1:], steps[4][2]), ([("off", "passthrough"), ("none", None)], [1]))
        steps[3:4] = []
        e.fit([1])
        got = Spans()
        names = {s["id"]: s["attrs"]["estimator"] for s in got.spans}
        self.assertEqual([(s["attrs"]["estimator"], names.get(s["parent"])) for s in got.spans],
                         [("Compound", None), ("Estimator", "Compound"), ("Compound", "Compound"), ("Estimator", "Compound"), ("Estimator", "Compound")])
        kept = [s[1] for s in steps]
        ci.wrap(pipe)
        self.assertTrue(all(a is b for a, b in zip(kept, [s[1] for s in steps])))

    def test_holds_itself(self):
        pipe = Compound([])
        pipe.steps.append(("self", pipe))
        self.assertTrue(isinstance(ci.wrap(pipe).steps[0][1], ci.WrappedEstimator))

    def test_parts_that_resist(self):
        class Bad(Estimator):
            @property
            def steps(self):
                raise ValueError("not fitted")

            @property
            def transformers(self):
                return [("a", Worse())]

            estimators = (("a", Estimator()),)

        class Worse:
            @property
            def fit(self):
                raise RuntimeError("no")

        e = ci.wrap(Bad())
        self.assertFalse(isinstance(e.estimators[0][1], ci.WrappedEstimator))
        with self.assertRaisesRegex(RuntimeError, "no"):
            ci.wrap(Worse())

        class Interrupts(Estimator):
            @property
            def steps(self):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            ci.wrap(Interrupts())

    def test_twice(self):
        inner = Estimator()
        e = ci.wrap(inner)
        self.assertIs(ci.wrap(e), e)
        again = ci.wrap(estimator=inner)
        again.fit([1])
        e.predict([1])
        self.assertEqual((Spans().names(), inner.__dict__), (["fit", "predict"], {"alpha": 1.0, "coef_": [1.0]}))

    def test_wrong(self):
        for thing in (5, "passthrough", None, [Estimator()], {}, len, object(), inspect, Estimator, lambda: 1, 1.5):
            with self.assertRaises(TypeError) as caught:
                ci.wrap(thing)
            text = str(caught.exception)
            self.assertIn("wrap(): estimator must be an object with fit(), predict()", text)
            self.assertIn(repr(thing), text)
        self.assertIn("no class: make an object of it first", str(self.error(ci.wrap, Estimator)))
        for args, kwargs in (((), {}), ((Estimator(), 1), {}), ((), {"model": Estimator()})):
            self.error(ci.wrap, *args, **kwargs)

    def error(self, function, *args, **kwargs):
        with self.assertRaises(TypeError) as caught:
            function(*args, **kwargs)
        return caught.exception

    def test_copies(self):
        for e in (ci.wrap(Estimator(4)).fit([1]), ci.wrap(Compound([("a", Estimator())]))):
            for made in (copy.copy(e), copy.deepcopy(e)):
                self.assertTrue(isinstance(made, ci.WrappedEstimator) and type(made) is type(e) and made is not e)
                self.assertIsNot(made.__wrapped__, e.__wrapped__)
                self.assertEqual(set(vars(made)), set(vars(e)))
        both = copy.deepcopy([e, e])
        self.assertIs(both[0], both[1])
        self.assertTrue(isinstance(both[0].steps[0][1], ci.WrappedEstimator))
        self.assertIsNot(both[0].steps[0][1].__wrapped__, e.steps[0][1].__wrapped__)

    def test_clones(self):
        e = ci.wrap(Cloning(3)).fit([1])
        made = e.__sklearn_clone__()
        self.assertTrue(isinstance(made, ci.WrappedEstimator) and made.alpha == 3 and not hasattr(made, "coef_"))
        self.assertIs(type(made), type(e))
        self.assertFalse(hasattr(ci.wrap(Estimator()), "__sklearn_clone__"))
        self.assertIs(e.__class__(**e.get_params()).__class__, Cloning)  # as sklearn clones what has no such method
        self.assertEqual(Spans().names(), ["fit"])

    def test_pickles_as_the_estimator(self):
        inner = Estimator(3).fit([1])
        e = ci.wrap(inner)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            plain = pickle.dumps(inner, protocol)
            for dumps in (pickle.dumps, pickle._dumps):
                self.assertEqual(dumps(e, protocol), plain)
            self.assertIs(type(pickle.loads(plain)), Estimator)
        self.assertNotIn(b"cirron", pickle.dumps(ci.wrap(Compound([("a", Estimator())]))))
        one, two = pickle.loads(pickle.dumps([e, e]))
        self.assertIs(one, two)
        slotted = pickle.loads(pickle.dumps(ci.wrap(Slotted()).fit(3)))
        self.assertEqual((type(slotted), slotted.x), (Slotted, 3))
        self.assertIs(pickle.loads(pickle.dumps(ci.wrap(NAMED))), NAMED)
        self.assertEqual(pickle.loads(pickle.dumps(ci.wrap(Registered(1)))).x, 2)
        loop = Estimator()
        loop.outer = ci.wrap(loop)
        again = pickle.loads(pickle.dumps(loop.outer))
        self.assertIs(type(again), Estimator)

    def test_loads_without_cirron(self):
        data = pickle.dumps(ci.wrap(Estimator(3)).fit([1]))  # a class of __main__, which the other program has, too
        text = ("import pickle, sys\nclass Estimator: pass\n"
                "e = pickle.loads(bytes.fromhex(%r))\nassert 'cirron' not in sys.modules\nprint(type(e).__name__, e.alpha, e.coef_)" % data.hex())
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        r = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual((r.returncode, r.stdout), (0, "Estimator 3 [3]\n"))

    def test_attributes_that_can_be_called(self):
        inner = Estimator()
        inner.loss = lambda x: x * 2
        inner.transform = lambda x: [x]  # a function, but one of the methods by its name: a span
        inner.kept = Estimator().predict  # somebody else's method
        inner.base = Estimator
        e = ci.wrap(inner)
        self.assertIs(e.loss, inner.loss)
        self.assertIs(e.base, Estimator)
        self.assertEqual((e.loss(2), e.transform(2), e.kept), (4, [2], inner.kept))
        self.assertEqual(Spans().names(), ["transform"])

    def test_classes_made_to_watch(self):
        before = list(Watching.made)
        e = ci.wrap(Counted())
        self.assertIs(e.fit(), e)
        self.assertEqual((Watching.made, Counted.__subclasses__(), type(e).__name__), (before, [], "Counted"))

    def test_own_getattr(self):
        class Forwarding:
            def __init__(self, to):
                self.__dict__["to"] = to

            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return getattr(self.to, name)

            def __setattr__(self, name, value):
                setattr(self.to, name, value)

        inner = Forwarding(Estimator(2))
        e = ci.wrap(inner)
        e.alpha = 5
        self.assertEqual((inner.to.alpha, e.fit([1]).coef_), (5, [5]))
        self.assertEqual(Spans()["fit"]["attrs"], {"estimator": "Forwarding"})

    def test_unusual_classes(self):
        made = type("Ümlaut \"quoted\"", (Estimator,), {})
        ci.wrap(made()).fit([1])
        self.assertEqual(Spans()["fit"]["attrs"], {"estimator": "Ümlaut \"quoted\""})

        class Meta(type):
            __hash__ = None

            def __eq__(cls, other):
                return cls is other

        class Unhashable(metaclass=Meta):
            def fit(self):
                return self

        e = ci.wrap(Unhashable())
        self.assertIs(e.fit(), e)
        self.assertEqual(Spans().names(), ["fit"])
        with self.assertRaises(KeyboardInterrupt):
            ci.wrap(types.SimpleNamespace(fit=lambda x: float(x))).fit(Stop())

    def test_nothing_is_kept(self):
        class Local(Estimator):
            pass

        e = ci.wrap(Local())
        method = e.fit
        e.me = e  # a cycle
        gone = [weakref.ref(x) for x in (e, e.__wrapped__, Local, type(e))]
        del e, Local
        gc.collect()
        self.assertIsNotNone(gone[0]())
        del method
        gc.collect()
        gc.collect()
        self.assertEqual([g() for g in gone], [None] * 4)
        refs = sys.getrefcount(Estimator)
        for _ in range(200):
            ci.wrap(Estimator()).fit([1])
            ci.wrap(Compound([("a", Estimator())])).fit([1])
        gc.collect()
        self.assertLess(abs(sys.getrefcount(Estimator) - refs), 10)

    def test_own_object_may_go_while_it_works(self):
        class Drops(Estimator):
            def fit(self, X):
                box.clear()
                gc.collect()
                return self

        box = [ci.wrap(Drops())]
        self.assertIsInstance(box[0].fit([1]), Drops)
        self.assertTrue(Spans()["fit"]["closed"])


class Net:
    pass


class Watch(Test):
    def setUp(self):
        super().setUp()
        ci.watch(None)

    def names(self):
        return [name for _, name in watched() or ()]

    def test_several(self):
        g, d, third = Net(), Estimator(), Net()
        for model in (g, d, third):
            self.assertIsNone(ci.watch(model))
        self.assertTrue(all(a is b for (a, _), b in zip(watched(), (g, d, third))))
        self.assertEqual((self.names(), ci.health()["watched"]), (["Net", "Estimator", "Net#2"],) * 2)
        ci.watch(g)
        self.assertEqual(self.names(), ["Net", "Estimator", "Net#2"])
        self.assertIsNone(ci.watch(None))
        self.assertEqual((watched(), ci.health()["watched"]), (None, []))

    def test_held_weakly(self):
        g, d = Net(), Net()
        ci.watch(g)
        ci.watch(d)
        gone = weakref.ref(g)
        del g
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(self.names(), ["Net#2"])
        new = Net()
        ci.watch(new)
        self.assertEqual(self.names(), ["Net#2", "Net"])

    def test_names(self):
        a, b = Net(), Net()
        ci.watch(a, name="generator")
        ci.watch(b, "Net")
        self.assertEqual(self.names(), ["generator", "Net"])
        ci.watch(a)  # keeps what it has
        ci.watch(b, name="discriminator")
        self.assertEqual(self.names(), ["generator", "discriminator"])
        ci.watch(b, name="discriminator")
        c = Net()
        for kwargs, error, text in ((dict(name="generator"), ValueError, "watch\\(\\): name must be a name that no other watched model has, not 'generator'"),
                                    (dict(name=""), ValueError, "name must be a string with at least one character, not ''"),
                                    (dict(name=3), TypeError, "name must be a string or None, not 3"), (dict(namespace="x"), TypeError, "namespace")):
            with self.assertRaisesRegex(error, text):
                ci.watch(c, **kwargs)
        with self.assertRaisesRegex(TypeError, "name must be None where model is None, not 'x'"):
            ci.watch(None, "x")
        with self.assertRaises(TypeError):
            ci.watch()
        self.assertEqual(self.names(), ["generator", "discriminator"])

    def test_wrong(self):
        model = Net()
        ci.watch(model)
        for thing in (5, "model", [model], {"m": model}, (model,), object(), 1.5, Net):
            with self.assertRaises(TypeError) as caught:
                ci.watch(thing)
            self.assertIn("watch(): model must be one model, an object that can be weakly referenced", str(caught.exception))
            self.assertIn(repr(thing), str(caught.exception))
        self.assertEqual(self.names(), ["Net"])

    def test_wrapped(self):
        inner = Estimator()
        ci.watch(ci.wrap(inner))
        gc.collect()
        self.assertTrue(watched()[0][0] is inner)

    def test_survives(self):
        model = Net()
        ci.watch(model)
        ci.profile()
        with ci.scope("x"):
            fake.fake_session(0x31)
        self.assertEqual(self.names(), ["Net"])
        events()

    def test_interface(self):
        self.assertIsNone(watched())
        models = [Net() for _ in range(100)]
        [ci.watch(m) for m in models]
        self.assertEqual(self.names(), ["Net"] + ["Net#%d" % i for i in range(2, 101)])
        del models[10:90]
        gc.collect()
        self.assertEqual(len(watched()), 20)

    def test_threads(self):
        models = [Net() for _ in range(80)]
        threads = [threading.Thread(target=lambda i=i: [ci.watch(m, "m%d" % (i * 20 + j)) for j, m in enumerate(models[i * 20:i * 20 + 20])]) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(sorted(self.names()), sorted("m%d" % i for i in range(80)))


if __name__ == "__main__":
    unittest.main(verbosity=1)
