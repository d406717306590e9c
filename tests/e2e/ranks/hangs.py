"""Who is named while a job hangs."""
import json
import os
import signal
import subprocess
import time

import harness
from harness import test, until
from scripts import ENV, RANKS

STALLS = RANKS + """
torch.optim.SGD(net().parameters(), lr=0.1)  # what this imports, it imports here
def work(rank):
    model = net()
    if sys.argv[1] == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(rows(40)):
        if rank == 2 and i == 12:
            print("hangs", flush=True)
            while True:
                time.sleep(60)
        F.mse_loss(model(x), y).backward()
        if sys.argv[1] != "ddp":
            for p in model.parameters():
                dist.all_reduce(p.grad)
        opt.step()
print(os.getpid(), flush=True)
fork_ranks(4, work)
"""


def ask(t, *args, form="jsonl"):
    r = subprocess.run([harness.QUERY, "--db", t.collector.db, "--format", form, *args], capture_output=True, text=True, timeout=30,
                       env=harness.clean_env())
    t.equal((r.returncode, r.stderr), (0, ""), f"cirron-query {' '.join(args)}")
    return r.stdout if form == "table" else [json.loads(x) for x in r.stdout.splitlines()]


def hang(t, kind):
    """A job of four ranks of which rank 2 has stopped. Returns the moment since when."""
    t.collect()
    process = t.start([harness.TORCH_PYTHON, t.script(STALLS), kind], env=ENV, start_new_session=True)
    assert process.stdout.readline().strip() == str(process.pid)
    assert process.stdout.readline() == "hangs\n"
    return process, time.monotonic()


def named(t, since):
    """What status says of the ranks, once it names a stalled one; and after how many seconds."""
    def one():
        rows = [x for x in ask(t, "status") if x["rank"] is not None]
        return rows if any(x["role"] == "stalled" for x in rows) else None
    return until(one, 15, "status to name a stalled rank"), time.monotonic() - since


@test
def stalled_in_collectives(t):
    process, since = hang(t, "collectives")
    rows, seconds = named(t, since)
    t.check(seconds < 15, f"named after {seconds:.1f} s")
    t.equal([x["rank"] for x in rows], [0, 1, 2, 3], "ranks")
    t.equal([x["role"] for x in rows], ["waits", "waits", "stalled", "waits"], "what they do")
    t.equal([x["waits_for"] for x in rows], [[2], [2], [], [2]], "whom they wait for")
    t.equal({(x["op"], x["group"], x["number"]) for x in rows if x["rank"] != 2}, {("all_reduce", "world", 48)}, "in what")
    t.equal([x["step"] for x in rows], [12] * 4, "steps")
    text = ask(t, "status", form="table")
    t.check("Rank 2 is stalled: in epoch 0 > step 12" in text, text)
    t.check("Ranks 0, 1, 3 wait for it in all_reduce 48 of world, since" in text, text)
    t.equal([x["rank"] for x in ask(t, "status", "--rank", "1")], [1], "of one rank")
    t.equal([x["role"] for x in ask(t, "ranks")], ["waits", "waits", "stalled", "waits"], "what ranks says of them")
    t.check("Rank 2 is stalled: in epoch 0 > step 12" in ask(t, "ranks", form="table"), "words of ranks")
    os.kill([x["pid"] for x in rows][2], signal.SIGKILL)
    process.wait(30)
    until(lambda: not ask(t, "status"), 10, "nothing to run")


@test
def stalled_under_ddp(t):
    """Its collectives are not seen; that the others are in backward is."""
    process, since = hang(t, "ddp")
    rows, seconds = named(t, since)
    t.check(seconds < 15, f"named after {seconds:.1f} s")
    t.equal([x["role"] for x in rows], ["waits", "waits", "stalled", "waits"], "what they do")
    t.check(all(x["in"].endswith("backward") for x in rows if x["rank"] != 2), f"in what: {[x['in'] for x in rows]}")
    t.check("wait for it in backward, where gradients are exchanged" in ask(t, "status", form="table"), "words")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    until(lambda: not ask(t, "status"), 10, "nothing to run")
    text = ask(t, "ranks", form="table")
    t.check("When the first of the ranks ended:\nRank 2 was stalled: in epoch 0 > step 12" in text, text)
    t.check("Ranks 0, 1, 3 waited for it in backward, where gradients are exchanged, for " in text, text)
