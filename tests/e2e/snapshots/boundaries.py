"""When there is a snapshot, and of which tensors."""
from harness import test
from reference import compare, snapshot_parts

MODELS = '''
def trained(model, opt, loader, epochs=1, watched=(), named=None):
    """What the snapshots of so many plain epochs have to be."""
    kept = []
    for _ in range(epochs):
        for x, y in loader:
            learn(model, opt, x, y)
            last = copies(*(watched or [model]), named=named)
        kept.append(told(last))
    return kept


def sgd(*models):
    return torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)


'''


def all_as_told(t, body, **env):
    parts = snapshot_parts(t, MODELS + body, **env)
    for name, part in parts.items():
        compare(t, name, part.snapshots, part.own["snapshots"] if isinstance(part.own, dict) else part.own)
    return parts


@test
def which_epochs(t):
    parts = all_as_told(t, '''
model = net()
ci.watch(model, name="it")


@part
def loader_exhausted():
    return trained(model, sgd(model), rows(), epochs=3)


@part
def epochs_of_the_script():
    opt, loader, kept = sgd(model), rows(), []
    for _ in ci.epochs(range(2)):
        kept += trained(model, opt, loader)
    return kept


@part
def epochs_without_a_loader():
    opt, kept = sgd(model), []
    for _ in ci.epochs(range(2)):
        for _ in range(2):
            learn(model, opt, torch.randn(2, 4), torch.randn(2, 1))
        kept.append(told(copies(model)))
    return kept


@part
def epochs_left_by_an_exception():
    opt, kept = sgd(model), []
    with contextlib.suppress(ArithmeticError):
        for _ in ci.epochs(range(2)):
            learn(model, opt, torch.randn(2, 4), torch.randn(2, 1))
            kept.append(told(copies(model)))
            raise ArithmeticError
    return kept


@part
def validation_after_each():
    opt, loader, held_out, kept = sgd(model), rows(), rows(2), []
    for _ in range(2):
        kept += trained(model, opt, loader)
        model.eval()
        with torch.no_grad():
            for x, y in held_out:
                model(x)
        model.train()
    return kept


@part
def validation_in_the_middle():
    opt, kept = sgd(model), []
    for i, (x, y) in enumerate(rows(4)):
        learn(model, opt, x, y)
        if i == 1:
            with torch.no_grad():
                for a, b in rows(2):
                    model(a)
        last = copies(model)
    return [told(last)]


@part
def nothing_but_validation():
    with torch.no_grad():
        for x, y in rows():
            model(x)
    return []


@part
def an_iterator_by_hand():
    opt, it = sgd(model), iter(rows(3))
    for _ in range(3):
        learn(model, opt, *next(it))
        last = copies(model)
    del it
    return [told(last)]

''')
    one = parts["loader_exhausted"]
    rows = one.snapshots[0].rows
    t.equal({r["model"] for r in rows.values()}, {"it"}, "model")
    kinds = [r["kind"] for r in rows.values()]
    t.equal(len({s.span["id"] for s in one.snapshots}), 3, "epochs with snapshots")
    t.equal({s.span["name"] for p in parts.values() for s in p.snapshots}, {"epoch"}, "spans with snapshots")
    t.equal((kinds.count("weight"), kinds.count("gradient")), (6, 6), "records")
    t.equal([p["reason"] for p in one.all.passes], ["epoch"] * len(one.all.passes), "reasons")
    epochs = {e["index"] for e in one.st.of("epoch")}
    t.check({p["epoch"] for p in one.all.passes} <= epochs, "indices of epochs that there are not")


@test
def which_models(t):
    """Watched, found, several, none."""
    parts = all_as_told(t, '''
@part
def found_without_watch():
    model = net()
    return trained(model, sgd(model), rows(), epochs=2)


@part
def outermost_of_those_found():
    model = nn.Sequential(net(), nn.Linear(1, 1))
    return trained(model, sgd(model), rows())


@part
def frozen_part_of_one_found():
    model = nn.Sequential(net(), nn.Linear(1, 1))
    for p in model[0].parameters():
        p.requires_grad_(False)
    return trained(model, sgd(model[1]), rows())


@part
def no_model_at_all():
    w = torch.zeros(4, 1, requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    opt = torch.optim.SGD([{"params": [w]}, {"params": [b]}], lr=0.1)
    for x, y in rows():
        opt.zero_grad()
        F.mse_loss(x @ w + b, y).backward()
        opt.step()
    return [told({"0.0": w.detach(), "0.0.grad": w.grad, "1.0": b.detach(), "1.0.grad": b.grad})]


@part
def a_model_and_tensors_of_none():
    model, scale = net(), torch.ones(1, requires_grad=True)
    opt = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
    for x, y in rows():
        opt.zero_grad()
        F.mse_loss(model(x) * scale, y).backward()
        opt.step()
    kept = {f"Sequential.{k}": v for k, v in copies(model).items()}
    place = len(list(model.parameters()))
    return [told({**kept, f"optimizer.0.{place}": scale.detach(), f"optimizer.0.{place}.grad": scale.grad})]


@part
def two_found():  # a generator and its opponent
    maker, judge = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 1))
    m, j = sgd(maker), sgd(judge)
    for x, y in rows():
        j.zero_grad()
        (judge(maker(x).detach()).mean() - judge(x).mean()).backward()
        j.step()
        m.zero_grad()
        judge(maker(x)).mean().backward()
        m.step()
        kept = copies(maker, judge, named=["Linear", "Sequential"])
    return [told(kept)]


@part
def two_watched():
    a, b = net(), net()
    ci.watch(a, name="first")
    ci.watch(b)
    opt = sgd(a, b)
    model = nn.Sequential(a, nn.Linear(1, 4), b)
    return trained(model, opt, rows(), 2, [a, b], ["first", "Sequential"])


@part
def watched_ones_are_gone():  # those of the part before: then what is found
    gc.collect()
    model = net()
    return trained(model, sgd(model), rows())


@part
def watch_none():
    a, b = net(), net()
    ci.watch(a)
    ci.watch(None)
    return trained(b, sgd(b), rows())


@part
def watched_but_not_trained():
    a, b = net(), net()
    ci.watch(a)
    return trained(b, sgd(b), rows(), watched=[a])


@part
def another_one_in_the_middle():
    ci.watch(None)
    a, b = net(), net()
    ci.watch(a, name="a")
    kept = trained(a, sgd(a), rows())
    ci.watch(b, name="b")
    kept += trained(b, sgd(b), rows(), 1, [a, b], ["a", "b"])
    ci.watch(None)
    return kept


@part
def grows():
    model = net()
    ci.watch(model)
    kept = trained(model, sgd(model), rows())
    model.append(nn.Linear(1, 1))
    kept += trained(model, sgd(model), rows())
    model[0] = nn.Linear(4, 6)
    kept += trained(model, sgd(model), rows())
    del model[3]
    kept += trained(nn.Sequential(model[0], nn.Tanh(), nn.Linear(6, 1)), sgd(model), rows(), watched=[model])
    ci.watch(None)
    ci.watch(None)
    return kept


@part
def turned():  # the same memory in another order, by another type
    model = net()
    ci.watch(model)
    opt, kept = sgd(model), []
    for i in range(3):
        for x, y in rows():
            learn(model, opt, x, y)
            if i == 1:
                model[2].weight.data = model[2].weight.data.t()
                model[0].bias.data = model[0].bias.data.double().float()
            last = copies(model)
        kept.append(told(last))
    ci.watch(None)
    return kept


@part
def compiled():
    model = net()
    fast = torch.compile(model, backend="eager")
    kept = []
    for name, watched in (("_orig_mod", fast), ("", model)):
        ci.watch(None)
        ci.watch(watched)
        kept += trained(fast, sgd(model), rows(), watched=[watched])
    ci.watch(None)
    return kept


@part
def scripted():
    model = torch.jit.script(net())
    ci.watch(model)
    kept = trained(model, sgd(model), rows(), 2)
    ci.watch(None)
    return kept


@part
def traced_and_found():
    model = torch.jit.trace(net(), torch.randn(2, 4))
    opt = sgd(model)
    kept, = trained(model, opt, rows())  # its tensors are known as the optimizer's
    places = {k: f"0.{i}" for i, (k, _) in enumerate(model.named_parameters())}
    return [{places[k] if k in places else places[k[:-5]] + ".grad": v for k, v in kept.items()}]


@part
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = net(), nn.Linear(1, 1)

        def forward(self, x):
            return self.head(checkpoint(self.inner, x, use_reentrant=False))
    model = Block()
    ci.watch(model)
    return trained(model, sgd(model), rows())


@part
def parametrized():
    from torch.nn.utils import parametrizations
    ci.watch(None)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 6)), parametrizations.spectral_norm(nn.Linear(6, 1)))
    ci.watch(model)
    return trained(model, sgd(model), rows(), 2)


@part
def named_by_code_of_its_own():
    class Mine(nn.Sequential):
        def named_parameters(self, *a, **k):
            for name, p in super().named_parameters(*a, **k):
                yield "mine." + name, p
    ci.watch(None)
    model = Mine(nn.Linear(4, 3), nn.Linear(3, 1))
    ci.watch(model)
    return trained(model, sgd(model), rows(), 2)


@part
def not_a_module():
    class Plain:
        def __init__(self):
            self.w = torch.ones(4, 1, requires_grad=True)

        def named_parameters(self):
            return [("w", self.w)]

        def parameters(self):
            return [self.w]

        def __call__(self, x):
            return x @ self.w
    ci.watch(None)
    model = Plain()
    ci.watch(model, name="plain")
    kept = trained(model, torch.optim.SGD([model.w], lr=0.1), rows(), 2)
    ci.watch(None)
    return kept
''')
    t.equal({r["model"] for r in parts["found_without_watch"].snapshots[0].rows.values()}, {"Sequential"}, "name of a model that is found")
    found = parts["two_found"].snapshots[0].rows
    t.equal([r["model"] for r in found.values()].count("Linear"), 4, "records of the first of two")


@test
def special_numbers(t):
    """NaN and infinity in the loss, in weights and in gradients."""
    parts = all_as_told(t, '''
@part
def poisoned():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
        model[1].weight[0, 1] = float("inf")
        model[1].bias.fill_(float("-inf"))
    ci.watch(model)
    opt, kept = sgd(model), []
    for _ in ci.epochs(range(1)):
        kept += trained(model, opt, rows(2, 2))
    return kept


@part
def huge_and_tiny():
    ci.watch(None)
    model = nn.ParameterDict({
        "huge": nn.Parameter(torch.full((5, 3), 3e38)), "denormal": nn.Parameter(torch.arange(40) * 1e-45), "constant": nn.Parameter(torch.full((70,), 2.5)),
        "doubles": nn.Parameter(torch.tensor([1e308, -1e308, 5e-324, 0.0, -0.0], dtype=torch.float64)),
        "shifted": nn.Parameter(torch.randn(5000, dtype=torch.float64) + 35000)})
    ci.watch(model)
    kept = []
    for _ in ci.epochs(range(2)):
        kept.append(told(copies(model)))
    ci.watch(None)
    return kept
''', plain=False)
    rows = parts["poisoned"].snapshots[0].rows.values()
    t.equal(sorted((r["tensor_name"], r["stats"]["nan"]) for r in rows if r["stats"]["nan"] and r["kind"] == "weight")[:1],
            [("0.bias", 2)], "weights that are NaN")


@test
def ten_thousand_tensors(t):
    parts = all_as_told(t, '''
N = 10_000
model = nn.ParameterList(nn.Parameter(torch.full((4,), i / N)) for i in range(N))


@part
def many():
    ci.watch(model)
    opt, kept = sgd(model), []
    for _ in ci.epochs(range(2)):
        opt.zero_grad()
        torch.stack(tuple(model)).pow(2).mean().backward()
        opt.step()
        kept.append(told(copies(model)))
    return kept
''', plain=False)
    t.equal([len(s.rows) for s in parts["many"].snapshots], [20_000] * 2, "records")
