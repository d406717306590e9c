"""Models and tensors that are not what they seem: the training goes on, nothing is printed, what can be read is there."""
import subprocess

from boundaries import MODELS, all_as_told
from harness import QUERY, clean_env, test
from reference import Snapshots, compare, snapshot_parts
from running import Job


@test
def models_that_misbehave(t):
    parts = all_as_told(t, '''
def lists(found):
    """A model whose named_parameters() is this."""
    class Odd(nn.Sequential):
        def named_parameters(self, *a, **k):
            return found(super().named_parameters(*a, **k))
    return Odd(nn.Linear(4, 2), nn.Linear(2, 1))


def watched_but(model, expected):
    ci.watch(None)
    ci.watch(model)
    for _ in range(2):
        for x, y in rows(2):
            for p in model.parameters():
                p.grad = None
            F.mse_loss(model(x), y).backward()
            with torch.no_grad():
                for p in nn.Module.parameters(nn.ModuleList(model)):
                    p.sub_(p.grad, alpha=0.1)
        kept = dict(expected(model))
    return kept


class Thing:
    def __init__(self, found):
        self.found = found

    def named_parameters(self):
        return self.found()

    def parameters(self):
        return []


def around(thing):
    """A snapshot of something that does not train."""
    ci.watch(None)
    ci.watch(thing)
    for _ in ci.epochs(range(1)):
        pass
    ci.watch(None)


def raises():
    raise ValueError("not now")


@part
def it_raises():
    around(Thing(raises))
    return []


@part
def it_raises_half_way():
    def found():
        yield "first", torch.ones(2)
        raise ValueError("not now")
    around(Thing(found))
    return []


@part
def it_ends_the_process():
    around(Thing(lambda: sys.exit(3)))
    return []


@part
def it_gives_something_else():
    for what in (None, 7, "text", {"a": 1}, [1, 2], [("a", 1, 2)], [(1, torch.ones(2))][:0]):
        around(Thing(lambda: what))
    return []


@part
def it_sleeps():
    def found():
        time.sleep(0.01)
        return [("w", torch.ones(3))]
    around(Thing(found))
    return [told({"w": torch.ones(3)})]


@part
def a_broken_one_beside_a_good_one():
    bad, good = Thing(raises), net()
    ci.watch(None)
    ci.watch(bad)
    ci.watch(good, name="good")
    kept = trained(good, sgd(good), rows(), 2, [good], ["good"])
    ci.watch(None)
    return kept


@part
def it_holds_itself():
    model = net()
    object.__getattribute__(model, "_modules")["me"] = model
    ci.watch(model)
    opt, kept = torch.optim.SGD(list({id(p): p for m in list(model)[:5:2] for p in m.parameters()}.values()), lr=0.1), []
    for _ in ci.epochs(range(1)):
        kept.append({k: v for k, v in told(copies(model)).items()})
    del model._modules["me"]
    ci.watch(None)
    return kept


@part
def keys_of_all_kinds():
    model = nn.Module()
    for name in ("", "a b", "\\u00e9\\u4e2d", "x" * 2000, "new\\nline", "\\ud800"):
        model._parameters[name] = nn.Parameter(torch.ones(len(model._parameters) + 1))
    ci.watch(model)
    for _ in ci.epochs(range(1)):
        pass
    ci.watch(None)
    whole = {"": 1, "a b": 2, "\\u00e9\\u4e2d": 3, "x" * 1024: 4, "new\\nline": 5, "?": 6}
    return [told({k: torch.ones(n) for k, n in whole.items()})]


@part
def no_weights():
    ci.watch(None)
    model = nn.Tanh()
    around(model)
    return []


@part
def wrong_arguments():
    if not AGENT:
        return []
    for what, error in ((7, TypeError), ([1, 2], TypeError), (nn.Linear, TypeError), ("text", TypeError)):
        try:
            ci.watch(what)
            assert False, what
        except error:
            pass
    return []
''')
    t.equal(len(parts), 10, "parts")


@test
def nobody_notices(t):
    """Functions, modes and classes of the script that see what is done to tensors see none of ours."""
    parts = snapshot_parts(t, MODELS + '''
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Counted(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@part
def a_class_that_counts():
    model = net()
    model[0].weight = nn.Parameter(torch.randn(6, 4).as_subclass(Counted))
    ci.watch(model)
    Counted.seen.clear()
    opt = sgd(model)
    for _ in range(2):
        for x, y in rows(2):
            learn(model, opt, x, y)
    ci.watch(None)
    return len(Counted.seen)


@part
def modes_that_count():
    counts = [0, 0]

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            counts[0] += 1
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            counts[1] += 1
            return func(*args, **(kwargs or {}))

    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 1))
    ci.watch(model)
    opt = sgd(model)
    with Functions(), Dispatches():
        for _ in range(2):
            for i in range(3):
                opt.zero_grad()
                model(torch.tensor([i, 2])).sum().backward()
                opt.step()
            for _ in ci.epochs(range(1)):
                pass
    ci.watch(None)
    return counts


@part
def what_is_left_behind():
    model = net()
    ci.watch(model)
    trained(model, sgd(model), rows(), 2)
    state = [sorted(vars(model)), sorted(vars(model[0])), [sys.getrefcount(p) for p in model.parameters()], torch.is_grad_enabled(), torch.initial_seed()]
    state.append([len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()])
    ci.watch(None)
    return state
''')
    t.check(all(len(p.snapshots) == 2 for p in parts.values()), f"snapshots: {[len(p.snapshots) for p in parts.values()]}")


@test
def what_is_said_of_them(t):
    """health(), the report, first-bad."""
    t.collect()
    job = Job(t, '''
model = net(64, 600, 2)
ci.watch(model)
opt = sgd(model)
kept = trained(model, opt, rows(2, 64), 2)
with torch.no_grad():
    model[2].weight[3, 4] = float("nan")
trained(model, opt, rows(2, 64), 1)
say({k: v for k, v in ci.health().items() if k.startswith("snapshot_")})
''')
    health, = job.end()
    counted = {k: health[f"snapshot_{k}_count"] for k in ("", "tensor", "torn", "skip", "own", "blob", "blob_error", "blob_drop") if k}
    t.check(counted.pop("torn") <= 1, "the weight that was poisoned at once may be torn")
    t.equal((health["snapshot_count"], counted), (3, dict(tensor=48, skip=0, own=0, blob=0, blob_error=0, blob_drop=0)), "health()")
    t.check(health["snapshot_list_ns"] > 0, "time of listing")
    st = t.store()
    t.equal(len(Snapshots(st).below()), 3, "snapshots")

    def ask(*words):
        done = subprocess.run([QUERY, "--db", st.db, *words], capture_output=True, text=True, env=clean_env())
        t.equal(done.stderr, "", f"errors of {words}")
        return done.returncode, done.stdout

    status, text = ask("first-bad")
    t.equal(status, 3, "status of first-bad")
    named = [line.split()[0] for line in text.splitlines() if " weight " in line or " gradient " in line]
    t.check("2.weight" in named, "named by first-bad: " + text[:600])
    status, text = ask("report")
    t.check("napshot" in text and ("2.weight" in text or "not finite" in text), "the report: " + text[-900:])
