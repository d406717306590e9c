"""Raw tensors in files of safetensors: sampled, full, off, and folders that cannot take them."""
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse

from boundaries import MODELS, all_as_told
from harness import Skip, test, test_each
from parts import BEGIN
from reference import SCRIPT, Snapshots, compare, snapshot_parts
from running import LARGE, Job
from values import SIZES

# Looks into files with the public library: {folder: {file: {name: numbers}}}, as one JSON line.
LOOK = BEGIN + SCRIPT + '''
from safetensors.torch import load_file
found = {}
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        if name.endswith(".safetensors"):
            found.setdefault(os.path.basename(folder), {})[name] = told(load_file(os.path.join(folder, name)))
print(json.dumps(found, default=float))
'''


def look(t, folder):
    done = subprocess.run([t.python, t.script(LOOK, "look.py"), folder], capture_output=True, text=True, env=t.env(False))
    assert done.returncode == 0, done.stderr[-600:]
    return json.loads(done.stdout)


def folder_of(uri):
    return os.path.dirname(urllib.parse.unquote(uri[len("file://"):]))


@test_each(SIZES)
def files_hold_the_tensors(t, size):
    parts = all_as_told(t, f'''
SIZE = {SIZES[size]}


@part
def dense():
    model = net(*SIZE)
    ci.watch(model)
    return trained(model, sgd(model), rows(2, SIZE[0]), 2)


@part
def odd():
    global model  # it outlives what reads it
    ci.watch(None)
    model = nn.ParameterDict({{
        "narrow": nn.Parameter(torch.randn(7).half()), "bf16": nn.Parameter(torch.randn(7).bfloat16()), "turned": nn.Parameter(torch.randn(6, 5).t()),
        "empty": nn.Parameter(torch.empty(0, 3)), "scalar": nn.Parameter(torch.tensor(2.5)), "truth": nn.Parameter(torch.tensor([True, False]), requires_grad=False),
        "int64": nn.Parameter(torch.arange(5), requires_grad=False), "nan": nn.Parameter(torch.tensor([math.nan, math.inf, 1.0])),
        "every_other": nn.Parameter(torch.randn(40, 30)[::2, ::3]), "expanded": nn.Parameter(torch.randn(40, 1).expand(40, 6)),
        'a "name"\\\\ \\u00e9': nn.Parameter(torch.ones(2)), "filling": nn.Parameter(torch.randn(SIZE[1], SIZE[1]))}})
    ci.watch(model)
    sum((p.double() ** 2).sum() for p in model.values() if p.requires_grad).backward()
    kept = []
    for _ in ci.epochs(range(1)):
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept
''', plain=False, CIRRON_SNAPSHOTS="full", CIRRON_OUTPUT_DIR=t.folder / "out put")
    files = look(t, t.folder / "out put" / "snapshots")
    t.equal(len(files), 3, "folders")
    for name, part in parts.items():
        for snapshot, own in zip(part.snapshots, part.own):
            t.equal({r["mode"] for r in snapshot.rows.values()}, {"full"}, f"{name}: mode")
            for key, row in snapshot.rows.items():
                uri = row["blob_uri"]
                place = files.get(os.path.basename(folder_of(uri)), {}).get(os.path.basename(uri), {})
                t.equal(place.get(key), own[key], f"{name}, {key}: what is in {os.path.basename(uri)}")
    t.check(not [p for p in (t.folder / "out put").rglob("*") if p.name.startswith(".")], "files that were not brought to their end")


@test
def a_sample_of_the_epochs(t):
    """By dice of its own: the same epochs in each run with a seed, random numbers of the script are its own."""
    body = MODELS + '''
@part
def dice():
    model = net()
    opt = sgd(model)
    for _ in range(24):
        for x, y in rows(1):
            learn(model, opt, x, y)
        time.sleep(0.03)
    return [random.random(), float(np.random.rand()), torch.rand(1).item()]
'''
    body += "random.seed(1)\nnp.random.seed(1)\n"
    seen = []
    for _ in range(2):
        parts = snapshot_parts(t, body, plain=False, CIRRON_SNAPSHOTS="sampled", CIRRON_SAMPLE_RATE=0.4, CIRRON_SAMPLE_SEED=77, CIRRON_OUTPUT_DIR=t.folder / "out")
        st = parts["dice"].st
        last = max(s["start_ns"] for s in st.of("dice"))
        scope, = [s for s in st.of("dice") if s["start_ns"] == last]
        snapshots = parts["dice"].all.below(scope)
        began = next(e["index"] for e in st.inside(scope, "epoch"))
        seen.append({s.span["index"] - began: {r["mode"] for r in s.rows.values()} for s in snapshots})
    both = set(seen[0]) & set(seen[1])  # so many in a moment are not all stored
    t.check(len(both) >= 4, f"epochs with snapshots: {sorted(seen[0])}, {sorted(seen[1])}")
    t.equal({i: seen[0][i] for i in both}, {i: seen[1][i] for i in both}, "which epochs")
    t.equal({x for modes in seen[0].values() for x in modes}, {"sampled", "stats"}, "modes")
    t.equal(len(look(t, t.folder / "out" / "snapshots")), sum(list(x.values()).count({"sampled"}) for x in seen), "folders")


@test
def off(t):
    t.collect()
    job = Job(t, '''
model = net()
ci.watch(model)
kept = trained(model, sgd(model), rows(), 2)
say(ci.health()["snapshot_count"])
ci.shutdown()
ci.profile(snapshots="stats", output="none")
kept = trained(model, sgd(model), rows())
ci.shutdown()
ci.profile(snapshots="off", output="none")
trained(model, sgd(model), rows())
say(kept)
''', CIRRON_SNAPSHOTS="off")
    count, own = job.end()
    t.equal(count, 0, "snapshots while it is off")
    compare(t, "switched on for one session", Snapshots(t.store()).below(), own)


@test
def the_oldest_make_way(t):
    parts = all_as_told(t, '''
@part
def many():
    model = net(4, 50)
    kept = trained(model, sgd(model), rows(), 6)
    print(ci.health()["snapshot_blob_drop_count"] if AGENT else "", file=open(sys.argv[0] + ".drops", "a"))
    return kept
''', plain=False, CIRRON_SNAPSHOTS="full", CIRRON_SNAPSHOT_MAX_BYTES=60_000, CIRRON_OUTPUT_DIR=t.folder / "out")
    files = look(t, t.folder / "out" / "snapshots")
    newest = [os.path.basename(folder_of(next(iter(s.rows.values()))["blob_uri"])) for s in parts["many"].snapshots]
    t.equal(sorted(files), sorted(newest[-len(files):]), "which are left")
    size = sum(p.stat().st_size for p in (t.folder / "out").rglob("*") if p.is_file())
    t.check(1 <= len(files) < 6 and size <= 60_000, f"{len(files)} folders of {size} bytes")
    t.equal((t.folder / "train.py.drops").read_text().split(), [str(6 - len(files))], "snapshot_blob_drop_count")


@test
def more_than_a_hundred_megabytes(t):
    t.collect()
    done = t.run([t.python, t.script(BEGIN + SCRIPT + '''
model = nn.ParameterList([nn.Parameter(torch.zeros(5_300_000)) for _ in range(5)])
ci.watch(model)
for _ in ci.epochs(range(2)):
    pass
''')], env=dict(CIRRON_SNAPSHOTS="full", CIRRON_OUTPUT_DIR=t.folder / "out", CIRRON_SNAPSHOT_WAIT_MS=60000))
    t.equal(done.rc, 0, "exit status")
    t.equal(len(done.err.splitlines()), 1, "lines: " + done.err)
    t.check(done.err.startswith("cirron: ") and "106 MB" in done.err, "what it says: " + done.err)
    snapshots = Snapshots(t.store()).below()
    t.equal({len(s.rows) for s in snapshots}, {5}, "records")
    t.equal({r["mode"] for s in snapshots for r in s.rows.values()}, {"full"}, "modes")


TWO_EPOCHS = f'''
def two_epochs(model, loader):
    ci.watch(None)
    ci.watch(model)
    return trained(model, sgd(model), loader, 2)


@part
def small():
    return two_epochs(net(), rows())


@part
def large():
    return two_epochs({LARGE})
'''


@test_each(["a file", "not allowed", "full"])
def folder_that_cannot_take_them(t, what):
    """One line, and all else is as ever."""
    place, prefix = t.folder / "out", []
    if what == "a file":
        place.write_text("")
    elif what == "not allowed":
        place = "/proc/self/out"
    else:
        place.mkdir()
        if os.geteuid() != 0 or not shutil.which("unshare"):
            raise Skip("a full disk needs root and unshare")
        prefix = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=64k none "{place}" && exec "$@"', "sh"]
    t.collect()
    text = BEGIN + SCRIPT + MODELS + TWO_EPOCHS + "\nrun_parts()\nprint(json.dumps(ci.health()['snapshot_blob_error_count']))\n"
    done = t.run([*prefix, t.python, t.script(text)], env=dict(CIRRON_SNAPSHOTS="full", CIRRON_OUTPUT_DIR=place, CIRRON_SNAPSHOT_WAIT_MS=60000))
    t.equal(done.rc, 0, "exit status: " + done.err[-500:])
    lines = done.err.splitlines()
    t.check(len(lines) <= 1 and all(x.startswith("cirron") for x in lines), "stderr: " + done.err)
    if what != "full":
        t.equal(len(lines), 1, "lines: " + done.err)
    st = t.store()
    snapshots = Snapshots(st)
    for line in done.out.splitlines()[:-1]:
        name, own = json.loads(line)
        of_it = snapshots.below(st.of(name)[0])
        compare(t, name, of_it, own)
        if what != "full" or name == "large":
            t.equal({r["mode"] for s in of_it for r in s.rows.values()} - {"stats"}, set(), f"{name}: modes")
    if what == "full":
        t.check(any(p["blob_error"] == 28 for p in snapshots.passes), f"errors {[p['blob_error'] for p in snapshots.passes]}")


@test
def killed_while_they_are_written(t):
    """Whatever is there under its name can be read."""
    t.collect()
    for pause in (0.0, 0.003, 0.01, 0.03):
        job = Job(t, f'''
model = net(64, 1400, 2)
ci.watch(model)
opt = sgd(model)
loader = rows(1, 64)
for _ in range(2):
    for x, y in loader:
        learn(model, opt, x, y)
    say(1)
for i in ci.epochs(range(50)):
    learn(model, opt, x, y)
''', CIRRON_SNAPSHOTS="full", CIRRON_OUTPUT_DIR=t.folder / "out")
        job.hear()
        job.hear()
        time.sleep(pause)
        job.process.send_signal(signal.SIGKILL)
        job.process.wait()
    t.store()
    for files in look(t, t.folder / "out" / "snapshots").values():
        for name, tensors in files.items():
            t.equal(len(tensors), 8, f"tensors in {name}")
            t.equal({x["nan"] for x in tensors.values()}, {0}, f"NaN in {name}")
