"""Threads and forks: many at once, many in a row, at bad moments."""
import collections
import os

from harness import PYTHONS, QUERY, SOME, TORCH_PYTHON, Skip, clean_env, python_label, test, test_each

each_python = test_each(PYTHONS, python_label)
some_pythons = test_each(SOME, python_label)

# `ours()` counts descriptors of the agent: those that lead to its memory or to a socket.
HEAD = """
import os, sys, threading, time
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
def ours():
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink("/proc/self/fd/" + fd).startswith(("/memfd:cirron", "socket:"))
        except OSError:
            pass
    return found
def shared_kib():
    for line in open("/proc/self/status"):
        if line.startswith("RssShmem"):
            return int(line.split()[1])
"""

AT_ONCE = HEAD + """
N = %d
ready, go = threading.Barrier(N + 1), threading.Event()
def work(n):
    with ci.scope("thread", n):
        ci.mark("m", n)
    ready.wait()
    go.wait()
    with ci.scope("again", n):
        pass
threading.stack_size(131072)
threads = [threading.Thread(target=work, args=(n,)) for n in range(N)]
for x in threads: x.start()
ready.wait()
with ci.scope("main"):
    time.sleep(0.3)
with ci.scope("main"):
    pass
sys.stderr.write("")
print("descriptors", ours() <= 128, "shared", shared_kib() < 65536)
go.set()
for x in threads: x.join()
print("end")
"""


@test_each([300, 900])
def at_once(t, number):
    """Each has a ring; neither the job's descriptors nor its memory are used up by that."""
    t.collect()
    _, traced = t.both([PYTHONS[0], t.script(AT_ONCE % number)])
    st = t.store()
    for name in ("thread", "again"):
        t.equal(sorted(s["index"] for s in st.of(name)), list(range(number)), f"scopes {name}")
    t.equal(len(st.marks), number, "marks")


@test
def more_than_there_are_rings(t):
    """What cannot be kept is counted."""
    t.collect()
    t.both([PYTHONS[0], t.script(AT_ONCE % 1100)])
    st = t.store()
    kept = len(st.spans) + len(st.marks)
    dropped = st.sessions[0]["dropped"]
    t.check(sum(dropped.values()) > 0, f"nothing counted: {dropped}")
    t.equal(kept + sum(dropped.values()), 3302, f"kept and dropped, {dropped}")


@test
def at_once_without_a_collector(t):
    t.both([PYTHONS[0], t.script(AT_ONCE % 600)])


@test
def at_once_and_the_collector_restarts(t):
    """Rings whose descriptor is not kept are handed to the next collector all the same."""
    t.collect()
    process = t.start([PYTHONS[0], t.script(HEAD + """
N = 200
steps = [threading.Barrier(N + 1) for _ in range(3)]
def work(n):
    for step in range(3):
        steps[step].wait()
        for k in range(3):
            with ci.scope("work", step * N + n, k=k):
                time.sleep(0.1)
threads = [threading.Thread(target=work, args=(n,)) for n in range(N)]
for x in threads: x.start()
for step in range(3):
    steps[step].wait()
    time.sleep(1)
    print(step, flush=True)
    sys.stdin.readline()
for x in threads: x.join()
print(ours() <= 128)
""")], stdin=-1)
    t.equal(process.stdout.readline(), "0\n", "first part")
    t.collector.kill()
    process.stdin.write("\n")
    process.stdin.flush()
    t.equal(process.stdout.readline(), "1\n", "second part")
    t.collector.start()
    process.stdin.write("\n")
    process.stdin.flush()
    t.equal(process.stdout.readline(), "2\n", "third part")
    out, err = process.communicate("\n", timeout=60)
    t.equal((process.returncode, out, err), (0, "True\n", ""), "end")
    counts = collections.Counter(s["index"] for s in t.store().of("work"))
    t.equal(len(counts), 600, "threads and parts of which something is stored")
    t.equal({n for n in counts.values()}, {3}, "scopes of each")


@each_python
def one_after_the_other(t, python):
    """The rings of threads that ended are used again."""
    t.collect()
    t.both([python, t.script(HEAD + """
def work(n):
    with ci.scope("short", n):
        pass
for n in range(2000):
    x = threading.Thread(target=work, args=(n,))
    x.start()
    x.join()
print(ours() < 8)
""")])
    t.equal(len(t.store().of("short")), 2000, "scopes")


@each_python
def daemon_threads_at_the_end(t, python):
    t.collect()
    t.both([python, t.script(HEAD + """
def work():
    n = 0
    while True:
        with ci.scope("busy", n % 100, a=1):
            ci.mark("m", 1)
        n += 1
        time.sleep(0)
for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print("end")
""")])
    t.check(len(t.store().of("busy")) > 8, "no scopes of the daemon threads")


@some_pythons
def forks_at_bad_moments(t, python):
    """While other threads open spans and rings come and go; in threads; in forked children; inside scopes."""
    t.collect()
    t.both([python, "-W", "ignore", t.script(HEAD + """
stop = False
def busy():
    while not stop:
        with ci.scope("busy", a="text"):
            ci.mark("m", "text" * 20)
def comer():
    while not stop:
        x = threading.Thread(target=lambda: ci.mark("short", 1))
        x.start()
        x.join()
def child(level):
    with ci.scope("child", level):
        x = threading.Thread(target=lambda: ci.mark("of child", level))
        x.start()
        x.join()
        if level:
            forked(level - 1)
def forked(level):
    pid = os.fork()
    if pid == 0:
        child(level)
        os._exit(7)
    statuses.append(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
statuses = []
others = [threading.Thread(target=busy) for _ in range(3)] + [threading.Thread(target=comer) for _ in range(2)]
for x in others: x.start()
def from_here():
    for _ in range(15):
        with ci.scope("around"):
            forked(1)
threads = [threading.Thread(target=from_here) for _ in range(2)]
for x in threads: x.start()
for x in threads: x.join()
stop = True
for x in others: x.join()
print(statuses == [7] * 30)
""")])
    st = t.store()
    levels = collections.Counter(s["index"] for s in st.of("child"))
    t.equal(dict(levels), {1: 30, 0: 30}, "scopes of children")
    t.equal(len({s["pid"] for s in st.of("child")}), 60, "processes of children")
    t.equal(len(st.of("around")), 30, "scopes of the parent")


@test
def fork_in_an_observed_call(t):
    """The child goes on inside forward, and its later forwards are counted."""
    if not TORCH_PYTHON or not os.path.exists(TORCH_PYTHON):
        raise Skip("no Python with torch")
    t.collect()
    t.both([TORCH_PYTHON, "-W", "ignore", t.script("""
import os, torch
class Net(torch.nn.Module):
    forks = True
    def forward(self, x):
        if self.forks:
            Net.forks = False
            self.pid = os.fork()
        return x + 1
net = Net()
for n in range(4):
    net(torch.zeros(1))
if net.pid == 0:
    os._exit(0)
print(os.waitpid(net.pid, 0)[1])
""")])
    by_pid = collections.Counter(s["pid"] for s in t.store().of("forward"))
    t.equal(sorted(by_pid.values()), [3, 4], "forwards of child and parent")


@each_python
def left_behind_by_threads_that_ended(t, python):
    """A generator that dies elsewhere after its thread ended takes nothing from those that wander between living threads."""
    t.collect()
    t.both([python, t.script(HEAD + """
def generator(name):
    with ci.scope(name, text="x" * 100):
        yield
kept = []
together = threading.Barrier(100)
def begin():
    g = generator("dead")
    next(g)
    kept.append(g)
    together.wait()
threads = [threading.Thread(target=begin) for _ in range(100)]
for x in threads: x.start()
for x in threads: x.join()
for g in kept:
    g.close()
a, b, wandering = threading.Event(), threading.Event(), []
def living():
    g = generator("living")
    next(g)
    wandering.append(g)
    a.set()
    b.wait()
    time.sleep(0.5)
    with ci.scope("after"):
        pass
x = threading.Thread(target=living)
x.start()
a.wait()
wandering[0].close()
b.set()
x.join()
print("end")
""")])
    st = t.store()
    t.equal(len(st.of("dead")), 100, "scopes of threads that ended")
    living, after = st.of("living")[0], st.of("after")[0]
    t.check(living["end_ns"] < after["start_ns"], "a scope that another thread left was closed late")


@each_python
def stopped_by_signals_at_any_moment(t, python):
    """Python's handlers run between our calls, never within; the job ends as the signal says."""
    t.collect()
    for number, status in ((2, -2), (15, -15), (9, -9)):
        _, traced = t.both([python, "-c", HEAD + f"""
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
caught = []
signal.signal(signal.SIGALRM, lambda *_: [caught.append(1), ci.mark("alarm", 1)])
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
threading.Timer(0.15, os.kill, (os.getpid(), {number})).start()
while True:
    with ci.scope("tick", a=1):
        ci.mark("m", 1.5)
"""])
        t.equal(traced.rc, status, f"signal {number}")
    t.check(len(t.store().of("tick")) > 100, "no scopes")


@each_python
def pools(t, python):
    t.collect()
    t.both([python, t.script(HEAD + """
import concurrent.futures, multiprocessing
def work(n):
    with ci.scope("task", n):
        return n * n
if __name__ == "__main__":
    for method in ("fork", "forkserver", "spawn"):
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            print(method, list(pool.map(work, range(6))))
        with multiprocessing.get_context(method).Pool(2, maxtasksperchild=2) as pool:
            print(method, pool.map(work, range(6), chunksize=1))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        print(sum(pool.map(work, range(400))))
""")])
    st = t.store(faults=False)
    t.equal(sorted(s["index"] for s in st.of("task") if s["index"] > 5), list(range(6, 400)), "tasks of threads")
