"""trace(): what the process recorded, read back in it."""
import json
import re
import subprocess

from common import TORCH, need_agent
from harness import PYTHONS, Skip, clean_env, python_label, test, test_each

OFFLINE = {"CIRRON_AUTOSTART": 0}


def run(case, python, text, **how):
    need_agent()
    r = case.run([python, case.script(text)], env=dict(OFFLINE, **how.pop("env", {})), **how)
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    return r.out


def shape(node):
    return [node["name"], node["index"], [shape(c) for c in node["children"]]]


FORMATS = r"""
import cirron as ci, json
assert ci.trace() is None  # prints "(no spans)"
for e in ci.epochs(range(2)):
    for b in ci.batches("ab"):
        ci.mark("loss", 0.5 + b.count("b"), lr=1)
    ci.mark("acc", 0.75, kind="summary")
with ci.scope("open", 7, k=[1, None]) as s:
    ci.mark("bad", float("nan")), ci.mark("on", True), ci.mark("n", -2**63), ci.mark("t", "a\nb")
    try:
        with ci.scope("failed"):
            raise LookupError
    except LookupError:
        pass
    kept, text, one = ci.trace("dict"), ci.trace(format="json"), ci.trace("dict", name="batch", last=2)
    ci.trace()
    ids = s.id, s.parent_id
    roots = [(n["id"], n["parent_id"]) for n in kept["roots"]]
    assert roots[2] == ids, (roots, ids)
    for wrong in ("xml", 3):
        try:
            ci.trace(wrong)
        except ValueError as error:
            assert "not valid" in str(error)
        else:
            raise AssertionError(wrong)
    for wrong in dict(name=3), dict(last="1"):
        try:
            ci.trace(**wrong)
        except TypeError as error:
            pass
        else:
            raise AssertionError(wrong)
    assert ci.trace("dict", last=0) == {"roots": [], "span_count": 0} == ci.trace("dict", last=-1) == ci.trace("dict", name="none")
def strict(name):
    raise ValueError(name)
print(json.dumps([kept["span_count"], kept["roots"], json.loads(text, parse_constant=strict), one]))
p = ci.profile()
assert p.trace("dict")["span_count"] == 8
"""


@test_each(PYTHONS + TORCH, python_label)
def formats(case, python):
    lines = run(case, python, FORMATS, env={"PYTHONIOENCODING": "utf-8"}).split("\n")
    count, roots, text, one = json.loads(lines[-2])
    batch = ["batch", 0, []], ["batch", 1, []]
    case.equal([shape(n) for n in roots], [["epoch", i, list(map(list, batch))] for i in (0, 1)] + [["open", 7, [["failed", None, []]]]], "tree")
    case.equal((count, text["span_count"]), (8, 8), "span_count")
    epoch, opened = roots[0], roots[2]
    case.equal(list(epoch), "id parent_id name index start_ns end_ns wall_us cpu_ns gpu_ns memory_peak_bytes attrs marks children "
                            "pid thread_id rank".split(), "keys")
    case.equal(epoch["wall_us"], (epoch["end_ns"] - epoch["start_ns"]) // 1000, "wall_us")
    case.equal(epoch["marks"], [{"name": "acc", "value": 0.75, "kind": "summary"}], "summary mark")
    case.equal(epoch["children"][1]["marks"], [{"name": "loss", "value": 1.5, "kind": "point"}], "point mark")
    case.equal((opened["end_ns"], opened["wall_us"], opened["attrs"]), (None, None, {"k": [1, None]}), "open span")
    case.equal(opened["children"][0]["attrs"], {"exception": "LookupError", "error": True}, "error")
    case.equal([m["value"] for m in text["roots"][2]["marks"]], ["NaN", True, -2**63, "a\nb"], "values in JSON")
    case.equal([shape(n) for n in one["roots"]], [["batch", 0, []], ["batch", 1, []]], "name and last")
    case.check({n["parent_id"] for n in one["roots"]} == {roots[1]["id"]}, "the last two are of the last epoch")
    case.equal(lines[0], "(no spans)", "an empty tree")
    long = r" \u2014 (\d{1,3}us|\d+\.\dms|\d+\.\d\ds) "
    case.check(re.fullmatch(r"epoch\[0\]" + long + r"\{acc=0\.7500\}", lines[1]), lines[1])
    case.check(re.fullmatch(r"  batch\[1\]" + long + r"\{loss=1\.5000\}", lines[3]), lines[3])
    case.equal(lines[7], "open[7] \u2014 open {bad=nan, on=True, n=-9223372036854775808, t=a\\nb}", "an open span's line")
    case.check(lines[8].startswith("  failed \u2014 "), lines[8])


@test_each(PYTHONS, python_label)
def limited(case, python):
    """trace_buffer_max_spans: the newest so many are shown; what is written has all."""
    run(case, python, r"""
import cirron as ci, json, pathlib
p = ci.Cirron(trace_buffer_max_spans=10, output=["spool", "log"]).profile(flush_interval=3600)
assert p.settings["trace_buffer_max_spans"] == 10
def more():
    with ci.scope("outer", 1):
        for i in range(200):
            with ci.scope("s", i): ci.mark("m", i)
def shown():
    t, h = ci.trace("dict"), ci.health()
    assert t["span_count"] == h["trace_span_count"], (t["span_count"], h)
    return t["span_count"], [n["index"] for n in t["roots"][0]["children"]][:1], h["trace_drop_count"]
more()
assert shown() == (10, [191], 191), shown()
ci.flush()
read = lambda: [s["name"] for f in pathlib.Path(".cirron/spool").iterdir() for s in json.loads(f.read_text())["spans"]]
assert read().count("s") == 200 and ci.health()["spool_lost_bytes"] == 0, read()
p.shutdown()
p = ci.profile(output="none")  # says nothing of it
more()
assert p.settings["trace_buffer_max_spans"] == 10 and shown()[0] == 10, shown()
p.shutdown()
ci.Cirron(trace_buffer_max_spans=120000).profile(output="none")
for i in range(130000):
    with ci.scope("t"): pass
h = ci.health()
assert h["trace_span_count"] == 120000 == len(ci.trace("dict")["roots"]) and h["trace_bytes"] <= 16 << 20, h
ci.shutdown()
ci.Cirron(trace_buffer_max_spans=10**9).profile(output="none")
for i in range(140000):
    with ci.scope("u"): pass
assert 130000 < ci.health()["trace_span_count"] < 140000, ci.health()
""")


@test_each(PYTHONS, python_label)
def attributes_are_counted(case, python):
    """In the child of a fork and after shutdown() from the beginning, like all that is counted."""
    run(case, python, r"""
import cirron as ci, os
count = lambda: (ci.health()["attr_coerced_count"], ci.health()["attr_drop_count"])
ci.profile(output="none")
with ci.scope("s", x=object(), y=[object()], z=1):
    ci.mark("m", 1, x=object())
    with ci.scope("t", **{"k%d" % i: "x" * 1000 for i in range(20)}): pass
assert count() == (3, 6), count()
if os.fork() == 0:
    os._exit(0 if count() == (0, 0) else 1)
assert os.wait()[1] == 0
ci.shutdown()
ci.profile(output="none")
assert count() == (0, 0), count()
""")


@test_each(PYTHONS, python_label)
def shown(case, python):
    """A terminal that has no dash, a notebook, a table where there is no pandas."""
    out = run(case, python, r"""
import cirron as ci, sys, types
with ci.scope("a"):
    with ci.scope("b", 1):
        ci.mark("x", 1)
ci.trace()
class ZMQInteractiveShell: pass
class Terminal: pass
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: ZMQInteractiveShell())
tree = ci.trace()
shown = []
tree._repr_pretty_(types.SimpleNamespace(text=shown.append), False)
assert repr(tree) == str(tree) == shown[0] and len(shown[0].splitlines()) == 2, tree
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: Terminal())
assert ci.trace() is None
del sys.modules["IPython"]
sys.modules["pandas"] = None
try:
    ci.trace("df")
except ci.CirronDependencyError as error:
    assert "pandas" in str(error)
else:
    raise AssertionError
""", env={"PYTHONIOENCODING": "ascii"})
    lines = out.splitlines()
    case.check(len(lines) == 4 and lines[0].startswith("a ? ") and lines[1].startswith("  b[1] ? "), out)


def has_pandas(python):
    return subprocess.run([python, "-c", "import pandas"], stdin=subprocess.DEVNULL, capture_output=True, env=clean_env()).returncode == 0


PANDAS = [p for p in PYTHONS + TORCH if has_pandas(p)]
TABLE = r"""
import cirron as ci
COLUMNS = "id parent_id name index wall_us cpu_ns gpu_ns memory_peak_bytes mark_count depth".split()
BIG = 2**62 + 1  # not to be kept as a float
empty = ci.trace("df")
for i in range(4):
    with ci.scope("outer", i if i else BIG):
        for j in range(i):
            with ci.scope("inner", j):
                ci.mark("m", j)
                ci.mark("n", j)
with ci.scope("plain"):
    pass
held = ci.scope("held").__enter__()
with ci.scope("in it", -3):
    pass
table = ci.trace("df")
MORE = [("start_ns", "int64"), ("end_ns", "Int64"), ("pid", "int64"), ("thread_id", "int64"), ("rank", "int64"), ("attrs", "object")]
nodes, more = {}, []
def walk(found, depth):
    for n in found:
        more.append(tuple(n[k] for k, _ in MORE))
        nodes[n["id"]] = [n["id"], n["parent_id"], n["name"], n["index"], n["wall_us"], n["cpu_ns"], None, None, len(n["marks"]), depth]
        walk(n["children"], depth + 1)
walk(ci.trace("dict")["roots"], 0)
"""


@test_each([p for p in PYTHONS if p not in PANDAS], python_label)
def table_of_a_stand_in(case, python):
    """What pandas is asked for."""
    run(case, python, r"""
import sys, types
class DataFrame:
    def __init__(self, table):
        self.table, self.columns = {k: v[0] for k, v in table.items()}, list(table)
        self.types = [v[1] for v in table.values()]
sys.modules["pandas"] = types.SimpleNamespace(DataFrame=DataFrame, array=lambda values, dtype: (list(values), dtype))
""" + TABLE + r"""
def rows(t):
    return [list(row) for row in zip(*(t.table[c] for c in COLUMNS))]
assert table.columns[:10] == empty.columns[:10] == COLUMNS, table.columns
assert table.types[:10] == ["string"] * 3 + ["Int64"] * 5 + ["int64"] * 2, table.types
assert list(zip(table.columns, table.types))[10:] == MORE, table.types
assert list(zip(*(table.table[c] for c, _ in MORE))) == more, table.table
assert rows(empty) == [] and rows(table) == list(nodes.values()), rows(table)
assert [r[2:4] for r in rows(ci.trace("df", name="inner", last=2))] == [["inner", 2], ["inner", 1]]
""")


@test
def some_have_pandas(case):
    if not PANDAS:
        raise Skip("no interpreter here has pandas")


@test_each(PANDAS, python_label)
def table(case, python):
    """Columns, their order and types, the same for an empty one; what is missing is NA; tables do what tables are for."""
    run(case, python, "import pandas\n" + TABLE + r"""
TYPES = ["string"] * 3 + ["Int64"] * 5 + ["int64"] * 2
assert [(c, str(t)) for c, t in table.dtypes.items()][10:] == MORE, table.dtypes
assert [tuple(None if x is pandas.NA else x for x in row) for row in table[[c for c, _ in MORE]].itertuples(index=False, name=None)] == more
for t in table, empty, ci.trace("df", name="nothing"), ci.trace("df", last=0):
    assert isinstance(t, pandas.DataFrame) and list(t.columns)[:10] == COLUMNS, t.columns
    assert [str(x) for x in t.dtypes][:10] == TYPES, t.dtypes
assert len(empty) == 0 and len(table) == 13 == len(nodes)
assert list(table.index) == list(range(13))

# The same as the tree has, in the same order.
got = [[None if x is pandas.NA else x for x in row] for row in table[COLUMNS].itertuples(index=False, name=None)]
assert got == list(nodes.values()), (got, nodes)
assert table["index"][0] == 2**62 + 1 and table["index"].isna().sum() == 2
assert table[table["index"] == -3]["name"].tolist() == ["in it"]
assert table[table.name == "held"].wall_us.isna().all() and table.wall_us.isna().sum() == 1
assert table.gpu_ns.isna().all() and table.parent_id.notna().all()

assert table.groupby("name").wall_us.count().to_dict() == {"held": 0, "in it": 1, "inner": 6, "outer": 4, "plain": 1}
by_name = table.groupby("name")["wall_us"]
inner = sorted(r[4] for r in nodes.values() if r[2] == "inner")
assert by_name.sum()["inner"] == sum(inner) and by_name.max()["inner"] == inner[-1]
assert by_name.quantile(0.5)["inner"] == (inner[2] + inner[3]) / 2 == by_name.median()["inner"]
assert table.wall_us.quantile([0, 1]).tolist() == [min(x[4] for x in nodes.values() if x[4] is not None), max(x[4] for x in nodes.values() if x[4] is not None)]
assert table.merge(table, left_on="parent_id", right_on="id")["name_y"].tolist() == ["outer"] * 6 + ["held"]
assert table.sort_values("wall_us").name.tolist()[-1] == "held"  # NA last
assert table.mark_count.sum() == 12 and table.depth.max() == 1
assert len(pandas.concat([empty, table]).dropna(subset=["index"])) == 11 and (pandas.concat([empty, table]).dtypes == table.dtypes).all()
assert pandas.read_csv(__import__("io").StringIO(table.to_csv(index=False)))["index"].dropna().shape == (11,)
assert '"name":"plain","index":null' in table.to_json(orient="records")

def last(n, **more):
    t = ci.trace("df", last=n, **more)
    return [(name, None if index is pandas.NA else index) for name, index in zip(t["name"], t["index"])]
assert last(3) == [("held", None), ("in it", -3), ("plain", None)], last(3)  # what is open has ended last
assert last(2, name="outer") == [("outer", 3), ("inner", 2)] and last(100) == last(13)
sub = ci.trace("df", name="inner")
assert sub.name.tolist() == ["inner"] * 6 and sub.depth.tolist() == [0] * 6 and sub["index"].tolist() == [0, 0, 1, 0, 1, 2]
sub = ci.trace("df", name="outer")
assert sub.depth.tolist() == [0, 0, 1, 0, 1, 1, 0, 1, 1, 1]
assert ci.profile(output="none").trace("df", name="outer").equals(sub) and ci.Cirron().trace("df", name="outer").equals(sub)
""")


@test_each(PYTHONS, python_label)
def whose_spans(case, python):
    """Each span says which process, thread and rank it is of, closed or open, as the system names them."""
    run(case, python, r"""
import cirron as ci, os, threading, time
def tid():
    return int(os.readlink("/proc/thread-self").split("/")[-1])
def everything(nodes):
    for n in nodes:
        yield n
        yield from everything(n["children"])
def check(pid, expected):
    got = {n["name"]: n for n in everything(ci.trace("dict")["roots"])}
    assert {n["pid"] for n in got.values()} == {pid} and {n["rank"] for n in got.values()} == {3}, got
    assert {n: got[n]["thread_id"] for n in expected} == expected, (expected, got)
ids, begin = {}, time.time_ns()
def work(name):
    with ci.scope(name):
        ids[name] = tid()
t = threading.Thread(target=work, args=("thread",))
t.start(), t.join()
with ci.scope("open"):
    ids["open"] = tid()
    work("closed")
    check(os.getpid(), ids)
    assert all(begin - 10**9 < n["start_ns"] < time.time_ns() + 10**9 for n in everything(ci.trace("dict")["roots"]))
assert ids["open"] == os.getpid() != ids["thread"]
if os.fork() == 0:
    ids.clear()
    work("child")
    check(os.getpid(), {"child": os.getpid()})
    os._exit(0)
assert os.wait()[1] == 0
ci.shutdown()
check(os.getpid(), dict(ids, **{"cirron.session": os.getpid()}))
""", env={"RANK": 3, "LOCAL_RANK": 1})
    run(case, python, "import cirron as ci\nwith ci.scope('s'): pass\nassert ci.trace('dict')['roots'][0]['rank'] == 1\n", env={"LOCAL_RANK": 1})


@test_each(PYTHONS, python_label)
def without_profile(case, python):
    """The first trace() has what the ring still holds, later ones all; and nothing was kept before."""
    run(case, python, r"""
import cirron as ci
before = ci.health()
assert before["trace_span_count"] == before["trace_bytes"] == 0, before
for i in range(300):
    with ci.scope("s", i, text="x" * 500, number=i):
        ci.mark("m", "y" * i, of=i)
got = ci.trace("dict")["roots"]
assert [s["index"] for s in got] == list(range(300))
assert all(s["attrs"] == {"text": "x" * 500, "number": s["index"]} for s in got)
assert all([m["value"] for m in s["marks"]] == ["y" * s["index"]] for s in got)
for i in range(30000):
    with ci.scope("more", i):
        pass
assert ci.trace("dict")["span_count"] == 30300
assert ci.health()["trace_span_count"] == 30300
""")


@test_each(PYTHONS, python_label)
def a_full_ring(case, python):
    """What the ring has no room for is kept all the same; what lies beyond its size is not there for the first trace()."""
    run(case, python, r"""
import cirron as ci
for i in range(30000):
    with ci.scope("s", i): pass
got = [s["index"] for s in ci.trace("dict")["roots"]]
assert got == list(range(got[0], got[0] + len(got))) and 500 < len(got) < 5000, (len(got), got[:3])
for i in range(30000):
    with ci.scope("t", i): pass
assert ci.trace("dict", name="t")["span_count"] == 30000
""", env={"CIRRON_RING_BYTES": "64K", "CIRRON_RING_BYTES_MAX": "64K"})


BOUND = r"""
import cirron as ci
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
ci.profile(output="none")
def work(n):
    for i in range(n):
        with ci.scope("s", i, text="some attribute"):
            ci.mark("loss", i, kind="point" if i % 2 else "summary")
work(1000)
start = resident()
work(150000)
full = resident()
work(300000)
end = resident()
assert end - start <= 17 << 20, (end - start)   # 16 MiB, and what the interpreter itself needs
assert end - full < 1 << 20, (end - full)
h = ci.health()
assert h["trace_bytes"] <= 16 << 20 and h["trace_span_count"] <= 100000 and h["trace_drop_count"] > 300000, h
"""


@test_each(PYTHONS, python_label)
def memory_levels_off(case, python):
    run(case, python, BOUND, env={"CIRRON_RING_BYTES_MAX": "1M"})


@test_each(PYTHONS, python_label)
def newest_points(case, python):
    run(case, python, r"""
import cirron as ci
ci.profile()
with ci.scope("s"):
    ci.mark("first", 1, kind="summary")
    for i in range(5000):
        ci.mark("p", i)
    ci.mark("last", 2, kind="summary")
marks = ci.trace("dict")["roots"][0]["marks"]
assert [m["name"] for m in marks if m["kind"] == "summary"] == ["first", "last"]
assert [m["value"] for m in marks if m["kind"] == "point"] == list(range(5000 - 1024, 5000))
""")


@test_each(PYTHONS, python_label)
def forks_and_threads(case, python):
    run(case, python, r"""
import cirron as ci, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
ci.profile()
def work(n):
    for i in range(2000):
        with ci.scope("t%d" % n, i):
            with ci.scope("in", i): pass
with ci.scope("before"): pass
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]
with ci.scope("outer"):
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert ci.trace("dict") == {"roots": [], "span_count": 0}, ci.trace("dict")
                with ci.scope("child"): pass
                assert [s["name"] for s in ci.trace("dict")["roots"]] == ["child"]
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    while any(t.is_alive() for t in threads):
        ci.trace("dict")
[t.join() for t in threads]
got = ci.trace("dict")
assert got["span_count"] == 2 + 8 * 4000, got["span_count"]
for n in range(8):
    mine = [s for s in got["roots"] if s["name"] == "t%d" % n]
    assert [s["index"] for s in mine] == list(range(2000)) and all([c["index"] for c in s["children"]] == [s["index"]] for s in mine)
""")


@test_each(PYTHONS, python_label)
def after_the_end(case, python):
    """After shutdown what was recorded can still be read, and the root is closed; a disabled process has nothing."""
    out = run(case, python, r"""
import cirron as ci
with ci.scope("s"): pass
ci.shutdown()
roots = ci.trace("dict")["roots"]
assert [r["name"] for r in roots] == ["cirron.session"] and roots[0]["parent_id"] is None
assert [c["name"] for c in roots[0]["children"]] == ["s"]
""")
    case.equal(out, "", "stdout")
    run(case, python, "import cirron as ci\nci.profile(enabled=False)\nwith ci.scope('s'): pass\nassert ci.trace('dict')['roots'] == []\n"
                      "h = ci.health(); assert h['trace_bytes'] == 0, h\n")


@test_each(PYTHONS, python_label)
def whatever_runs_inside(case, python):
    """Collections, signal handlers and destructors that open scopes while a trace is made."""
    run(case, python, r"""
import cirron as ci, gc, signal, time
ci.profile()
gc.set_threshold(1)
class Ring:
    def __init__(self): self.me = self
    def __del__(self):
        with ci.scope("collected"): ci.mark("m", 1)
def handler(*_):
    with ci.scope("handled"): pass
def everything(nodes):
    for n in nodes:
        yield n
        yield from everything(n["children"])
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
end = time.monotonic() + 1
while time.monotonic() < end:
    with ci.scope("s"):
        Ring()
        ci.trace("dict", last=5)
        ci.trace("json", name="handled", last=3)
signal.setitimer(signal.ITIMER_REAL, 0)
assert {"s", "collected", "handled"} <= {s["name"] for s in everything(ci.trace("dict")["roots"])}
""")


@test_each(TORCH, python_label)
def a_training(case, python):
    """Parents that were settled with hindsight are as the store has them."""
    need_agent()
    out = run(case, python, r"""
import cirron as ci, torch, json
ci.profile(output="none")
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(12, 3), torch.randn(12, 1)), batch_size=4)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in data:
        loss = torch.nn.functional.mse_loss(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad():
    for x, y in data:
        net(x)
def shape(n): return [n["name"], n["index"], [shape(c) for c in n["children"]]]
print(json.dumps([shape(n) for n in ci.trace("dict")["roots"]]))
""")
    step = lambda i: ["step", i, [["data_load", i % 3, []]] + [[n, None, []] for n in ("forward", "backward", "optimizer_step")]]
    got = json.loads(out)
    case.equal(got[:2], [["epoch", e, [step(3 * e + i) for i in range(3)]] for e in (0, 1)], "epochs")
    case.equal([n[0] for n in got[2:]], ["eval"], "what follows")
