"""What the script does to its tensors or its session while nobody reads them: the reader stands still, and then is gone."""
import json
import os
import signal

from harness import test, test_each
from parts import BEGIN
from reference import SCRIPT, Snapshots
from running import Job

LARGE = '''
model = torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(6)])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader([torch.ones(600)] * 2)
for epoch in ci.epochs(range(2)):
    for i, x in enumerate(data):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
    if epoch == 1:
        say("stop")
        wait()
'''
CHANGES = {  # and how many of 12 weights and 12 gradients are not what they were
    "gone": ("del model, opt", 24),
    "converted": ("model.half()", 24),
    "exchanged": ("for p in model.parameters(): p.data = torch.ones(3)", 12),
    "freed": ("for p in model.parameters(): p.untyped_storage().resize_(0)", 12),
}


@test_each(list(CHANGES))
def tensors_that_are_not_there_any_more(t, change):
    """Nobody has read them, and nobody can: there are no numbers, and the training does not look where they were."""
    t.collect()
    what, torn = CHANGES[change]
    job = Job(t, LARGE + what + '''
import gc
gc.collect()
say("changed")
wait()
ci.flush()
say(ci.health())
''', CIRRON_SNAPSHOT_WAIT_MS=3000)
    job.hear()
    os.kill(t.collector.process.pid, signal.SIGSTOP)
    job.say()
    t.equal(job.hear(), "changed", "the script goes on")
    t.collector.kill()
    job.say()
    health = job.end()[0]
    t.equal((health["snapshot_count"], health["snapshot_torn_count"]), (2, torn), "snapshots, and what is torn")


@test
def session_that_ends_in_another_thread(t):
    """One thread waits for the reader, another ends the session."""
    t.collect()
    job = Job(t, LARGE + '''
def end():
    import time
    time.sleep(0.3)
    ci.shutdown()


thread = threading.Thread(target=end)
thread.start()
for _ in ci.epochs(range(2)):
    pass
thread.join()
for _ in ci.epochs(range(2)):
    pass
say("through")
''', CIRRON_SNAPSHOT_WAIT_MS=2000)
    job.hear()
    os.kill(t.collector.process.pid, signal.SIGSTOP)
    job.say()
    t.equal(job.end(), ["through"], "what it says")
    t.collector.kill()


@test
def spool_of_many_epochs(t):
    """Where no collector ever comes, the spool has them all."""
    done = t.run([t.python, t.script(BEGIN + SCRIPT + '''
ci.profile(flush_interval=0.2)
model = torch.nn.Linear(4, 8)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    for x in torch.utils.data.DataLoader([torch.zeros(4)] * 2):
        opt.zero_grad()
        model(x).sum().backward()
        opt.step()
print(json.dumps(ci.health()["snapshot_count"]))
''')])
    t.equal((done.rc, done.err, done.out), (0, "", "20\n"), "the script")
    files = (t.folder / "run1" / ".cirron" / "spool").rglob("*.json")
    t.equal(sum(len(json.loads(p.read_text())["snapshots"]) for p in files), 80, "records")


@test
def another_shape_of_the_same_numbers(t):
    t.collect()
    done = t.run([t.python, t.script(BEGIN + SCRIPT + '''
model = torch.nn.Linear(4, 8)
ci.watch(model)
for epoch in ci.epochs(range(3)):
    if epoch == 1:
        model.weight.data = model.weight.data.view(4, 8)
    if epoch == 2:
        model.weight.data = model.weight.data.as_strided((8, 4), (1, 8))
''')])
    t.equal((done.rc, done.err), (0, ""), "the script")
    rows = [s.rows["weight"] for s in Snapshots(t.store()).below()]
    t.equal([r["shape"] for r in rows], [[8, 4], [4, 8], [8, 4]], "shapes")
