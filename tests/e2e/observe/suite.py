"""Attaching to every interpreter in every way it is started, and observing functions exactly, with a small agent whose probes count."""
import functools
import json
import os
import pathlib
import subprocess
import threading

import harness
from harness import PYTHONS, Skip, TORCH_PYTHON, clean_env, python_label, test, test_each

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCES = "py attach attach_hook trigger trigger_frame trigger_monitor observe observe_swap observe_retype observe_table cost clock preload/symbol".split()
building = threading.Lock()


@functools.lru_cache(None)
def built():
    """(the agent under test, the embedding host)"""
    folder = harness.BUILD / "observe"
    folder.mkdir(parents=True, exist_ok=True)
    agent, host = folder / "agent.so", folder / "host"
    common = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-D_GNU_SOURCE", f"-I{ROOT}"]
    files = [HERE / "agent_under_test.c", *(ROOT / "agent" / f"{x}.c" for x in SOURCES)]
    flags = ["-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-strict-aliasing", "-Wl,-z,now,-z,defs"]
    script = f"-Wl,--version-script={HERE / 'agent_under_test.map'}"
    for made, command in ((agent, [*flags, script, *files]), (host, [HERE / "host.c", "-ldl"])):
        new = made.with_suffix(f".{os.getpid()}")  # another run of this suite may have the old one loaded
        subprocess.run([str(x) for x in [*common, *command, "-o", new]], check=True, env=clean_env())
        new.rename(made)
    return agent, host


def build():
    with building:
        return built()


def environment(t, **more):
    agent, _ = build()
    return {"LD_PRELOAD": agent, "TEST_AGENT": agent, "TEST_OUT": t.folder / "closed", "PYTHONPATH": HERE, **more}


def closed(t):
    """What was written when interpreters ended: [(enters, leaves, failures), ...]"""
    path = t.folder / "closed"
    return [tuple(map(int, x.split()[1:])) for x in path.read_text().splitlines()] if path.exists() else []


def all_right(t, command, closes=1, **env):
    done = t.run(command, False, environment(t, **env), cwd=HERE)
    t.equal((done.rc, done.out), (0, "all right\n"), f"{' '.join(map(str, command[1:4]))}: {done.err[-600:]}")
    t.equal(len(closed(t)), closes, "closed interpreters")


EXACT = """
from observed import things
for i in range(1000): things.plain(i)
for i in range(10):
    try: things.fails()
    except KeyError: pass
"""
SUM = (1010, 1000, 10)


@test_each(PYTHONS, python_label)
def script(t, python):
    all_right(t, [python, "calls.py"])


@test_each(PYTHONS, python_label)
def module_and_command(t, python):
    all_right(t, [python, "-m", "calls"])
    all_right(t, [python, "-c", "import calls"], closes=2)


@test_each(PYTHONS, python_label)
def development_mode(t, python):
    """The audit hook is freed by another allocator than it came from: an abort, if nothing is done."""
    all_right(t, [python, "-X", "dev", "calls.py"])
    all_right(t, [python, "calls.py"], closes=2, PYTHONMALLOC="debug")
    all_right(t, [python, "calls.py"], closes=3, PYTHONMALLOC="malloc")


@test_each(PYTHONS, python_label)
def from_a_zip_without_site(t, python):
    import zipfile

    path = t.folder / "app.zip"
    with zipfile.ZipFile(path, "w") as z:
        for file in (HERE / "observed").glob("*.py"):
            z.write(file, f"observed/{file.name}")
        z.writestr("__main__.py", EXACT)
    done = t.run([python, "-I", "-S", path], False, environment(t))
    t.equal((done.rc, done.err, closed(t)), (0, "", [SUM]), "counts")


@test_each(PYTHONS, python_label)
def switched_off(t, python):
    code = "import sys; from observed import things; things.plain(1); print('cirron' in sys.builtin_module_names)"
    done = t.run([python, "-c", code], False, environment(t, CIRRON_ENABLED="0"))
    t.equal((done.rc, done.out, closed(t)), (0, "False\n", []), "inert")


@test_each(PYTHONS, python_label)
def forked(t, python):
    code = EXACT + "import os, sys\npid = os.fork()\n" + EXACT + "if pid: os.waitpid(pid, 0)"
    done = t.run([python, "-W", "ignore", "-c", code], False, environment(t))
    t.equal((done.rc, done.err), (0, ""), "end")
    t.equal(closed(t), [(2020, 2000, 20)] * 2, "counts of child and parent")


@test_each(PYTHONS, python_label)
def ends(t, python):
    """Exit statuses and signals stay; what is left by exceptions and sys.exit is closed."""
    for code, status in (("import sys; sys.exit(3)", 3), ("1/0", 1), ("raise KeyboardInterrupt", -2), ("import os; os._exit(4)", 4)):
        done = t.run([python, "-c", EXACT + code], False, environment(t))
        t.equal(done.rc, status, code)
    t.equal(closed(t), [SUM] * 3, "counts")


@test_each(PYTHONS, python_label)
def finalizers_still_run(t, python):
    """Observed functions are not kept alive: what dies with their module at the end still does."""
    code = """
import ctypes, os
agent = ctypes.PyDLL(os.environ["TEST_AGENT"])
agent.test_observe.argtypes = [ctypes.py_object]
class Last:
    def __del__(self): os.write(1, b"del\\n")
    def step(self): pass
class User:
    def step(self): pass
last = Last()
assert agent.test_observe(User.step) == 0
"""
    plain = t.run([python, "-c", code.replace("agent.test_observe(User.step)", "0")], False, environment(t))
    traced = t.run([python, "-c", code], False, environment(t))
    t.equal((traced.rc, traced.out, traced.err), (plain.rc, plain.out, plain.err), "end")
    t.equal(plain.out, "del\n", "without observing")


@test_each(PYTHONS, python_label)
def subinterpreters_are_left_alone(t, python):
    code = EXACT + """
try: import _interpreters as sub
except ImportError: import _xxsubinterpreters as sub
i = sub.create()
run = getattr(sub, "exec", None) or sub.run_string
import sys
run(i, "import sys; sys.path[:] = %r; from observed import things; things.plain(1); import cirron; print(cirron.__name__)" % sys.path)
sub.destroy(i)
things.plain(1)
"""
    done = t.run([python, "-c", code], False, environment(t))
    t.equal((done.rc, done.out, done.err), (0, "cirron\n", ""), "end")
    t.equal(closed(t), [(1011, 1001, 10)], "counts")


def libpython(python):
    code = ("import sysconfig as s, sys, os, json; v = s.get_config_var;"
            "print(json.dumps([[os.path.join(d, n) for d in (v('LIBDIR'), '/usr/lib/x86_64-linux-gnu') for n in (v('INSTSONAME'),"
            " 'libpython%d.%d.so.1.0' % sys.version_info[:2]) if n], sys.base_prefix]))")
    names, prefix = json.loads(subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True, env=clean_env()).stdout)
    found = [n for n in names if ".so" in n and os.path.exists(n)]
    if not found:
        raise Skip("no shared libpython of this version")
    return found[0], prefix


def embedded(t, python, scope, times, **more):
    library, prefix = libpython(python)
    _, host = build()
    env = environment(t, PYTHONHOME=prefix, **more)
    if scope == "linked":
        env["LD_PRELOAD"] = f"{env['LD_PRELOAD']} {library}"
    code = "import sys\nassert 'cirron' in sys.builtin_module_names\nimport cirron\n" + EXACT
    done = t.run([host, library, scope, times, code], False, env)
    t.equal((done.rc, done.err), (0, ""), f"{scope}: end")
    expected = [tuple(n * (i + 1) for n in SUM) for i in range(times)]
    t.equal(closed(t), expected, f"{scope}: counts")
    (t.folder / "closed").unlink(missing_ok=True)


@test_each(PYTHONS, python_label)
def embedding(t, python):
    for scope in ("local", "global", "linked"):
        embedded(t, python, scope, 1)
        embedded(t, python, scope, 1, PYTHONMALLOC="debug")


@test_each(PYTHONS, python_label)
def embedding_again_and_again(t, python):
    for scope in ("local", "linked"):
        embedded(t, python, scope, 3)


@test_each(PYTHONS, python_label)
def late(t, python):
    """Loaded by a running interpreter: what is there already is observed, and so is what comes later."""
    code = """
import ctypes, os
from observed import things
things.plain(1)
agent = ctypes.PyDLL(os.environ["TEST_AGENT"])
things.plain(1)
assert (agent.test_attached(), agent.test_attach_late(), agent.test_attached(), agent.test_attach_late()) == (0, 1, 1, 0)
things.plain(1)
import importlib
things = importlib.reload(things)
""" + EXACT
    env = environment(t)
    del env["LD_PRELOAD"]
    done = t.run([python, "-X", "dev", "-c", code], False, env)
    t.equal((done.rc, done.err, closed(t)), (0, "", [(1011, 1001, 10)]), "counts")


def unsupported():
    found = []
    for path in pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")).glob("versions/*/bin/python"):
        if path.parts[-3].startswith(("2.", "3.5.", "3.6.", "3.7.")):
            found.append(str(path))
    return found


@test_each(unsupported(), python_label)
def unsupported_interpreter(t, python):
    code = "import sys, locale; locale.setlocale(locale.LC_ALL, 'C'); print('cirron' in sys.builtin_module_names); sys.exit(5)"
    done = t.run([python, "-c", code], False, environment(t, CIRRON_DEBUG=1))
    t.equal((done.rc, done.out, closed(t)), (5, "False\n", []), "inert")
    t.check(done.err.startswith("cirron: Python ") and done.err.count("\n") == 1, f"one line that says so: {done.err!r}")


COEXIST = """
import os, sys, threading
def body():
    exec(compile(EXACT, "body", "exec"), {})
kind = os.environ["KIND"]
if kind == "profile":
    import cProfile, pstats
    p = cProfile.Profile()
    p.runcall(body)
    calls = [v[1] for k, v in pstats.Stats(p).stats.items() if k[2] == "plain"]
    assert calls == [1000], calls
elif kind == "trace":
    seen = [0]
    def tracer(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "plain": seen[0] += 1
        return tracer
    sys.settrace(tracer)
    body()
    sys.settrace(None)
    assert seen == [1000], seen
elif kind == "audit":
    import json
    def hook(event, args):  # a hook in Python runs frames of its own before the module's body
        if event == "exec": json.dumps([1, {"a": 2}])
    sys.addaudithook(hook)
    body()
elif kind == "refused":
    def refuse(event, args):
        if event == "exec" and "things" in args[0].co_filename and refuse.active: raise RuntimeError("no")
    refuse.active = True
    sys.addaudithook(refuse)
    try: import observed.things
    except RuntimeError: pass
    refuse.active = False
    body()
elif kind == "tools":
    for i in (3, 4): sys.monitoring.use_tool_id(i, "other")
    body()
    assert [sys.monitoring.get_tool(i) for i in (3, 4)] == ["other", "other"]
elif kind == "threads":
    import importlib
    done = [threading.Thread(target=importlib.import_module, args=("observed.things",)) for _ in range(8)]
    [t.start() for t in done]
    [t.join() for t in done]
    body()
"""


def monitoring(python):
    return subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 12))"], env=clean_env()).returncode == 0


KINDS = ("profile", "trace", "audit", "refused", "tools", "threads")


@test_each([(p, k) for p in PYTHONS for k in KINDS if k != "tools" or monitoring(p)], lambda x: f"{python_label(x[0])}-{x[1]}")
def beside(t, which):
    python, kind = which
    done = t.run([python, "-c", f"EXACT = {EXACT!r}\n{COEXIST}"], False, environment(t, KIND=kind))
    t.equal((done.rc, done.err), (0, ""), "end")
    t.equal(closed(t), [SUM], "counts")


@test
def other_programs(t):
    for command, out in ((["/bin/echo", "hello"], "hello\n"), (["/bin/sh", "-c", "echo hello | tr a-z A-Z"], "HELLO\n")):
        done = t.run(command, False, environment(t))
        t.equal((done.rc, done.out, done.err), (0, out, ""), command[0])


@test
def torch_compile_around_an_import(t):
    """A module that is imported while torch.compile's frame hook is in place."""
    if not TORCH_PYTHON or not os.access(TORCH_PYTHON, os.X_OK):
        raise Skip("no interpreter with torch: TORCH_PYTHON")
    code = """
import ctypes, importlib, os, sys, torch
agent = ctypes.CDLL(os.environ["TEST_AGENT"])
def load():
    sys.modules.pop("observed.things", None)
    return importlib.import_module("observed.things")
@torch.compile(backend="eager")
def f(x):
    x = x + 1
    torch._dynamo.graph_break()
    load()
    return x * 2
class Lazy(torch.nn.Module):
    def forward(self, x):
        import observed
        return x + len(observed.top())
g = torch.compile(Lazy(), backend="eager")
for i in range(20):
    assert f(torch.ones(2)).tolist() == [4, 4] and g(torch.ones(2)).tolist() == [4, 4]
    things = sys.modules["observed.things"]
    before = agent.test_enters(b"plain")
    for _ in range(50): things.plain(1)
    assert agent.test_enters(b"plain") - before == 50, i
    if i == 10: torch._dynamo.reset()
    if i % 3 == 0: load()
print("done")
"""
    done = t.run([TORCH_PYTHON, "-c", code], False, environment(t))
    t.equal((done.rc, done.out), (0, "done\n"), done.err[-600:])


@test
def torch(t):
    """Exact counts in a training loop, and torch.compile sees no difference."""
    if not TORCH_PYTHON or not os.access(TORCH_PYTHON, os.X_OK):
        raise Skip("no interpreter with torch: TORCH_PYTHON")
    counters = t.folder / "counters"
    env = {**environment(t, TEST_TORCH=1), "COUNTERS": counters}
    traced = t.run([TORCH_PYTHON, HERE / "torch_loop.py"], False, env)
    t.equal(traced.rc, 0, "with the agent: " + traced.err[-600:])
    t.check("counts are exact" in traced.out, traced.out[-500:])
    seen = counters.read_text() if counters.exists() else "none"
    del env["LD_PRELOAD"]
    plain = t.run([TORCH_PYTHON, HERE / "torch_loop.py"], False, env)
    t.equal(plain.rc, 0, "without the agent")
    t.equal([*map(harness.comparable, traced.err.splitlines())], [*map(harness.comparable, plain.err.splitlines())], "stderr")
    t.equal(seen, counters.read_text(), "torch.compile's counters")


if __name__ == "__main__":
    harness.main()
