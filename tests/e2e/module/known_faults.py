"""Faults that Python tracers are known for and that no other test here would find in ours. docs/testing.md has the whole list."""
import csv
import io
import json
import os
import random
import signal
import socket
import subprocess
import time

from common import TORCH, need_agent, need_store, store
from harness import AGENT, IMPORTED, PYTHONS, QUERY, SOME, TRANSPORT, Store, clean_env, python_label, test_each, until
from sinks import OFFLINE, Spool, strict


def go(case, python, text, rc=0, traced=True, **how):
    """The script with a collector, in a folder of its own: the run, and what its spool holds."""
    need_store()
    case.collect()
    folder = case.folder / "job"
    folder.mkdir(exist_ok=True)
    r = case.run([python, case.script(text)], agent=traced, cwd=folder, **how)
    case.equal(r.rc, rc, "exit status, stderr: " + r.err[-1000:])
    return r, Spool(case, folder / ".cirron" / "spool")


def ask(case, *what):
    r = subprocess.run([str(x) for x in (QUERY, "--db", case.collector.db, *what)], capture_output=True, text=True, env=clean_env())
    case.equal((r.returncode, r.stderr), (0, ""), f"cirron-query {what}")
    return r.stdout


SENT = "ci.flush()" if TRANSPORT == "socket" else "pass"  # before an end that nobody hears of; shared memory needs none

# --- nothing is lost, all can be read ---

OPEN = r"""
import cirron as ci, os, signal, sys, time
ci.profile(flush_interval=3600)
ci.mark("on the session", 1)
epochs = ci.epochs(range(3))
for e in epochs:
    ci.mark("on an epoch", e)
    batches = ci.batches("abc")
    for b in batches:
        ci.mark("on a batch", b)
        if e == 1 and b == "b":
            break
    if e == 1:
        break
step = ci.scope("step", 7, lr=0.5)
step.__enter__()
ci.mark("on a step", 7)
"""


def marks_on(st):
    return sorted((m["name"], (st.by_id.get(m["span_id"]) or {"name": "?"})["name"], str(m["value"])) for m in st.marks)


MARKS = sorted([("on the session", "cirron.session", "1"), ("on a step", "step", "7")] + [("on an epoch", "epoch", str(e)) for e in range(2)] +
               [("on a batch", "batch", b) for b in "abcab"])


@test_each([(p, how) for p in PYTHONS for how in ("pass", "sys.exit(0)", "raise SystemExit", "step.__exit__(None, None, None)")],
           lambda v: f"{python_label(v[0])}-{v[1].split('(')[0]}")
def a_plain_end_closes_what_is_open(case, which):
    """The session, an epoch, a batch and a scope are open: all are closed and in the store, and the same are in the spool."""
    r, spool = go(case, which[0], OPEN + which[1])
    st = store(case)
    case.equal([s["state"] for s in st.sessions], ["finished"], "state of the session")
    case.equal(sorted(s["name"] for s in st.all), ["batch"] * 5 + ["cirron.session"] + ["epoch"] * 2 + ["step"], "spans")
    case.equal({s["state"] for s in st.all}, {"closed"}, "states")
    case.equal(marks_on(st), MARKS, "marks and whose they are")
    keys = ("name", "parent_id", "index", "start_ns", "end_ns", "attrs")
    case.equal({i: [s[k] for k in keys] for i, s in spool.spans.items()}, {i: [s[k] for k in keys] for i, s in st.by_id.items()}, "the spool's spans")
    case.equal({i: (m["span_id"], m["value"]) for i, m in spool.marks.items()}, {m["id"]: (m["span_id"], m["value"]) for m in st.marks}, "its marks")


@test_each([(p, n) for p in PYTHONS for n in ("SIGTERM", "SIGKILL", "SIGABRT")], lambda v: f"{python_label(v[0])}-{v[1]}")
def what_is_open_outlives_a_kill(case, which):
    """It can be seen while the process runs, and is unfinished when it was killed, as by the kernel for want of memory."""
    need_store()
    case.collect()
    number = getattr(signal, which[1])
    flush = "ci.flush()" if number == signal.SIGKILL else SENT
    child = case.start([which[0], case.script(OPEN + flush + "\nprint('there', flush=True)\ntime.sleep(100)\n")])
    case.equal(child.stdout.readline(), "there\n", "first line")

    def seen():
        try:
            st = Store(case.collector.db)
        except AssertionError:  # no store yet
            return None
        return st if len(st.marks) == len(MARKS) and len(st.all) == 9 else None

    st = until(seen, what="all spans and marks of a running process")
    still = ["batch", "cirron.session", "epoch", "step"]
    case.equal([s["state"] for s in st.sessions], ["running"], "state of the session while it runs")
    case.equal(sorted(s["name"] for s in st.all if s["end_ns"] is None), still, "what is open while it runs")
    child.send_signal(number)
    child.communicate(timeout=20)
    case.equal(child.returncode, -number, "exit status")
    st = store(case)
    case.equal([(s["state"], s["exit_signal"]) for s in st.sessions], [("killed", number)], "the session")
    case.equal(sorted(s["name"] for s in st.all if s["state"] == "unfinished"), still, "what was open")
    case.equal(sorted(s["name"] for s in st.all if s["state"] == "closed"), ["batch"] * 4 + ["epoch"], "what was closed")
    case.equal(marks_on(st), MARKS, "marks and whose they are")
    spool = Spool(case, case.folder / "run1" / ".cirron" / "spool")
    if number == signal.SIGKILL:
        case.equal({i: (s["name"], s["parent_id"], s["end_ns"]) for i, s in spool.spans.items()},
                   {i: (s["name"], s["parent_id"], s["end_ns"]) for i, s in st.by_id.items()}, "the spool, after a flush")
        case.equal({m["id"]: m["span_id"] for m in spool.marks.values()}, {m["id"]: m["span_id"] for m in st.marks}, "its marks")


ODD = r"""
import cirron as ci, collections, datetime, decimal, fractions, pathlib, sys
ci.profile(flush_interval=3600)
class Silent:
    def __repr__(self): raise RuntimeError
    __str__ = __float__ = __index__ = __iter__ = __len__ = __repr__
loop = []
loop.append(loop)
odd = [object(), {1, 2}, b"\xff\x00", lambda: 0, loop, Silent(), decimal.Decimal("1.5"), datetime.date(2020, 1, 2), pathlib.Path("/a"), int, sys,
       {(1, 2): {"x": {3}}, None: b"", float("nan"): float("inf")}, [float("nan"), -float("inf")], "\ud800", "\x00\x1f\x7f\u2028", 2**100, 1 + 2j, ...,
       range(3), collections.OrderedDict(a=collections.Counter("aab")), [[[[[[[[[[1]]]]]]]]]], "x" * 10000, list(range(10000)), type("T", (float,), {})("nan")]
for i, value in enumerate(odd):
    with ci.scope("before", i): ci.mark("before", i)
    with ci.scope("odd", i, plain=i, odd=value, **{"key %r" % i: value}) as s:
        s.attrs["late"] = [value]
        ci.mark("odd", i, odd=value)
        ci.mark("odd value", value)
    with ci.scope("after", i): ci.mark("after", i)
    if i % 2: ci.flush()
print(len(odd), ci.health()["mark_refused_count"])
"""


@test_each(PYTHONS, python_label)
def odd_attributes_cost_nothing_else(case, python):
    """Whatever is given as an attribute, all spans and marks beside it are there, and so is it, as JSON or as a text."""
    r, spool = go(case, python, ODD)
    count, refused = map(int, r.out.split())
    st = store(case)
    for where, spans, marks in (("store", st.all, st.marks), ("spool", list(spool.spans.values()), list(spool.marks.values()))):
        for name in ("before", "odd", "after"):
            case.equal(sorted(s["index"] for s in spans if s["name"] == name), list(range(count)), f"{where}: spans {name}")
            case.equal(sorted(m["value"] for m in marks if m["name"] == name), list(range(count)), f"{where}: marks {name}")
        case.equal(len([m for m in marks if m["name"] == "odd value"]), count - refused, f"{where}: marks of odd values, less those refused and counted")
        for s in (s for s in spans if s["name"] == "odd"):
            case.equal((sorted(s["attrs"]), s["attrs"]["plain"]), (sorted(["plain", "odd", "late", f"key {s['index']!r}"]), s["index"]), f"{where}: attributes")
    for command in ("spans", "marks", "tree"):
        json.loads(ask(case, command, "--json"), parse_constant=strict)


@test_each(PYTHONS, python_label)
def a_loss_that_diverges_can_be_read(case, python):
    """NaN and the infinities come back as what they are, and everything that holds them is JSON by the letter."""
    values = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    r, spool = go(case, python, r"""
import cirron as ci
ci.profile(flush_interval=3600)
for i, value in enumerate(["1.5", "nan", "inf", "-inf", "1e308", "5e-324", "-0.0"]):
    with ci.scope("step", i, loss=float(value), all=[float(value)]):
        ci.mark("loss", float(value), again=float(value))
    ci.flush()
print(ci.trace("json"))
""")
    expected = [1.5, "NaN", "Infinity", "-Infinity", 1e308, 5e-324, -0.0]
    case.equal(len(spool.files), 8, "files, each of them checked to be JSON")
    st = store(case)
    roots = json.loads(r.out, parse_constant=strict)["roots"]
    by_format = {"spool": [m for m in spool.marks.values()], "store": st.marks, "json": json.loads(ask(case, "marks", "--json"), parse_constant=strict),
                 "csv": list(csv.DictReader(io.StringIO(ask(case, "marks", "--format", "csv")))), "trace": [m for s in roots for m in s["marks"]]}
    for where, marks in by_format.items():
        got = [m["value"] for m in sorted(marks, key=lambda m: int(m.get("ts_ns", 0)))]
        case.equal([g if g in values.values() else repr(float(g)) for g in got], [g if g in values.values() else repr(g) for g in expected], where)
    for where, spans in (("spool", spool.of("step")), ("store", st.of("step")), ("trace", roots),
                         ("json", json.loads(ask(case, "spans", "--name", "step", "--json"), parse_constant=strict))):
        case.equal([(s["attrs"]["loss"], s["attrs"]["all"]) for s in sorted(spans, key=lambda s: s["index"])], [(v, [v]) for v in expected], where)
    case.check(all(m["attrs"]["again"] == m["value"] for m in st.marks), "attributes of the marks")


@test_each([(p, how) for p in SOME for how in ("shared", "socket")], lambda v: f"{python_label(v[0])}-{v[1]}")
def flush_brings_all_of_it_once(case, which):
    """A process that is killed right after flush() has lost nothing that was closed before, neither for the collector nor in the spool."""
    python, transport = which
    text = r"""
import cirron as ci, os, signal, sys
how, output = sys.argv[1:]
ci.profile(flush_interval=3600, output=output)
def work(first, end):
    for i in range(first, end):
        with ci.scope("s", i): pass
        if i % 10 == 0: ci.mark("m", i)
work(0, 1000), ci.flush(), ci.flush()
work(1000, 30000 if output == "none" else 2000), ci.flush()
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
work(2000, 3000)
if how == "shutdown":
    ci.shutdown()
"""
    need_store()
    case.collect()
    # The first needs no time after the flush, and has more to send than a socket holds.
    for how, output, rc, n in (("kill", "none", -9, 30000), ("kill", "spool", -9, 2000), ("exit", "spool", 0, 3000), ("shutdown", "spool", 0, 3000)):
        folder = case.folder / f"{how}-{output}"
        folder.mkdir()
        r = case.run([python, case.script(text), how, output], cwd=folder, env={"CIRRON_TRANSPORT": transport} if transport == "socket" else {})
        case.equal((r.rc, r.err), (rc, ""), "the run")
        st, spool = case.store(), Spool(case, folder / ".cirron" / "spool")
        session = [s["id"] for s in st.sessions if s["pid"] == r.pid]
        spans, marks = list(range(n)), list(range(0, n, 10))
        case.check(sorted(s["index"] for s in st.of("s", r.pid)) == spans, f"{how}, {output}: {len(st.of('s', r.pid))} of {n} spans in the store")
        case.check(sorted(m["value"] for m in st.marks if m["session_id"] in session) == marks, f"{how}, {output}: marks of the store")
        if output == "spool":
            case.check([s["index"] for s in spool.of("s")] == spans, f"{how}: {len(spool.of('s'))} of {n} spans in the spool")
            case.check(sorted(m["value"] for m in spool.marks.values()) == marks, f"{how}: marks of the spool")
            written = [s["id"] for p in spool.files for s in json.loads(p.read_bytes())["spans"] if s["end_ns"] is not None]
            case.equal(len(written), len(set(written)), f"{how}: closed spans in all files together, and different ones")


@test_each(PYTHONS, python_label)
def forks_double_and_lose_nothing(case, python):
    """What waits to be written when a process forks is written by it alone; children of each kind keep theirs, under their own pid."""
    r, spool = go(case, python, r"""
import cirron as ci, multiprocessing, os, sys, warnings
warnings.simplefilter("ignore")
ci.profile(flush_interval=3600)
def child(i):
    with ci.scope("child", i, pid=os.getpid()):
        ci.mark("m", i)
    SENT
with ci.scope("outer", pid=os.getpid()):
    for i in range(100):
        with ci.scope("parent", i, pid=os.getpid()): ci.mark("p", i)
    for i in range(3):
        if os.fork() == 0:
            child(i)
            os._exit(0)
        os.wait()
    p = multiprocessing.get_context("fork").Process(target=child, args=(3,))
    p.start(), p.join()
    if os.fork() == 0:
        child(4)
        sys.exit(0)
    os.wait()
with ci.scope("late", pid=os.getpid()): pass
""".replace("SENT", SENT))
    st = store(case, 6)
    case.equal(len(st.sessions), 6, "sessions")
    case.equal(sorted(s["index"] for s in st.of("child")), list(range(5)), "children")
    case.equal(len({s["pid"] for s in st.of("child")} - {r.pid}), 5, "their processes")
    case.equal({s["pid"] for s in st.spans if s["name"] != "child"}, {r.pid}, "the parent's spans")
    case.check(all(s["attrs"]["pid"] == s["pid"] for s in st.spans), "a span with another pid than its process's")
    case.equal((len(st.of("parent")), len(st.of("outer")), len(st.of("late"))), (100, 1, 1), "spans of the parent")
    case.equal(sorted((m["name"], m["value"]) for m in st.marks), sorted([("m", i) for i in range(5)] + [("p", i) for i in range(100)]), "marks")
    written = [s for p in spool.files for s in json.loads(p.read_bytes())["spans"] if s["end_ns"] is not None]
    case.equal(len(written), len({s["id"] for s in written}), "closed spans in all files together, and different ones")
    case.equal(len(spool.of("parent")), 100, "spans of the parent in the spool")
    case.check(all(s["attrs"].get("pid", s["pid"]) == s["pid"] for s in written), "a span in the spool with another pid than its process's")


@test_each(PYTHONS, python_label)
def work_goes_on_after_ctrl_c(case, python):
    """Caught by the script, it changes nothing: what follows is written, where the rest is."""
    r, spool = go(case, python, r"""
import cirron as ci, os, signal, time
ci.Cirron(output_dir="out").profile(flush_interval=0.02)
os.mkdir("elsewhere"), os.chdir("elsewhere")
def files():
    return sorted(os.listdir("../out/spool"))
for turn in range(2):
    try:
        with ci.scope("interrupted", turn):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(100)
    except KeyboardInterrupt:
        pass
    with ci.scope("caught", turn): ci.mark("m", turn)
    ci.flush()
    with ci.scope("periodic", turn): pass
    before, end = len(files()), time.monotonic() + 20
    while len(files()) == before and time.monotonic() < end:
        with ci.scope("waiting"): time.sleep(0.005)
    assert len(files()) > before, "nothing is written any more"
    assert ci.health()["enabled"] and ci.health()["flush_mode"] == "normal", ci.health()
with ci.scope("last"): pass
""")
    case.equal(r.err, "", "stderr")
    spool = Spool(case, case.folder / "job" / "out" / "spool")
    names = ["interrupted", "caught", "periodic", "last", "cirron.session"]
    case.equal([len(spool.of(n)) for n in names], [2, 2, 2, 1, 1], "spans in the spool")
    case.equal([s["attrs"].get("exception") for s in spool.of("interrupted")], ["KeyboardInterrupt"] * 2, "what ended them")
    case.equal(sorted(m["value"] for m in spool.marks.values()), [0, 1], "marks")
    case.equal([str(p.relative_to(case.folder)) for p in case.folder.rglob(".cirron")], [], "other spools")
    st = store(case)
    case.equal([len(st.of(n)) for n in names[:4]], [2, 2, 2, 1], "spans in the store")


@test_each([(p, output) for p in PYTHONS for output in ("spool", "none")], lambda v: f"{python_label(v[0])}-{v[1]}")
def nothing_after_shutdown(case, which):
    r, spool = go(case, which[0], r"""
import cirron as ci, os, threading, time
ci.profile(output=%r, flush_interval=0.01)
with ci.scope("before"): pass
ci.shutdown()
def tree():
    return sorted(os.path.join(*x) for top, _, names in os.walk(".") for x in [(top, n) for n in names])
there = tree()
def more():
    for i in range(100):
        with ci.scope("after", i): ci.mark("after", i)
    for e in ci.epochs(range(3)): pass
more(), ci.flush()
t = threading.Thread(target=more)
t.start(), t.join()
time.sleep(0.05)
more(), ci.flush(), ci.shutdown()
assert tree() == there, (tree(), there)
""" % which[1])
    case.equal((r.err, bool(spool.files)), ("", which[1] == "spool"), "stderr, are there files")
    case.check(which[1] == "spool" or not (case.folder / "job" / ".cirron").exists(), "a folder for nothing")
    st = store(case)
    case.equal(([s["name"] for s in st.spans], st.marks), (["before"], []), "the store")


@test_each(SOME, python_label)
def sigterm_in_the_middle_of_a_flush(case, python):
    """Without a handler it ends the process at once, whatever its threads write at that moment."""
    need_store()
    case.collect()
    chance = random.Random(int.from_bytes(os.urandom(4), "little"))
    script = case.script(r"""
import cirron as ci, os, threading
ci.profile(flush_interval=0.001, output=["spool", "stdout"])
os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
def work():
    while True:
        for i in range(200):
            with ci.scope("s", i): ci.mark("m", i)
        ci.flush()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
os.write(2, b"ready\n")
work()
""")
    for _ in range(4):
        child = case.start([python, script])
        case.equal(child.stderr.readline(), "ready\n", "first line")
        time.sleep(chance.uniform(0, 0.1))
        begin = time.monotonic()
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=30)
        case.equal((child.returncode, err), (-signal.SIGTERM, ""), "how it ends")
        case.check(time.monotonic() - begin < 5, f"{time.monotonic() - begin:.1f} s until the end")
    store(case, 4)


@test_each(SOME, python_label)
def handlers_that_call_us_back(case, python):
    """A handler of the script flushes, marks and traces, and is called some hundred times while others do the same."""
    r, spool = go(case, python, r"""
import cirron as ci, itertools, os, signal, sys, threading, time
numbers, inside = itertools.count(), set()
def handler(number, frame):
    i = next(numbers)  # in one piece: handlers interrupt each other
    while frame:  # is it in a flush?
        inside.add(frame.f_code.co_filename == "<cirron>")
        frame = frame.f_back
    with ci.scope("handled", i): ci.mark("signal", i)
    ci.flush(), ci.health()
    if i % 50 == 0: ci.trace("json", last=3)
signal.signal(signal.SIGTERM, handler)
ci.trace("json")  # imports json, which must not be asked for in a handler while it is half imported, whoever does it
ci.profile(flush_interval=0.001, output=["spool", "stdout"])  # lines run Python code, in which handlers are called
done = threading.Event()
def storm():
    for _ in range(400):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.0005)
    done.set()
def other():
    while not done.is_set():
        with ci.scope("other"): pass
        ci.flush()
threads = [threading.Thread(target=f) for f in (storm, other)]
[t.start() for t in threads]
n = 0
while not done.is_set():
    with ci.scope("mine", n): ci.mark("mine", n)
    ci.flush()
    n += 1
[t.join() for t in threads]
sys.stderr.write("%d %d %s\n" % (n, next(numbers), True in inside))
""")
    n, handled = map(int, r.err.split()[:2])
    case.equal(r.err.split()[2:], ["True"], "handlers were called inside of flush()")
    case.check(n > 5 and handled > 50, f"{n} flushes, {handled} signals")
    case.check(r.wall_s < 60, f"{r.wall_s:.0f} s")
    case.equal(sorted(m["value"] for m in spool.marks.values() if m["name"] == "signal"), list(range(handled)), "the handler's marks in the spool")
    st = store(case)
    case.equal(sorted(s["index"] for s in st.of("handled")), list(range(handled)), "the handler's spans")
    case.equal(sorted(s["index"] for s in st.of("mine")), list(range(n)), "the script's spans")


# --- numbers ---

@test_each(PYTHONS[:1], python_label)
def nanoseconds_are_exact(case, python):
    """In each form in which they can be asked for: no number goes through a double, which has 53 bits for some 61."""
    r, spool = go(case, python, r"""
import cirron as ci, json
ci.profile(flush_interval=3600)
for i in range(40):
    with ci.scope("s", 2**60 + i): ci.mark("m", 2**62 + i)
print(json.dumps(ci.trace("dict", name="s")["roots"]))
""")
    st, traced = store(case), json.loads(r.out)
    expected = {s["id"]: (s["start_ns"], s["end_ns"], s["index"]) for s in traced}
    case.check(any(int(float(x)) != x for times in expected.values() for x in times[:2]), "no time that a double would change")
    query = "SELECT id, start_ns, end_ns, idx AS 'index', dur_ns FROM spans WHERE name = 's'"
    forms = {"jsonl": st.of("s"), "json": json.loads(ask(case, "spans", "--name", "s", "--json")), "spool": spool.of("s"),
             "csv": list(csv.DictReader(io.StringIO(ask(case, "spans", "--name", "s", "--format", "csv")))),
             "sql": json.loads(ask(case, "sql", query, "--json")), "sql csv": list(csv.DictReader(io.StringIO(ask(case, "sql", query, "--format", "csv")))),
             "tree": json.loads(ask(case, "tree", "--all", "--json"))[0]["spans"][0]["children"]}
    for form, rows in forms.items():
        case.equal({x["id"]: (int(x["start_ns"]), int(x["end_ns"]), int(x["index"])) for x in rows}, expected, form)
        case.check(all(int(x["dur_ns"]) == int(x["end_ns"]) - int(x["start_ns"]) for x in rows if "dur_ns" in x), f"{form}: lengths")
    table = ask(case, "sql", "SELECT start_ns, end_ns FROM spans WHERE name = 's' ORDER BY start_ns").split("\n")
    case.equal([tuple(map(int, line.split())) for line in table if line[:1].isdigit()], sorted(x[:2] for x in expected.values()), "table")
    marks = {m["id"]: (m["ts_ns"], m["value"]) for m in spool.marks.values()}
    for form, rows in (("jsonl", st.marks), ("json", json.loads(ask(case, "marks", "--json"))),
                       ("csv", list(csv.DictReader(io.StringIO(ask(case, "marks", "--format", "csv")))))):
        case.equal({m["id"]: (int(m["ts_ns"]), int(m["value"])) for m in rows}, marks, f"marks as {form}")
    case.equal(sorted(v for _, v in marks.values()), [2**62 + i for i in range(40)], "values")
    root = next(s for s in spool.spans.values() if s["name"] == "cirron.session")
    case.equal([(s["start_ns"], s["end_ns"]) for s in st.roots], [(root["start_ns"], root["end_ns"])], "the session's times")


STEPPING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long step(void) {
  static long looks;
  return __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) / 4 % 3 * 3600 - 3600;
}
int clock_gettime(clockid_t clock, struct timespec *out) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real)
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int r = real(clock, out);
  if (clock == CLOCK_REALTIME)
    out->tv_sec += step();
  return r;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec t;
  (void)zone;
  int r = clock_gettime(CLOCK_REALTIME, &t);
  *out = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
  return r;
}
time_t time(time_t *out) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (out)
    *out = t.tv_sec;
  return t.tv_sec;
}
"""


@test_each(PYTHONS, python_label)
def wall_clock_that_is_set(case, python):
    """It goes an hour forth and back all the time; spans have their true lengths and lie in each other, and the spool's files are in order."""
    need_agent()
    (case.folder / "step.c").write_text(STEPPING)
    lib = case.folder / "step.so"
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", lib, case.folder / "step.c", "-ldl"], check=True)
    r, spool = go(case, python, r"""
import cirron as ci, json, time
ci.profile(flush_interval=0.01)
looks = [time.time() for _ in range(50)]
assert max(looks) - min(looks) > 7000, "the clock is not being set"
begin = time.monotonic_ns()
with ci.scope("outer"):
    for e in ci.epochs(range(5)):
        for b in ci.batches(range(4)):
            with ci.scope("slept"):
                time.sleep(0.005)
            ci.mark("m", b)
took = time.monotonic_ns() - begin
print(took, [s["end_ns"] - s["start_ns"] for s in ci.trace("dict", name="outer")["roots"]][0])
""", env={"LD_PRELOAD": f"{lib}" if IMPORTED else f"{lib}:{AGENT}"})
    took, outer = map(int, r.out.split())
    st = store(case)
    for where, spans in (("store", st.all), ("spool", list(spool.spans.values()))):
        case.equal([s["name"] for s in spans if s["end_ns"] is None], [], f"{where}: spans that are open, as they were in an earlier file")
        spans = [s for s in spans if s["end_ns"] is not None]
        case.equal(len([s for s in spans if s["name"] == "slept"]), 20, f"{where}: spans")
        wrong = [(s["name"], s["end_ns"] - s["start_ns"]) for s in spans if not 0 <= s["end_ns"] - s["start_ns"] < 600e9]
        wrong += [s["end_ns"] - s["start_ns"] for s in spans if s["name"] == "slept" and s["end_ns"] - s["start_ns"] < 4_900_000]
        case.equal(wrong, [], f"{where}: lengths")
        case.check(all(0 < s["end_ns"] - s["start_ns"] <= took for s in spans if s["name"] == "outer"), f"{where}: length of the whole")
    case.check(0 < outer <= took, "trace(): length of the whole")
    order = [s["index"] for s in sorted(st.of("epoch"), key=lambda s: s["start_ns"])]
    case.equal(order, list(range(5)), "order")
    owner = {m["id"]: st.by_id[m["span_id"]] for m in st.marks}
    case.check(all(owner[m["id"]]["start_ns"] <= m["ts_ns"] <= owner[m["id"]]["end_ns"] for m in st.marks), "marks outside their spans")


# --- what it costs ---

@test_each(PYTHONS, python_label)
def cheaper_than_the_same_in_python(case, python):
    """make bench has the numbers (tests/bench/surface.py); this holds on any machine, however busy: the best of many rounds counts."""
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, time
class Plain:
    def __init__(self, name): self.name = name
    def __enter__(self): self.begin = time.perf_counter_ns()
    def __exit__(self, *error): kept.append((self.name, self.begin, time.perf_counter_ns()))
kept = []
def plain_mark(name, value, kind="point", **attrs): kept.append((name, value, kind, attrs, time.perf_counter_ns()))
def plain_loop(iterable):
    for i, item in enumerate(iterable):
        with Plain("batch"): yield item
def scopes(make):
    for _ in range(2000):
        with make("x"): pass
def marks(put):
    for _ in range(2000): put("loss", 1.0)
def loops(over):
    for _ in over(range(2000)): pass
best = {}
for _ in range(60):
    for run, ours, other in (scopes, ci.scope, Plain), (marks, ci.mark, plain_mark), (loops, ci.batches, plain_loop):
        for who, what in ("ours", ours), ("python", other):
            begin = time.perf_counter_ns()
            run(what)
            took = (time.perf_counter_ns() - begin) / 2000
            best[run.__name__, who] = min(took, best.get((run.__name__, who), took))
        kept.clear()
    time.sleep(0.001)
for what in "scopes", "marks", "loops":
    assert best[what, "ours"] < best[what, "python"] and best[what, "ours"] < 4000, best
""")])
    case.equal((r.rc, r.err), (0, ""), "the run")


MEMORY = r"""
import cirron as ci, gc
def resident():
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
"""


@test_each(PYTHONS, python_label)
def a_disabled_profiler_keeps_nothing(case, python):
    need_agent()
    r = case.run([python, case.script(MEMORY + r"""
p = ci.profile(enabled=False)
def work(n):
    for i in range(n):
        with ci.scope("s", i, text="some attribute") as s:
            s.attrs["late"] = i
            ci.mark("m", i, more="x")
    for e in ci.epochs(range(n // 10)): pass
work(2000)
start = resident()
work(300000)
grown = resident() - start
h = ci.health()
assert grown < 1 << 20, grown
assert h["trace_bytes"] == h["trace_span_count"] == h["spool_bytes"] == 0 and not p.enabled, h
assert ci.trace("dict")["span_count"] == 0
""")], env=OFFLINE)
    case.equal((r.rc, r.err), (0, ""), "the run")


@test_each(SOME, python_label)
def a_long_span_with_many_marks(case, python):
    """Neither its list of marks nor the memory behind it grows with their number. The store has all of them."""
    r, spool = go(case, python, MEMORY + r"""
ci.profile(flush_interval=0.02)
def work(n):
    for i in range(n): ci.mark("m", i)
with ci.scope("long") as s:
    work(1000)
    for i in range(30): ci.mark("result", i, kind="summary")
    ci.flush()
    start = resident()
    work(100000)
    grown = resident() - start
    marks = ci.trace("dict", name="long")["roots"][0]["marks"]
assert grown < 17 << 20, grown
assert len([m for m in marks if m["kind"] == "point"]) <= 1024 and len(marks) <= 1024 + 30, len(marks)
print(s.id, ci.health()["mark_drop_count"])
""", env={"CIRRON_RING_BYTES_MAX": "1M"})
    span, dropped = r.out.split()
    case.check(all(len(s["mark_ids"]) <= 1024 for s in spool.spans.values()), "a list of marks in the spool")
    st = store(case)
    values = [m["value"] for m in st.marks_of("m")]
    case.equal((len(values) + int(dropped), len(values) == len(set(zip(values, (m["id"] for m in st.marks_of("m")))))), (101000, True),
               "marks of the store and those counted as dropped")
    case.equal({m["span_id"] for m in st.marks}, {span}, "whose they are")


@test_each([(p, how) for p in SOME for how in ("shared", "socket")], lambda v: f"{python_label(v[0])}-{v[1]}")
def nobody_waits_for_a_collector(case, which):
    """It is stopped in the middle of the work, with more to send than a socket holds: flush(), the job and its end take the time they take,
    and other threads go on during a flush()."""
    python, transport = which
    need_store()
    case.collect()
    os.mkdir(case.folder / "job")
    process = case.start([python, case.script(r"""
import cirron as ci, sys, threading, time
ci.profile(flush_interval=0.01)
with ci.scope("first"): pass
ci.flush()
print("ready", flush=True)
sys.stdin.readline()
beats, over = 0, False
def beat():
    global beats
    while not over:
        beats += 1
        time.sleep(0.002)
threading.Thread(target=beat).start()
longest, meanwhile = 0, 0
for turn in range(100):
    for i in range(1000):
        with ci.scope("s", i): ci.mark("m", i)
    begin, before = time.monotonic(), beats
    ci.flush()
    longest, meanwhile = max((longest, meanwhile), (time.monotonic() - begin, beats - before))
over = True
h = ci.health()
print(longest, meanwhile, h["ring_drop_count"] + h["mark_drop_count"] + h["scope_drop_count"], flush=True)
""")], cwd=case.folder / "job", stdin=-1, env={"CIRRON_TRANSPORT": transport} if transport == "socket" else {})
    case.equal(process.stdout.readline(), "ready\n", "first line")
    case.collector.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        out, err = process.communicate("go\n", timeout=60)
        took = time.monotonic() - begin
    finally:
        case.collector.process.send_signal(signal.SIGCONT)
    case.equal((process.returncode, err), (0, ""), "the run")
    longest, meanwhile = float(out.split()[0]), int(out.split()[1])
    case.check(longest < 3, f"a flush() of {longest:.2f} s")
    case.check(meanwhile > 5 or transport == "shared", f"{meanwhile} turns of another thread in a flush() of {longest:.2f} s")
    case.check(took < 30, f"{took:.1f} s in all")
    spool = Spool(case, case.folder / "job" / ".cirron" / "spool")
    case.equal(len(spool.of("s")), 100000, "spans in the spool, which needs no collector")


@test_each(PYTHONS, python_label)
def no_network(case, python):
    """An address and a key that other tools would send to: nobody calls there, and no thread is made that could."""
    need_agent()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        server.setblocking(False)
        url = "http://127.0.0.1:%d" % server.getsockname()[1]
        r = case.run([python, case.script(r"""
import cirron as ci, os, threading
ci.Cirron(api_key="k", api_endpoint=os.environ["CIRRON_API_ENDPOINT"]).profile(flush_interval=0.01)
for i in range(1000):
    with ci.scope("s"): ci.mark("m", i)
    if i % 100 == 0: ci.flush()
assert len(os.listdir("/proc/self/task")) == threading.active_count() == 1
ci.shutdown()
""")], env=dict(OFFLINE, CIRRON_API_KEY="k", CIRRON_API_ENDPOINT=url, http_proxy=url, https_proxy=url))
        case.equal((r.rc, r.err), (0, ""), "the run")
        try:
            server.accept()
            case.check(False, "somebody called")
        except BlockingIOError:
            pass


@test_each(PYTHONS + TORCH, python_label)
def importing_brings_nothing_else(case, python):
    """Neither `import cirron` nor profile() imports a module of any kind, torch least of all, or looks for a GPU."""
    need_agent()
    r = case.run([python, case.script(r"""
import sys, time
before = set(sys.modules)
begin = time.process_time_ns()
import cirron as ci
took = time.process_time_ns() - begin
assert set(sys.modules) - before == {"cirron"}, set(sys.modules) - before
for how in dict(output="none"), dict(), dict(frameworks=[]), dict(frameworks=["torch"], flush_interval=2):
    p = ci.profile(**how)
    with ci.scope("s"): ci.mark("m", 1)
    p.flush(), p.health()
    p.shutdown()
assert set(sys.modules) - before == {"cirron"}, set(sys.modules) - before
ci.profile(snapshots="full")
assert not {"torch", "numpy"} & set(sys.modules)
with open("/proc/self/maps") as f:
    assert not [line for line in f if "libcuda" in line or "libnvidia" in line or "torch" in line]
print(took)
""")], env=OFFLINE)
    case.equal((r.rc, r.err), (0, ""), "the run")
    case.check(int(r.out) < 100_000_000, f"import took {int(r.out) / 1e6:.1f} ms of CPU time")


@test_each(PYTHONS, python_label)
def random_numbers_are_the_scripts(case, python):
    """Whatever is drawn for our own ends, the script's generator gives what it gives without us."""
    need_agent()
    text = r"""
import random, sys
random.seed(5)
state = random.getstate()
try:
    import cirron as ci
except ImportError:
    pass
else:
    class Net: pass
    net = Net()
    ci.watch(net)
    ci.profile(snapshots="sampled", sample_rate=1.0, flush_interval=0.001)
    for e in ci.epochs(range(20)):
        for b in ci.batches(range(20)):
            with ci.scope("s"): ci.mark("m", 1)
        ci.flush()
    ci.trace("dict"), ci.health(), ci.shutdown()
assert random.getstate() == state
print(random.random(), random.getrandbits(64), random.sample(range(1000), 5))
"""
    script = case.script(text)
    plain, traced = case.run([python, script], agent=False), case.run([python, script], env=OFFLINE)
    case.equal((traced.rc, traced.out, traced.err), (0, plain.out, ""), "the run with us")


# --- asking ---

@test_each(PYTHONS[:1], python_label)
def asking_by_rank_time_and_attribute(case, python):
    """What a store can be asked for: by rank, by time, by attribute; how long things took, as percentiles; by process and thread."""
    need_store()
    case.collect()
    text = r"""
import cirron as ci, threading
def work(first):
    for i in range(first, first + 10):
        with ci.scope("work", i, lr=i / 4, tag="even" if i % 2 == 0 else None): pass
work(0)
t = threading.Thread(target=work, args=(10,))
t.start(), t.join()
"""
    pids = [case.run([python, case.script(text)], env={"RANK": rank, "WORLD_SIZE": 2}).pid for rank in (0, 1)]
    st = store(case, 2)
    rows = lambda *what: [json.loads(line) for line in ask(case, *what, "--format", "jsonl").splitlines()]
    for rank in (0, 1):
        mine = rows("spans", "--name", "work", "--rank", rank)
        case.equal({(s["rank"], s["pid"]) for s in mine}, {(rank, pids[rank])}, f"spans of rank {rank}")
        case.equal((len(mine), len({s["thread_id"] for s in mine})), (20, 2), "spans and their threads")
    ordered = sorted((s["start_ns"] for s in st.of("work", pids[0])))
    got = rows("sql", f"SELECT start_ns FROM spans WHERE name = 'work' AND start_ns BETWEEN {ordered[3]} AND {ordered[7]} ORDER BY start_ns")
    case.equal([s["start_ns"] for s in got], ordered[3:8], "spans of a time")
    got = rows("sql", "SELECT idx, rank FROM spans WHERE json_extract(attrs, '$.tag') = 'even' AND json_extract(attrs, '$.lr') >= 4 ORDER BY rank, idx")
    case.equal([(s["rank"], s["idx"]) for s in got], [(r, i) for r in (0, 1) for i in (16, 18)], "spans by attribute")
    lengths = sorted(s["end_ns"] - s["start_ns"] for s in st.of("work", pids[1]))
    got = rows("stats", "--name", "work", "--rank", 1)
    case.equal([(s["count"], s["p50_ns"], s["p90_ns"], s["p99_ns"], s["max_ns"]) for s in got],
               [(20, lengths[9], lengths[17], lengths[19], lengths[19])], "percentiles")
