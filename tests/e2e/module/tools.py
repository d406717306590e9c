"""The module inside of what people run their scripts in: profilers, debuggers, test runners, notebooks, the interpreter's own options. Each
gives what it gives without us, and the spans are those of a plain run.

Scripts import the module in both runs: without the agent, a few lines of Python stand in for it (PLAIN).
"""
import collections
import json
import re
import subprocess

from common import FAKE, HERE, TORCH, need_agent, need_store
from harness import IMPORTED, PYTHONS, Skip, Store, clean_env, python_label, test, test_each, until

PLAIN = """
import types
class scope:
    def __init__(self, name, index=None, **attrs): self.attrs = attrs
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def __call__(self, function): return function
def mark(name, value, **attrs): pass
watch = flush = shutdown = lambda *args: None
epochs = batches = wrap = lambda thing: thing
trace = lambda *args, **more: {"roots": [1, 2, 3]}
health = dict
profile = lambda *args, **more: types.SimpleNamespace(flush=flush, shutdown=shutdown, health=dict, trace=trace)
"""

# All of the surface, and nothing printed that could differ.
WORK = """
import asyncio
import threading
import cirron as ci

profiler = ci.profile(output="none")

@ci.scope("function", part=1)
def function(n):
    ci.mark("n", n, kind="summary")
    return n + 1

@ci.scope("generator")
def generator():
    got = yield 1
    with ci.scope("inside"):
        yield got

@ci.scope("coroutine")
async def coroutine(n):
    with ci.scope("waits", n):
        await asyncio.sleep(0)
    return n

class Estimator:
    def fit(self, x):
        return self
    def predict(self, x):
        raise LookupError(x)

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    with ci.scope("main"):
        return await asyncio.gather(coroutine(1), coroutine(2))

total = 0
for epoch in ci.epochs(range(2)):
    for batch in ci.batches("abc"):
        if batch == "c":
            continue
        total += function(epoch)
    with ci.scope("validation", epoch, kind="x") as s:
        s.attrs["late"] = [1.5, None]
        ci.mark("loss", 0.5)
        ci.mark("nothing", None)
g = generator()
print(next(g), g.send(7), list(g), total)
print(asyncio.run(main()))
estimator = ci.wrap(Estimator())
ci.watch(estimator)
estimator.fit(1)
try:
    estimator.predict("x")
except LookupError as error:
    print(repr(error))
for wrong in (lambda: ci.mark(), lambda: ci.scope()):
    try:
        wrong()
    except TypeError:
        pass
with ci.scope("before threads"):
    threads = [threading.Thread(target=function, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
for e in ci.epochs([1, 2, 3]):
    break
assert ci.trace("json") and len(ci.trace("dict", name="epoch")["roots"]) == 3
profiler.flush(), profiler.health(), ci.health(), ci.flush()
print("end")
"""
OUTPUT = "1 7 [] 6\n[1, 2]\nLookupError('x')\nend\n"
SPANS = collections.Counter({
    ("epoch", None): 3, ("batch", "epoch"): 6, ("function", "batch"): 4, ("validation", "epoch"): 2, ("generator", None): 1, ("inside", "generator"): 1,
    ("main", None): 1, ("coroutine", "main"): 2, ("waits", "coroutine"): 2, ("fit", None): 1, ("predict", None): 1, ("before threads", None): 1,
    ("function", None): 2})
MARKS = collections.Counter({"n": 6, "loss": 2})


def version(python):
    text = subprocess.run([python, "-ISc", "import sys; print(*sys.version_info[:2])"], env=clean_env(), capture_output=True, text=True).stdout
    return tuple(map(int, text.split()))


BY_VERSION = sorted(PYTHONS, key=version)
ENDS = list(dict.fromkeys([BY_VERSION[0], BY_VERSION[-1]]))  # where each takes long: the oldest and the newest,
FEW = list(dict.fromkeys([PYTHONS[0], *ENDS]))  # and the first,
MINORS = list({version(x): x for x in PYTHONS[::-1]}.values())[::-1]  # and one of each version


def plain_env(case):
    """Lets scripts find what stands in for the module when there is no agent; under one, its own comes first."""
    if IMPORTED:
        raise Skip("what stands in for the module would be found first")
    folder = case.folder / "plain"
    folder.mkdir(exist_ok=True)
    (folder / "cirron.py").write_text(PLAIN)
    return {"PYTHONPATH": folder}


def need_tool(module):
    find = f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"
    if not TORCH or subprocess.run([TORCH[0], "-c", find], env=clean_env(), stdin=subprocess.DEVNULL).returncode:
        raise Skip(f"no Python with {module}")
    return TORCH[0]


def recorded(case, pids):
    """The store, once these processes are all in it and have ended."""
    until(lambda: case.collector.db.exists() and {*pids} <= {s["pid"] for s in Store(case.collector.db).sessions}, what="the sessions")
    return case.store()


def spans_of(st, pid):
    return collections.Counter((s["name"], (st.parent(s) or {}).get("name").replace("cirron.session", "") or None) for s in st.spans if s["pid"] == pid)


def same_spans(case, runs, spans=SPANS, marks=MARKS):
    """`runs`: what was run by name; each has recorded just this."""
    st = recorded(case, [r.pid for r in runs.values()])
    for name, r in runs.items():
        case.equal(spans_of(st, r.pid), spans, f"spans of {name}")
        ids = {s["id"] for s in st.all if s["pid"] == r.pid}
        case.equal(collections.Counter(m["name"] for m in st.marks if m["span_id"] in ids), marks, f"marks of {name}")
    return st


# --- the interpreter's own ---

# Every event in the script's own frames is counted; the sums are printed at the end.
COUNTED = """
import atexit, collections, sys, threading, zlib
seen = collections.Counter()
def count(event, code, line, mine=__file__, helpers=("show", "count", "ours", "stop", "<lambda>")):
    if code.co_filename == mine and code.co_name not in helpers:
        seen[event, code.co_name, str(line)] += 1
def show():
    print(len(seen) > 20, sum(seen.values()), zlib.crc32(repr(sorted(seen.items())).encode()))
atexit.register(show)
"""
TRACED = COUNTED + """
def ours(frame, event, arg):
    frame.f_trace_opcodes = True
    count(event, frame.f_code, frame.f_lineno)
    return ours
def stop():
    threading.settrace(None), sys.settrace(None)
atexit.register(stop)
threading.settrace(ours), sys.settrace(ours)
sys._getframe().f_trace = ours
"""
PROFILED = COUNTED + """
def ours(frame, event, arg):
    if event in ("call", "return"):
        count(event, frame.f_code, frame.f_lineno)
def stop():
    threading.setprofile(None), sys.setprofile(None)
atexit.register(stop)
threading.setprofile(ours), sys.setprofile(ours)
"""
MONITORED = COUNTED + """
m = sys.monitoring
m.use_tool_id(m.COVERAGE_ID, "count")
for name in "LINE PY_START PY_RETURN PY_YIELD PY_RESUME".split():
    m.register_callback(m.COVERAGE_ID, getattr(m.events, name), lambda code, at, *rest, name=name: count(name, code, at))
m.set_events(m.COVERAGE_ID, m.events.LINE | m.events.PY_START | m.events.PY_RETURN | m.events.PY_YIELD | m.events.PY_RESUME)
atexit.register(m.set_events, m.COVERAGE_ID, 0)
"""
COLLECTING = "import gc\ngc.set_threshold(1)\n"
WAYS = {  # options, more of an environment, a prelude, and is something said that a run without us has to say, too
    "development": ("-X dev -X faulthandler -W error", {}, "", False),
    "debug allocator": ("-X importtime", {"PYTHONMALLOC": "debug"}, "", False),
    "isolated": ("-I -S -OO", {}, "", False),
    "no environment": ("-E -B -bb -X tracemalloc=5", {}, COLLECTING, False),
    "settrace": ("", {}, TRACED, True),
    "setprofile": ("-X dev", {}, PROFILED, True),
    "monitoring": ("", {}, MONITORED, True),
}


@test_each(MINORS, python_label)
def ways_to_run_it(case, python):
    """Options of the interpreter; and what a debugger, a profiler and a coverage tool hear of the script is the same as without us."""
    need_store()
    case.collect()
    env, runs = plain_env(case), {}
    for name, (options, more, prelude, compare) in WAYS.items():
        if name == "monitoring" and version(python) < (3, 12):
            continue
        command = [python, *options.split(), case.script(prelude + WORK)]
        r = runs[name] = case.run(command, env={**env, **more})
        expected = case.run(command, False, env={**env, **more}).out if compare else OUTPUT
        case.check(expected.startswith(OUTPUT + "True " * compare), f"{name}, without the agent: {expected}")
        case.equal((r.rc, r.out), (0, expected), f"{name}: status, output; {r.err[-500:]}")
        case.equal([x for x in r.err.splitlines() if not x.startswith("import time:")], [], f"stderr of {name}")
    same_spans(case, runs)


STRESSES = {
    "collections at each allocation": COLLECTING,
    "settrace": """
import sys, threading
def tracer(frame, event, arg):
    frame.f_trace_opcodes = True
    return tracer
threading.settrace(tracer), sys.settrace(tracer)
""",
    "setprofile": "import sys, threading\nthreading.setprofile(lambda *a: None), sys.setprofile(lambda *a: None)\n",
}


@test_each(MINORS, python_label)
def under_stress(case, python):
    """The tests of the whole surface in development mode, whose allocator finds writes beyond a block and uses of a freed one."""
    for name, start in STRESSES.items():
        if python not in FEW and name == "settrace":  # the longest
            continue
        script = case.script(start + f"import runpy\nrunpy.run_path({str(HERE / 'surface.py')!r}, run_name='__main__')\n", "stress.py")
        r = case.run([python, "-X", "dev", script], agent=False, env={"PYTHONPATH": FAKE})
        case.check(r.rc == 0 and re.search(r"^Ran \d\d+ tests", r.err, re.M), f"{name}: {r.err[-1500:]}")


GROWTH = r"""
import gc, os, sys
import cirron as ci

class Estimator:
    def fit(self): return self
    def __len__(self): return 3

def f(): pass
def g(): yield 1
async def co(): pass
decorated, generator, coroutine = ci.scope("f", 1, k=2)(f), ci.scope("g")(g), ci.scope("co")(co)
shared, wrapped, tracer = ci.scope("shared", 3, a="x"), ci.wrap(Estimator()), ci.Cirron(output="none")

def with_all():
    with ci.scope("s", 1, lr=0.5, tags=["a", {"k": None}]) as s:
        s.attrs["late"] = "x"
        s.id, s.parent_id, s.name, s.index
def made():
    ci.scope("made")
def reentered():
    with shared, shared: pass
def raising():
    try:
        with ci.scope("bad"): raise LookupError
    except LookupError: pass
def loops():
    for e in ci.epochs((1, 2)):
        for b in ci.batches("ab"):
            break
    len(ci.epochs([1])), iter(ci.batches([])), ci.batches([1]).close(), ci.LoopIterator[int]
def stepped():
    list(generator())
    generator().close()
    next(generator())
def awaited():
    c = coroutine()
    try: c.send(None)
    except StopIteration: pass
def dropped():
    ci.scope("dropped", k=1).__enter__()
def marks():
    for value in (1.5, 2, True, "text"):
        ci.mark("m", value)
    ci.mark("refused", None), ci.mark("a", 1, kind="summary", unit="s")
def wrong():
    for bad in (ci.scope, ci.mark, ci.epochs, ci.wrap, ci.Scope, lambda: ci.mark("a", 1, kind=3), lambda: ci.scope("x", 1, 2), lambda: ci.epochs(3),
                lambda: ci.trace("xml"), lambda: ci.trace(last="1"), lambda: ci.wrap(3), lambda: ci.watch(3), lambda: ci.Cirron(1), lambda: ci.nothing,
                lambda: ci.Cirron(snapshots="x"), lambda: ci.profile(output="disk"), lambda: ci.load_cirron_yaml("/nowhere"), lambda: ci.scope("x")(3)):
        try: bad()
        except (TypeError, ValueError, AttributeError, ci.CirronYamlError): pass
        else: raise AssertionError
def wrapping():
    wrapped.fit(), len(wrapped), wrapped.__wrapped__, ci.wrap(wrapped)
    ci.wrap(Estimator()).fit()
def watching():
    e = Estimator()
    ci.watch(e), ci.watch(e, name="other"), ci.watch(None)
def asking():
    ci.health(), ci.get_default().sample_rate, ci.flush(), ci.Cirron(sample_rate=0.5).output, ci.find_cirron_yaml("/proc")
def tracing():
    for form in "dict", "json":
        ci.trace(form, name="s", last=3)
def handles():
    p.settings, p.platform_context, p.hook_handles, p.installed_hooks, p.health(), p.cirron, p.enabled, p.flush(), p.trace("json", last=1)

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
held = [None, True, False, (), 0, 1, "s", "m", "fit", ci, ci.Scope, ci.LoopIterator, ci.WrappedEstimator, ci.Cirron, ci.CirronYamlError, TypeError, ValueError,
        LookupError, Estimator, f, g, shared, int, str, dict, type]
def counts():
    gc.collect()
    return sys.getallocatedblocks(), len(gc.get_objects()), {repr(x)[:40]: sys.getrefcount(x) for x in held}

def grows(work, n):  # what a leak does, it does at each turn; caches and free lists come to an end
    for _ in range(n // 10):
        work()
    noise = 200 + n // 50
    for turn in range(3):
        before, rss = counts(), resident()
        for _ in range(n):
            work()
        after, grown = counts(), resident() - rss
        more = {k: after[2][k] - before[2][k] for k in before[2] if abs(after[2][k] - before[2][k]) > noise}
        if after[0] - before[0] < noise and after[1] - before[1] < noise and not more and grown < 500 << 10:
            return
    print(work.__name__, n, "blocks", after[0] - before[0], "objects", after[1] - before[1], "references", more, "bytes", grown)

child = os.fork()
if child == 0:  # what trace() reads is little here; and from it on, what is recorded is kept, which takes memory
    for _ in range(10):
        with_all()
    grows(tracing, 1000)
    p = ci.profile(output="none")
    grows(handles, 1000)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
for work in with_all, reentered, decorated, marks:
    grows(work, 100000)
for work in made, raising, loops, stepped, awaited, dropped, wrapping:
    grows(work, 20000)
for work in watching, wrong, asking:
    grows(work, 3000)
print("end")
"""


@test_each(ENDS, python_label)
def nothing_grows(case, python):
    """100,000 uses of the surface: memory blocks, objects, references to what is shared, and the process's memory stay as they are."""
    need_agent()
    env = {"CIRRON_AUTOSTART": 0, "CIRRON_RING_BYTES": "64K", "CIRRON_RING_BYTES_MAX": "64K"}
    r = case.run([python, case.script(GROWTH)], env=env)
    case.equal((r.rc, r.out, r.err), (0, "end\n", ""), "what grows")


CRASHED = """
import faulthandler, os, signal
import cirron as ci
faulthandler.register(signal.SIGUSR1, all_threads=False)
def deep(n):
    with ci.scope("deep", n):
        if n:
            return deep(n - 1)
        for e in ci.epochs(range(2)):
            for b in ci.batches([1]):
                faulthandler.dump_traceback()
                os.kill(os.getpid(), signal.SIGUSR1)
        os.abort()
deep(3)
"""


@test_each(FEW, python_label)
def stacks_that_faulthandler_dumps(case, python):
    """On demand, at a signal, at a crash: the script's frames and no others. What was open at the crash is known."""
    need_store()
    case.collect()
    plain, traced = (case.run([python, "-X", "faulthandler", case.script(CRASHED)], agent, plain_env(case)) for agent in (False, True))
    said = [re.sub("0x[0-9a-f]+", "#", r.err) for r in (plain, traced)]
    said[1] = said[1].replace("\nExtension modules: cirron (total: 1)\n", "")  # it is one
    case.equal((traced.rc, said[1]), (plain.rc, said[0]), "what is said")
    case.check((traced.rc, said[0].count("train.py"), said[0].count("Fatal Python error: Aborted")) == (-6, 25, 1), f"{traced.rc} {said[0]}")
    st = recorded(case, [traced.pid])
    case.equal([(s["index"], s["state"] == "closed") for s in st.of("deep")], [(n, False) for n in (3, 2, 1, 0)], "what was open")


# --- profilers and debuggers ---

SAYS_CALLS = """
import json, pstats, sys
stats = pstats.Stats(sys.argv[1]).stats
print(json.dumps([[file.rpartition("/")[2], name, n[0]] for (file, _, name), n in stats.items()]))
"""


@test_each(FEW, python_label)
def c_profile(case, python):
    """The same calls of the script's functions; ours are few, and called what they are called."""
    need_store()
    case.collect()
    script, calls, env = case.script(WORK), [], plain_env(case)
    for agent in (False, True):
        out = case.folder / f"profile{agent}"
        r = case.run([python, "-m", "cProfile", "-o", out, script], agent, env)
        case.equal((r.rc, r.out, r.err), (0, OUTPUT, ""), "the run")
        calls.append(json.loads(case.run([python, "-c", SAYS_CALLS, out], False).out))
    same_spans(case, {"cProfile": r})
    own = [sorted([name, n] for file, name, n in of if file == "train.py") for of in calls]
    case.equal(own[1], own[0], "calls")
    in_threads = dict(own[0])["function"] - 4  # 0, or 2 since 3.12
    case.check(in_threads in (0, 2) and ["main", 2] in own[0], f"of the script: {own[0]}")
    ours = {re.sub(r"<built-in method (\w+\.\w+)>", r"\1", name): n for file, name, n in calls[1] if "cirron." in name and "method '" not in name}
    expected = dict(scope=11, mark=9 + in_threads, epochs=2, batches=2, wrap=1, watch=1, profile=1, flush=1, health=1, trace=2)
    case.equal(ours, {"cirron." + name: n for name, n in expected.items()}, "calls of the module")


STEPPED = """
import cirron as ci
class Estimator:
    def fit(self, x):
        return self
estimator = ci.wrap(Estimator())
def work(n):
    with ci.scope("a", n, k=1) as s:
        x = n
        ci.mark("m", x)
    for e in ci.epochs(range(2)):
        for b in ci.batches("abc"):
            if b == "b":
                break
    with ci.scope("b"), ci.scope("c"):
        return x
def fails():
    with ci.scope("fails"):
        raise LookupError
try:
    with ci.scope("around"):
        work(1)
        fails()
except LookupError:
    estimator.fit(1)
"""
# The same with what is built in, so that there is nothing to step into either.
BUILT_IN = [(r"import cirron as ci", "import sys"), (r"ci\.scope\([^)]*\)", "memoryview(b'')"), (r"ci\.mark\([^)]*\)", "abs(x)"),
            (r"ci\.(epochs|batches)", "iter"), (r"ci\.wrap\((.*)\)\n", r"\1\n")]


@test_each(FEW, python_label)
def debugger(case, python):
    """Step by step, all through the script: the lines that it stops at are those of a script without us."""
    need_store()
    case.collect()
    plain, stops = STEPPED, []
    for pattern, instead in BUILT_IN:
        plain = re.sub(pattern, instead, plain)
    case.check("ci." not in plain and plain.count("\n") == STEPPED.count("\n"), "the script without us")
    for agent, text in ((False, plain), (True, STEPPED)):
        process = case.start([python, "-m", "pdb", case.script(text)], agent, stdin=subprocess.PIPE)
        out, err = process.communicate("tbreak 7\nc\n" + "s\n" * 70 + "q\n", timeout=60)
        case.equal(process.returncode, 0, f"the debugger: {err}")
        found = ["".join(x) for x in re.findall(r"> \S*?([<>\w.]+\(\d+\)\S*)|(--\w+--|LookupError|finished)", re.sub(r"<\S*Est\S*>", "#", out))]
        stops.append(found[:found.index("finished")] if "finished" in found else [*found, "not finished"])
    case.equal(stops[1], stops[0], "where it stops")
    case.check({"train.py(4)fit()", "train.py(14)work()"} <= {*stops[0]} and len(stops[0]) > 40 and "not finished" not in stops[0], f"stops: {stops[0]}")
    got = spans_of(recorded(case, [process.pid]), process.pid)
    expected = {("a", "around"): 1, ("epoch", "around"): 2, ("batch", "epoch"): 4, ("c", "b"): 1, ("fails", "around"): 1, ("fit", None): 1}
    case.check(all(got[x] >= n for x, n in expected.items()), f"spans: {got}")


@test_each(FEW, python_label)
def debugger_after_an_exception(case, python):
    """Post mortem: the stack and the variables are the script's; the scopes that the exception left are closed."""
    need_store()
    case.collect()
    text, said = STEPPED.replace("except LookupError:", "except KeyError:"), []
    for agent in (False, True):
        process = case.start([python, "-m", "pdb", "-c", "continue", case.script(text)], agent, env=plain_env(case), stdin=subprocess.PIPE)
        out, err = process.communicate("w\np work, type(estimator).__name__\nup\np 40 + 2\nq\n", timeout=60)
        said.append((process.returncode, re.sub(r"0x[0-9a-f]+|\S*\.py", "#", out), err))
    case.equal(said[1], said[0], "what the debugger says")
    case.check("(19)fails()" in said[0][1] and "'Estimator'" in said[0][1] and "\n(Pdb) 42" in said[0][1], said[0][1])
    st = recorded(case, [process.pid])
    case.equal([(s["name"], s["attrs"]["exception"]) for s in st.spans if s["error"]], [("around", "LookupError"), ("fails", "LookupError")], "errors")


# --- test runners and the like ---

UNIT_TESTS = """
import unittest, warnings
import cirron as ci
class Some(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.around = ci.scope("class")
        cls.around.__enter__()
    @classmethod
    def tearDownClass(cls):
        cls.around.__exit__(None, None, None)
    def setUp(self):
        around = ci.scope("test")
        around.__enter__()
        self.addCleanup(around.__exit__, None, None, None)
    def test_right(self):
        with self.assertWarns(UserWarning), ci.scope("warns"):
            warnings.warn("x")
    def test_wrong(self):
        with ci.scope("fails"):
            self.assertEqual(1, 2)
    def test_some(self):
        for n in ci.epochs(range(3)):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)
    @unittest.skip("not now")
    def test_skipped(self):
        pass
"""
EXAMPLES = """
Text with examples::

    >>> import cirron as ci
    >>> with ci.scope("s", 3) as s:
    ...     ci.mark("loss", 0.5)
    >>> s.name, s.index, s.attrs
    ('s', 3, {})
    >>> ci.trace()  # doctest: +ELLIPSIS
    s[3] \u2014 ... {loss=0.5000}
    >>> list(ci.batches("ab"))
    ['a', 'b']
    >>> ci.mark("a")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    TypeError: mark() ...
"""


@test_each(FEW, python_label)
def of_the_standard_library(case, python):
    """unittest, doctest, timeit, trace."""
    need_store()
    case.collect()
    env, none = plain_env(case), collections.Counter()
    case.script(UNIT_TESTS, "test_some.py")
    plain, traced = (case.run([python, "-m", "unittest", "-v", "test_some"], agent, env, cwd=case.folder) for agent in (False, True))
    said = [re.sub(r"in [\d.]+s", "", r.err) for r in (plain, traced)]
    case.equal((traced.rc, traced.out, said[1]), (plain.rc, plain.out, said[0]), "unittest")
    case.check("FAILED (failures=2, skipped=1)" in said[0], said[0])
    expected = {("class", None): 1, ("test", "class"): 3, ("warns", "test"): 1, ("fails", "test"): 1, ("epoch", "test"): 3}
    same_spans(case, {"unittest": traced}, collections.Counter(expected), none)

    (case.folder / "text.rst").write_text(EXAMPLES, encoding="utf-8")
    r = case.run([python, "-X", "utf8", "-m", "doctest", "text.rst"], cwd=case.folder)
    case.equal((r.rc, r.out, r.err), (0, "", ""), "doctest")

    r = case.run([python, "-m", "timeit", "-n", "50", "-r", "2", "-s", "import cirron as ci", "with ci.scope('timed'): ci.mark('m', 1)"])
    case.check(r.rc == 0 and r.out.startswith("50 loops, best of 2: ") and "Traceback" not in r.err, f"timeit: {r}")  # it warns of a busy machine
    same_spans(case, {"timeit": r}, collections.Counter({("timed", None): 100}), collections.Counter(m=100))

    script, counts = case.script(WORK), []
    for agent in (False, True):
        folder = case.folder / f"counted{agent}"
        r = case.run([python, "-m", "trace", "--count", "--missing", "-C", folder, "--ignore-dir=/usr:/root", script], agent, env)
        case.equal((r.rc, r.out, r.err), (0, OUTPUT, ""), "trace")
        counts.append(next(x for x in folder.iterdir() if x.name.endswith("train.cover")).read_text())
    case.equal(counts[1], counts[0], "lines that trace has counted")
    case.check(re.search(r"^ +[46]: +ci.mark\(\"n\"", counts[0], re.M), counts[0][:1500])


@test
def coverage(case):
    python = need_tool("coverage")
    need_store()
    case.collect()
    env, script, seen = plain_env(case), case.script(WORK), []
    for agent in (False, True):
        data, out = case.folder / f"data{agent}", case.folder / f"{agent}.json"
        r = case.run([python, "-m", "coverage", "run", "--branch", f"--data-file={data}", f"--include={script}", script], agent, env)
        case.equal((r.rc, r.out, r.err), (0, OUTPUT, ""), "coverage run")
        case.run([python, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", out], False)
        file, = json.loads(out.read_text())["files"].values()
        seen.append([file[x] for x in ("executed_lines", "missing_lines", "executed_branches", "missing_branches")])
    case.equal(seen[1], seen[0], "lines and branches")
    case.check(len(seen[0][0]) > 50 and len(seen[0][2]) > 8, f"covered: {seen[0]}")
    same_spans(case, {"coverage": r})


PYTESTS = """
import asyncio, logging
import cirron as ci
import pytest

@pytest.fixture(scope="session", autouse=True)
def session():
    with ci.scope("session fixture"):
        yield

@pytest.fixture(scope="module")
def module():
    with ci.scope("module fixture"):
        yield 1

@pytest.fixture
def doubled(module):
    with ci.scope("fixture") as s:
        yield 2
        s.attrs["torn"] = "down"

@pytest.mark.parametrize("n", [1, 2, 3])
def test_some(n, doubled):
    with ci.scope("test", n):
        ci.mark("n", n)
        assert n * doubled == n + n

@ci.scope("decorated")
def test_decorated(tmp_path, monkeypatch):
    monkeypatch.setattr(ci, "extra", 1, raising=False)
    assert ci.extra == 1

def test_wrong():
    for e in ci.epochs(range(2)):
        with ci.scope("wrong"):
            assert [1, 2] == [1, 3]

@ci.scope("wrong inside")
def helper(x):
    raise LookupError(x)

def test_wrong_in_decorated():
    helper(3)

def test_output(capsys):
    print("before")
    with ci.scope("captured"):
        ci.trace(name="captured")
    assert capsys.readouterr().out in ("before\\n", "before\\ncaptured \\u2014 open\\n")

def test_logged(caplog):
    with caplog.at_level(logging.INFO), ci.scope("logs"):
        logging.info("x")
    assert [r.message for r in caplog.records] == ["x"]

def test_async():
    async def inner():
        with ci.scope("async"):
            await asyncio.sleep(0)
    asyncio.run(inner())

def test_raises():
    with pytest.raises(ZeroDivisionError), ci.scope("raises"):
        1 / 0
"""


@test
def pytest(case):
    """Fixtures of all lives hold scopes; warnings are errors; a failure in a decorated function is shown as that of a plain one."""
    python = need_tool("pytest")
    need_store()
    case.collect()
    path, said = case.script(PYTESTS, "test_it.py"), []
    command = [python, "-W", "error", "-X", "dev", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", path.parent, path]
    for agent in (False, True):
        r = case.run(command, agent, plain_env(case))
        said.append((r.rc, re.sub(r" in [0-9.]+s", "", r.out), r.err))
    case.equal(said[1], said[0], "what pytest says")
    case.check("2 failed, 8 passed" in said[0][1], said[0][1])
    around = "session fixture"
    expected = {(around, None): 1, ("module fixture", around): 1, ("fixture", "module fixture"): 3, ("test", "fixture"): 3, ("decorated", "module fixture"): 1,
                ("epoch", "module fixture"): 1, ("wrong", "epoch"): 1, ("wrong inside", "module fixture"): 1, ("captured", "module fixture"): 1,
                ("logs", "module fixture"): 1, ("async", "module fixture"): 1, ("raises", "module fixture"): 1}
    st = same_spans(case, {"pytest": r}, collections.Counter(expected), collections.Counter(n=3))
    case.equal([s["attrs"] for s in st.of("fixture")], [{"torn": "down"}] * 3, "attributes")


NOTEBOOK = """
import json, sys, threading
from jupyter_client.manager import KernelManager
manager = KernelManager()
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
def show(message):
    kind, content = message["header"]["msg_type"], message["content"]
    if kind in ("stream", "execute_result", "display_data", "error"):
        seen[-1].append([kind, content.get("text") or content.get("data") or content.get("ename")])
        if content.get("text") == "interrupt me\\n":
            manager.interrupt_kernel()
seen = []
for cell in CELLS:
    seen.append([])
    reply = client.execute_interactive(cell, timeout=60, output_hook=show)
    seen[-1].append(reply["content"]["status"])
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(seen))
"""
CELLS = [
    "import cirron as ci\nprofiler = ci.profile(output='none')",
    "for e in ci.epochs(range(2)):\n    with ci.scope('inner', e):\n        ci.mark('loss', 0.5)",
    "ci.trace()",
    "print(ci.trace(last=1))",
    "ci.trace('df', name='inner')",
    "%%time\nwith ci.scope('timed'):\n    pass",
    "%timeit -n 3 -r 2 ci.scope('never entered')",
    "import time\nwith ci.scope('interrupted'):\n    print('interrupt me')\n    time.sleep(60)",
    "with ci.scope('after'):\n    pass\nn, = ci.trace('dict', name='interrupted')['roots']\nn['attrs'], ci.health()['scope_depth']",
    "@ci.scope('helper')\ndef helper():\n    1 / 0\nhelper()",
    "async def later():\n    with ci.scope('later'):\n        import asyncio\n        await asyncio.sleep(0)\n        return 7\nawait later()",
    "ci.scope?",
]


@test
def notebook(case):
    """Cells of a Jupyter kernel: trees and tables are shown, time is measured, an interrupted cell leaves its scope."""
    python = need_tool("ipykernel")
    need_store()
    case.collect()
    script = case.script(NOTEBOOK.replace("CELLS", repr(CELLS)), "notebook.py")
    r = case.run([python, script], env={name: case.folder for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")})
    case.equal(r.rc, 0, r.err[-1000:])
    seen = json.loads(r.out)
    case.equal([cell[-1] for cell in seen], ["ok"] * 7 + ["error", "ok", "error", "ok", "ok"], "how the cells end")
    tree = r"epoch\[0\] \u2014 \S+\n  inner\[0\] \u2014 \S+ \{loss=0.5000\}\nepoch\[1\] \u2014 \S+\n  inner\[1\] \u2014 \S+ \{loss=0.5000\}"
    kind, data = seen[2][0]
    case.check(kind == "execute_result" and re.fullmatch(tree, data["text/plain"]), f"the tree: {seen[2]}")
    case.check(seen[3][0][0] == "stream" and re.fullmatch(r"(epoch|inner)\[1\] .*\n", seen[3][0][1]), f"printed: {seen[3]}")
    kind, data = seen[4][0]
    case.check(kind == "execute_result" and data["text/html"].count("<tr") == 3 and "mark_count" in data["text/plain"], f"the table: {seen[4]}")
    case.check("Wall time" in str(seen[5]) and "of 2 runs, 3 loops each" in str(seen[6]), f"times: {seen[5:7]}")
    case.equal((seen[7][0], seen[7][1]), (["stream", "interrupt me\n"], ["error", "KeyboardInterrupt"]), "interrupted")
    case.equal(seen[8][0][1]["text/plain"], "({'exception': 'KeyboardInterrupt', 'error': True}, 0)", "and then")
    case.equal((seen[9][0], seen[10][0][1]["text/plain"]), (["error", "ZeroDivisionError"], "7"), "errors, coroutines")
    until(lambda: case.collector.db.exists() and any(s["name"] == "later" for s in Store(case.collector.db).spans), what="the last cell's span")
    st = case.store()
    case.equal([(s["name"], st.parent(s)["name"]) for s in st.spans if s["name"] in ("interrupted", "after", "helper", "later", "timed")],
               [(name, "cirron.session") for name in ("timed", "interrupted", "after", "helper", "later")], "spans")
    case.equal([s["attrs"].get("exception") for s in st.of("interrupted") + st.of("helper")], ["KeyboardInterrupt", "ZeroDivisionError"], "exceptions")
