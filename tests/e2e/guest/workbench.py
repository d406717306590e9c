"""What people run their scripts in: pytest, coverage, cProfile, pdb, a Jupyter kernel. Each gives what it gives without us."""
import json
import pstats
import re
import subprocess

from harness import TORCH_PYTHON, Skip, clean_env, test, test_each

HEAD = """
try:
    import cirron as ci
except ImportError:
    import contextlib, types
    ci = types.SimpleNamespace(scope=lambda *a, **k: contextlib.nullcontext(), mark=lambda *a, **k: None, epochs=iter)
"""


def need(module):
    find = f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"
    if not TORCH_PYTHON or subprocess.run([TORCH_PYTHON, "-c", find], env=clean_env(), stdin=subprocess.DEVNULL).returncode:
        raise Skip(f"no Python with {module}")


TESTS = HEAD + """
import pytest

@pytest.fixture
def doubled():
    with ci.scope("fixture"):
        yield 2

@pytest.mark.parametrize("n", [1, 2, 3])
def test_some(n, doubled):
    with ci.scope("test", n):
        ci.mark("n", n)
        assert n * doubled == n + n

def test_wrong():
    with ci.scope("wrong"):
        assert [1, 2] == [1, 3]

def test_raises():
    with pytest.raises(ZeroDivisionError), ci.scope("raises"):
        1 / 0
"""


@test
def pytest(t):
    need("pytest")
    t.collect()
    path = t.script(TESTS, "test_it.py")
    command = [TORCH_PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", path.parent, path]
    plain, traced = t.both(command, same=False)
    said = [re.sub(r" in [0-9.]+s", "", x.out) for x in (plain, traced)]
    t.equal((traced.rc, said[1]), (plain.rc, said[0]), "what pytest says")
    t.check("1 failed, 4 passed" in said[0], said[0])
    st = t.store()
    t.equal(sorted(s["index"] for s in st.of("test")), [1, 2, 3], "scopes of the tests")
    t.equal([s["attrs"].get("exception") for s in st.of("wrong") + st.of("raises")], ["AssertionError", "ZeroDivisionError"], "exceptions")


COVERED = HEAD + """
import torch
from torch.utils.data import DataLoader, TensorDataset
def never():
    return 1
def work(n):
    if n % 2:
        return n
    for x in range(3):
        n += x
    return n
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in ci.epochs(range(2)):
    for x, in DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=2):
        with ci.scope("work"):
            work(epoch)
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
if not model:
    never()
"""


@test_each(["ctrace", "pytrace", "sysmon"])
def coverage(t, core):
    need("coverage")
    t.collect()
    script, seen = t.script(COVERED), []
    for agent in (False, True):
        data, out = t.folder / f"data{agent}", t.folder / f"{agent}.json"
        branch = [] if core == "sysmon" else ["--branch"]
        run = [TORCH_PYTHON, "-m", "coverage", "run", *branch, f"--data-file={data}", f"--include={script}", script]
        done = t.run(run, agent, {"COVERAGE_CORE": core})
        if core == "sysmon" and "sys.monitoring" in done.err:
            raise Skip("no sys.monitoring here")
        t.equal((done.rc, done.out, done.err), (0, "", ""), "coverage run")
        t.run([TORCH_PYTHON, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", out], False)
        file, = json.loads(out.read_text())["files"].values()
        seen.append([file.get(x, []) for x in ("executed_lines", "missing_lines", "executed_branches", "missing_branches")])
    # The two ways to import the module are two ways through the script.
    head = HEAD.count("\n") + 1
    below = [[[x for x in kind if x > head] for kind in of[:2]] + [[x for x in kind if min(map(abs, x)) > head] for kind in of[2:]] for of in seen]
    t.equal(below[1], below[0], "lines and branches")
    t.check(len(below[0][0]) > 15 and len(below[0][1]) == 2, f"covered {below[0]}")
    t.counts(t.store().spans, epoch=2, work=6, step=6, data_load=6, forward=6, backward=6, optimizer_step=6)


@test
def c_profile(t):
    need("torch")
    t.collect()
    script, calls = t.script(COVERED), []
    for agent in (False, True):
        out = t.folder / f"profile{agent}"
        done = t.run([TORCH_PYTHON, "-m", "cProfile", "-o", out, script], agent)
        t.equal((done.rc, done.out, done.err), (0, "", ""), "the run")
        stats = pstats.Stats(str(out)).stats
        calls.append({(file.rpartition("/")[2], name): n[0] for (file, _, name), n in stats.items()
                      if name in ("work", "backward", "step", "_call_impl", "__next__", "forward", "__iter__")
                      and not file.startswith("<frozen ")})  # what looks at the environment finds two variables more
    t.equal(calls[1], calls[0], "calls")
    t.equal(calls[0]["train.py", "work"], 6, "calls of work()")
    t.equal(len(t.store().of("step")), 6, "steps")


@test
def debugger(t):
    need("torch")
    t.collect()
    script = t.script(COVERED)
    line = COVERED.splitlines().index("        opt.step()") + 1
    commands = f"b {line}\nc\np epoch\nw\ns\nbt\nr\nc\nclear 1\nr\nn\nc\nq\n"
    said = []
    for agent in (False, True):
        process = t.start([TORCH_PYTHON, "-m", "pdb", script], agent, stdin=-1)
        out, err = process.communicate(commands, timeout=120)
        said.append((process.returncode, out.replace("_wrapped_call_impl", ""), err))
    t.equal(said[1], said[0], "what the debugger says")
    t.check(f"train.py({line})" in said[0][1], said[0][1][-500:])


NOTEBOOK = """
import json, os, sys
from jupyter_client.manager import KernelManager
manager = KernelManager()
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
seen = []
def show(message):
    kind, content = message["header"]["msg_type"], message["content"]
    if kind in ("stream", "execute_result", "error"):
        seen.append((kind, content.get("text") or content.get("data", {}).get("text/plain") or content.get("ename")))
for cell in CELLS:
    reply = client.execute_interactive(cell, timeout=60, output_hook=show)
    seen.append(reply["content"]["status"])
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(seen))
"""
CELLS = [HEAD + """
import asyncio
with ci.scope("cell"):
    print("hello")
""", "1 + 1", """
async def later():
    with ci.scope("later"):
        await asyncio.sleep(0.01)
        return 7
await asyncio.gather(later(), later())
""", "with ci.scope('failing'):\n    1 / 0", "raise SystemExit(3)"]


@test
def jupyter_kernel(t):
    need("ipykernel")
    t.collect()
    script = t.script(NOTEBOOK.replace("CELLS", repr(CELLS)), "notebook.py")
    folders = {name: t.folder for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    plain, _ = t.both([TORCH_PYTHON, script], folders)
    t.check('["execute_result", "[7, 7]"]' in plain.out and "ZeroDivisionError" in plain.out, plain.out + plain.err)
    st = t.store()
    t.equal([len(st.of(name)) for name in ("cell", "later", "failing")], [1, 2, 1], "scopes of the cells")
    t.equal([s["attrs"].get("exception") for s in st.of("failing")], ["ZeroDivisionError"], "its exception")
