"""The root span `cirron.session`: what it says of the whole, in the store, in trace() and in the spool; and what is open in the spool."""
import json
import os
import signal
import subprocess

from common import TORCH, need_store, store
from harness import PYTHONS, python_label, test, test_each, until
from sinks import OFFLINE, Spool, run

IDS = {"CIRRON_RUN_ID": "run-7", "CIRRON_PIPELINE_ID": "pipe", "CIRRON_DEPLOYMENT_ID": "dep", "CIRRON_WORKSPACE_ID": "ws é\"\\"}
RANKS = {"RANK": 3, "LOCAL_RANK": 1, "WORLD_SIZE": 8}
SAID = {"rank": 3, "local_rank": 1, "world_size": 8, "cirron.run_id": "run-7", "cirron.pipeline_id": "pipe", "cirron.deployment_id": "dep",
        "cirron.workspace_id": "ws é\"\\"}


def roots_say(case, python, scripts, env):
    """Runs each of the scripts; its root span has the given attributes, beside its pid."""
    case.collect()
    said = {}
    for text, attrs in scripts:
        r = case.run([python, case.script(text)], env=env)
        case.equal((r.rc, r.err), (0, ""), text)
        said[r.pid] = dict(attrs, pid=r.pid)
    case.equal({s["pid"]: s["attrs"] for s in store(case, sessions=len(said)).roots}, said, "attributes by pid")


@test_each(PYTHONS, python_label)
def what_it_says(case, python):
    """The same in the store, in trace() after the end, and in the spool while it is open and when it is closed."""
    need_store()
    case.collect()
    r, spool = run(case, python, r"""
import cirron as ci, json, glob
profiler = ci.profile(flush_interval=3600)
ci.flush()
[open_root] = json.load(open(glob.glob(".cirron/spool/*.json")[0]))["spans"]
context = profiler.platform_context
with ci.scope("s"): pass
ci.shutdown()
[closed] = [n for n in ci.trace("dict")["roots"] if n["name"] == "cirron.session"]
print(json.dumps([open_root, closed, context]))
""", **IDS, **RANKS)

    open_root, closed, context = json.loads(r.out)
    said = dict(SAID, pid=r.pid, device="cpu")
    case.equal((open_root["name"], open_root["end_ns"], open_root["parent_id"], open_root["attrs"]), ("cirron.session", None, None, said), "open")
    case.equal(closed["attrs"], said, "trace()")
    [root] = store(case).roots
    case.equal((root["attrs"], root["rank"], root["state"]), (said, 3, "closed"), "the store")
    written = spool.spans[root["id"]]
    case.equal((written["attrs"], written["start_ns"], written["end_ns"]), (said, root["start_ns"], root["end_ns"]), "the spool")
    case.equal((open_root["id"], open_root["start_ns"]), (root["id"], root["start_ns"]), "it is the same span")
    case.equal({k: context[k] for k in ("rank", "run_id", "pipeline_id", "deployment_id", "workspace_id")},
               {"rank": 3, "run_id": "run-7", "pipeline_id": "pipe", "deployment_id": "dep", "workspace_id": SAID["cirron.workspace_id"]}, "context")


@test_each(TORCH, python_label)
def torch_and_its_precision(case, python):
    """framework, and whether anything ran under autocast; only what is observed."""
    need_store()
    net = "import torch\nnet = torch.nn.Linear(3, 2)\n"
    roots_say(case, python, [
        (net + "net(torch.ones(1, 3))", {"framework": "torch", "mixed_precision": False, "rank": 0, "device": "cpu"}),
        (net + "with torch.autocast('cpu', dtype=torch.bfloat16): net(torch.ones(1, 3))",
         {"framework": "torch", "mixed_precision": True, "rank": 0, "device": "cpu"}),
        (net + "with torch.autocast('cpu', dtype=torch.bfloat16, enabled=False): net(torch.ones(1, 3))",
         {"framework": "torch", "mixed_precision": False, "rank": 0, "device": "cpu"}),
        ("import cirron\ncirron.profile(frameworks=[], output='none')\n" + net + "net(torch.ones(1, 3))", {"rank": 0, "device": "cpu"}),
    ], OFFLINE)


@test_each(PYTHONS[:1], python_label)
def devices_simulated(case, python):
    """CUDA devices are counted by the driver that the program has loaded and started, which is a simulated one here; no other is loaded."""
    need_store()
    source = case.folder / "driver.c"
    source.write_text("static int on;\nint cuInit(unsigned flags) { on = 1; return (int)flags; }\n"
                      "int cuDeviceGetCount(int *n) { *n = 2; return on ? 0 : 3; }\n")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", case.folder / "libcuda.so.1", source], check=True)
    load = f"import ctypes\ndriver = ctypes.CDLL({str(case.folder / 'libcuda.so.1')!r})\n"
    cpu, cuda = {"rank": 0, "device": "cpu"}, {"rank": 0, "device": "cuda", "cuda_count": 2}
    roots_say(case, python, [("", cpu), (load, cpu), (load + "driver.cuInit(0)", cuda)], dict(OFFLINE, LD_LIBRARY_PATH=case.folder))


@test_each(PYTHONS, python_label)
def killed(case, python):
    """What was under way when a job is killed is in its spool, as open, so that no mark and no child hangs in the air."""
    folder = case.folder / "job"
    folder.mkdir()
    child = case.start([python, case.script(r"""
import cirron as ci, time
ci.profile(flush_interval=0.02)
for e in ci.epochs(range(2)):
    ci.mark("begun", e)
    with ci.scope("closed"): pass
    if e: break
with ci.scope("outer", 5), ci.scope("inner"):
    ci.mark("last", 1)
    while True:
        time.sleep(0.005)
        with ci.scope("tick"): pass
""")], cwd=folder, env=OFFLINE)
    place = folder / ".cirron" / "spool"
    until(lambda: '"last"' in "".join(p.read_text() for p in place.glob("*.json")), what="the last mark in the spool")
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=20)
    for left in place.glob("*.tmp"):  # it may have been writing
        left.unlink()
    spool = Spool(case, place)
    case.equal([s["end_ns"] for n in ("cirron.session", "outer", "inner") for s in spool.of(n)], [None] * 3, "what is open")
    case.equal([s["end_ns"] is None for s in spool.of("epoch")], [False, False], "what was closed since")
    case.equal(spool.of("outer")[0]["index"], 5, "its index")
    case.equal((spool.parents("cirron.session"), spool.parents("outer"), spool.parents("inner"), spool.parents("tick")),
               ({None}, {"cirron.session"}, {"outer"}, {"inner"}), "parents")
    case.check(all(m["span_id"] in spool.spans for m in spool.marks.values()), "every mark has its span")
    case.check(all(s["parent_id"] in spool.spans for s in spool.spans.values() if s["parent_id"]), "every span has its parent")


@test_each(PYTHONS, python_label)
def open_ones_come_once(case, python):
    """A span that stays open for long is written once as open, however many files are written meanwhile, and once when it is closed."""
    r, spool = run(case, python, r"""
import cirron as ci, threading
ci.profile(flush_interval=3600)
go, on = threading.Event(), threading.Event()
def other():
    with ci.scope("of another thread"):
        on.set()
        go.wait()
thread = threading.Thread(target=other)
thread.start()
on.wait()
with ci.scope("long", 1):
    for i in range(5):
        with ci.scope("short", i): pass
        ci.flush()
go.set()
thread.join()
""")

    times = {}
    for path in spool.files:
        for span in json.loads(path.read_text())["spans"]:
            times.setdefault(span["name"], []).append(span["end_ns"] is not None)
    case.equal(times, {"short": [True] * 5, "long": [False, True], "of another thread": [False, True], "cirron.session": [False, True]},
               "open and closed")
    case.equal(len({s["thread_id"] for s in spool.spans.values()}), 2, "threads")
