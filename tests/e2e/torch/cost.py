"""What the agent says of its own cost."""
import json
import subprocess

from harness import QUERY, alone, clean_env, test
from scripts import TORCH

MEASURED = TORCH + """
job = Learner()
for x, y in rows(10):
    job.learn(x, y)
before, started = ci.health()["overhead_ns"], time.perf_counter()
for _ in range(5):
    for x, y in rows({steps}):
        job.learn(x, y)
took, h = time.perf_counter() - started, ci.health()
print(h["overhead_ns"], h["overhead_ns"] - before, h["overhead_ratio"], took)
"""


def measure(t, steps):
    """(own cost in ns by the end of the training, and in it; its share of the process's time; seconds of training)"""
    done = t.run([t.python, t.script(MEASURED.replace("{steps}", str(steps)))])
    t.equal((done.rc, done.err), (0, ""), "the training")
    return tuple(map(float, done.out.split()))


@test
@alone
def own_cost_is_measured_and_kept(t):
    t.collect()
    few, _, ratio, _ = measure(t, 20)
    many, training, _, took = measure(t, 1000)
    t.check(0 < ratio < 0.5, f"a share of {ratio}")
    # 5,000 steps of four calls each; what a call costs here depends on what else the machine does.
    t.check(5000 * 300 < training < 5000 * 200_000, f"{training / 5000:.0f} ns a step")
    t.check(training < took * 1e9 / 4, f"{training / took / 1e7:.1f} % of the training")
    st = t.store()
    sessions = sorted(st.sessions, key=lambda s: s["start_ns"])
    t.equal(len(sessions), 2, "sessions")
    for s, spent in zip(sessions, (few, many)):
        t.check(spent <= s["overhead_ns"] < spent + 1e9, f"stored {s['overhead_ns']}, by the end of the training {spent}")
        t.check(abs(s["overhead_ratio"] - s["overhead_ns"] / (s["end_ns"] - s["start_ns"])) < 1e-6, "the ratio")
    ask = [QUERY, "--db", st.db, "--session", sessions[1]["id"]]
    r = subprocess.run([*ask, "report"], capture_output=True, text=True, env=clean_env())
    t.check("Own cost  " in r.stdout and "of the time (" in r.stdout, f"the report: {r.stdout[:800]}")
    r = json.loads(subprocess.run([*ask, "--format", "json", "report"], capture_output=True, text=True, env=clean_env()).stdout)
    t.equal(r["session"]["overhead_ns"], sessions[1]["overhead_ns"], "the report as JSON")
    r = subprocess.run([QUERY, "--db", st.db, "sessions"], capture_output=True, text=True, env=clean_env())
    t.check("OWN COST" in r.stdout and r.stdout.count("%") == 2, f"the table of sessions: {r.stdout}")


@test
def own_cost_of_a_child_is_its_own(t):
    t.collect()
    done = t.run([t.python, t.script("""
import os
import cirron as ci
for _ in range(200000):
    with ci.scope("before"): pass
parent = ci.health()["overhead_ns"]
if os.fork() == 0:
    with ci.scope("child"): pass
    print(ci.health()["overhead_ns"] < parent / 2 or (ci.health()["overhead_ns"], parent), flush=True)
    os._exit(0)
os.wait()
print(ci.health()["overhead_ns"] >= parent)
""")])
    t.equal((done.rc, done.out, done.err), (0, "True\nTrue\n", ""), "the script")


CHECKED = TORCH + """
job, loader, held_out = Learner(), rows({steps}), rows(5)
for epoch in range(3):
    job.model.train()
    for i, (x, y) in enumerate(loader):
        job.learn(x, y)
        if epoch == 1 and i == {steps} // 2:
            with torch.no_grad():
                for a, b in held_out:
                    job.model(a)
    job.model.eval()
    with torch.no_grad():
        for x, y in held_out:
            job.model(x)
job.show()
"""
STEPS = 1200


@test
@alone
def overhead_check_leaves_steps_out(t):
    t.collect()
    script = t.script(CHECKED.replace("{steps}", str(STEPS)))
    plain = t.run([t.python, script], False)
    traced = t.run([t.python, script], True, {"CIRRON_OVERHEAD_CHECK": "1"})
    t.equal((traced.rc, traced.out, traced.err), (plain.rc, plain.out, plain.err), "the job")
    st = t.store()
    pairs = [m["attrs"] for m in st.marks_of("cirron.overhead_check")]
    t.check(len(pairs) >= 6, f"{len(pairs)} pairs of blocks")
    t.check(all(min(p.values()) > 0 for p in pairs), f"pairs: {pairs[:3]}")
    t.equal([e["index"] for e in st.of("epoch")], [0, 1, 2], "epochs")
    evals = st.of("eval")
    t.equal(len(evals), 4, "evaluation passes")
    t.equal([st.parent(e)["name"] for e in evals].count("epoch"), 1, "evaluation inside an epoch")
    t.equal([len(st.inside(e, "forward")) for e in evals], [5] * 4, "batches evaluated")
    steps = st.of("step")
    left_out = sum(p["unobserved_steps"] for p in pairs)
    t.check(STEPS / 2 < len(steps) <= 3 * STEPS - left_out, f"{len(steps)} steps stored, {left_out} in blocks that were not observed")
    for step in steps:
        t.equal(st.order(step), ["data_load", "forward", "backward", "optimizer_step"], "order in a step")
    t.check(all(st.parent(s)["name"] == "epoch" for s in steps), "a step outside of an epoch")
    r = subprocess.run([QUERY, "--db", st.db, "report"], capture_output=True, text=True, env=clean_env())
    t.check("Check  " in r.stdout and "was not observed and is missing here" in r.stdout and "pairs of blocks" in r.stdout, r.stdout[:900])
    t.check("cirron.overhead_check" not in r.stdout, "the agent's own marks are among the script's")


@test
def overhead_check_of_a_short_training(t):
    t.collect()
    done = t.run([t.python, t.script(TORCH + "job = Learner()\nfor x, y in rows(30): job.learn(x, y)\n")], True, {"CIRRON_OVERHEAD_CHECK": "1"})
    t.equal((done.rc, done.err), (0, ""), "the job")
    st = t.store()
    t.counts(st.spans, epoch=1, step=30, data_load=30, forward=30, backward=30, optimizer_step=30)
    r = subprocess.run([QUERY, "--db", st.db, "overhead"], capture_output=True, text=True, env=clean_env())
    t.check(r.returncode == 0 and "not known: 0 pairs" in r.stdout, f"{r.returncode} {r.stdout} {r.stderr}")


@test
@alone
def overhead_check_without_a_loader(t):
    t.collect()
    done = t.run([t.python, t.script(TORCH + """
job, x, y = Learner(), torch.randn(3, 5), torch.randn(3, 1)
for i in range(4000):
    with ci.scope("turn"):
        job.learn(x, y)
job.show()
""")], True, {"CIRRON_OVERHEAD_CHECK": "1"})
    t.equal((done.rc, done.err), (0, ""), "the job")
    st = t.store()
    t.equal(len(st.of("turn")), 4000, "scopes made by hand")
    t.check(500 < len(st.of("forward")) < 3500, f"{len(st.of('forward'))} forwards")
    t.check(len(st.marks_of("cirron.overhead_check")) >= 2, "pairs")


@test
def overhead_check_with_workers_that_are_forked(t):
    t.collect()
    done = t.run([t.python, t.script(TORCH + """
job = Learner()
for _ in range(3):
    for x, y in rows(200, num_workers=1):
        job.learn(x, y)
pid = os.fork()
if pid == 0:
    for x, y in rows(4):
        job.learn(x, y)
    os._exit(0)
os.waitpid(pid, 0)
""")], True, {"CIRRON_OVERHEAD_CHECK": "1"})
    t.equal(done.rc, 0, f"the job: {done.err[-300:]}")
    st = t.store()
    child = [s for s in st.spans if s["pid"] != done.pid]
    t.counts(child, epoch=1, step=4, data_load=4, forward=4, backward=4, optimizer_step=4)
    t.equal(len(st.of("epoch", done.pid)), 3, "epochs of the parent")


BOUNDED = TORCH + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
    def forward(self, x):
        return self.parts(x)

job, loader, held_out = Learner(Net()), rows(400), rows(5)
until, epochs = time.monotonic() + {seconds}, 0
while time.monotonic() < until or epochs < 2:
    job.model.train()
    for x, y in loader:
        job.learn(x, y)
    job.model.eval()
    with torch.no_grad():
        for x, y in held_out:
            job.model(x)
    epochs += 1
print(epochs, ci.health()["detail_shed_count"])
"""


def bounded(t, seconds, **env):
    t.collect()
    done = t.run([t.python, t.script(BOUNDED.replace("{seconds}", str(seconds)))], True, env)
    t.equal((done.rc, done.err), (0, ""), "the job")
    return (*map(int, done.out.split()), t.store())


@test
@alone
def detail_is_left_out_over_the_bound(t):
    epochs, shed, st = bounded(t, 12, CIRRON_MAX_OVERHEAD="0.0001", CIRRON_MODULE_DEPTH="3", CIRRON_CPU_TIME="on")
    t.equal(shed, 4, "levels of detail left out")
    said = st.marks_of("cirron.shed")
    t.equal([m["value"] for m in said], ["CPU time of spans", "forward spans of nested modules, fetch spans", "forward spans", "backward spans"],
            "what the marks say")
    t.equal((len(st.of("epoch")), len(st.of("eval")), len(st.of("step"))), (epochs, epochs, 400 * epochs), "epochs, evaluations, steps")
    t.equal([s["index"] for s in st.of("step")], list(range(400 * epochs)), "indices of the steps")
    t.equal((len(st.of("data_load")), len(st.of("optimizer_step"))), (405 * epochs, 400 * epochs), "loads, updates")
    last = said[-1]["ts_ns"] if said else 0
    late = [s for s in st.spans if s["start_ns"] > last]
    t.equal({s["name"] for s in late}, {"epoch", "eval", "step", "data_load", "optimizer_step"}, "spans after that")
    t.check(all(s["cpu_ns"] is None for s in late), "CPU time after that")
    nested = [s for s in st.of("forward") if st.parent(s) is not None and st.parent(s)["name"] == "forward"]
    t.check(nested and all(s["start_ns"] < said[1]["ts_ns"] for s in nested), "forwards of nested modules")
    r = subprocess.run([QUERY, "--db", st.db, "report"], capture_output=True, text=True, env=clean_env())
    t.check("Left out  CPU time of spans, from " in r.stdout and "backward spans, from " in r.stdout, r.stdout[:1200])
    t.check("cirron.shed" not in r.stdout, "the agent's own marks are among the script's")


@test
@alone
def nothing_is_left_out_below_the_bound(t):
    epochs, shed, st = bounded(t, 4, CIRRON_MAX_OVERHEAD="100")
    t.equal((shed, st.marks_of("cirron.shed")), (0, []), "detail left out")
    t.equal(len(st.of("forward")), 405 * epochs, "forwards")


@test
def a_bound_that_is_none(t):
    t.collect()
    for value in ("abc", "0", "-1"):
        done = t.run([t.python, t.script("print(1)")], True, {"CIRRON_MAX_OVERHEAD": value})
        t.equal((done.rc, done.out), (0, "1\n"), "the job")
        t.check(done.err.count("\n") == 1 and f"CIRRON_MAX_OVERHEAD={value} is not allowed: per cent" in done.err, done.err)
