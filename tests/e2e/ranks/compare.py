"""cirron-query ranks, on real trainings of four ranks of which one is slowed by 50 ms a step."""
import json
import sqlite3
import subprocess

import harness
from harness import alone, test
from hangs import ask
from scripts import ENV, RANKS

STEPS = 30
TRAIN = RANKS + f"""
def work(rank):
    model = net()
    if sys.argv[1] == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    F.mse_loss(model(torch.ones(4, 5)), torch.ones(4, 1)).backward()  # what is imported and made at first use
    opt.step()
    dist.barrier()
    for x, y in rows({STEPS}):
        loss = F.mse_loss(model(x), y)
        if rank == 1:
            time.sleep(0.05)
        loss.backward()
        if sys.argv[1] != "ddp":
            for p in model.parameters():
                dist.all_reduce(p.grad)
        opt.step()
"""

FORKED = """
torch.optim.SGD(net().parameters(), lr=0.1)  # what this imports, it imports here
print(fork_ranks(4, work))
"""

STARTED = """
meet(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
work(dist.get_rank())
part()
"""


def slow_one(t, rows):
    """What is said of rank 1."""
    t.equal([x["rank"] for x in rows], [0, 1, 2, 3], "ranks")
    t.equal([x["steps"] for x in rows], [STEPS] * 4, "steps")
    t.equal([x["slow"] for x in rows], [False, True, False, False], "who is slow")
    t.check(rows[1]["slowest_in"] >= STEPS - 3, f"slowest in {rows[1]['slowest_in']} steps")
    t.equal([x["waits_for"] for x in rows if x["rank"] != 1], [1, 1, 1], "whom the others wait for")
    for x in rows:
        if x["rank"] != 1:
            t.check(x["waits"].get("1", 0) >= 0.035e9 * STEPS, f"rank {x['rank']} waited {x['waits']}")
            t.check(x["waited_ns"] > 2 * rows[1]["waited_ns"], "the slow one waited, too")
    t.check(rows[1]["other_ns"] > 0.045e9 * STEPS, "where it is slow")


@test
@alone
def slow_in_one_store(t):
    t.collect()
    done = t.run([harness.TORCH_PYTHON, t.script(TRAIN + FORKED), "collectives"], env=ENV)
    t.equal(done.out, "[0, 0, 0, 0]\n", done.err[-300:])
    t.store()
    slow_one(t, ask(t, "ranks"))
    text = ask(t, "ranks", form="table")
    t.check("Rank 1 is slow: the slowest in " in text and "more in the rest of the step than others" in text, text)
    t.check(f"Compared by {4 * STEPS} collectives." in text, text)  # those of steps
    steps = ask(t, "ranks", "--steps")
    t.equal(([x["index"] for x in steps], {x["ranks"] for x in steps}), (list(range(STEPS)), {4}), "steps")
    t.check(sum(x["slowest"] == 1 and x["skew_ns"] > 40e6 for x in steps) >= STEPS - 3, f"step by step {steps}")
    t.equal([x["rank"] for x in ask(t, "ranks", "--rank", "3")], [3], "of one rank")
    t.check("collective" in ask(t, "report", form="table"), "collectives in the report")


@test
@alone
def slow_under_ddp(t):
    """Nothing is seen of its collectives: by the lengths of backward."""
    t.collect()
    done = t.run([harness.TORCH_PYTHON, t.script(TRAIN + FORKED), "ddp"], env=ENV)
    t.equal(done.out, "[0, 0, 0, 0]\n", done.err[-300:])
    t.store()
    slow_one(t, ask(t, "ranks"))
    t.check("by the lengths of backward, in which gradients are exchanged" in ask(t, "ranks", form="table"), "words")


@test
@alone
def slow_across_hosts(t):
    """Four processes as a launcher starts them, each with the collector, the store and the wrong clock of another host."""
    shim = t.folder / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, "clock.c", "-ldl"], check=True)
    script, started, collectors, dbs = t.script(TRAIN + STARTED), [], [], []
    (t.folder / "job").mkdir()
    for rank in range(4):
        host = t.folder / f"host{rank}"
        host.mkdir()
        collectors.append(harness.Collector(host).start())
        env = {**ENV, "RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 4, "TORCHELASTIC_RUN_ID": "across", "CIRRON_SOCKET": host / "c.sock",
               "CLOCK_OFFSET_NS": (rank * 5437 - 9001) * 10**9 + rank * 17, "LD_PRELOAD": f"{harness.AGENT} {shim}"}
        started.append(t.start([harness.TORCH_PYTHON, script, "collectives"], env=env, cwd=t.folder / "job"))
    for process in started:
        _, err = process.communicate(timeout=100)
        t.equal(process.returncode, 0, f"exit status of a rank, {err[-300:]}")
    for rank, collector in enumerate(collectors):
        t.equal(collector.stop(), 0, "exit status of a collector")
        with sqlite3.connect(collector.db) as db:
            db.execute("UPDATE sessions SET host = 'host' || rank")
        db.close()
        dbs += ["--db", collector.db]

    def rows(*command, status=0, form="jsonl"):
        r = subprocess.run([harness.QUERY, *dbs, "--format", form, *command], capture_output=True, text=True, env=harness.clean_env())
        t.equal(r.returncode, status, f"{command}: {r.stderr}")
        return r.stdout if form == "table" else [json.loads(x) for x in r.stdout.splitlines()]

    sessions = rows("sessions")
    t.equal(sorted((x["rank"], x["host"]) for x in sessions), [(r, f"host{r}") for r in range(4)], "sessions of all stores")
    begins = {x["rank"]: x["start_ns"] for x in sessions}
    t.check(begins[3] - begins[0] > 10**12, "the clocks are not wrong")
    slow_one(t, rows("ranks"))
    text = rows("ranks", form="table")
    t.check("clocks of different hosts are not trusted" in text, text)
    t.equal(len(rows("steps")), 4 * STEPS, "steps of all stores")
    t.equal(len(rows("spans", "--name", "step")), 4 * STEPS, "spans of all stores")
    t.equal({x["rank"] for x in rows("spans", "--name", "step", "--rank", "2")}, {2}, "spans of one rank")
    t.equal(rows("marks"), [], "marks of all stores")
    t.equal([x["rank"] for x in rows("report")[0]["ranks"]], [0, 1, 2, 3], "ranks in the report")
    rows("tree", status=2)
    rows("steps", "--slowest", status=2)
    dbs[:] = dbs[2:]
    t.check("Rank 0 has no session here." in rows("ranks", form="table"), "a store that is missing")
