"""Snapshots of jobs that differ in who reads, when, and what happens meanwhile."""
import contextlib
import json
import os
import signal
import sqlite3
import subprocess

from boundaries import MODELS, all_as_told
from harness import Collector, Skip, stop_collectors, test, test_each, until
from parts import BEGIN
from reference import SCRIPT, Snapshots, compare, snapshot_parts
from values import SIZES

TALK = BEGIN + SCRIPT + MODELS + '''
def say(what):
    print(json.dumps(what, default=float), flush=True)


def wait():
    assert sys.stdin.readline(), "nobody speaks to us"


'''
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
LARGE = "net(64, 600, 2), rows(2, 64)"


class Job:
    """A script that speaks with its test: it prints what its snapshots have to be, line by line, and waits for lines."""

    def __init__(self, t, body, prefix=(), **env):
        self.t = t
        self.process = t.start([*prefix, t.python, t.script(TALK + body)], env={"CIRRON_SNAPSHOT_WAIT_MS": 60000, **env}, stdin=subprocess.PIPE)
        t.last_traced = self.process.pid

    def hear(self):
        line = self.process.stdout.readline()
        assert line, "the job ended: " + self.process.stderr.read()[-600:]
        return json.loads(line)

    def say(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self, status=0):
        """What it said that was not heard yet."""
        self.process.stdin.close()
        out, err = self.process.stdout.read(), self.process.stderr.read()
        self.t.equal(self.process.wait(60), status, "exit status: " + err[-600:])
        self.t.equal(err, "", "on stderr")
        return [json.loads(x) for x in out.splitlines()]


def by_reason(snapshots, reason):
    spans = {(p["ts_ns"]) for p in snapshots.passes if p["reason"] == reason}
    return [s for s in snapshots.below() if {r["ts_ns"] for r in s.rows.values()} & spans]


@test
def every_other_step(t):
    """With CIRRON_SNAPSHOT_STEPS: beside those of epochs."""
    parts = snapshot_parts(t, MODELS + '''
@part
def steps():
    model = net()
    opt, epochs, steps = sgd(model), [], []
    ci.watch(model)
    for _ in range(2):
        for x, y in rows(5):
            learn(model, opt, x, y)
            steps.append(copies(model))
        epochs.append(told(steps[-1]))
    return [epochs, [told(k) for k in steps[2::3]]]
''', plain=False, CIRRON_SNAPSHOT_STEPS=3)
    epochs, steps = parts["steps"].own
    snapshots = parts["steps"].all
    compare(t, "epochs", by_reason(snapshots, "epoch"), epochs)
    compare(t, "steps", by_reason(snapshots, "steps"), steps)
    t.equal([p["step"] for p in snapshots.passes if p["reason"] == "steps"], [2, 5, 8], "indices of steps")


@test_each(["socket", "auto"])
def another_way(t, transport):
    """Messages: no memory is shared, so the process computes; without a wait: whoever is late is torn."""
    more = {"CIRRON_TRANSPORT": transport, "CIRRON_SNAPSHOT_WAIT_MS": 60000 if transport == "socket" else 0}
    parts = snapshot_parts(t, MODELS + '''
def all_of(model, loader):
    ci.watch(None)
    ci.watch(model)
    opt = sgd(model)
    return trained(model, opt, loader, 4)


@part
def small():
    return all_of(net(), rows())


@part
def large():
    return all_of(''' + LARGE + ''')
''', plain=False, **more)
    for name, part in parts.items():
        compare(t, name, part.snapshots, part.own, torn=transport == "auto")
    t.equal({p["own"] for p in parts["large"].all.passes} - {1}, set() if transport == "socket" else {0}, "who computes")


@test
def no_collector(t):
    """With a spool it is in there, valid JSON also where there are NaNs; without one nothing is computed."""
    for spool in (True, False):
        done = t.run([t.python, t.script(BEGIN + SCRIPT + MODELS + f'''
ci.profile(output="{"spool" if spool else "none"}")
model, loader = {LARGE}
with torch.no_grad():
    model[0].weight[0, 0] = float("nan")
    model[2].weight[0, 0] = float("inf")
ci.watch(model)
kept = trained(model, sgd(model), loader, 2)
print(json.dumps([kept, ci.health()["snapshot_count"]], default=float))
''')])
        t.equal((done.rc, done.err), (0, ""), "exit status")
        kept, count = json.loads(done.out)
        if not spool:
            t.equal(count, 0, "snapshots for nobody")
            continue
        t.equal(count, 2, "snapshots")
        read, text = [], lambda name: f"{name} is no JSON"
        for path in sorted((t.folder / "run1" / ".cirron" / "spool").rglob("*.json")):
            found = json.loads(path.read_text(), parse_constant=lambda name: t.check(False, text(name)))
            read += found.get("snapshots", [])
        t.equal(len(read), sum(map(len, kept)), "records in the spool")
        for own in kept:
            for name, numbers in own.items():
                t.check(any(r["tensor_name"] == name and r["stats"]["nan"] == numbers["nan"] and r["stats"]["max"] == numbers.get("max") for r in read),
                        f"{name} is not in the spool as it was")


def passes(t):
    """How many are in the store."""
    if not t.collector.db.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{t.collector.db}?mode=ro", uri=True)) as db:
        return db.execute("SELECT count(*) FROM snapshot_passes").fetchone()[0]


@test
def collector_that_goes_and_comes(t):
    """Killed between two snapshots, and in the middle of one: the training goes on, what is stored is right."""
    t.collect()
    job = Job(t, f'''
model, loader = {LARGE}
ci.watch(model)
opt = sgd(model)
for _ in range(5):
    say(trained(model, opt, loader)[0])
    wait()
say(ci.health()["snapshot_count"])
''', CIRRON_SNAPSHOT_WAIT_MS=2000)
    own = [job.hear()]
    until(lambda: passes(t), what="the first snapshot")
    t.collector.kill()
    job.say()
    own.append(job.hear())
    t.collector.start()
    job.say()
    own.append(job.hear())
    os.kill(t.collector.process.pid, signal.SIGSTOP)
    job.say()
    own.append(job.hear())
    t.collector.kill()
    job.say()
    own.append(job.hear())
    t.collector.start()
    job.say()
    count = job.end()[0]
    t.check(count >= 4, f"{count} snapshots taken")
    snapshots = Snapshots(t.store()).below()
    t.check(3 <= len(snapshots) <= 5, f"{len(snapshots)} snapshots")
    compare(t, "first", snapshots[:1], own[:1])
    for i, s in enumerate(snapshots):
        index = s.span["index"] if s.span else i
        compare(t, f"epoch {index}", [s], [own[index]], torn=True)


def needs_root(t):
    if os.geteuid() != 0 or subprocess.run([*NOBODY, "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("needs root and setpriv")
    os.chmod(t.folder, 0o777)


@test_each(["other user", "not dumpable"])
def may_not_be_read(t, why):
    """It computes itself, the numbers are right, and it is said once."""
    needs_root(t)
    t.collector = Collector(t.folder)
    if why == "other user":
        t.collector.options = ["--any-user"]
    else:
        t.collector.prefix = NOBODY
    t.collector.start()
    job = Job(t, f'''
import ctypes
if {why == "not dumpable"}:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
model, loader = {LARGE}
ci.watch(model)
say(trained(model, sgd(model), loader, 3))
say(ci.health()["snapshot_own_count"])
''', prefix=["env", "HOME=/", *NOBODY])
    own = job.hear()
    t.equal(job.end(), [3], "computed itself")
    compare(t, why, Snapshots(t.store()).below(), own)
    log = t.collector.log.read_text()
    t.equal(log.count("computes its snapshots itself"), 1, "lines about it in " + log)


@test
def forks_and_threads(t):
    """A child trains a model of its own, threads train at once."""
    t.collect()
    job = Job(t, f'''
model, loader = {LARGE}
ci.watch(model)
opt = sgd(model)
kept = trained(model, opt, loader)
child = os.fork()
if child == 0:
    mine = trained(model, opt, loader, 2)
    say(["child", mine])
    ci.flush()
    os._exit(0)
kept += trained(model, opt, loader, 2)
os.waitpid(child, 0)
say(["parent", kept])
ci.watch(None)
a, b = net(), net(4, 7)
ci.watch(a, name="a")
ci.watch(b, name="b")
threads = [threading.Thread(target=trained, args=(m, sgd(m), rows(), 3)) for m in (a, b)]
[x.start() for x in threads]
[x.join() for x in threads]
say(["names", sorted("a." + n for n, _ in a.named_parameters()) + sorted("b." + n for n, _ in b.named_parameters())])
''')
    told = dict(job.end())
    st = t.store()
    snapshots = Snapshots(st)
    for who, pid in (("parent", job.process.pid), ("child", None)):
        of_it = [s for s in snapshots.below() if s.span and ((s.span["pid"] == job.process.pid) == (who == "parent"))]
        compare(t, who, of_it[:len(told[who])], told[who])
        if who == "parent":
            late = of_it[3:]
            t.check(1 <= len(late) <= 6, f"{len(late)} snapshots of two threads")
            for s in late:
                t.equal(sorted(n for n in s.rows if not n.endswith(".grad")), told["names"], "weights of two models in threads")
        else:
            t.equal(len(of_it), 2, "snapshots of the child")


@test
def ended_and_begun_again(t):
    """shutdown() and profile(): another session, with snapshots of its own; flush() brings what there is."""
    parts = all_as_told(t, f'''
@part
def all_of_it():
    model, loader = {LARGE}
    ci.watch(model)
    opt = sgd(model)
    return trained(model, opt, loader, 2)


@part
def flushed():
    model, loader = {LARGE}
    ci.watch(None)
    ci.watch(model)
    kept = trained(model, sgd(model), loader)
    ci.flush()
    return kept
''', plain=False)
    t.equal(len(parts), 2, "parts")
    job = Job(t, f'''
ci.profile(output="none")
model, loader = {LARGE}
ci.watch(model)
opt = sgd(model)
kept = trained(model, opt, loader)
ci.shutdown()
trained(model, opt, loader)
ci.profile(output="none", snapshots="stats")
kept += trained(model, opt, loader)
say(kept)
''')
    own, = job.end()
    again = [s for s in Snapshots(t.store()).below() if s.span and s.span["pid"] == job.process.pid]
    compare(t, "again", again, own)
    t.equal(len({r["session_id"] for s in again for r in s.rows.values()}), 2, "sessions")


@test
def at_the_very_end(t):
    """The last snapshot is of an epoch after which nothing comes; the process ends at once, by itself or by SIGTERM."""
    t.collect()
    for how in ("", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(0)"):
        job = Job(t, f'''
model, loader = {LARGE}
opt = sgd(model)
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        learn(model, opt, x, y)
        if i == len(loader) - 1:
            say(told(copies(model)))
{how}
''')
        own = job.end(-15 if "kill" in how else 0)
        got = [s for s in Snapshots(t.store()).below() if s.span and s.span["pid"] == job.process.pid]
        if "_exit" in how or "kill" in how:
            t.check(1 <= len(got) <= 2, f"{len(got)} snapshots before {how}")
            compare(t, how, got, own[:len(got)], torn=True)
        else:
            compare(t, how or "end", got, own)


class Private:
    def __init__(self, db):
        self.db = db


@test
def collector_that_is_just_starting(t):
    """The one that the agent starts itself: the first epochs end before it listens."""
    env = {k: v for k, v in t.env(True).items() if k != "CIRRON_SOCKET"}
    env.update(XDG_RUNTIME_DIR=str(t.folder), CIRRON_SNAPSHOT_WAIT_MS="60000")
    here = t.folder / "job"
    here.mkdir()
    script = t.script(TALK + f'''
model, loader = {LARGE}
ci.watch(model)
say(trained(model, sgd(model), loader, 3))
say(ci.health()["snapshot_count"])
''')
    job = t.start(["env", "-i", *(f"{k}={v}" for k, v in env.items()), t.python, script], False, cwd=here)
    try:
        out, err = job.communicate(timeout=90)
        t.equal((job.returncode, err), (0, ""), "exit status")
        own, count = map(json.loads, out.splitlines())
        t.equal(count, 3, "snapshots taken")
        t.last_traced = job.pid
        stores = until(lambda: list(t.folder.rglob("*.db")), what="a store")
        t.collector = Private(stores[0])
        until(lambda: passes(t) == count, what="the snapshots in the store")
        compare(t, "private", Snapshots(t.store()).below(), own)
    finally:
        t.collector = None
        stop_collectors(t.folder)
