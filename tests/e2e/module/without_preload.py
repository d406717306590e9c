"""Programs that are not started under the preload and import the package. IMPORTED=1 runs whole suites that way."""
import shutil

from common import TORCH, need_agent, need_store, store
from harness import AGENT, CORE, PACKAGE, PYTHONS, python_label, test_each


def package_env(case, **more):
    return dict({"PYTHONPATH": PACKAGE, "CIRRON_SOCKET": case.collector.socket if case.collector else case.folder / "nobody.sock"}, **more)


def run(case, python, text, **env):
    return case.run([python, case.script(text)], agent=False, env=package_env(case, **env))


def copies(case):
    """Two files that are copies of the agent, and neither the one that is preloaded nor that of the package."""
    found = []
    for folder in ("one", "two"):
        (case.folder / folder).mkdir()
        found.append(shutil.copy(CORE, case.folder / folder / "cirron.so"))
    return found


TWICE = r"""
import importlib.util, os, sys
sys.setdlopenflags(os.RTLD_NOW | (os.RTLD_GLOBAL if sys.argv[1] == "global" else os.RTLD_LOCAL))
import cirron

def load(path):
    spec = importlib.util.spec_from_file_location("cirron", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

with cirron.scope("outer") as outer:
    for path in sys.argv[2:]:
        with load(path).scope("inner") as s:
            print(s.id is not None, s.parent_id == outer.id)
print(len({line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith((".so", ".so.new")) and "cirron" in line}) > 1)
"""


@test_each([(p, how, flags) for p in PYTHONS for how in ("preload", "package") for flags in ("local", "global")],
           lambda v: f"{python_label(v[0])}-{v[1]}-{v[2]}")
def one_agent_however_many_files(case, which):
    """What was there first serves the others, so that nothing is observed twice."""
    need_store()
    case.collect()
    python, how, flags = which
    env = package_env(case)
    if how == "preload":
        env.update(LD_PRELOAD=AGENT)
    r = case.run([python, case.script(TWICE), flags, *copies(case)], agent=False, env=env)
    case.equal((r.rc, r.err, r.out), (0, "", "True True\n" * 2 + "True\n"), "the run")
    st = store(case)
    case.equal([(s["name"], (st.parent(s) or {}).get("name")) for s in st.spans], [("outer", "cirron.session"), ("inner", "outer"), ("inner", "outer")], "spans")
    case.equal(len(st.sessions), 1, "sessions")


@test_each(PYTHONS, python_label)
def the_preloaded_one_comes_first(case, python):
    need_agent()
    say = "import cirron, sys; print(cirron.__spec__.origin, 'cirron' in sys.builtin_module_names, cirron.scope('s').__enter__().id is not None)"
    r = run(case, python, say, LD_PRELOAD=AGENT)
    case.equal((r.rc, r.out, r.err), (0, "built-in True True\n", ""), "preload and package")
    r = run(case, python, say, LD_PRELOAD=AGENT, CIRRON_ENABLED=0)
    case.equal((r.rc, r.out, r.err), (0, f"{PACKAGE}/cirron/__init__.so False False\n", ""), "switched off")


TRAINING = r"""
import torch
from torch import nn
FIRST
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=2)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""


@test_each([(p, where) for p in TORCH for where in ("before", "after", "in_a_thread")], lambda v: f"{python_label(v[0])}-{v[1]}")
def training_is_recorded(case, which):
    """Whether torch was imported before or afterwards, and by whichever thread the module is."""
    need_store()
    case.collect()
    python, where = which
    late = "import threading, importlib\nt = threading.Thread(target=importlib.import_module, args=('cirron',)); t.start(); t.join()"
    text = TRAINING.replace("FIRST", {"before": "", "after": "import cirron", "in_a_thread": late}[where])
    r = run(case, python, ("import cirron\n" if where == "before" else "") + text)
    case.equal((r.rc, r.out, r.err), (0, "", ""), "the run")
    st = store(case)
    case.counts(st.spans, epoch=2, step=8, data_load=8, forward=8, backward=8, optimizer_step=8)


@test_each(PYTHONS, python_label)
def life_of_a_process(case, python):
    """Forks, threads, closed descriptors, an exit handler that still records, an exit status."""
    need_store()
    case.collect()
    r = run(case, python, r"""
import atexit, os, sys, threading
import cirron as ci

def last_words():
    with ci.scope("at_exit"):
        pass

atexit.register(last_words)
with ci.scope("parent"):
    pid = os.fork()
    if pid == 0:
        with ci.scope("child"):
            pass
        os._exit(0)
    os.waitpid(pid, 0)
def work():
    with ci.scope("thread"):
        pass
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
while len(os.listdir("/proc/self/task")) > 1:  # an ending one may have a library's file open
    pass
os.closerange(3, 256)
with ci.scope("after_closing"):
    pass
sys.exit(7)
""")
    case.equal((r.rc, r.out, r.err), (7, "", ""), "the run")
    st = store(case, 2)
    case.equal(sorted(s["name"] for s in st.spans), ["after_closing", "at_exit", "child", "parent"] + ["thread"] * 4, "spans")
    case.equal({s["state"] for s in st.sessions if s["pid"] == r.pid}, {"finished"}, "the session")


@test_each(PYTHONS, python_label)
def first_imported_elsewhere(case, python):
    """By an interpreter that is not the main one, which is where recording can begin; then by the main one."""
    need_store()
    case.collect()
    r = run(case, python, r"""
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
i = sub.create()
text = '''
import cirron as ci
with ci.scope("elsewhere", x=1):
    ci.mark("m", 1.5)
ci.health(), ci.trace("dict")
'''
assert not sub.run_string(i, text)
import cirron as ci
with ci.scope("main") as s:
    assert not sub.run_string(i, text)
print(s.id is not None)
sub.destroy(i)
""")
    case.equal((r.rc, r.out, r.err), (0, "True\n", ""), "the run")
    names = [s["name"] for s in store(case).spans]
    case.check("main" in names and set(names) <= {"main", "elsewhere"}, f"spans: {names}")
