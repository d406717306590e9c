"""Each call that the agent makes to the system fails once, and once for good: the job prints and ends as it would without us.

fail.c fails the N-th call of a kind; N goes up until there is no such call any more. What was recorded before the fault, and where the
fault passes what is recorded after it, has to be whole: no span twice, no parent missing, no end before its begin.
"""
import collections
import os

import harness
from harness import AGENT, PYTHONS, Skip, Store, stop_collectors, test, test_each

LIBRARY = os.environ["FAULT_LIBRARY"]

JOB = """
import os, sys, threading, time
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
def work(n):
    with ci.scope("thread", n, text="t" * 90):
        ci.mark("m", "value" * 20, note=n)
with ci.scope("outer", a=1):
    for n in range(50):
        with ci.scope("inner", n):
            ci.mark("loss", n / 2)
    for n in range(2):
        x = threading.Thread(target=work, args=(n,))
        x.start()
        x.join()
    time.sleep(0.12)
with ci.scope("after the pause"):
    pass
pid = os.fork()
if pid == 0:
    with ci.scope("child"):
        pass
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.closerange(3, 1024)
time.sleep(0.12)
with ci.scope("closed"):
    time.sleep(0.12)
with ci.scope("closed"):
    print(sorted(os.listdir(".")) in ([], [".cirron"]))
try:
    os.wait()
except ChildProcessError:
    print("no child", threading.active_count())
print("end", file=sys.stderr)
sys.exit(5)
"""

CALLS = {
    "mmap": 12, "mremap": 12, "madvise": 22, "ftruncate": 28, "fcntl": 24, "open": 24, "read": 5, "socket": 24, "connect": 13,
    "getsockopt": 22, "sendmsg": 32, "recv": 104, "mkdir": 28, "getcwd": 2, "access": 13, "pthread_key_create": 11,
    "pthread_setspecific": 12, "malloc": 12, "memfd_create": 38, "fstat": 9, "newfstatat": 2, "getrandom": 11,
    "rt_sigprocmask": 22, "clone": 11,
}  # with an error that each may give
MOST = 24


def faulty(t, call, n, error, on, more):
    fired = t.folder / f"{call}-{n}-{on}"
    env = {"LD_PRELOAD": f"{LIBRARY}:{AGENT}", "FAULT_CALL": call, "FAULT_N": n, "FAULT_ERRNO": error, "FAULT_FIRED": fired, **more}
    if on:
        env["FAULT_ON"] = 1
    done = t.run([PYTHONS[0], t.script(JOB)], env=env)
    what = f"{call} number {n}{' and later' if on else ''}"
    t.equal((done.rc, done.out, done.err), (5, "4\nTrue\nno child 1\n", "end\n"), f"job with failing {what}")
    t.check(done.wall_s < 20, f"took {done.wall_s:.1f} s with failing {what}")
    return fired.exists()


def each_call(t, call, **more):
    """Returns how many calls there were."""
    error = CALLS[call]
    for n in range(1, MOST + 1):
        if t.wrong or not faulty(t, call, n, error, False, more):
            break
    for first in (1, 2, 4):
        if not t.wrong and first < n:
            faulty(t, call, first, error, True, more)
    return n - 1


@test
def nothing_fails(t):
    """The job is what this suite believes, and all of it is stored."""
    t.collect()
    t.equal(t.run([PYTHONS[0], t.script(JOB)], False)[:3], (5, "4\nTrue\nno child 1\n", "end\n"), "job without the agent")
    faulty(t, "none", 1, 12, False, {})
    st = t.store()
    names = collections.Counter(s["name"] for s in st.spans)
    t.equal(dict(names), {"outer": 1, "inner": 50, "thread": 2, "after the pause": 1, "child": 1, "closed": 2}, "scopes")


# With a collector these are made at least so often; a kind that is met less has lost its place in fail.c.
LEAST = {"mmap": 5, "ftruncate": 3, "fcntl": 5, "socket": 2, "connect": 2, "sendmsg": 5, "memfd_create": 3, "fstat": 10, "mremap": 1}


@test_each(list(CALLS))
def with_a_collector(t, call):
    t.collect()
    n = each_call(t, call)
    t.check(n >= LEAST.get(call, 0), f"only {n} calls were met")
    t.store()


@test_each(["clone", "mkdir", "getcwd", "access", "open", "read", "newfstatat", "rt_sigprocmask", "mmap", "fstat", "connect", "socket"])
def starting_one(t, call):
    """No collector is there: the agent starts its own, which needs more calls."""
    runtime = t.folder / "runtime"
    runtime.mkdir(mode=0o700)
    try:
        n = each_call(t, call, CIRRON_SOCKET="", XDG_RUNTIME_DIR=runtime)
        t.check(call not in ("clone", "mkdir", "rt_sigprocmask") or n > 0, f"no {call} was met")
    finally:
        stop_collectors(t.folder)
    for db in t.folder.rglob("traces.db"):
        t.wrong.extend(Store(db).faults()[:3])


NO_MEMORY = """
import sys
try:
    import _testcapi
except ImportError:
    print("no _testcapi")
    sys.exit(0)
import cirron as ci
class Odd:
    def __str__(self):
        return "odd" * 3
@ci.scope("decorated", a=1)
def decorated():
    return 1
decorated()
class Model:
    def fit(self):
        return self
kept, other = Model(), Model()
ci.watch(kept, name="kept")
def round():
    with ci.scope("outer", 3, text="x", odd=Odd(), more=[1, {"k": 2.5}]) as s:
        s.attrs["later"] = 1
        ci.mark("m", "text", note="n", odd=Odd())
        ci.mark("n" * 2, 1.5)
        decorated()
        for x in ci.epochs(range(2)):
            for y in ci.batches([1]):
                pass
    ci.health()
    ci.watch(other)
    ci.wrap(other).fit()
    return True
done = raised = 0
for n in range(800): # more than a round allocates
    _testcapi.set_nomemory(n, n + 1)
    try:
        done += round()
    except MemoryError:
        raised += 1
    finally:
        _testcapi.remove_mem_hooks()
with ci.scope("last"):
    pass
print(done + raised, done > 100, raised > 20, ci.health()["watched"])
"""


@test_each(PYTHONS, harness.python_label)
def python_has_no_memory(t, python):
    """Each allocation of Python fails once while the module works: at worst the script has a MemoryError."""
    t.collect()
    done = t.run([python, t.script(NO_MEMORY)])
    if "no _testcapi" in done.out:
        raise Skip("this Python has no _testcapi")
    t.equal((done.rc, done.out, done.err), (0, "800 True True ['kept', 'Model']\n", ""), "job")
    st = t.store()
    t.equal([s["parent_id"] == r["id"] for s in st.of("last") for r in st.roots], [True], "the last scope is in no other")


NO_MEMORY_BESIDE = """
import os, sys
try:
    import _testcapi
except ImportError:
    print("no _testcapi")
    sys.exit(0)
import cirron as ci, json
with open("cirron.yaml", "w") as f:
    f.write("name: a\\nframework: pytorch\\ntype: regression\\nversion: '1'\\nprofiling: {snapshots: off, sample_rate: 0.5}\\n")
os.mkdir(".cirron")
with open(".cirron/config.toml", "w") as f:
    f.write("[default]\\nsample_rate = 'x'\\nspool_max_bytes = '5'\\noutput = ['log']\\nworkspace_id = 7\\n[other]\\na = [{b = 1}]\\n")
os.environ["HOME"] = os.getcwd()
ci.profile(output="none", frameworks=["torch"])
with ci.scope("one", 1, a=[1, {"b": None}]):
    ci.mark("m", 2.5, note="n")
calls = {"tree": lambda: ci.trace("dict", name="one"), "json": lambda: ci.trace("json"), "flush": ci.flush, "health": ci.health,
         "find": ci.find_cirron_yaml, "load": lambda: ci.load_cirron_yaml("cirron.yaml"), "default": ci.get_default,
         "Cirron": lambda: ci.Cirron(snapshots="off", output=["none"], sample_rate=1), "scope": lambda: ci.Cirron().scope("x"),
         "wrong type": lambda: ci.epochs(7), "wrong value": lambda: ci.find_cirron_yaml("a\\0b"), "user": lambda: ci.Cirron().spool_max_bytes,
         "wrong list": lambda: ci.Cirron(api_key=[1, {2: (None, "x" * 3)}, 10**200]), "wrong text": lambda: ci.Cirron(snapshots="x" * 200)}
if sys.version_info >= (3, 12): # these crash by themselves when Python functions in Python functions get no memory
    del calls["tree"], calls["json"]
for name, call in calls.items():
    done = raised = 0
    for n in range(-1, 400):
        if n >= 0: # once with memory
            _testcapi.set_nomemory(n, n + 1)
        try:
            call()
            done += 1
        except MemoryError:
            raised += 1
        except (TypeError, ValueError):
            done += name.startswith("wrong")
        finally:
            _testcapi.remove_mem_hooks()
    assert done and done + raised == 401, name
print(ci.trace("dict")["span_count"] >= 1, ci.load_cirron_yaml().profiling.sample_rate)
"""


@test_each(PYTHONS, harness.python_label)
def python_has_no_memory_beside(t, python):
    """The same for what reads settings and what was recorded."""
    t.collect()
    done = t.run([python, t.script(NO_MEMORY_BESIDE)])
    if "no _testcapi" in done.out:
        raise Skip("this Python has no _testcapi")
    t.equal((done.rc, done.out, done.err), (0, "True 0.5\n", ""), "job")


harness.main()
