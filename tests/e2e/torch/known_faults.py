"""Faults that tracers of trainings are known for and that no other test here would find in ours. docs/testing.md has the whole list."""
from harness import test, test_each
from loops import apart, tally, trace
from scripts import TORCH


def lossless(t, st):
    t.equal([s["dropped"] for s in st.sessions], [{}], "dropped")
    t.equal([s["name"] for s in st.spans if s["state"] != "closed"], [], "open at the end")


@test
def wrapped_loops_around_a_loader(t):
    """100 epochs of 3 batches with both wrappers: one epoch span each, nothing leaks from one to the next."""
    st = trace(t, """
if not hasattr(ci, "batches"):
    ci.batches = iter
job, loader = Learner(), rows(3)
for _ in ci.epochs(range(100)):
    for x, y in ci.batches(loader):
        job.learn(x, y)
job.show()
""")
    t.counts(st.spans, epoch=100, step=300, batch=300, data_load=300, forward=300, backward=300, optimizer_step=300)
    lossless(t, st)
    epochs = st.of("epoch")
    apart(t, epochs, "epochs")
    t.equal([e["index"] for e in epochs], list(range(100)), "indices of the epochs")
    t.equal({st.parent(e)["name"] for e in epochs}, {"cirron.session"}, "what epochs lie in")
    by_parent = {}
    for s in st.spans:
        by_parent.setdefault(s["parent_id"], []).append(s)
    for e in epochs:
        steps = by_parent[e["id"]]
        t.equal([s["name"] for s in steps], ["step"] * 3, "contents of an epoch")
        for i, step in enumerate(steps):
            inside = by_parent[step["id"]]
            t.equal([(s["name"], s["index"]) for s in inside], [("data_load", i), ("batch", i)], "contents of a step")
            t.equal([s["name"] for s in by_parent[inside[-1]["id"]]], ["forward", "backward", "optimizer_step"], "contents of a batch")


@test
def scopes_across_updates(t):
    """Of the user, 150 times, held over an update, opened in one step and closed in the next, or around several: none stays open."""
    st = trace(t, """
job, loader, held = Learner(), rows(150), None
for i, (x, y) in enumerate(loader):
    with ci.scope("around", i):
        loss = F.mse_loss(job.model(x), y)
        with ci.scope("update", i):
            loss.backward()
            job.update()
            ci.mark("updated", i)
        ci.mark("after", i)
    if i % 10 == 4:
        held = ci.scope("over the edge", i)
        held.__enter__()
    if i % 10 == 5:
        held.__exit__(None, None, None)
with ci.scope("end"):
    ci.mark("depth", getattr(ci, "health", lambda: {"scope_depth": 1})()["scope_depth"])
job.show()
""")
    t.counts(st.spans, epoch=1, step=150, data_load=150, forward=150, backward=150, optimizer_step=150)
    lossless(t, st)
    for name, n in (("around", 150), ("update", 150), ("over the edge", 15), ("end", 1)):
        t.equal(len(st.of(name)), n, f"scopes {name}")
    t.equal({tuple(x["name"] for x in st.above(s))[:2] for s in st.of("update")} - {("around", "step"), ("around", "over the edge")}, set(), "around the updates")
    t.equal({(st.parent(s)["name"], st.parent(s)["index"] == i) for i, s in enumerate(st.of("optimizer_step"))}, {("update", True)}, "what updates lie in")
    for name, owner in (("updated", "update"), ("after", "around")):
        t.equal([(st.by_id[m["span_id"]]["name"], st.by_id[m["span_id"]]["index"]) for m in st.marks_of(name)], [(owner, i) for i in range(150)], name)
    t.check(not st.above(st.of("end")[0]), "what follows the training lies in something")
    t.equal([m["value"] for m in st.marks_of("depth")], [1], "scopes that are open at the end, by the agent's own count")


@test
def a_long_epoch_is_one(t):
    st = trace(t, """
job, loader = Learner(nn.Linear(5, 1)), rows(1100, 1)
for _ in range(2):
    for x, y in loader:
        job.learn(x, y)
job.show()
""")
    t.counts(st.spans, epoch=2, step=2200, data_load=2200, forward=2200, backward=2200, optimizer_step=2200)
    lossless(t, st)
    epochs = [e["id"] for e in st.of("epoch")]
    t.equal([[s["parent_id"] for s in st.of("step")].count(e) for e in epochs], [1100, 1100], "steps in the epochs")
    t.equal([s["index"] for s in st.of("step")], list(range(2200)), "indices of the steps")


@test
def other_loaders_open_no_epochs(t):
    """A look at a batch before all, validation after each epoch and in its middle, a loader that is drawn from: three epochs all the same."""
    st = trace(t, """
loader, held_out, other = rows(4, shuffle=True), rows(2), rows(3)
print(next(iter(loader))[0].shape)
job = Learner()
def validate():
    job.model.eval()
    with torch.no_grad():
        for x, y in held_out:
            job.model(x)
    job.model.train()
validate()
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        a, b = next(iter(other))
        job.learn(torch.cat([x, a]), torch.cat([y, b]))
        if i == 1:
            validate()
    validate()
job.show()
""")
    lossless(t, st)
    epochs = st.of("epoch")
    t.equal([e["index"] for e in epochs], [0, 1, 2], "epochs")
    apart(t, epochs, "epochs")
    t.equal([len(st.inside(e, "optimizer_step")) for e in epochs], [4, 4, 4], "updates in the epochs")
    t.equal([len([s for s in st.inside(e, "step") if st.inside(s, "optimizer_step")]) for e in epochs], [4, 4, 4], "steps in the epochs")
    validations = [s for s in st.of("eval") if len(st.inside(s, "forward")) == 2]
    t.equal((len(validations), [st.parent(s)["name"] for s in validations].count("epoch")), (7, 3), "validations, those in an epoch")
    t.equal(len(st.of("forward")), 12 + 14, "forwards")


@test_each([0, 1], lambda n: f"{n} workers")
def waiting_for_data_has_its_length(t, workers):
    """It is in the step, whose parts account for its time."""
    st = trace(t, f"""
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, i):
        time.sleep(0.02)
        return torch.ones(5), torch.ones(1)
job = Learner()
for x, y in DataLoader(Slow(), batch_size=2, num_workers={workers}):
    job.learn(x, y)
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=3, forward=3, backward=3, optimizer_step=3)
    length = lambda s: s["end_ns"] - s["start_ns"]
    loads, steps = st.of("data_load"), st.of("step")
    slow = loads if workers == 0 else loads[:1]  # a worker makes the others meanwhile
    t.check(all(length(s) >= 39_000_000 for s in slow), f"{[length(s) for s in slow]} ns for two items of 20 ms")
    for load, step in zip(loads, steps):
        t.check(step in st.above(load) and step["start_ns"] == load["start_ns"], "a data_load that its step does not begin with")
    # What is between the parts is the script's own; a busy machine makes it longer, but not in each of the steps.
    shares = [sum(length(s) for s in st.children(step)) / length(step) for step in steps]
    t.check(max(shares) > 0.5 and max(shares) <= 1, f"parts of {shares} of the steps")
    inside = sum(length(s) for s in steps) / length(st.of("epoch")[0])
    t.check(inside > 0.3, f"steps of {inside:.2f} of the epoch")


@test
def forwards_go_on_after_one_that_fails(t):
    """Exceptions at several depths, caught at several: each forward after them is there, in the right place."""
    st = trace(t, """
class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.depth, self.inner = depth, Deep(depth - 1) if depth else nn.Linear(5, 1)
    def forward(self, x, fails=-1):
        if fails == self.depth:
            raise ArithmeticError(fails)
        return self.inner(x, fails) if self.depth else self.inner(x)
job, good = Learner(Deep(4)), 0
for i, (x, y) in enumerate(rows(20)):
    try:
        F.mse_loss(job.model(x, i % 7 - 1), y).backward()
        job.update()
        good += 1
    except ArithmeticError:
        pass
print(good)
""")
    t.counts(st.spans, epoch=1, step=len(st.of("step")), data_load=20, forward=20, backward=5, optimizer_step=5)
    lossless(t, st)
    t.equal([s["error"] for s in st.of("forward")], [0 <= i % 7 - 1 <= 4 for i in range(20)], "error state of the forwards")
    t.check(not any(st.inside(s) for s in st.of("forward")), "a forward became a parent")
    t.equal({st.parent(s)["name"] for s in st.of("forward")} - {"step", "epoch"}, set(), "what forwards lie in")


@test
def work_of_every_optimizer_is_in_the_step(t):
    st = trace(t, """
a, b, c = Learner(), Learner(kind=torch.optim.Adam), Learner(kind=torch.optim.RMSprop)
for _ in range(2):
    for x, y in rows(3):
        for job in (a, b, c):
            job.gradient(x, y)
        for job in (a, b, c):
            job.update()
a.show()
""")
    t.counts(st.spans, epoch=2, step=6, data_load=6, forward=18, backward=18, optimizer_step=18)
    for step in st.of("step"):
        t.equal(dict(tally(st, step)), {"data_load": 1, "forward": 3, "backward": 3, "optimizer_step": 3}, "contents of a step")
    t.equal([st.parent(s)["name"] for s in st.of("optimizer_step")], ["step"] * 18, "what updates lie in")


@test
def random_numbers_are_the_trainings(t):
    """Seeded runs are what they are without us, with everything on that might draw."""
    st = trace(t, """
import random
import numpy
random.seed(3), numpy.random.seed(3), torch.manual_seed(3)
job, loader = Learner(), rows(5, shuffle=True)
if hasattr(ci, "profile"):
    ci.watch(job.model)
    ci.profile(snapshots="sampled", sample_rate=1.0, flush_interval=0.001)
for _ in ci.epochs(range(4)):
    for x, y in loader:
        loss = F.mse_loss(F.dropout(job.model(x), 0.3), y)
        loss.backward()
        job.update()
        ci.mark("loss", loss)
if hasattr(ci, "profile"):
    ci.flush(), ci.trace("dict"), ci.shutdown()
print(random.getstate()[1][:5], random.random(), numpy.random.rand(), torch.rand(1).item(), torch.get_rng_state().long().sum().item())
job.show()
""")
    t.equal((len(st.of("epoch")), len(st.of("optimizer_step"))), (4, 20), "epochs, updates")


@test
def numbers_of_numpy_and_torch_are_marks(t):
    st = trace(t, """
import numpy as np
job = Learner()
loss = F.mse_loss(job.model(torch.ones(2, 5)), torch.ones(2, 1))
values = dict(f32=np.float32(1.5), f64=np.float64(0.1), f16=np.float16(0.5), i64=np.int64(-7), u8=np.uint8(255), flag=np.bool_(True), zero_d=np.array(2.5),
              one=np.array([[7]]), t0=torch.tensor(2.5), t1=torch.tensor([3]), tb=torch.tensor(True), bf16=torch.tensor(0.25, dtype=torch.bfloat16),
              param=nn.Parameter(torch.ones(1)), loss=loss, several=torch.zeros(2), array=np.zeros(3))
for name, value in values.items():
    ci.mark(name, value)
with ci.scope("attrs", lr=np.float32(0.5), loss=torch.tensor(1.5)):
    pass
loss.backward()
""")
    got = {m["name"]: (m["value_type"], m["value"]) for m in st.marks}
    loss = got.pop("loss", (None, None))
    t.equal(got, dict(f32=("float", 1.5), f64=("float", 0.1), f16=("float", 0.5), i64=("int", -7), u8=("int", 255), flag=("bool", True), zero_d=("float", 2.5),
                      one=("int", 7), t0=("float", 2.5), t1=("int", 3), tb=("bool", True), bf16=("float", 0.25), param=("float", 1.0)), "marks")
    t.check(loss[0] == "float" and loss[1] > 0, f"the loss: {loss}")
    t.equal(st.of("attrs")[0]["attrs"], {"lr": 0.5, "loss": 1.5}, "attributes")
    t.equal([s["dropped"] for s in st.sessions], [{"refused_marks": 2}], "those of several elements are counted")
