"""However a training ends, what it had closed is in the store, and the rest is named as unfinished."""
import collections
import os
import random
import time

from harness import Store, test, test_each, until
from loops import trace
from scripts import TORCH

LOOP = """
job = Learner()
for i, (x, y) in enumerate(rows(6)):
    ci.mark("loss", job.learn(x, y))
    if i == 2:
        print("leaving", flush=True)
        LEAVE
print("not reached")
"""


def leave(t, how, status):
    t.collect()
    _, traced = t.both([t.python, t.script(TORCH + LOOP.replace("LEAVE", how))])
    t.equal(traced.rc, status, "exit status")
    st = t.store()
    for name in ("data_load", "forward", "backward", "optimizer_step"):
        t.equal(len(st.of(name)), 3, f"number of {name}")
    t.equal(len(st.marks_of("loss")), 3, "marks")
    t.check(2 <= len(st.of("step")) <= 3 and len(st.of("epoch")) <= 1, "number of steps or epochs")
    return st


def ends_unfinished(t, st, signal_no):
    t.equal([(s["state"], s["exit_signal"]) for s in st.sessions], [("killed", signal_no)], "how the session ended")
    for s in st.of("epoch") + st.roots:
        t.equal((s["state"], s["end_ns"]), ("unfinished", None), f"state and end of {s['name']}")


@test
def sigterm(t):
    ends_unfinished(t, leave(t, "os.kill(os.getpid(), signal.SIGTERM)", -15), 15)


@test
def sigkill_after_a_pause(t):
    ends_unfinished(t, leave(t, "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)", -9), 9)


@test
def crash(t):
    ends_unfinished(t, leave(t, "os.kill(os.getpid(), signal.SIGSEGV)", -11), 11)


@test
def sigint(t):
    st = leave(t, "signal.raise_signal(signal.SIGINT)", -2)
    t.equal([s["state"] for s in st.of("epoch")], ["closed"], "state of the epoch")


@test
def hard_exit(t):
    leave(t, "os._exit(3)", 3)


@test
def exit_from_the_middle(t):
    st = leave(t, "sys.exit(5)", 5)
    t.equal({s["state"] for s in st.all}, {"closed"}, "states")
    t.equal([s["state"] for s in st.sessions], ["finished"], "state of the session")


@test
def exception_to_the_top(t):
    st = leave(t, "raise RuntimeError('on purpose')", 1)
    t.equal({s["state"] for s in st.all}, {"closed"}, "states")


@test
def another_program_in_its_place(t):
    t.collect()
    _, traced = t.both([t.python, t.script(TORCH + """
job = Learner()
for x, y in rows(2):
    job.learn(x, y)
print("going", flush=True)
with ci.scope("held"):
    os.execv("/bin/sh", ["sh", "-c", "echo a shell now; ls /proc/self/fd | wc -l"])
""")])
    t.equal(traced.rc, 0, "exit status")
    st = t.store()
    t.equal((len(st.of("optimizer_step")), len(st.of("forward"))), (2, 2), "updates, forwards")
    t.check(all(s["state"] == "unfinished" for s in st.of("held")), "the scope that was open is closed")


# Writes a line after each thing that is over; what was written before the kill must be in the store.
LOGGED = """
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
job, n = Learner(), 0
while True:
    for x, y in rows(50):
        job.learn(x, y)
        with ci.scope("mine", index=n):
            ci.mark("n", n)
        os.write(log, b"%d\\n" % n)
        n += 1
"""


@test_each(range(5))
def sigkill_at_a_random_moment(t, round_no):
    collector = t.collect()
    log = t.folder / "log"
    chance = random.Random(int.from_bytes(os.urandom(4), "little"))
    process = t.start([t.python, t.script(TORCH + LOGGED), log])
    until(lambda: process.poll() is not None or (log.exists() and log.stat().st_size > 0), 90, "the training to begin")
    delay = chance.uniform(0, 1.5)
    time.sleep(delay)
    process.kill()
    process.communicate()
    time.sleep(1)
    st = Store(collector.db)
    done = len(log.read_text().splitlines())
    text = f"(killed after {delay:.3f} s, {done} logged)"
    t.check(done > 0, f"nothing was logged {text}")
    t.equal([s["exit_signal"] for s in st.sessions], [9], f"exit signal {text}")
    for name in ("optimizer_step", "backward", "forward", "data_load", "mine"):
        closed = [s for s in st.of(name) if s["state"] == "closed"]
        t.check(done <= len(closed) <= done + 1, f"{len(closed)} closed spans {name} {text}")
        t.check(len(st.of(name)) - len(closed) <= 1, f"more than one open {name} {text}")
    t.equal([s["index"] for s in st.of("mine")][:done], list(range(done)), f"indices {text}")
    t.equal([m["value"] for m in st.marks_of("n")][:done], list(range(done)), f"marks {text}")
    last = [s for s in st.of("epoch") if s["state"] != "closed"]
    t.check(len(last) <= 1 and all(s["state"] == "unfinished" for s in last + st.roots), f"open spans {text}")
    t.wrong.extend(st.faults()[:5])


@test
def collector_dies_and_comes_back(t):
    """The training goes on without it; what was recorded meanwhile waits in the ring."""
    collector = t.collect()
    body = """
job, loader = Learner(), rows(20)
for _ in range(3):
    for x, y in loader:
        job.learn(x, y)
    print("pass over", flush=True)
    sys.stdin.readline()
job.show()
"""
    process = t.start([t.python, t.script(TORCH + body)], stdin=-1)

    def go():
        process.stdin.write("\n")
        process.stdin.flush()

    process.stdout.readline()
    collector.kill()
    go()
    process.stdout.readline()
    collector.start()
    go()
    process.stdout.readline()
    go()
    out, err = process.communicate(timeout=60)
    t.equal((process.returncode, err), (0, ""), "exit status and stderr")
    st = t.store()
    t.counts(st.spans, epoch=3, step=60, data_load=60, forward=60, backward=60, optimizer_step=60)


@test
def collector_ends_in_good_order_and_comes_back(t):
    collector = t.collect()
    process = t.start([t.python, t.script(TORCH + """
job = Learner()
for _ in range(2):
    for x, y in rows(10):
        job.learn(x, y)
    print("pass over", flush=True)
    sys.stdin.readline()
""")], stdin=-1)
    process.stdout.readline()
    t.equal(collector.stop(), 0, "exit status of collectord")
    collector.start()
    out, err = process.communicate("\n\n", timeout=60)
    t.equal((process.returncode, err), (0, ""), "exit status and stderr")
    st = t.store()
    t.counts(st.spans, epoch=2, step=20, data_load=20, forward=20, backward=20, optimizer_step=20)


CALLS = "data_load", "forward", "backward", "optimizer_step"
IN_THE_MIDDLE = {  # what of it is in the first session
    "data": {"data_load": 1},
    "forward": {"data_load": 1, "forward": 1, "eval": 1},
    "backward": {"data_load": 1, "forward": 1, "backward": 1, "eval": 1},
    "optimizer": {"data_load": 1, "forward": 1, "backward": 1, "optimizer_step": 1, "eval": 1},
    "thread": {"data_load": 2, "forward": 2, "backward": 2, "optimizer_step": 1, "step": 2, "epoch": 1},
}


@test_each(IN_THE_MIDDLE)
def the_session_changes_in_the_middle(t, where):
    """shutdown() and profile() while a call is under way: its end belongs to nothing, and all that comes next is in the new session. The step in which it
    happens is torn."""
    st = trace(t, """
import threading
def change():
    if hasattr(ci, "shutdown") and left:
        left.pop()
        ci.shutdown()
        ci.profile(output="none")
def batch(rows):
    if where == "data":
        change()
    return torch.utils.data.default_collate(rows)
class Net(nn.Linear):
    def forward(self, x):
        if where == "forward":
            change()
        return super().forward(x)
class Slow(torch.optim.SGD):
    def step(self, closure=None):
        if where == "optimizer":
            change()
        return super().step(closure)
def other():
    job = Learner(Net(5, 1), Slow)
    for _ in range(3):
        for n, (x, y) in enumerate(rows(4, collate_fn=batch)):
            loss = F.mse_loss(job.model(x), y)
            if where == "backward":
                loss.register_hook(lambda g: change())
            loss.backward()
            if where == "thread" and n == 1:
                there.set()
                go.wait()
            job.update()
    job.show()
where, left, there, go = %r, [1], threading.Event(), threading.Event()
if where == "thread":
    t = threading.Thread(target=other)
    t.start()
    there.wait()
    change()
    go.set()
    t.join()
else:
    other()
""" % where)
    first, second = ([s for s in st.spans if s["session_id"] == x["id"]] for x in sorted(st.sessions, key=lambda x: x["start_ns"]))
    before = IN_THE_MIDDLE[where]
    t.counts(first, **before)
    t.counts(second, epoch=3, step=12 - before["data_load"], **{n: 12 - before.get(n, 0) for n in CALLS})
