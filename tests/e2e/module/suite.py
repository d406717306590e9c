"""The cirron module: see run.sh. Tests that need a store are skipped where collectord or cirron-query is not built."""
import collections
import json
import shutil
import subprocess

from common import FAKE, HERE, TORCH, need_agent, need_store, store
from harness import CORE, IMPORTED, PYTHONS, Skip, clean_env, main, python_label, test, test_each
import again  # noqa: F401
import known_faults  # noqa: F401
import stubs  # noqa: F401
import tasks  # noqa: F401
import tools  # noqa: F401
import sinks  # noqa: F401
import root_span  # noqa: F401
import trace_back  # noqa: F401
import without_preload  # noqa: F401


def has_sklearn(python):
    text = "import importlib.util as u, sys; sys.exit(not u.find_spec('sklearn'))"
    return subprocess.run([python, "-c", text], stdin=subprocess.DEVNULL, env=clean_env()).returncode == 0


SKLEARN = [p for p in PYTHONS + TORCH if has_sklearn(p)]


@test_each(PYTHONS + TORCH, python_label)
def surface(case, python):
    r = case.run([python, HERE / "surface.py"], agent=False, env={"PYTHONPATH": FAKE})
    case.check(r.rc == 0, r.err[-2000:])


@test_each(PYTHONS + TORCH, python_label)
def yaml_file(case, python):
    r = case.run([python, HERE / "yaml_file.py"], agent=False, env={"PYTHONPATH": FAKE})
    case.check(r.rc == 0, r.err[-2000:])


@test_each(PYTHONS + TORCH, python_label)
def profiling(case, python):
    r = case.run([python, HERE / "profiling.py"], agent=False, env={"PYTHONPATH": f"{FAKE}:{HERE}"})
    case.check(r.rc == 0, r.err[-2000:])


@test_each(PYTHONS + TORCH, python_label)
def bad_input(case, python):
    r = case.run([python, HERE / "bad_input.py"], agent=False, env={"PYTHONPATH": f"{FAKE}:{HERE}"})
    case.check(r.rc == 0, r.err[-2000:])


@test_each(PYTHONS + TORCH, python_label)
def wrapping(case, python):
    r = case.run([python, HERE / "wrapping.py"], agent=False, env={"PYTHONPATH": f"{FAKE}:{HERE}"})
    case.check(r.rc == 0, r.err[-2000:])


@test
def some_have_sklearn(case):
    if not SKLEARN:
        raise Skip("no interpreter here has scikit-learn")


@test_each(SKLEARN, python_label)
def estimators(case, python):
    r = case.run([python, HERE / "estimators.py"], agent=False, env={"PYTHONPATH": f"{FAKE}:{HERE}"})
    case.check(r.rc == 0, r.err[-2000:])


SCRIPT = r"""
import cirron as ci, threading, gc, json
assert ci.__version__ != "0" and ci.profile().enabled

NAMES = ["", "データ", "emoji 🚂", "tab\tnew\nline", "x" * 10000, "quote ' \" ; DROP TABLE spans; --", "zero\x00one", "zero\x00two", "%s {0}"]
with ci.scope("names"):
    for i, name in enumerate(NAMES):
        with ci.scope(name, index=i):
            ci.mark(name, i)

with ci.scope("attrs", lr=0.1, tags=["a", None, {"k": float("nan")}], on=True) as s:
    s.attrs["late"] = "zero\x00 and \"quotes\""
    ids = {"attrs": s.id, "parent": s.parent_id}

with ci.scope("marks"):
    for name, value in dict(b=True, i=-2**63, f=1e308, nan=float("nan"), inf=float("-inf"), s="a\x00b", big=2**80, none=None, long="é" * 9000).items():
        ci.mark(name, value)
    ci.mark("summary", 2, kind="summary", unit="s")

try:
    with ci.scope("bad"):
        raise LookupError
except LookupError:
    pass

for e in ci.epochs(range(3)):
    for b in ci.batches("abc"):
        if b == "b":
            break
    if e == 1:
        break
gc.collect()

def down(n):
    if n:
        with ci.scope("deep"):
            down(n - 1)
down(100)

@ci.scope("decorated", n=1)
def f():
    with ci.scope("in_thread"):
        pass

threads = [threading.Thread(target=f) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
ids["health"] = ci.health()
print(json.dumps(ids))
held = ci.epochs(range(2))
next(held)
"""


@test_each(PYTHONS, python_label)
def stored(case, python):
    """What the script said is what the store has."""
    need_store()
    case.collect()
    r = case.run([python, case.script(SCRIPT)])
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    said = json.loads(r.out)
    st = store(case)
    names = [s for s in st.children(st.of("names")[0])]
    case.equal([s["index"] for s in names], list(range(9)), "indices of the names")
    expected = ["", "データ", "emoji 🚂", "tab\tnew\nline", "x" * 4096, "quote ' \" ; DROP TABLE spans; --", "zero\x00one", "zero\x00two", "%s {0}"]
    case.equal([s["name"] for s in names], expected, "names")
    for s in names:
        case.equal([m["name"] for m in st.marks if m["span_id"] == s["id"]], [s["name"]], "mark of " + s["name"][:20])
    attrs = st.of("attrs")[0]
    case.equal((attrs["id"], attrs["parent_id"]), (said["attrs"], said["parent"]), "ids")
    case.equal(attrs["attrs"], {"lr": 0.1, "tags": ["a", None, {"k": "NaN"}], "on": True, "late": "zero\x00 and \"quotes\""}, "attrs")
    marks = {m["name"]: (m["value_type"], m["value"]) for m in st.marks if m["span_id"] == st.of("marks")[0]["id"]}
    case.equal(marks, dict(b=("bool", True), i=("int", -2**63), f=("float", 1e308), nan=("float", "NaN"), inf=("float", "-Infinity"),
                           s=("string", "a\x00b"), long=("string", "é" * 4500), summary=("int", 2)), "marks")
    summary = st.marks_of("summary")[0]
    case.equal((summary["kind"], summary["attrs"]), ("summary", {"unit": "s"}), "summary mark")
    bad = st.of("bad")[0]
    case.equal((bad["error"], bad["attrs"]), (True, {"exception": "LookupError"}), "bad")
    case.equal([(s["index"], st.order(s)) for s in st.of("epoch")], [(0, ["batch"] * 2), (1, ["batch"] * 2), (0, [])], "epochs and batches")
    case.equal((len(st.of("deep")), said["health"]["scope_drop_count"], said["health"]["mark_refused_count"]), (63, 37, 2), "deep")
    case.equal([st.order(s) for s in st.of("decorated")], [["in_thread"]] * 3, "decorated")
    case.check(all(st.parent(s)["name"] == "cirron.session" for s in st.of("decorated")), "threads start without a scope")


ESTIMATORS = r"""
import pickle, sys
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
try:
    import cirron as ci
except ImportError:
    import types
    ci = types.SimpleNamespace(wrap=lambda e: e)

X = np.random.RandomState(0).randn(60, 4)
y = (X[:, 0] + X[:, 1] > 0).astype(int)
pipe = ci.wrap(make_pipeline(StandardScaler(), LogisticRegression()))
print(pipe.fit(X, y), pipe.score(X, y), type(pipe), pipe[1].coef_.shape)
forest = ci.wrap(RandomForestClassifier(n_estimators=4, random_state=0, n_jobs=2)).fit(X, y)
print(forest, forest.predict(X).sum(), len(forest))
try:
    forest.predict(X[:, :2])
except ValueError as error:
    print(error)
search = GridSearchCV(ci.wrap(LogisticRegression()), {"C": [0.1, 1]}, cv=2, n_jobs=2).fit(X, y)  # in processes
print(search, search.best_estimator_, type(search.best_estimator_), search.best_score_)
with open(sys.argv[1], "wb") as f:
    pickle.dump([pipe, forest, search], f)
"""


IN_PROCESSES = r"""
import contextlib, pickle, sys, types
import cloudpickle
import numpy as np
from joblib import parallel_backend
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
try:
    import cirron as ci
except ImportError:
    ci = types.SimpleNamespace(wrap=lambda e: e, scope=lambda n: contextlib.nullcontext())

X = np.random.RandomState(0).randn(60, 4)
y = (X[:, 0] + X[:, 1] > 0).astype(int)
for backend in "loky", "multiprocessing", "threading":
    with ci.scope(backend), parallel_backend(backend, n_jobs=2):
        search = GridSearchCV(ci.wrap(LogisticRegression()), {"C": [0.1, 1]}, cv=2).fit(X, y)
        print(search.best_score_, search.cv_results_["mean_test_score"], type(search.best_estimator_))
        done = cross_validate(ci.wrap(make_pipeline(StandardScaler(), LogisticRegression())), X, y, cv=2, return_estimator=True)
        print(done["test_score"], [(type(e), e[1].coef_.tolist()) for e in done["estimator"]])
        for e in done["estimator"]:  # what anybody else pickles needs nothing of us
            assert b"cirron" not in pickle.dumps(e) + cloudpickle.dumps(e)
"""


@test_each(SKLEARN, python_label)
def estimators_in_processes(case, python):
    """Processes of joblib fit what is wrapped, and say so in sessions of their own; the results are the same."""
    need_store()
    case.collect()
    plain, _ = case.both([python, case.script(IN_PROCESSES)])
    case.equal((plain.rc, plain.err), (0, ""), "it runs")
    st = store(case)
    by = collections.Counter()
    for backend in "loky", "multiprocessing", "threading":
        [scope] = st.of(backend)
        for s in st.spans:
            if scope["start_ns"] <= s["start_ns"] < scope["end_ns"] and "estimator" in s["attrs"]:
                by[backend, s["pid"] == scope["pid"], s["name"], s["attrs"]["estimator"]] += 1
    within = collections.Counter({("fit", "LogisticRegression"): 4 + 2, ("score", "LogisticRegression"): 4 + 2, ("fit", "Pipeline"): 2,
                                  ("score", "Pipeline"): 2, ("fit_transform", "StandardScaler"): 2, ("transform", "StandardScaler"): 2})
    expected = collections.Counter()
    for backend in "loky", "multiprocessing", "threading":
        for what, n in within.items():
            expected[(backend, backend == "threading", *what)] += n
        expected[backend, True, "fit", "LogisticRegression"] += 1  # with the best of them, at last
    if IMPORTED:  # a process that nobody imports us into records nothing
        expected = collections.Counter({k: v for k, v in expected.items() if k[1]})
    case.equal(by, expected, "spans")


@test_each(SKLEARN, python_label)
def estimators_stored(case, python):
    """The same output with and without us, also from processes of joblib; what was pickled needs nothing of us."""
    need_store()
    case.collect()
    script, kept = case.script(ESTIMATORS), case.folder / "kept.pickle"
    plain, _ = case.both([python, script, kept])
    case.equal(plain.rc, 0, "exit status")
    st = store(case)
    main = next(s["pid"] for s in st.spans if s["attrs"]["estimator"] == "Pipeline")
    spans = [(s["name"], s["attrs"]["estimator"], s["error"]) for s in st.spans if s["pid"] == main]
    case.equal(spans, [("fit", "Pipeline", False), ("fit_transform", "StandardScaler", False), ("fit", "LogisticRegression", False),
                       ("score", "Pipeline", False), ("transform", "StandardScaler", False), ("score", "LogisticRegression", False),
                       ("fit", "RandomForestClassifier", False), ("predict", "RandomForestClassifier", False),
                       ("predict", "RandomForestClassifier", True), ("fit", "LogisticRegression", False)], "spans")
    case.equal([st.order(s) for s in st.spans if s["attrs"]["estimator"] == "Pipeline"], [["fit_transform", "fit"], ["transform", "score"]], "nesting")
    case.equal([s["attrs"] for s in st.spans if s["error"]], [{"estimator": "RandomForestClassifier", "exception": "ValueError"}], "the error")
    load = "import pickle, sys; print([type(x).__name__ for x in pickle.load(open(sys.argv[1], 'rb'))], 'cirron' in sys.modules)"
    for agent in (False, True):
        r = case.run([python, "-c", load, kept], agent=agent)
        case.equal((r.rc, r.out), (0, "['Pipeline', 'RandomForestClassifier', 'GridSearchCV'] False\n"), f"loaded, agent {agent}: {r.err[-300:]}")


@test_each(PYTHONS, python_label)
def fork_inside_scopes(case, python):
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci, os
with ci.scope("parent", x=1) as p:
    p.attrs["y"] = 2
    pid = os.fork()
    if pid == 0:
        with ci.scope("child"):
            ci.mark("m", 1)
    else:
        os.waitpid(pid, 0)
        ci.mark("n", 2)
""")])
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    st = store(case, 2)
    case.equal(sorted((s["name"], s["pid"] == r.pid) for s in st.spans), [("child", False), ("parent", True)], "spans")
    case.equal(st.of("parent")[0]["attrs"], {"x": 1, "y": 2}, "attrs")
    case.equal(sorted((m["name"], st.by_id[m["span_id"]]["name"]) for m in st.marks), [("m", "child"), ("n", "parent")], "marks")


@test_each(PYTHONS, python_label)
def no_collector(case, python):
    """Everything works, nothing is said."""
    need_agent()
    r = case.run([python, case.script(SCRIPT)], env={"CIRRON_AUTOSTART": 0})
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    case.check(json.loads(r.out)["health"]["transport"] is None, "no transport")
    odd = {"CIRRON_AUTOSTART": 0, "CIRRON_RUN_ID": "\udcff", "RANK": 2}
    r = case.run([python, case.script("import cirron as ci; print(ascii(ci.health()['platform_context']))")], env=odd)
    case.equal((r.rc, r.out, r.err), (0, "{'rank': 2, 'run_id': '\\ufffd'}\n", ""), "a run id that is no UTF-8")


@test_each(PYTHONS, python_label)
def disabled_by_the_script(case, python):
    need_store()
    case.collect()
    r = case.run([python, case.script(r"""
import cirron as ci
with ci.scope("before"):
    pass
p = ci.profile(enabled=False)
with ci.scope("after") as s:
    ci.mark("m", 1)
print(p.enabled, s.id, ci.health()["enabled"])
""")])
    case.equal((r.rc, r.out, r.err), (0, "False None False\n", ""), "the run")
    st = store(case)
    case.equal(([s["name"] for s in st.spans], st.marks, [s["state"] for s in st.sessions]), (["before"], [], ["finished"]), "the store")


@test_each(PYTHONS, python_label)
def subinterpreters(case, python):
    """The module in other interpreters of the process, with locks of their own where the version has that."""
    need_agent()
    r = case.run([python, case.script(r"""
import cirron, sys
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
for _ in range(3):
    i = sub.create()
    failed = sub.run_string(i, '''
import cirron as ci
with ci.scope("sub", x=1) as s:
    ci.mark("m", 1.5)
for e in ci.epochs([1]):
    pass
@ci.scope("f")
def f(): return s.id
assert f()
class Net:
    def fit(self): return self
    def __len__(self): return 7
net = Net()
ci.watch(net)
assert ci.wrap(net).fit().__wrapped__ is net and len(ci.wrap(net)) == 7 and ci.health()["watched"] == ["Net"]
''')
    assert not failed, failed
    sub.destroy(i)
with cirron.scope("main") as s:
    pass
print(s.id is not None and cirron.health()["watched"] == [])
""")], env={"CIRRON_AUTOSTART": 0})
    case.equal((r.rc, r.out, r.err), (0, "True\n", ""), "the run")


@test_each(PYTHONS, python_label)
def imported_by_name(case, python):
    """Without preload, the agent's file named as an extension module."""
    need_store()
    case.collect()
    folder = case.folder / "lib"
    folder.mkdir()
    shutil.copy(CORE, folder / "cirron.so")
    env = {"PYTHONPATH": folder, "CIRRON_SOCKET": case.collector.socket}
    r = case.run([python, case.script("import cirron as ci\nwith ci.scope('s') as s: ci.mark('m', 1)\nprint(s.id)")], agent=False, env=env)
    case.equal((r.rc, r.err), (0, ""), "exit status, stderr")
    st = store(case)
    case.equal([(s["name"], s["id"]) for s in st.spans], [("s", r.out.strip())], "spans")
    case.equal([m["name"] for m in st.marks], ["m"], "marks")
    r = case.run([python, case.script("import cirron as ci\nwith ci.scope('s') as s: ci.mark('m', 1)\nprint(s.id)")], agent=False,
                 env=dict(env, CIRRON_ENABLED=0))
    case.equal((r.rc, r.out, r.err), (0, "None\n", ""), "with CIRRON_ENABLED=0")


if __name__ == "__main__":
    main()
