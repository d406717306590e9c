"""What spans a training loop gives: counts, order, nesting, modes, errors."""
import collections

from harness import Skip, test, test_each
from scripts import TORCH

WHOLE_STEP = ["data_load", "forward", "backward", "optimizer_step"]


def trace(t, body, **env):
    """Runs the script without and with the agent and a collector; the store once all has ended."""
    t.collect()
    script = t.script(TORCH + body)
    plain, traced = t.both([t.python, script], env=env)
    if plain.rc == traced.rc == 77:
        raise Skip("this torch has no " + plain.err.strip())
    t.equal(traced.rc, 0, "exit status")
    if traced.rc:
        t.check(False, traced.err.strip()[-400:])
    st = t.store()
    t.check(all(s["pid"] == traced.pid for s in st.all), "a span of another process")
    return st


def steps_in(st, epoch):
    return st.inside(epoch, "step")


def tally(st, span):
    return collections.Counter(s["name"] for s in st.inside(span))


def apart(t, spans, what):
    for a, b in zip(spans, spans[1:]):
        t.check(a["end_ns"] <= b["start_ns"], f"{what} overlap")


@test
def plain_loop(t):
    st = trace(t, """
job, loader = Learner(), rows(4, shuffle=True)
for _ in range(3):
    for x, y in loader:
        job.learn(x, y)
job.show()
print("random", torch.rand(1).item())
""")
    t.counts(st.spans, epoch=3, step=12, data_load=12, forward=12, backward=12, optimizer_step=12)
    epochs = st.of("epoch")
    apart(t, epochs, "epochs")
    t.equal([e["index"] for e in epochs], [0, 1, 2], "indices of the epochs")
    for epoch in epochs:
        t.equal(len(steps_in(st, epoch)), 4, "steps in an epoch")
        t.check(st.parent(epoch) is not None and st.parent(epoch)["name"] == "cirron.session", "an epoch is not below the root")
    for step in st.of("step"):
        t.equal(st.order(step), WHOLE_STEP, "order in a step")
        apart(t, st.children(step), "parts of a step")
    t.equal(st.of("step")[0]["index"], 0, "index of the first step")
    for forward in st.of("forward"):
        t.equal(forward["attrs"].get("mode"), "train", "mode of a forward")
        t.equal(forward["attrs"].get("module"), "Sequential", "module of a forward")
    t.equal({s["rank"] for s in st.all}, {0}, "rank without RANK")
    t.equal({s["thread_id"] for s in st.spans}, {st.spans[0]["pid"]} if st.spans else None, "thread of the spans")
    t.check(all(e["cpu_ns"] is not None and 0 < e["cpu_ns"] for e in epochs), "epochs without CPU time")
    t.equal([s["state"] for s in st.sessions], ["finished"], "state of the session")
    t.check(all(not any(s["dropped"].values()) for s in st.sessions), "something was dropped")


@test
def same_over_the_socket(t):
    st = trace(t, """
job = Learner()
for x, y in rows(5):
    job.learn(x, y)
job.show()
""", CIRRON_TRANSPORT="socket")
    t.counts(st.spans, epoch=1, step=5, data_load=5, forward=5, backward=5, optimizer_step=5)


@test
def rank_of_the_launcher(t):
    st = trace(t, """
job = Learner()
for x, y in rows(2):
    job.learn(x, y)
""", RANK=3, LOCAL_RANK=1, WORLD_SIZE=8)
    t.counts(st.spans, epoch=1, step=2, data_load=2, forward=2, backward=2, optimizer_step=2)
    t.equal({s["rank"] for s in st.all}, {3}, "rank")
    t.equal([(s["rank"], s["world_size"]) for s in st.sessions], [(3, 8)], "rank and world size of the session")


@test
def accumulation_uneven(t):
    st = trace(t, """
job, loader = Learner(), rows(6)
for _ in range(2):
    for i, (x, y) in enumerate(loader):
        job.gradient(x, y)
        if i % 4 == 3 or i == 5:
            job.update()
job.show()
""")
    t.counts(st.spans, epoch=2, step=4, data_load=12, forward=12, backward=12, optimizer_step=4)
    for epoch in st.of("epoch"):
        got = [tally(st, s) for s in steps_in(st, epoch)]
        expected = [{"data_load": n, "forward": n, "backward": n, "optimizer_step": 1} for n in (4, 2)]
        t.equal([dict(x) for x in got], expected, "contents of an epoch's steps")


@test
def evaluation_only(t):
    st = trace(t, """
model = nn.Linear(5, 2).eval()
with torch.no_grad():
    print(sum(model(x).sum().item() for x, _ in rows(4)))
""")
    t.check(not st.of("epoch"), "an evaluation became an epoch")
    t.equal(len(st.of("eval")), 1, "number of eval")
    t.equal((len(st.of("data_load")), len(st.of("forward")), len(st.of("backward"))), (4, 4, 0), "loads, forwards, backwards")
    t.check(all(len(st.inside(s, "data_load")) == 1 for s in st.of("step")), "a step lasts over several batches")
    t.equal({s["attrs"].get("mode") for s in st.of("forward")}, {"eval"}, "mode of the forwards")


@test
def validation_after_each_epoch(t):
    st = trace(t, """
job, loader, held_out = Learner(), rows(3), rows(2)
for _ in range(2):
    job.model.train()
    for x, y in loader:
        job.learn(x, y)
    job.model.eval()
    with torch.no_grad():
        for x, y in held_out:
            job.model(x)
job.show()
""")
    t.counts(st.spans, epoch=2, eval=2, step=6, data_load=10, forward=10, backward=6, optimizer_step=6)
    apart(t, sorted(st.of("epoch") + st.of("eval"), key=lambda s: s["start_ns"]), "passes")
    for span in st.of("eval"):
        t.equal({s["attrs"].get("mode") for s in st.inside(span, "forward")}, {"eval"}, "mode inside eval")
        t.equal(len(st.inside(span, "data_load")), 2, "loads of an eval")
    t.equal(sum(len(st.inside(e, "forward")) for e in st.of("epoch")), 6, "forwards inside epochs")


@test
def validation_in_the_middle(t):
    """A pass over a second loader, while the first is unfinished, is no epoch and does not end the first."""
    st = trace(t, """
job, held_out = Learner(), rows(2)
for i, (x, y) in enumerate(rows(4)):
    job.learn(x, y)
    if i == 1:
        job.model.eval()
        with torch.no_grad():
            for a, b in held_out:
                job.model(a)
        job.model.train()
job.show()
""")
    t.counts(st.spans, epoch=1, eval=1, step=4, data_load=6, forward=6, backward=4, optimizer_step=4)
    if st.of("epoch") and st.of("eval"):
        t.check(st.of("epoch")[0] in st.above(st.of("eval")[0]), "eval is not inside the epoch that was open")
    for step in st.of("step"):
        if st.inside(step, "optimizer_step"):
            t.check(all(s["attrs"].get("mode") == "train" for s in st.inside(step, "forward")), "evaluation inside a step")


@test
def epochs_of_the_user(t):
    st = trace(t, """
job, loader, held_out = Learner(), rows(3), rows(2)
for _ in ci.epochs(range(2)):
    job.model.train()
    for x, y in loader:
        job.learn(x, y)
    job.model.eval()
    with torch.no_grad():
        loss = sum(F.mse_loss(job.model(x), y).item() for x, y in held_out)
    ci.mark("held_out", loss, kind="summary")
job.show()
""")
    t.equal((len(st.of("epoch")), len(st.of("forward")), len(st.of("optimizer_step"))), (2, 10, 6), "epochs, forwards, updates")
    t.equal(sum(len(st.inside(e, "step")) for e in st.of("epoch")), len(st.of("step")), "steps inside epochs")
    evals = [s for s in st.of("forward") if s["attrs"].get("mode") == "eval"]
    t.equal(len(evals), 4, "evaluation forwards")
    for span in evals:
        t.check(not any(a["name"] == "step" and st.inside(a, "optimizer_step") for a in st.above(span)), "evaluation in a step")
    marks = st.marks_of("held_out")
    t.equal([m["kind"] for m in marks], ["summary"] * 2, "kinds of the marks")
    t.equal([st.by_id[m["span_id"]]["name"] for m in marks], ["epoch"] * 2, "spans of the marks")


@test
def two_optimizers(t):
    st = trace(t, """
a, b = Learner(), Learner(kind=torch.optim.Adam)
for x, y in rows(3):
    a.learn(x, y)
    b.learn(x, y)
a.show(), b.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=3, forward=6, backward=6, optimizer_step=6)
    for step in st.of("step"):
        t.equal(st.order(step), ["data_load"] + WHOLE_STEP[1:] * 2, "order in a step")
    t.equal({s["attrs"].get("optimizer", s["attrs"].get("module")) for s in st.of("optimizer_step")}, {"SGD", "Adam"}, "classes")


@test
def two_loaders_at_once(t):
    st = trace(t, """
job = Learner()
for (x, y), (a, b) in zip(rows(3), rows(4)):
    job.learn(torch.cat([x, a]), torch.cat([y, b]))
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=6, forward=3, backward=3, optimizer_step=3)


@test
def scaler_leaves_an_update_out(t):
    st = trace(t, """
if not hasattr(torch.amp, "GradScaler"):
    sys.stderr.write("GradScaler for the CPU")
    sys.exit(77)
job, scaler, done = Learner(), torch.amp.GradScaler("cpu", init_scale=16.0), 0
for i, (x, y) in enumerate(rows(4)):
    loss = F.mse_loss(job.model(x), y) * (float("inf") if i == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(job.opt)
    scaler.update()
    job.opt.zero_grad()
print(scaler.get_scale())
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=4, forward=4, backward=4, optimizer_step=3)
    t.equal([tally(st, s)["data_load"] for s in st.of("step")], [1, 2, 1], "batches of the steps")


@test
def closure_runs_inside_the_update(t):
    st = trace(t, """
job = Learner(kind=torch.optim.LBFGS, max_iter=3, tolerance_grad=0, tolerance_change=0)
calls = 0
def closure():
    global calls
    calls += 1
    job.opt.zero_grad()
    return job.gradient(x, y)
for x, y in rows(2):
    job.opt.step(closure)
print(calls)
""")
    updates = st.of("optimizer_step")
    t.counts(st.spans, epoch=1, step=2, data_load=2, forward=6, backward=6, optimizer_step=2)
    t.equal([st.order(u) for u in updates], [["forward", "backward"] * 3] * 2, "inside the updates")


@test
def optimizer_subclass_steps_once(t):
    st = trace(t, """
class Careful(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
job = Learner(kind=Careful)
scheduler = torch.optim.lr_scheduler.StepLR(job.opt, 1)
for x, y in rows(3):
    job.learn(x, y)
    scheduler.step()
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=3, forward=3, backward=3, optimizer_step=3)


@test
def forward_fails_and_the_loop_goes_on(t):
    st = trace(t, """
class Brittle(nn.Module):
    calls = 0
    def forward(self, x):
        Brittle.calls += 1
        if Brittle.calls == 3:
            raise ArithmeticError("third call")
        return x
job = Learner(nn.Sequential(nn.Sequential(Brittle(), nn.ReLU()), nn.Linear(5, 1)))
for x, y in rows(5):
    try:
        job.learn(x, y)
    except ArithmeticError as e:
        print("left out", e)
job.show()
""")
    t.counts(st.spans, epoch=1, step=4, data_load=5, forward=5, backward=4, optimizer_step=4)
    forwards = st.of("forward")
    t.equal([bool(s["error"]) for s in forwards], [False, False, True, False, False], "error state of the forwards")
    if len(forwards) == 5:
        t.equal(forwards[2]["attrs"].get("exception"), "ArithmeticError", "exception of the third")
        t.check(forwards[2]["state"] == "closed" and not st.children(forwards[2]), "the third forward is open or a parent")
    t.equal([tally(st, s)["data_load"] for s in st.of("step")], [1, 1, 2, 1], "batches of the steps")
    t.check(not any(s["error"] for s in st.of("step") + st.of("epoch")), "the error went further up")


@test
def outermost_module_only(t):
    st = trace(t, """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest = nn.Linear(5, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 1))
    def forward(self, x):
        return self.rest(self.first(x))
job = Learner(Net())
for x, y in [(torch.ones(2, 5), torch.ones(2, 1))] * 3:
    code = job.model.first(x)
    (F.mse_loss(job.model(x), y) + code.square().mean()).backward()
    job.update()
job.show()
""")
    t.counts(st.spans, forward=6, backward=3, optimizer_step=3, step=len(st.of("step")))
    t.equal([s["attrs"].get("module") for s in st.of("forward")], ["Linear", "Net"] * 3, "modules")
    t.check(not any(st.inside(s) for s in st.of("forward")), "a forward inside a forward")


@test
def loss_is_a_module(t):
    st = trace(t, """
job, loss = Learner(), nn.MSELoss()
for x, y in rows(4):
    loss(job.model(x), y).backward()
    job.update()
job.show()
""")
    forwards = st.of("forward")
    t.equal([s["attrs"].get("module") for s in forwards if s["attrs"].get("module") != "MSELoss"], ["Sequential"] * 4, "models")
    t.check(not any(st.inside(s) for s in forwards), "a forward inside a forward")
    t.equal((len(st.of("step")), len(st.of("backward"))), (4, 4), "steps, backwards")


@test
def checkpointed_blocks(t):
    st = trace(t, """
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.block, self.leave = nn.Linear(5, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)
    def forward(self, x):
        return self.leave(checkpoint(self.block, self.enter(x), use_reentrant=True))
job = Learner(Net())
for x, y in rows(2):
    job.learn(x, y)
job.show()
""")
    again = [s for s in st.of("forward") if any(a["name"] == "backward" for a in st.above(s))]
    t.equal(len(st.of("forward")) - len(again), 2, "forwards outside backward")
    t.check(len(again) <= 2, "too many forwards inside backward")
    t.equal((len(st.of("backward")), len(st.of("step")), len(st.of("epoch"))), (2, 2, 1), "backwards, steps, epochs")


@test
def what_counts_as_backward(t):
    st = trace(t, """
w = torch.ones(3, requires_grad=True)
torch.autograd.grad((w * 2).sum(), w)
torch.autograd.backward([(w * 2).sum(), (w * 3).sum()])
(w * 4).sum().backward()
try:
    torch.ones(1).backward()
except RuntimeError:
    print("no gradient")
print(w.grad.tolist())
""")
    t.counts(st.spans, backward=3)
    t.equal([bool(s["error"]) for s in st.of("backward")], [False, False, True], "error states")


@test
def endless_data_and_break(t):
    st = trace(t, """
class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(5), torch.ones(1)
job = Learner()
for i, (x, y) in enumerate(DataLoader(Endless(), batch_size=2)):
    if i == 4:
        break
    job.learn(x, y)
del x, y
job.show()
""")
    t.equal((len(st.of("epoch")), len(st.of("data_load"))), (1, 5), "epochs, loads")
    t.equal(len([s for s in st.of("step") if st.inside(s, "optimizer_step")]), 4, "steps with an update")
    t.check(len(st.of("step")) <= 5, "too many steps")
    t.check(all(s["state"] == "closed" for s in st.of("epoch")), "the epoch was not closed")


@test
def one_iterator_in_two_scopes(t):
    st = trace(t, """
job, it = Learner(), iter(rows(5))
with ci.scope("start"):
    for _ in range(2):
        job.learn(*next(it))
with ci.scope("rest"):
    for x, y in it:
        job.learn(x, y)
job.show()
""")
    t.equal((len(st.of("epoch")), len(st.of("step")), len(st.of("data_load"))), (1, 5, 5), "epochs, steps, loads")
    for name, loads in (("start", 2), ("rest", 3)):
        scope = st.of(name)[0]
        began = [s for s in st.of("data_load") if scope["start_ns"] <= s["start_ns"] <= scope["end_ns"]]
        t.equal(len(began), loads, f"loads in {name}")
    for step in st.of("step"):
        t.equal(st.order(step), WHOLE_STEP, "order in a step")


@test
def iterator_is_dropped_and_begun_anew(t):
    st = trace(t, """
job, loader = Learner(), rows(4)
for _ in range(2):
    for i, (x, y) in enumerate(loader):
        job.learn(x, y)
        if i == 1:
            break
for x, y in loader:
    job.learn(x, y)
job.show()
""")
    t.counts(st.spans, epoch=3, step=8, data_load=8, forward=8, backward=8, optimizer_step=8)
    apart(t, st.of("epoch"), "epochs")
    t.equal([len(steps_in(st, e)) for e in st.of("epoch")], [2, 2, 4], "steps in the epochs")


@test
def compiled_model(t):
    st = trace(t, """
if not hasattr(torch, "compile"):
    sys.stderr.write("compiler")
    sys.exit(77)
from torch._dynamo.utils import counters
job = Learner()
plain, job.model = job.model, torch.compile(job.model, backend="eager")
for x, y in rows(4):
    job.learn(x, y)
print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), sum(p.sum().item() for p in plain.parameters()))
""")
    t.counts(st.spans, epoch=1, step=4, data_load=4, forward=4, backward=4, optimizer_step=4)


@test_each(("super().__call__(x)", "nn.Module.__call__(self, x)"))
def module_with_a_call_of_its_own(t, call):
    """The call of the base is made from Python, so an interpreter that inlines such calls must not miss it."""
    st = trace(t, f"""
class Own(nn.Sequential):
    def __call__(self, x):
        return {call}

job = Learner(Own(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1)))
for i in range(60):
    job.learn(torch.ones(2, 5), torch.ones(2, 1))
if hasattr(torch, "compile") and torch.__version__ >= "2.1":
    from torch._dynamo.utils import counters
    plain, job.model = job.model, torch.compile(job.model, backend="eager")
    for i in range(4):
        job.learn(torch.ones(2, 5), torch.ones(2, 1))
    print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
job.show()
""")
    updates = len(st.of("optimizer_step"))
    t.check(updates in (60, 64), f"{updates} updates")
    t.counts(st.spans, step=updates, forward=updates, backward=updates, optimizer_step=updates)


@test
def scripted_model(t):
    st = trace(t, """
import io
job = Learner(torch.jit.script(nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 1))))
for x, y in rows(3):
    job.learn(x, y)
out = io.BytesIO()
torch.jit.save(job.model, out)
print(len(out.getvalue()))
""")
    t.equal((len(st.of("step")), len(st.of("backward")), len(st.of("optimizer_step"))), (3, 3, 3), "steps, backwards, updates")
    t.equal(len(st.of("forward")), 3, "forwards")


@test
def nothing_stays_on_the_objects(t):
    st = trace(t, """
import copy, gc, io, pickle, weakref
job = Learner()
loader = rows(2)
for x, y in loader:
    job.learn(x, y)
def size(thing):
    out = io.BytesIO()
    torch.save(thing, out)
    return len(out.getvalue())
print(size(job.model), size(job.opt.state_dict()), [b"cirron" in pickle.dumps(x) for x in (job.model, job.opt, loader)])
print(sorted(vars(job.model)), sorted(vars(job.opt)), sorted(vars(loader)))
print([len(getattr(job.model, n)) for n in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")])
print(torch.nn.modules.module._global_forward_hooks, type(job.opt).step.__qualname__, nn.Module.__call__.__qualname__)
twin = copy.deepcopy(job.model)
twin(torch.ones(1, 5))
seen = weakref.ref(job.model), weakref.ref(loader), weakref.ref(job.opt)
del job, loader, twin
gc.collect()
print([r() is None for r in seen])
""")
    t.counts(st.spans, epoch=1, step=2, data_load=2, forward=3, backward=2, optimizer_step=2)


@test
def mode_that_calls_the_module(t):
    """`training` may be anything, also code that runs the module to find its answer: the agent's asking must not go round in circles."""
    st = trace(t, """
class Odd(nn.Module):
    @property
    def training(self):
        return self(torch.ones(1, 5)).sum().item() > 0
    @training.setter
    def training(self, value):
        pass
    def forward(self, x):
        return x * 2
print(Odd()(torch.ones(1, 5)).sum().item())
""")
    t.counts(st.spans, forward=1)


@test
def training_in_a_thread(t):
    st = trace(t, """
import threading
def train():
    job = Learner()
    for x, y in rows(3):
        ci.mark("loss", job.learn(x, y))
    job.show()
with ci.scope("waiting"):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
""")
    t.equal((len(st.of("epoch")), len(st.of("step")), len(st.of("waiting"))), (1, 3, 1), "epochs, steps, scopes")
    tid = st.of("epoch")[0]["thread_id"]
    t.check(tid != st.of("waiting")[0]["thread_id"], "the thread has the main thread's id")
    t.check(all(s["name"] != "waiting" for e in st.of("epoch") for s in st.above(e)), "the epoch is inside another thread's scope")
    t.equal({st.by_id[m["span_id"]]["thread_id"] for m in st.marks_of("loss")}, {tid}, "threads of the marks")


@test
def training_inside_a_failing_scope(t):
    st = trace(t, """
job = Learner()
try:
    with ci.scope("attempt"):
        for i, (x, y) in enumerate(rows(4)):
            job.learn(x, y)
            if i == 1:
                raise LookupError("enough")
except LookupError:
    print("caught")
with ci.scope("after"):
    job.model(torch.ones(1, 5))
""")
    t.equal((len(st.of("epoch")), len(st.of("optimizer_step"))), (1, 2), "epochs, updates")
    attempt, after = st.of("attempt")[0], st.of("after")[0]
    t.check(attempt["error"] and attempt["attrs"].get("exception") == "LookupError", "the scope has no error state")
    t.check(attempt in st.above(st.of("epoch")[0]), "the epoch is not inside the scope")
    t.check(not st.above(after), "what follows is inside something")


@test
def batch_looked_at_before_training(t):
    """The iterator over the test set is kept, as tutorials do: it is no epoch, and swallows none."""
    st = trace(t, """
loader, held_out = rows(3, shuffle=True), rows(2)
examples = enumerate(held_out)
_, (first, _) = next(examples)
job = Learner()
for _ in range(3):
    for x, y in loader:
        job.learn(x, y)
    job.model.eval()
    with torch.no_grad():
        for x, y in held_out:
            job.model(x)
    job.model.train()
job.show()
""")
    t.counts(st.spans, epoch=3, eval=4, step=9, data_load=16, forward=15, backward=9, optimizer_step=9)
    epochs, evals = st.of("epoch"), st.of("eval")
    apart(t, sorted(epochs + evals, key=lambda s: s["start_ns"]), "passes")
    t.equal([e["index"] for e in epochs], [0, 1, 2], "indices of the epochs")
    for epoch in epochs:
        t.equal(st.order(epoch), ["step"] * 3, "contents of an epoch")
        t.equal(st.parent(epoch)["name"], "cirron.session", "parent of an epoch")
    t.equal({s["state"] for s in epochs + evals}, {"closed"}, "states")


@test
def loader_inside_a_loader(t):
    """The loaders are held by nothing but their iterators: the address of one is soon another's."""
    st = trace(t, """
job = Learner()
for a in rows(2):
    for x, y in rows(3):
        job.learn(x, y)
job.show()
""")
    t.counts(st.spans, epoch=1, step=6, data_load=8, forward=6, backward=6, optimizer_step=6)
    t.equal(len(steps_in(st, st.of("epoch")[0])), 6, "steps in the epoch")


@test
def loader_that_fetches_one_batch_ahead(t):
    st = trace(t, """
class Ahead(DataLoader):
    def __iter__(self):
        source = super().__iter__()
        held = next(source)
        for following in source:
            yield held
            held = following
        yield held
job, loader = Learner(), Ahead(rows(3).dataset, batch_size=3)
for _ in range(2):
    for x, y in loader:
        job.learn(x, y)
    with ci.scope("save"):
        pass
job.show()
""")
    t.counts(st.spans, epoch=2, step=6, data_load=6, forward=6, backward=6, optimizer_step=6, save=2)
    t.equal([len(steps_in(st, e)) for e in st.of("epoch")], [3, 3], "steps of the epochs")
    t.check(not any(st.above(s) for s in st.of("save")), "what follows is inside the epoch")


@test
def update_after_the_pass(t):
    st = trace(t, """
job, loader = Learner(), rows(3)
for _ in range(2):
    for x, y in loader:
        job.gradient(x, y)
    job.update()
job.show()
""")
    t.counts(st.spans, epoch=2, step=2, data_load=6, forward=6, backward=6, optimizer_step=2)
    t.equal([dict(tally(st, s)) for s in st.of("step")],
            [{"data_load": 3, "forward": 3, "backward": 3, "optimizer_step": 1}] * 2, "contents of the steps")


@test
def short_loader_repeated_beside_a_long_one(t):
    st = trace(t, """
import itertools
job, loader, short = Learner(), rows(4), itertools.cycle(rows(2))
for _ in range(2):
    for (x, y), (a, b) in zip(loader, short):
        job.learn(torch.cat([x, a]), torch.cat([y, b]))
job.show()
""")
    t.counts(st.spans, epoch=2, step=8, data_load=10, forward=8, backward=8, optimizer_step=8)
    t.equal([len(steps_in(st, e)) for e in st.of("epoch")], [4, 4], "steps of the epochs")


@test
def batch_drawn_from_another_loader(t):
    st = trace(t, """
job, other = Learner(), rows(2, shuffle=True)
for x, y in rows(3):
    a, b = next(iter(other))
    job.learn(torch.cat([x, a]), torch.cat([y, b]))
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=6, forward=3, backward=3, optimizer_step=3)


@test
def evaluation_over_the_loader_that_trains(t):
    st = trace(t, """
job, loader = Learner(), rows(3)
for x, y in loader:
    job.learn(x, y)
    with torch.no_grad():
        for a, b in loader:
            job.model(a)
job.show()
""")
    t.counts(st.spans, epoch=1, eval=3, step=3, data_load=12, forward=12, backward=3, optimizer_step=3)
    t.equal(len(steps_in(st, st.of("epoch")[0])), 3, "steps in the epoch")


@test
def tracebacks_keep_iterators(t):
    st = trace(t, """
job, loader, kept = Learner(), rows(3), []
for epoch in range(3):
    try:
        for i, (x, y) in enumerate(loader):
            if epoch == 1 and i == 1:
                raise ValueError("bad batch")
            job.learn(x, y)
    except ValueError as e:
        kept.append(e)
job.show()
""")
    t.counts(st.spans, epoch=3, step=7, data_load=8, forward=7, backward=7, optimizer_step=7)
    t.equal([len(steps_in(st, e)) for e in st.of("epoch")], [3, 1, 3], "steps of the epochs")


@test
def iterator_handed_to_a_thread(t):
    st = trace(t, """
import threading
job, it = Learner(), iter(rows(3))
def work():
    for x, y in it:
        job.learn(x, y)
thread = threading.Thread(target=work)
thread.start()
thread.join()
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=3, forward=3, backward=3, optimizer_step=3)


@test_each(["eager", "aot_eager"])
def compiled_by(t, backend):
    """Graphs, breaks and results are the same. Where the call of the model is inside the compiled function, its forward is that of the
    graph, if the backend makes it a module."""
    st = trace(t, f"""
if torch.__version__ < "2.6":
    sys.stderr.write("compiler that knows this interpreter for sure")
    sys.exit(77)
from torch._dynamo.utils import counters
with ci.scope("model"):
    job = Learner()
    plain, job.model = job.model, torch.compile(job.model, backend="{backend}")
    for x, y in rows(3):
        job.learn(x, y)
with ci.scope("in place"):
    job = Learner()
    job.model.compile(backend="{backend}")
    for x, y in rows(3):
        job.learn(x, y)
with ci.scope("loss"):
    job = Learner()
    loss = torch.compile(lambda x, y: F.mse_loss(job.model(x), y), backend="{backend}")
    for x, y in rows(3):
        loss(x, y).backward()
        job.update()
print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()), sum(counters["unimplemented"].values()))
job.show()
""")
    for name in "model", "in place", "loss":
        mine = st.inside(st.of(name)[0])
        modules = [s["attrs"]["module"] for s in mine if s["name"] == "forward"]
        t.counts(mine, epoch=1, step=3, data_load=3, backward=3, optimizer_step=3, forward=len(modules))
        t.check(name == "loss" and modules in ([], ["GraphModule"] * 3) or len(modules) == 3, f"{name}: forwards of {modules}")


@test_each([True, False])
def checkpoints_recomputed_in_backward(t, reentrant):
    """Whatever is computed once more for the backward is inside it: no forward, backward or step of its own. With a batch left out."""
    st = trace(t, f"""
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
told = dict(use_reentrant={reentrant}) if torch.__version__ >= "2.1" else dict()  # before, it knows one way only
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(5, 4), nn.Linear(4, 1)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)))
    def forward(self, x):
        x = checkpoint(self.blocks[0], self.enter(x), use_reentrant={reentrant})
        return self.leave(checkpoint_sequential(self.blocks[1:], 2, x, **told))
job = Learner(Net())
for i, (x, y) in enumerate(rows(6)):
    job.gradient(x, y)
    if i % 2:
        job.update()
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=6, backward=6, optimizer_step=3, forward=len(st.of("forward")))
    again = [s for s in st.of("forward") if any(a["name"] == "backward" for a in st.above(s))]
    outer = [s for s in st.of("forward") if s not in again]
    t.equal([s["attrs"]["module"] for s in outer], ["Net"] * 6, "forwards outside backward")
    t.check(not any(a["name"] == "forward" for s in again for a in st.above(s)), "a forward inside a forward")
    t.equal([tally(st, s)["backward"] for s in st.of("step")], [2] * 3, "backwards of the steps")


@test
def scaler_with_accumulation(t):
    """An update that the scaler leaves out is none: its batches are of the step that the next update ends."""
    st = trace(t, """
if not hasattr(torch.amp, "GradScaler"):
    sys.stderr.write("GradScaler for the CPU")
    sys.exit(77)
job, scaler = Learner(), torch.amp.GradScaler("cpu", init_scale=16.0)
for i, (x, y) in enumerate(rows(8)):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.mse_loss(job.model(x).float(), y) * (float("inf") if i == 2 else 1.0)
    scaler.scale(loss / 2).backward()
    if i % 2:
        scaler.unscale_(job.opt)
        nn.utils.clip_grad_norm_(job.model.parameters(), 1.0)
        scaler.step(job.opt)
        scaler.update()
        job.opt.zero_grad()
print(scaler.get_scale())
job.show()
""")
    t.counts(st.spans, epoch=1, step=3, data_load=8, forward=8, backward=8, optimizer_step=3)
    t.equal([tally(st, s)["data_load"] for s in st.of("step")], [2, 4, 2], "batches of the steps")
    t.equal(st.roots[0]["attrs"]["mixed_precision"], True, "mixed precision is known")
