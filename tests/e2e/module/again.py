"""After shutdown(), profile() begins a new session of the same process."""
from common import need_store, store
from harness import PYTHONS, python_label, test_each


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
def other_threads_hold_the_old_session(case, python):
    """There is no way back while another thread has memory of it; it is said, and nothing breaks."""
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, os, threading

go, there = threading.Event(), threading.Event()

def work():
    with ci.scope("thread"):
        there.set()
        go.wait()
    with ci.scope("thread_after"):
        pass

t = threading.Thread(target=work)
t.start()
there.wait()
ci.shutdown()
p = ci.profile()
with ci.scope("main_after") as s:
    pass
print(p.enabled, s.id)
go.set()
t.join()
while len(os.listdir("/proc/self/task")) > 1:
    pass
ci.shutdown()
q = ci.profile()
with ci.scope("free_again"):
    pass
print(q.enabled)
""")])
    case.equal((r.rc, r.out), (0, "False None\nTrue\n"), "the run")
    case.equal(r.err.count("\n"), 1, "one line: " + r.err)
    case.check("nothing is recorded any more" in r.err, r.err)
    st = store(case, 2, faults=False)  # the first session ends before what its thread has open
    names = [s["name"] for s in st.spans]
    case.check("main_after" not in names and "thread_after" not in names and "free_again" in names, str(names))


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
