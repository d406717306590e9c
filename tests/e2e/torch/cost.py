"""What the agent says of its own cost."""
import json
import subprocess

from harness import QUERY, clean_env, test
from scripts import TORCH

MEASURED = TORCH + """
job, started = Learner(), time.perf_counter()
for _ in range(5):
    for x, y in rows({steps}):
        job.learn(x, y)
took, h = time.perf_counter() - started, ci.health()
print(h["overhead_ns"], h["overhead_ratio"], took)
"""


def measure(t, steps):
    """(own cost in ns by the end of the training, its share of the process's time, seconds of training)"""
    done = t.run([t.python, t.script(MEASURED.replace("{steps}", str(steps)))])
    t.equal((done.rc, done.err), (0, ""), "the training")
    return tuple(map(float, done.out.split()))


@test
def own_cost_is_measured_and_kept(t):
    t.collect()
    few, ratio, _ = measure(t, 20)
    many, _, took = measure(t, 1000)
    t.check(0 < ratio < 0.5, f"a share of {ratio}")
    # 4,900 steps more, of four calls each; what a call costs here depends on what else the machine does.
    t.check(4900 * 300 < many - few < 4900 * 200_000, f"{(many - few) / 4900:.0f} ns a step")
    t.check(many - few < took * 1e9 / 4, f"{(many - few) / took / 1e7:.1f} % of the training")
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
