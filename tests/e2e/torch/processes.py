"""Training that starts processes and threads, or that finds no collector."""
import collections
import os

from harness import AUTOMATIC, test, until
from scripts import TORCH


def both(t, body, **env):
    t.collect()
    plain, traced = t.both([t.python, t.script(TORCH + body)], env=env)
    t.equal(traced.rc, 0, "exit status")
    if traced.rc:
        t.check(False, traced.err.strip()[-400:])
    return plain, traced, t.store()


WORKERS = """
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.full((5,), float(i)), torch.ones(1)
def main(how, **more):
    job = Learner()
    loader = DataLoader(Numbers(), batch_size=3, num_workers=2, multiprocessing_context=how, **more)
    for _ in range(EPOCHS):
        for x, y in loader:
            job.learn(x, y)
    job.show()
"""


def workers(t, text, epochs):
    _, traced, st = both(t, WORKERS.replace("EPOCHS", str(epochs)) + text)
    mine, others = ([s for s in st.spans if (s["pid"] == traced.pid) == own] for own in (True, False))
    n = 4 * epochs
    t.counts(mine, epoch=epochs, step=n, data_load=n, forward=n, backward=n, optimizer_step=n)
    t.check(not [s for s in others if s["name"] in AUTOMATIC], f"workers store {[s['name'] for s in others][:3]}")
    until(lambda: not survivors(t.folder), 10, "the workers to end")


def survivors(folder):
    """Processes that were started in this test's folder and still run, the collector left out."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.append(int(pid))
        except OSError:
            pass
    return found


@test
def forked_persistent_workers(t):
    workers(t, "main('fork', persistent_workers=True)\n", 3)


@test
def forked_workers(t):
    workers(t, "main('fork')\n", 2)


@test
def spawned_workers(t):
    workers(t, "if __name__ == '__main__':\n    main('spawn')\n", 1)


@test
def workers_report_what_they_fetch(t):
    """Only when asked to: a session each, a span for each batch, nothing for the end of an iterable data set."""
    _, traced, st = both(t, WORKERS.replace("EPOCHS", "2") + """
main('fork')
class Count(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.ones(4, 5))
print(len(list(DataLoader(Count(), batch_size=2, num_workers=1, multiprocessing_context='fork'))))
""", CIRRON_WORKERS="1")
    mine, others = ([s for s in st.spans if (s["pid"] == traced.pid) == own] for own in (True, False))
    t.counts(mine, epoch=2, eval=1, step=8, data_load=10, forward=8, backward=8, optimizer_step=8)
    t.equal({s["name"] for s in others}, {"fetch"}, "spans of the workers")
    t.equal(len(others), 10, "fetches")
    t.check(not any(s["error"] for s in others), "a fetch failed")
    t.equal(len({s["pid"] for s in others}), 5, "workers")
    t.equal({x["ppid"] for x in st.sessions if x["pid"] != traced.pid}, {traced.pid}, "whose workers they are")


@test
def forked_child_inside_a_scope(t):
    _, traced, st = both(t, """
model = nn.Linear(5, 1)
with ci.scope("around"):
    ci.mark("who", "parent")
    child = os.fork()
    if child == 0:
        with ci.scope("childs_own"):
            ci.mark("who", "child")
            model(torch.ones(1, 5))
        os._exit(4)
    print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
    model(torch.ones(1, 5))
""")
    around, own = st.of("around"), st.of("childs_own")
    t.equal((len(around), len(own), len(st.of("forward"))), (1, 1, 2), "scopes of parent and child, forwards")
    t.equal([s["pid"] for s in around], [traced.pid], "pid of the parent's scope")
    t.check(own[0]["pid"] != traced.pid and around[0] not in st.above(own[0]), "the child's scope is the parent's")
    t.equal(sorted(m["value"] for m in st.marks_of("who")), ["child", "parent"], "marks")
    t.equal(sorted(s["state"] for s in st.sessions), ["finished", "finished"], "states of the sessions")


@test
def spawned_trainer(t):
    _, traced, st = both(t, """
import multiprocessing
def train(n):
    job = Learner()
    for x, y in rows(n):
        job.learn(x, y)
if __name__ == "__main__":
    train(2)
    child = multiprocessing.get_context("spawn").Process(target=train, args=(3,))
    child.start()
    child.join()
    print(child.exitcode)
""")
    by_pid = collections.Counter(s["pid"] for s in st.of("step"))
    t.equal(sorted(by_pid.values()), [2, 3], "steps of the two processes")
    t.equal(by_pid[traced.pid], 2, "steps of the first")
    for pid in by_pid:
        t.equal(st.of("step", pid)[0]["index"], 0, "index of the first step")
        t.equal(st.of("epoch", pid)[0]["index"], 0, "index of the first epoch")


@test
def two_ranks(t):
    _, traced, st = both(t, """
import torch.distributed as dist
import torch.multiprocessing as mp
def train(rank, store):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    job = Learner()
    job.model = nn.parallel.DistributedDataParallel(job.model)
    for x, y in rows(3):
        job.learn(x, y)
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(train, args=(os.path.abspath("meet"),), nprocs=2)
    print("both done")
""")
    t.check(not [s for s in st.spans if s["pid"] == traced.pid], "the launcher stores spans")
    for rank in (0, 1):
        mine = [s for s in st.spans if s["rank"] == rank]
        t.counts(mine, epoch=1, step=3, data_load=3, forward=3, backward=3, optimizer_step=3)
        t.equal(len({s["pid"] for s in mine}), 1, "processes of a rank")


@test
def descriptors_do_not_grow(t):
    """Rings of threads that ended are used again; a program started by the script meets no descriptor of ours."""
    _, _, st = both(t, """
import subprocess, threading
def fds():
    return len(os.listdir("/proc/self/fd"))
def work(i):
    with ci.scope("work"):
        ci.mark("i", i)
model = nn.Linear(5, 1)
model(torch.ones(1, 5))
work(-1)
early = None
for i in range(200):
    thread = threading.Thread(target=work, args=(i,))
    thread.start()
    thread.join()
    if i == 20:
        early = fds()
print("grows", fds() - early > 5)  # a thread that was joined may still be about to give its ring back
seen = subprocess.run(["/bin/ls", "/proc/self/fd"], close_fds=False, capture_output=True, text=True)
print("a child sees", len(seen.stdout.split()), repr(seen.stderr))
print([os.get_inheritable(int(n)) for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")].count(True))
""")
    t.equal(len(st.of("work")), 201, "scopes")
    t.equal(sorted(m["value"] for m in st.marks_of("i")), list(range(-1, 200)), "marks")


@test
def closed_descriptors(t):
    _, _, st = both(t, """
model = nn.Linear(5, 1)
model(torch.ones(1, 5))
os.closerange(3, 4096)
files = [os.open(f"own{i}", os.O_RDWR | os.O_CREAT, 0o600) for i in range(40)]
model(torch.ones(1, 5))
time.sleep(0.3)
model(torch.ones(1, 5))
for fd in files:
    os.write(fd, b"mine")
print(all(os.pread(fd, 99, 0) == b"mine" for fd in files))
""")
    dropped = sum(sum(s["dropped"].values()) for s in st.sessions)
    t.check(len(st.of("forward")) + dropped >= 3, f"{len(st.of('forward'))} forwards stored and {dropped} counted as dropped, of 3")
    t.check(bool(st.of("forward")), "the first forward is not stored")


MISSING = """
job = Learner()
for _ in range(5):
    for x, y in rows(400, 2):
        job.learn(x, y)
job.show()
"""


def does_not_wait(t):
    """Other work on the machine can make one run slow; who waits for a collector does so in each."""
    script, seen = t.script(TORCH + MISSING), []
    for _ in range(3):
        plain, traced = t.both([t.python, script], lines=1)
        if traced.wall_s < plain.wall_s + 2 + plain.wall_s / 2:
            return
        seen.append(f"{traced.wall_s:.1f} s instead of {plain.wall_s:.1f} s")
    t.check(False, ", ".join(seen))


@test
def no_collector(t):
    does_not_wait(t)


@test
def stale_socket(t):
    collector = t.collect()
    collector.kill()
    t.check(collector.socket.exists(), "a killed collector leaves its socket")
    does_not_wait(t)


@test
def memory_levels_off(t):
    _, _, st = both(t, """
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
job, seen = Learner(), []
for i, (x, y) in enumerate(rows(3000, 1)):
    with ci.scope("part"):
        for k in range(10):
            ci.mark("k", k)
    job.learn(x, y)
    if i == 300:
        seen.append(resident())
print("level", resident() - seen[0] < 32 << 20)
""")
    dropped = sum(sum(s["dropped"].values()) for s in st.sessions)
    t.equal(len(st.of("step")), 3000, "steps")
    t.equal(len(st.spans) + len(st.marks) + dropped, 3000 * 6 + 1 + 30000, "spans and marks, stored or counted as dropped")
