"""What cirron-query says of weights and gradients, against what the training itself saw."""
import json
import math
import subprocess

from harness import QUERY, clean_env, test, test_each, until

# After each epoch, or each step, a line with the norm of each tensor as it is then.
JOB = """
import json, math, sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
for p in net[0].parameters():
    p.requires_grad_(False)
update = torch.optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(320, 16), torch.randint(0, 4, (320,)))

def norms(**more):
    all = {n: p for n, p in net.named_parameters()} | {n + ".grad": p.grad for n, p in net.named_parameters() if p.grad is not None}
    print(json.dumps({"norms": {n: t.detach().double().norm().item() for n, t in all.items()}, **more}), flush=True)

def learn(x, y, spoil=False):
    update.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    (loss * math.nan if spoil else loss).backward()
    update.step()
"""

EPOCHS = JOB + """
for epoch in range(4):
    for i, (x, y) in enumerate(DataLoader(data, batch_size=32)):
        learn(x, y, spoil=(epoch, i) == (2, 4))
    norms(epoch=epoch)
"""

STEPS = JOB + """
step = 0
while True:
    for x, y in DataLoader(data, batch_size=32):
        learn(x, y)
        norms(step=step)
        step += 1
        if not sys.stdin.readline():
            sys.exit(0)
"""


def ask(t, *args, status=0):
    r = subprocess.run([QUERY, "--db", t.collector.db, "--format", "jsonl", *args], capture_output=True, text=True,
                       env=dict(clean_env(), CIRRON_SOCKET=str(t.collector.socket)), timeout=120)
    t.equal((r.returncode, r.stderr), (status, ""), f"{args[0]}: exit status and stderr")
    return [json.loads(line) for line in r.stdout.splitlines()]


def same_norm(record, norm):
    stats = record["stats"]
    bad = stats["nan"] + stats["inf"] + stats["neg_inf"]
    return bad > 0 if not math.isfinite(norm) else bad == 0 and math.isclose(stats["norm"], norm, rel_tol=1e-6)


@test_each((64, 1024))  # what the process computes itself, and what is read out of it
def answers_about_a_training_that_goes_wrong(t, width):
    t.collect()
    done = t.run([t.python, t.script(EPOCHS.replace("WIDTH", str(width)))], env={"CIRRON_SNAPSHOT_WAIT_MS": "10000"})
    t.equal(done.rc, 0, f"exit status ({done.err[-300:]})")
    t.store()
    seen = [json.loads(line)["norms"] for line in done.out.splitlines()]
    records = ask(t, "snapshots")
    for epoch in range(4):
        mine = {r["tensor_name"]: r for r in records if r["epoch"] == epoch}
        t.equal(sorted(mine), sorted(seen[epoch]), f"tensors of epoch {epoch}")
        t.equal([n for n, r in mine.items() if not same_norm(r, seen[epoch][n])], [], f"norms of epoch {epoch} that differ")
        t.equal({r["kind"] for n, r in mine.items() if n.endswith(".grad")}, {"gradient"}, "kind of gradients")
    frozen = {"0.weight", "0.bias"}
    rows = {r["tensor_name"]: r for r in ask(t, "diff-tensors", "0", "1")}
    t.equal({n for n, r in rows.items() if r["what"] == "unchanged"}, frozen, "tensors that did not change")
    t.equal([n for n, r in rows.items() if not (math.isclose(r["norm_a"], seen[0][n], rel_tol=1e-6) and math.isclose(r["norm_b"], seen[1][n], rel_tol=1e-6))],
            [], "norms that differ in diff-tensors")
    rows = {r["tensor_name"]: r["what"] for r in ask(t, "diff-tensors", "1", "last")}
    t.equal({n for n, what in rows.items() if what == "became_non_finite"}, set(rows) - frozen, "tensors that became bad")
    (bad,) = ask(t, "first-bad", status=3)
    t.equal((bad["first"], bad["snapshot"]["epoch"], bad["snapshot"]["began_after_step"], bad["snapshot"]["began_by_step"]), ("snapshot", 2, 19, 29), "where it began")
    named = {x["tensor_name"]: x for x in bad["snapshot"]["tensors"]}
    t.equal(list(named), ["2.weight.grad", "2.bias.grad", "4.weight.grad", "4.bias.grad", "2.weight", "2.bias", "4.weight", "4.bias"], "what is bad, in order")
    t.equal([n for n, x in named.items() if not math.isclose(x["last_good_norm"], seen[1][n], rel_tol=1e-6)], [], "norms that were good")


@test
def a_snapshot_of_a_running_training(t):
    t.collect()
    job = t.start([t.python, t.script(STEPS.replace("WIDTH", "64"))], stdin=subprocess.PIPE)
    t.last_traced = job.pid
    seen = []

    def go_on():
        seen.append(json.loads(job.stdout.readline())["norms"])
        job.stdin.write("\n")
        job.stdin.flush()

    def stored():
        go_on()  # where no memory is shared nothing is sent by one that stands still
        return ask(t, "steps")

    until(lambda: t.collector.db.exists() and stored(), what="a step in the store")
    client = subprocess.Popen([QUERY, "--db", t.collector.db, "--format", "jsonl", "snapshot", "now", "--timeout", "60"], stdout=subprocess.PIPE, text=True,
                              env=dict(clean_env(), CIRRON_SOCKET=str(t.collector.socket)))
    while client.poll() is None:
        go_on()
    t.equal(client.returncode, 0, "exit status of snapshot now")
    got = json.loads(client.stdout.read())
    client.stdout.close()
    records = [r for r in ask(t, "snapshots") if r["pass"] == got["pass"]]
    t.equal((len(records), got["records"]), (len(seen[0]), len(seen[0])), "tensors")
    t.equal({r["step"] for r in records}, {got["step"]}, "its step")
    t.equal([r["tensor_name"] for r in records if not same_norm(r, seen[got["step"]][r["tensor_name"]])], [], "norms that differ")
    job.stdin.close()
    job.stdout.read()
    job.wait(60)
    t.equal(job.returncode, 0, "exit status of the training")
