"""Records hold what the tensors were when the epoch ended, whatever the training does next."""
from harness import test, test_each
from reference import compare, snapshot_parts

# Small models are read in the process, at once; large ones from outside, while the training goes on.
SIZES = {"small": (4, 6, 1), "large": (64, 600, 2)}


@test_each(SIZES)
def the_training_goes_on(t, size):
    parts = snapshot_parts(t, f'''
WIDTH, HIDDEN, DEPTH = {SIZES[size]}


def made(kind=torch.optim.SGD, **more):
    model = net(WIDTH, HIDDEN, DEPTH)
    ci.watch(None)
    ci.watch(model, name="net")
    return model, kind(model.parameters(), **{{"lr": 0.1, **more}}), rows(2, WIDTH)


@part
def plain_loop():
    model, opt, loader = made()
    return [told(one_epoch(model, opt, loader)) for _ in range(3)]


@part
def gradients_filled_with_zeros():
    model, opt, loader = made()
    return [told(k) for k in [one_epoch(model, opt, loader, to_none=False) for _ in range(3)]]


@part
def zeros_by_the_model():
    model, opt, loader = made()
    kept = []
    for _ in range(3):
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            opt.step()
            last = copies(model)
            if len(kept) % 2:
                model.zero_grad(set_to_none=False)
                last.update({{k: torch.zeros_like(v) for k, v in last.items() if k.endswith(".grad")}})
        kept.append(last)
        model.zero_grad(False)
    return [told(k) for k in kept]


@part
def gradients_dropped_by_hand():
    model, opt, loader = made(torch.optim.Adam)
    kept = []
    for _ in range(3):
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            opt.step()
            last = copies(model)
            if len(kept) == 1:
                for p in model.parameters():
                    p.grad = None
                last = copies(model)
        kept.append(last)
        for p in model.parameters():
            p.grad = None
        gc.collect()
        junk = [torch.full_like(p, 77.0) for p in model.parameters()]  # takes the memory that was let go of
        del junk
    return [told(k) for k in kept]


@part
def accumulation_over_the_end():
    model, opt, loader = made()
    kept = []
    with ci.scope("all"):  # the last epoch still waits for its update, and ends with this
        for i in range(3):
            for k, (x, y) in enumerate(loader):
                F.mse_loss(model(x), y).backward()
                if k == 0:
                    opt.step()
                    opt.zero_grad()
                last = copies(model)
            kept.append(last)
    return [told(k) for k in kept]


@part
def left_early():
    model, opt, loader = made()
    kept = []
    for i in range(3):
        for x, y in rows(4, WIDTH):
            learn(model, opt, x, y)
            last = copies(model)
            break
        kept.append(last)
        if i == 1:
            opt.zero_grad()
            with torch.no_grad():
                model(x)
    return [told(k) for k in kept]


@part
def updates_at_once():
    model, opt, loader = made()
    kept = []
    for _ in range(3):
        kept.append(one_epoch(model, opt, loader))
        opt.step()  # with the same gradients
        opt.step()
    return [told(k) for k in kept]


@part
def lbfgs():
    model, opt, loader = made(torch.optim.LBFGS, max_iter=3)
    kept = []

    def closure():
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(2):
        for x, y in loader:
            opt.step(closure)
            last = copies(model)
        kept.append(last)
    return [told(k) for k in kept]
''')
    for name, part in parts.items():
        compare(t, name, part.snapshots, part.own)
    own = {p["own"] for p in parts["plain_loop"].all.passes}
    t.equal(own, {int(size == "small")}, "who computed it")


@test_each(SIZES)
def changed_behind_our_back(t, size):
    """While the collector stands still something changes the tensors that no probe sees: the record is right, or it says so."""
    parts = snapshot_parts(t, f'''
WIDTH, HIDDEN, DEPTH = {SIZES[size]}
COLLECTOR = int(os.environ["COLLECTOR"])


def spoiled(spoil, again=True):
    model = net(WIDTH, HIDDEN, DEPTH)
    ci.watch(None)
    ci.watch(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = rows(2, WIDTH)
    os.kill(COLLECTOR, signal.SIGSTOP)
    try:
        kept = one_epoch(model, opt, loader)
        more = spoil(model)
    finally:
        os.kill(COLLECTOR, signal.SIGCONT)
    if again and not more:
        learn(model, opt, *next(iter(loader)))
    return [told(kept)]


def each(change):
    @torch.no_grad()
    def spoil(model):
        for p in model.parameters():
            change(p)
    return spoil


@part
def in_place():
    return spoiled(each(lambda p: p.add_(1)))


@part
def loaded():
    return spoiled(lambda m: m.load_state_dict({{k: v + 1 for k, v in m.state_dict().items()}}) and None)


@part
def averages_swapped_in():
    return spoiled(each(lambda p: p.data.copy_(p.data * 0.5)))


@part
def clamped():
    return spoiled(each(lambda p: p.data.clamp_(-0.001, 0.001)))


@part
def by_numpy():
    return spoiled(each(lambda p: p.detach().numpy().fill(3)))


@part
def exchanged():
    return spoiled(each(lambda p: setattr(p, "data", torch.full_like(p, 5))))


@part
def exchanged_and_back():
    def spoil(model):
        kept = [p.data for p in model.parameters()]
        each(lambda p: setattr(p, "data", torch.full_like(p, 5)))(model)
        for p, k in zip(model.parameters(), kept):
            p.data = k
    return spoiled(spoil)


@part
def layers_exchanged():
    def spoil(model):
        for i, m in enumerate(model):
            if isinstance(m, nn.Linear):
                there = m.out_features, m.in_features
                model[i] = m = None
                gc.collect()
                model[i] = nn.Linear(there[1], there[0])
    return spoiled(spoil, again=False)


@part
def gradients_in_place():
    return spoiled(each(lambda p: p.grad.mul_(2)))


@part
def gradients_data():
    return spoiled(each(lambda p: p.grad.data.zero_()))


@part
def gradients_by_numpy():
    return spoiled(each(lambda p: p.grad.numpy().fill(9)))


@part
def gradients_gone():
    def change(p):
        p.grad = None
        torch.full_like(p, 77.0)
    return spoiled(each(change))


@part
def clipped():
    return spoiled(lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1e-3) and None)


@part
def moved_to_double():
    return spoiled(lambda m: m.double(), again=False)


@part
def deleted():
    model = net(WIDTH, HIDDEN, DEPTH)
    ci.watch(None)
    ci.watch(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    os.kill(COLLECTOR, signal.SIGSTOP)
    try:
        kept = one_epoch(model, opt, rows(2, WIDTH))
        del model, opt
        gc.collect()
        junk = [torch.full_like(x, 77.0) for x in kept.values()]
        del junk
    finally:
        os.kill(COLLECTOR, signal.SIGCONT)
    return [told(kept)]
''')
    for name, part in parts.items():
        compare(t, name, part.snapshots, part.own, torn=size == "large")
