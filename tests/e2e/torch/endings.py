"""However a training ends, what it had closed is in the store, and the rest is named as unfinished."""
import os
import random
import time

from harness import Store, test, test_each, until
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
