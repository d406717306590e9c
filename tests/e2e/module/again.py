"""After shutdown(), profile() begins a new session of the same process."""
import signal

from common import need_store, store
from harness import PYTHONS, SOME, python_label, test_each


@test_each(PYTHONS, python_label)
def profile_after_shutdown(case, python):
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, gc, os, threading

def work(name):
    with ci.scope(name):
        ci.mark("m_" + name, 1)

left = ci.scope("left")
left.__enter__()
work("before")
t = threading.Thread(target=work, args=("thread",))
t.start()
t.join()
p = ci.profile()
work("first")
pending = ci.epochs(range(3))
next(pending)
ci.shutdown()
work("between")
assert not p.enabled and ci.health()["flush_mode"] == "stopped"
q = ci.profile()
assert q is not p and q.enabled
work("second")
left.__exit__(None, None, None)  # of the session that has ended
rest = list(pending)
work("third")
t = threading.Thread(target=work, args=("late",))
t.start()
t.join()
while len(os.listdir("/proc/self/task")) > 1:  # it outlives its join, and fork() would warn
    pass
if os.fork() == 0:
    work("child")
    ci.shutdown()
    assert ci.profile().enabled
    work("child_again")
else:
    os.wait()
    for n in range(20):
        ci.shutdown()
        ci.profile()
        work("turn%d" % n)
    print(rest, len(os.listdir("/proc/self/fd")) < 30)
""")])
    case.equal((r.rc, r.out, r.err), (0, "[1, 2] True\n", ""), "the run")
    st = store(case, 24)
    case.equal(sorted({s["state"] for s in st.sessions}), ["finished"], "all sessions end in good order")
    by_session = {}
    for s in st.spans:
        if s["name"] not in ("epoch", "cirron.session"):
            by_session.setdefault(s["session_id"], []).append(s["name"])
    found = sorted(tuple(sorted(names)) for names in by_session.values())
    expected = [("before", "first", "left", "thread"), ("late", "second", "third"), ("child",), ("child_again",)] + [(f"turn{n}",) for n in range(20)]
    case.equal(found, sorted(expected), "spans by session")
    case.equal(sorted(m["name"] for m in st.marks), sorted("m_" + name for names in expected for name in names if name != "left"), "marks")


@test_each(PYTHONS, python_label)
def other_threads_go_over(case, python):
    """A thread that has something open when another one ends the session and begins the next is in that one from then on."""
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, threading

go, there = threading.Event(), threading.Event()

def work():
    kept = ci.batches("abc")
    next(kept)
    left = ci.scope("held")
    left.__enter__()
    with ci.scope("thread", k=1) as s:
        there.set()
        go.wait()
        s.attrs["late"] = 1
        ci.mark("m_after", 1)
        with ci.scope("inside"):
            pass
    assert list(kept) == ["b", "c"]
    left.__exit__(None, None, None)
    with ci.scope("thread_after"):
        ci.mark("m_again", 2)

t = threading.Thread(target=work)
t.start()
there.wait()
ci.shutdown()
p = ci.profile()
with ci.scope("main_after") as s:
    go.set()
    t.join()
names = sorted(span["name"] for span in ci.trace("dict")["roots"])
print(p.enabled, s.id is not None, names)
""")])
    case.equal((r.rc, r.out, r.err), (0, "True True ['batch', 'batch', 'inside', 'main_after', 'thread_after']\n", ""), "the run")
    st = store(case, 2, faults=False)  # the first session ends before what its thread has open
    by_session = {}
    for s in st.spans:
        if s["name"] not in ("epoch", "cirron.session"):
            by_session.setdefault(s["session_id"], []).append(s["name"])
    names = sorted(sorted(n for n in spans if n != "batch") for spans in by_session.values())
    case.equal(names, [["held", "thread"], ["inside", "main_after", "thread_after"]], "spans by session")
    case.equal(sorted(m["name"] for m in st.marks), ["m_after", "m_again"], "marks")


@test_each(PYTHONS, python_label)
def pools_go_over_again_and_again(case, python):
    """Threads that wait for work, and an event loop in one of them, live through many sessions."""
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import asyncio, os, threading
import cirron as ci
from concurrent.futures import ThreadPoolExecutor

def work(name):
    with ci.scope(name):
        ci.mark("m_" + name, 1)

async def task(name, step):
    with ci.scope(name):
        await step.wait()
        await asyncio.sleep(0)

loop = asyncio.new_event_loop()
t = threading.Thread(target=loop.run_forever)
t.start()
pool = ThreadPoolExecutor(3)
gate = threading.Barrier(4)

def all_of(name):
    futures = [pool.submit(lambda: (gate.wait(), work(name))) for _ in range(3)]
    gate.wait()
    for f in futures:
        f.result()

async def begin(name):
    step = asyncio.Event()
    started = asyncio.ensure_future(task(name, step))
    await asyncio.sleep(0)
    return started, step

async def end(started, step):
    step.set()
    await started

def on_loop(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

ci.profile()
for n in range(25):
    all_of("turn%d" % n)
    held = on_loop(begin("task%d" % n))
    ci.shutdown()
    ci.profile()
    on_loop(end(*held))
all_of("last")
loop.call_soon_threadsafe(loop.stop)
t.join()
pool.shutdown()
print(len(os.listdir("/proc/self/fd")) < 30)
""")])
    case.equal((r.rc, r.out, r.err), (0, "True\n", ""), "the run")
    st = store(case, 26, faults=False)
    by_session = {}
    for s in st.spans:
        if s["name"] != "cirron.session":
            by_session.setdefault(s["session_id"], []).append(s["name"])
    expected = [["task%d" % n] + ["turn%d" % n] * 3 for n in range(25)] + [["last"] * 3]
    case.equal(sorted(sorted(names) for names in by_session.values()), sorted(expected), "spans by session")
    case.equal(sorted(m["name"] for m in st.marks), sorted(3 * (["m_turn%d" % n for n in range(25)] + ["m_last"])), "marks")


@test_each(PYTHONS, python_label)
def what_we_call_changes_the_session(case, python):
    """A number that is read for a mark is an object of the script's, and while it answers, another thread ends the session and begins one."""
    need_store()
    case.collect()
    package = case.folder / "keras"
    (package / "src" / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '3.0.0'\n")
    (package / "src" / "__init__.py").touch()
    (package / "src" / "engine" / "__init__.py").touch()
    (package / "src" / "engine" / "training.py").write_text("class Model:\n    def train_on_batch(self, x):\n        return {'loss': x, 'same': x}\n")
    r = case.run([python, case.script(r"""
import cirron as ci, threading
ci.profile(output="none")
from keras.src.engine.training import Model

def change():
    ci.shutdown()
    ci.profile(output="none")

class ndarray:
    turns = 0
    def __float__(self):
        ndarray.turns += 1
        t = threading.Thread(target=change)
        t.start()
        t.join()
        return 1.0

for i in range(10):
    with ci.scope("around"):
        Model().train_on_batch(ndarray())
    with ci.scope("after"):
        pass
print(ndarray.turns)
""")], env={"PYTHONPATH": str(case.folder)})
    case.equal((r.rc, r.out, r.err), (0, "10\n", ""), "the run")
    st = store(case, 11, faults=False)
    case.equal((len(st.of("around")), len(st.of("after"))), (10, 10), "scopes")


@test_each(PYTHONS, python_label)
def other_interpreters_are_in_the_way(case, python):
    """Since 3.12 one may have a GIL of its own, and be in the middle of anything: said, nothing breaks. Before, it is as any thread."""
    r = case.run([python, case.script(r"""
try:
    import _interpreters
except ImportError:
    import _xxsubinterpreters as _interpreters
import cirron as ci, sys
other = _interpreters.create()
ci.shutdown()
p = ci.profile()
with ci.scope("main_after") as s:
    pass
own = sys.version_info >= (3, 12)
assert (p.enabled, s.id is None) == (not own, own)
_interpreters.destroy(other)
ci.shutdown()
print(own, ci.profile().enabled)
""")])
    own = r.out.startswith("True")
    case.equal((r.rc, r.out), (0, f"{own} True\n"), "the run")
    case.equal(r.err.count("\n"), own, "lines: " + r.err)
    case.check("nothing is recorded any more" in r.err or not own, r.err)


@test_each(PYTHONS, python_label)
def nothing_after_shutdown_on_any_thread(case, python):
    """A thread that has recorded before records no more once another has called shutdown(), and is not in the way of anything."""
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, threading

go, there = threading.Event(), threading.Event()

def work():
    with ci.scope("before"):
        pass
    kept = ci.batches("abc")
    next(kept)
    there.set()
    go.wait()
    for _ in range(100):
        with ci.scope("late"):
            ci.mark("late", 1)
    rest = list(kept) + list(ci.batches("de"))
    assert rest == ["b", "c", "d", "e"], rest
    del kept
    tree = ci.trace("dict")
    assert "late" not in str(tree), tree

t = threading.Thread(target=work)
t.start()
there.wait()
ci.shutdown()
go.set()
t.join()
print(ci.health()["scope_drop_count"])
""")])
    case.equal((r.rc, r.out, r.err), (0, "0\n", ""), "the run")
    st = store(case, 1, faults=False)
    case.equal(([s["name"] for s in st.of("before")], st.of("late"), [m for m in st.marks if m["name"] == "late"]), (["before"], [], []), "spans")


@test_each(SOME, python_label)
def many_before_the_collector_looks(case, python):
    """It finds more sessions of one process than may live at a time, and none of them does."""
    need_store()
    collector = case.collect()
    collector.process.send_signal(signal.SIGSTOP)
    r = case.run([python, case.script(r"""
import cirron as ci
for n in range(20):
    ci.profile()
    with ci.scope("turn", n): pass
    ci.shutdown()
""")])
    collector.process.send_signal(signal.SIGCONT)
    case.equal((r.rc, r.out, r.err), (0, "", ""), "the run")
    st = store(case, 20)
    case.equal(sorted((s["state"], s["pid"]) for s in st.sessions), [("finished", r.pid)] * 20, "sessions")
    case.equal(sorted(s["index"] for s in st.of("turn")), list(range(20)), "scopes")
