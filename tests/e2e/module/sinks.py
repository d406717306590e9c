"""output=...: the spool's files, lines on stdout and in the log, and that none of it is in the job's way."""
import json
import os
import re
import signal
import subprocess
import time

from common import TORCH, need_agent, need_store, store
from harness import PYTHONS, QUERY, clean_env, python_label, test, test_each, until

OFFLINE = {"CIRRON_AUTOSTART": 0}
ID = re.compile(r"[0-9a-f]{32}")
SPAN = "id name parent_id index start_ns end_ns cpu_ns gpu_ns memory_peak_bytes thread_id pid rank attrs mark_ids".split()
MARK = "id span_id name value_type value attrs ts_ns kind".split()
SNAPSHOT = "id span_id tensor_name shape dtype mode stats blob_uri ts_ns attrs".split()


def strict(constant):
    raise AssertionError(f"{constant} is no JSON")


class Spool:
    """All files of a spool, as a reader joins them: a later file wins."""

    def __init__(self, case, folder):
        self.files = sorted(folder.iterdir()) if folder.is_dir() else []
        self.spans, self.marks, self.snapshots = {}, {}, []
        self.mark_ids = {}  # of each span: each file names those that are in it, also while the span is open
        for path in self.files:
            case.check(re.fullmatch(r"\d{20}-[0-9a-f]{32}\.json", path.name), "name of " + path.name)
            text = path.read_bytes()
            batch = json.loads(text.decode("ascii"), parse_constant=strict)
            case.equal(list(batch), "schema_version sdk_version batch_id created_ns spans marks snapshots".split(), "keys of a batch")
            case.equal((batch["schema_version"], path.name), (1, f"{batch['created_ns']:020}-{batch['batch_id']}.json"), "head")
            case.check(batch["spans"] or batch["marks"] or batch["snapshots"], "an empty batch")
            for record in batch["snapshots"]:
                case.equal(list(record), SNAPSHOT, "keys of a snapshot")
                case.check(ID.fullmatch(record["id"]) and ID.fullmatch(record["span_id"]), "ids")
                self.snapshots.append(record)
            for span in batch["spans"]:
                case.equal(list(span), SPAN, "keys of a span")
                case.check(ID.fullmatch(span["id"]) and (span["parent_id"] is None or ID.fullmatch(span["parent_id"])), "ids")
                self.spans[span["id"]] = span
                self.mark_ids.setdefault(span["id"], set()).update(span["mark_ids"])
            for mark in batch["marks"]:
                case.equal(list(mark), MARK, "keys of a mark")
                case.check(mark["id"] not in self.marks, "a mark comes once")
                self.marks[mark["id"]] = mark

    def of(self, name):
        return sorted((s for s in self.spans.values() if s["name"] == name), key=lambda s: s["start_ns"])

    def parents(self, name):
        return {self.spans[s["parent_id"]]["name"] if s["parent_id"] else None for s in self.of(name)}


def run(case, python, text, folder=None, rc=0, **env):
    need_agent()
    folder = case.folder / "job" if folder is None else folder
    folder.mkdir(exist_ok=True)
    r = case.run([python, case.script(text)], cwd=folder, env=dict(OFFLINE, PYTHONIOENCODING="utf-8", **env))
    case.equal(r.rc, rc, "exit status, stderr: " + r.err[-1000:])
    return r, Spool(case, folder / ".cirron" / "spool")


JOB = r"""
import cirron as ci, time
ci.profile(flush_interval=0.02)
for e in ci.epochs(range(3)):
    for b in ci.batches("ab"):
        ci.mark("loss", float("nan") if e else 0.5, unit="é")
        time.sleep(0.012)
    ci.mark("acc", 1, kind="summary")
try:
    with ci.scope("bad", k=[1, "ü"]):
        raise LookupError
except LookupError:
    pass
"""


@test_each(PYTHONS, python_label)
def the_default(case, python):
    """An explicit profile() writes the spool, all of it by the end; what is in it is what trace() and the collector have."""
    r, spool = run(case, python, JOB + "import json\nprint(json.dumps(ci.trace('dict')))\nprint(json.dumps(ci.health()))")
    case.equal(r.err, "", "stderr")
    traced, health = map(json.loads, r.out.splitlines())
    case.check(len(spool.files) >= 3, f"{len(spool.files)} files")
    case.equal({n: len(spool.of(n)) for n in ("epoch", "batch", "bad", "cirron.session")},
               {"epoch": 3, "batch": 6, "bad": 1, "cirron.session": 1}, "spans")
    case.equal((spool.parents("epoch"), spool.parents("batch"), spool.parents("cirron.session")),
               ({"cirron.session"}, {"epoch"}, {None}), "parents")
    for node in traced["roots"]:
        written = spool.spans[node["id"]]
        case.equal({k: written[k] for k in ("name", "parent_id", "index", "start_ns", "end_ns", "attrs")},
                   {k: node[k] for k in ("name", "parent_id", "index", "start_ns", "end_ns", "attrs")}, "the same as trace()")
    case.equal(spool.of("bad")[0]["attrs"], {"k": [1, "ü"], "exception": "LookupError", "error": True}, "attrs")
    losses = [m for m in spool.marks.values() if m["name"] == "loss"]
    case.equal(sorted((m["value_type"], str(m["value"]), m["kind"], m["attrs"]["unit"]) for m in losses),
               [("float", "0.5", "point", "é")] * 2 + [("float", "NaN", "point", "é")] * 4, "marks")
    case.equal({spool.spans[m["span_id"]]["name"] for m in losses}, {"batch"}, "spans of marks")
    case.equal(sum(len(spool.mark_ids[s["id"]]) for s in spool.of("batch")), 6, "mark_ids")
    case.equal((health["spool_dir"], health["spool_drop_count"]), (os.path.realpath(spool.files[0].parent), 0), "health")
    case.check(0 < health["flush_latency_ns"] < 10**10, f"flush_latency_ns {health['flush_latency_ns']}")
    case.check(all(s["pid"] == r.pid and s["rank"] == 0 for s in spool.spans.values()), "pid and rank")


@test_each(PYTHONS, python_label)
def nobody_asked(case, python):
    """Preloading alone, enabled=False, output="none", and "none" among others: no file, no folder."""
    for call in ("", "ci.profile(enabled=False)", "ci.profile(output='none')", "ci.profile(output=['spool', 'none', 'stdout'])"):
        text = f"import cirron as ci\n{call}\nwith ci.scope('s'): ci.mark('m', 1)\nci.flush()\nprint(ci.health()['spool_dir'])\nci.shutdown()\n"
        r, spool = run(case, python, text)
        case.equal((r.out, r.err, spool.files, (case.folder / "job" / ".cirron").exists()), ("None\n", "", [], False), call)


@test_each(PYTHONS, python_label)
def nothing_recorded(case, python):
    """A script that asks to be traced and does nothing: its root is there, closed."""
    r, spool = run(case, python, "import cirron as ci\nci.profile()\n")
    case.equal(([(s["name"], s["end_ns"] is None) for s in spool.spans.values()], r.err), ([("cirron.session", False)], ""), "spans")


@test_each(PYTHONS, python_label)
def waiting_for_batches(case, python):
    """Each batch says how long its item was waited for, whatever it comes from."""
    r, spool = run(case, python, r"""
import cirron as ci, time, threading
ci.profile(flush_interval=3600)
def slow():
    for i in range(3):
        time.sleep(0.02 * i)
        yield i
for item in ci.batches(slow()):
    time.sleep(0.01)
for item in ci.epochs("ab"): pass
elsewhere = ci.batches("xyz")  # goes on in another thread, and dies in yet another one
next(elsewhere)
thread = threading.Thread(target=next, args=(elsewhere,))
thread.start(), thread.join()
next(elsewhere)
held = [elsewhere]
thread = threading.Thread(target=held.clear)
del elsewhere
thread.start(), thread.join()
with ci.scope("its thread comes by"): pass
""")
    case.equal(r.err, "", "stderr")
    waits = [s["attrs"]["data_load_ns"] for s in spool.of("batch")[:3]]
    case.check(all(20_000_000 * i <= w < 20_000_000 * i + 15_000_000_000 for i, w in enumerate(waits)), f"{waits}")
    expected = [["data_load_ns"]] * 4 + [[], ["data_load_ns"]]  # not of the one that its thread's end has closed
    case.equal([list(s["attrs"]) for s in spool.of("batch")], expected, "attributes of batches")
    case.equal([s["attrs"] for s in spool.of("epoch")], [{}, {}], "and of epochs")


@test_each(PYTHONS, python_label)
def flush_and_shutdown(case, python):
    r, spool = run(case, python, r"""
import cirron as ci, glob
ci.profile(flush_interval=3600)
with ci.scope("a"):
    with ci.scope("b"): pass
    assert not glob.glob(".cirron/spool/*")
    ci.flush()
    assert len(glob.glob(".cirron/spool/*.json")) == 1
    ci.flush()
    assert len(glob.glob(".cirron/spool/*")) == 1
import os
os.mkdir("elsewhere"), os.chdir("elsewhere")
ci.shutdown()
with ci.scope("after"): pass
ci.shutdown(), ci.flush()
assert not glob.glob("*")
assert len(glob.glob("../.cirron/spool/*.json")) == 2
""")
    case.equal((sorted(s["name"] for s in spool.spans.values()), r.err), (["a", "b", "cirron.session"], ""), "spans")


@test_each(PYTHONS, python_label)
def lines(case, python):
    r, spool = run(case, python, r"""
import cirron as ci, sys, time, logging
logging.basicConfig(stream=sys.stderr, format="%(name)s %(levelname)s %(message)s", level=logging.INFO)
ci.profile(output=["stdout", "log"], flush_interval=0.001)
with ci.scope("tick"):
    time.sleep(0.01)
with ci.scope("epoch", 3):
    ci.mark("loss", 0.12345), ci.mark("n", 7), ci.mark("ok", True), ci.mark("tag", "a b")
print("own line")
with ci.scope("last"): pass
""")
    said = [x for x in r.out.splitlines() if x.startswith("[cirron] ")]
    case.equal([re.sub(r" \u2014 (\d{1,3}us|\d+\.\dms)", " T", x) for x in said],
               ["[cirron] tick T", "[cirron] epoch[3] T {loss=0.1235, n=7, ok=True, tag=a b}", "[cirron] last T"], "stdout")
    case.equal(r.err.splitlines(), ["cirron.trace INFO " + x for x in said], "log")
    case.check("own line" in r.out.splitlines() and not spool.files, "the rest")


@test_each(PYTHONS, python_label)
def a_broken_stdout(case, python):
    """Lines that cannot be printed cost one line, and the script nothing; one that opens scopes itself does not go round in circles."""
    r, _ = run(case, python, r"""
import cirron as ci, sys
class Broken:
    encoding = "utf-8"
    def write(self, text): raise OSError("no room")
    def flush(self): pass
class Chatty:
    encoding = "utf-8"
    def __init__(self): self.text = ""
    def write(self, text):
        with ci.scope("written"): self.text += text
    def flush(self): pass
ci.profile(output="stdout", flush_interval=0.001)
before, sys.stdout = sys.stdout, Broken()
for i in range(2000):
    with ci.scope("s", i): pass
sys.stdout = chatty = Chatty()
for i in range(2000):
    with ci.scope("t", i): pass
ci.flush()
sys.stdout = before
assert chatty.text.count("[cirron] t[") == 2000 and chatty.text.count("[cirron] written") == 0
""")
    case.check(r.err.startswith("cirron: ") and r.err.count("\n") == 1 and "no room" in r.err, r.err)


@test_each(PYTHONS, python_label)
def nowhere_to_write(case, python):
    """One line, and the job runs on; when there is room again all is written."""
    r, spool = run(case, python, r"""
import cirron as ci, os, time
open(".cirron", "w").close()
ci.profile(flush_interval=0.01)
for i in range(100):
    with ci.scope("s", i): time.sleep(0.001)
h = ci.health()
assert h["spool_error_count"] > 0, h
os.remove(".cirron")
ci.flush()
""")
    case.check(r.err.startswith("cirron: the spool ") and r.err.count("\n") == 1, r.err)
    case.equal(len(spool.of("s")), 100, "spans")


@test_each(PYTHONS, python_label)
def little_room(case, python):
    """What has gathered would make larger files than there is room for: it is written in smaller ones. What never has room is counted."""
    r, spool = run(case, python, r"""
import cirron as ci, resource
ci.profile(flush_interval=3600)
def work(n):
    for i in range(n):
        with ci.scope("s", i):
            ci.mark("m", i)
def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
work(20000)
room(600000)
ci.flush()
h = ci.health()
assert h["spool_lost_bytes"] == 0 and h["spool_error_count"] in range(1, 5), h
work(10)
room(100)
ci.flush()
work(250000)
h = ci.health()
assert h["spool_lost_bytes"] > 1e6 and h["spool_error_count"] > 4, h
room(resource.RLIM_INFINITY)
""")
    case.check(r.err.count("\n") == 1 and "cannot be written" in r.err, "one line: " + r.err)
    early = [s for s in spool.of("s")][:20010]
    case.equal([s["index"] for s in early[:20000]], list(range(20000)), "spans that had gathered")
    case.check(max(p.stat().st_size for p in spool.files[:-20]) <= 600000, "a file is larger than there was room for")


@test_each(PYTHONS, python_label)
def places(case, python):
    """Where the folder is said in other ways: as bytes, with a name that is no UTF-8, in ~/.cirron/config.toml."""
    need_agent()
    text = "import cirron as ci, sys\nci.Cirron(%s).profile()\nwith ci.scope('s'): pass\nci.flush()\nprint(ascii(ci.health()['spool_dir']))"
    home = case.folder / "home"
    (home / ".cirron").mkdir(parents=True)
    (home / ".cirron" / "config.toml").write_text("[default]\noutput_dir = 'from_toml/'\nspool_max_bytes = 150\n")
    for given, place in (("output_dir=b'bytes'", "bytes"), ("output_dir='no\udcff'", "no\udcff"), ("", "from_toml")):
        r = case.run([python, case.script(text % given.encode("unicode_escape").decode())], env=dict(OFFLINE, HOME=home), cwd=case.folder)
        case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
        files = Spool(case, case.folder / place / "spool").files
        case.equal(len(files), 1, "files in " + ascii(place))  # 150 bytes hold none: only the newest stays
    r = case.run([python, case.script(text % "")], env=dict(OFFLINE, HOME=home, CIRRON_SPOOL_MAX_BYTES="x", CIRRON_OUTPUT_DIR="from_env"), cwd=case.folder)
    case.equal((r.rc, r.err), (0, "cirron: CIRRON_SPOOL_MAX_BYTES=x is not allowed: a whole number of bytes above 0; using 1000000000\n"), "a bad value")
    case.equal(len(Spool(case, case.folder / "from_env" / "spool").files), 2, "what was said to be used holds")


@test_each(PYTHONS, python_label)
def bounded(case, python):
    r, spool = run(case, python, r"""
import cirron as ci
ci.profile(flush_interval=0.001)
for i in range(3000):
    with ci.scope("s", i):
        ci.mark("m", "x" * 200)
    if i % 100 == 0: ci.flush()
h = ci.health()
assert h["spool_drop_count"] > 5 and h["spool_bytes"] <= 200000, h
""", CIRRON_SPOOL_MAX_BYTES=200000)
    case.equal(r.err, "", "stderr")
    case.check(sum(p.stat().st_size for p in spool.files) <= 200000, "size of the spool")
    case.equal([s["index"] for s in spool.of("s")][-1], 2999, "the newest is there")


@test_each(PYTHONS, python_label)
def forked(case, python):
    """A child writes what is its own and nothing of its parent's."""
    r, spool = run(case, python, r"""
import cirron as ci, os, sys, warnings
warnings.simplefilter("ignore")
ci.profile(flush_interval=3600)
with ci.scope("parent"): pass
for i in range(3):
    if os.fork() == 0:
        with ci.scope("child", i): pass
        sys.exit(0)
    os.wait()
with ci.scope("parent"): pass
""")
    case.equal(([s["index"] for s in spool.of("child")], len(spool.of("parent")), len(spool.of("cirron.session"))), ([0, 1, 2], 2, 4), "spans")
    case.equal(len({s["pid"] for s in spool.of("child")} | {s["pid"] for s in spool.of("parent")}), 4, "pids")
    case.check({s["pid"] for s in spool.of("parent")} == {r.pid}, "the parent's are its own")


@test_each(PYTHONS, python_label)
def signals(case, python):
    """SIGTERM and Ctrl-C do what they do without us; Ctrl-C leaves everything in the spool."""
    need_agent()
    text = "import cirron as ci, time\nci.profile(flush_interval=0.02)\nwith ci.scope('outer'):\n while True:\n  with ci.scope('s'): time.sleep(0.002)\n"
    for number, rc in (signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT):
        folder = case.folder / f"job{number}"
        folder.mkdir()
        child = case.start([python, case.script(text)], cwd=folder, env=OFFLINE)
        until(lambda: len(list(folder.glob(".cirron/spool/*.json"))) > 2, what="some files")
        begin = time.monotonic()
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
        case.equal(child.returncode, rc, f"ends by {number!r}")
        case.check(time.monotonic() - begin < 5, "at once")
        case.check(number == signal.SIGINT or err == "", err)
        spool = Spool(case, folder / ".cirron" / "spool") if number == signal.SIGINT else None
        if spool:
            case.equal((len(spool.of("outer")), len(spool.of("cirron.session"))), (1, 1), "all is closed and written")
            case.check("KeyboardInterrupt" in err and "cirron: " not in err, err)


@test_each(PYTHONS, python_label)
def threads(case, python):
    r, spool = run(case, python, r"""
import cirron as ci, threading
ci.profile(flush_interval=0.001)
def work(n):
    for i in range(2000):
        with ci.scope("t%d" % n, i): ci.mark("m", i)
        if i % 500 == 0: ci.flush()
all = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in all]; [t.join() for t in all]
""")
    case.equal(r.err, "", "stderr")
    for n in range(6):
        case.equal([s["index"] for s in spool.of(f"t{n}")], list(range(2000)), f"spans of thread {n}")
    case.equal((len(spool.marks), len({s["thread_id"] for s in spool.spans.values()})), (12000, 7), "marks, threads")


@test_each(TORCH, python_label)
def a_training(case, python):
    """Files that are cut anywhere in a step: joined, they have the tree that the collector has."""
    need_store()
    case.collect()
    r, spool = run(case, python, r"""
import cirron as ci, torch
ci.profile(flush_interval=0.001)
net = torch.nn.Linear(30, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):  # no loader: steps are known afterwards
    for _ in range(20):
        loss = net(torch.randn(4, 30)).sum()
        opt.zero_grad(); loss.backward(); opt.step()
data = torch.utils.data.DataLoader(torch.randn(80, 30), batch_size=4)
for epoch in range(3):
    for x in data:
        loss = net(x).sum()
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for x in data: net(x)
""")
    case.equal(r.err, "", "stderr")
    st = store(case)
    case.equal({s["id"]: (s["name"], s["parent_id"], s["index"]) for s in spool.spans.values()},
               {s["id"]: (s["name"], s["parent_id"], s["index"]) for s in st.all}, "the tree")
    case.check(len(spool.files) > 10, f"{len(spool.files)} files")
    epochs = [s["id"] for s in spool.spans.values() if s["name"] == "epoch"]
    case.equal(sorted((r["span_id"], r["tensor_name"]) for r in spool.snapshots),
               sorted((e, name) for e in epochs for name in ("weight", "bias", "weight.grad", "bias.grad")), "snapshots")
    stored = [json.loads(line) for line in subprocess.run(
        [QUERY, "--db", case.collector.db, "--format", "jsonl", "snapshots"], capture_output=True, text=True, env=clean_env(), check=True).stdout.splitlines()]
    same = "id span_id tensor_name shape dtype mode stats blob_uri ts_ns".split()
    case.equal(sorted(([r[k] for k in same] for r in spool.snapshots), key=str), sorted(([r[k] for k in same] for r in stored), key=str), "the same in the store")


@test_each(TORCH, python_label)
def lines_of_a_training(case, python):
    """A script that only calls profile() sees its lines while it runs."""
    r, _ = run(case, python, r"""
import cirron as ci, torch, sys
ci.profile(output="stdout", flush_interval=0.001)
net = torch.nn.Linear(30, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(80, 30), batch_size=4):
    loss = net(x).sum()
    opt.zero_grad(); loss.backward(); opt.step()
print("trained")
""")
    before, after = r.out.split("trained\n")
    case.equal(r.err, "", "stderr")
    case.check(before.count("[cirron] step[") > 10 and before.count("[cirron] forward") > 10, before[:300])
    case.equal(r.out.count("[cirron] step["), 20, "steps")
    case.check("[cirron] epoch[0]" in r.out, "the epoch")
