"""Importing a framework takes seconds, so one script holds many trainings: each a function marked @part, run in a scope of its name.

What it returns is printed as one JSON line, and the test gets it beside the spans of that scope.
"""
import json

BEGIN = '''
import json, os, sys, tempfile, threading, warnings
warnings.simplefilter("ignore")
try:
    import cirron as ci
except ImportError:  # run without the agent: the same script, nothing recorded
    import contextlib

    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
        epochs = batches = staticmethod(iter)
        health = staticmethod(lambda: {})

PARTS = []


def part(function):
    PARTS.append(function)
    return function


def is_watched(model):  # it was found, without ci.watch()
    name = type(model).__name__
    assert ci.health().get("watched", [name]) == [name], ci.health()["watched"]


def run_parts():
    for function in PARTS:
        with ci.scope(function.__name__):
            found = function()
        print(json.dumps([function.__name__, found], default=float), flush=True)

'''


class Part:
    """One training: what the framework said of it (`own`), and its spans."""

    def __init__(self, t, st, name, own):
        self.t, self.st, self.name, self.own = t, st, name, own
        self.spans = st.inside(st.of(name)[0])

    def of(self, name):
        return [s for s in self.spans if s["name"] == name]

    def equal(self, got, expected, what):
        self.t.equal(got, expected, f"{self.name}: {what}")

    def check(self, right, text):
        self.t.check(right, f"{self.name}: {text}")

    def counts(self, **expected):
        """Numbers of epochs, evals, steps and batches; those that are not given must not occur."""
        got = {x: len(self.of(x)) for x in ("epoch", "eval", "step", "batch")}
        self.equal(got, {**dict.fromkeys(got, 0), **expected}, "numbers of spans")

    def indices(self, name, of=None):
        return [s["index"] for s in (self.of(name) if of is None else self.st.inside(of, name))]

    def marks(self, name, kind=None):
        """[(value, span)] in the order in which they were made."""
        mine = {s["id"] for s in self.spans} | {self.st.of(self.name)[0]["id"]}
        return [(m["value"], self.st.by_id[m["span_id"]]) for m in self.st.marks_of(name)
                if m["span_id"] in mine and kind in (None, m["kind"])]

    def errors(self):
        return [(s["name"], s["attrs"].get("exception")) for s in self.spans if s["error"]]


def run_parts(t, body, plain=True, **env):
    """The script without and with the agent: {name: Part}, in order. plain=False: with it alone."""
    t.collect()
    command = [t.python, t.script(BEGIN + body + "\nrun_parts()\n")]
    traced = t.both(command, env=env)[1] if plain else t.run(command, env=env)
    t.check(plain or not traced.err, "stderr: " + traced.err[-600:])
    t.equal(traced.rc, 0, "exit status: " + traced.err[-600:])
    st = t.store()
    parts = {}
    for line in traced.out.splitlines():
        if line.startswith("["):
            name, own = json.loads(line)
            parts[name] = Part(t, st, name, own)
    return parts


def one_inside_another(t, parts):
    """Two epochs of five steps by a Trainer: with a callback that trains and marks, in epochs by hand, with a loader that was looked at, in threads."""
    busy = parts["busy_callback"]
    t.equal(busy.indices("step"), [*range(10)], "busy_callback: steps")
    t.equal([(v, s["name"]) for v, s in busy.marks("begun")], [(i, "mine") for i in range(10)], "busy_callback: marks in scopes")
    t.equal([(v, s["name"]) for v, s in busy.marks("ended")], [(i + 1, "step") for i in range(10)], "busy_callback: marks on steps")
    t.equal({busy.st.parent(s)["name"] for s in busy.of("after")}, {"epoch"}, "busy_callback: scopes between steps")
    by_hand = parts["by_hand"]
    t.equal(by_hand.own, [5, 5], "by_hand: its state")
    by_hand.counts(step=10, epoch=2)
    looked = parts["looked_at"]
    t.equal((looked.own["step"], looked.indices("step")), (10, [*range(10)]), "looked_at: steps")
    t.equal([looked.st.parent(s)["name"] for s in looked.of("epoch")], ["looked_at"] * 2, "looked_at: above the epochs")
    st = looked.st
    for scope in st.of("in the thread"):
        t.equal((len(st.inside(scope, "step")), len(st.inside(scope, "epoch"))), (10, 2), "spans of a thread")
    t.equal(parts["threads"].own, [10, 10], "threads")
