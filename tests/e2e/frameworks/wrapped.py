"""Libraries that wrap model, optimizer and loader, and leave the loop to the script: its steps and epochs are torch's."""
from harness import test
from parts import run_parts

TORCH = '''
import logging
import torch
from torch import nn
from torch.nn import functional as F

logging.disable(logging.WARNING)
torch.set_num_threads(1)
DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset


def rows(n=10):
    g = torch.Generator().manual_seed(n)
    return DataLoader(TensorDataset(torch.randn(n, 4, generator=g), torch.randn(n, 1, generator=g)), batch_size=2)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def weights(model):
    return sum(p.detach().double().sum().item() for p in model.parameters())

'''


def is_plain(part, steps, epochs, each, **more):
    """The loop's own count of updates, and batches of each step."""
    part.counts(step=steps, epoch=epochs, **more)
    part.equal(part.own[0], steps, "its updates")
    part.equal([len(part.st.inside(s, "forward")) for s in part.of("step")], each, "forwards of the steps")
    part.equal([len(part.st.inside(s, "backward")) for s in part.of("step")], each, "backwards of the steps")
    part.equal({len(part.st.inside(s, "optimizer_step")) for s in part.of("step")}, {1}, "updates of a step")
    part.check(all(any(a["name"] == "epoch" for a in part.st.above(s)) for s in part.of("step")), "a step outside the epochs")
    part.equal(part.errors(), [], "errors")


@test
def accelerated(t):
    """Accelerate without a Trainer. Its loaders fetch a batch ahead, its optimizer leaves out what is only accumulated."""
    parts = run_parts(t, TORCH + '''
from accelerate import Accelerator
from accelerate.state import AcceleratorState


def train(epochs, n, evaluated=False, **more):
    acc, model = Accelerator(cpu=True, **more), net()
    opt = sgd(model)
    model, opt, data, other = acc.prepare(model, opt, rows(n), rows(6))
    updates = 0
    for epoch in range(epochs):
        model.train()
        for x, y in data:
            with acc.accumulate(model):
                loss = F.mse_loss(model(x), y)
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
                updates += acc.sync_gradients
        if evaluated:
            model.eval()
            with torch.no_grad():
                for x, y in other:
                    acc.gather_for_metrics((model(x), y))
    return [updates, weights(model)]


@part
def plain():
    return train(2, 10)


@part
def accumulated():  # 5 batches make 3 updates
    return train(2, 10, gradient_accumulation_steps=2)


@part
def evaluated():
    return train(2, 10, evaluated=True)


@part
def in_bfloat():
    AcceleratorState._reset_state(True)
    return train(1, 10, mixed_precision="bf16")
''')
    is_plain(parts["plain"], 10, 2, [1] * 10)
    is_plain(parts["accumulated"], 6, 2, [2, 2, 1] * 2)
    is_plain(parts["evaluated"], 10, 2, [1] * 10, eval=2)
    evals = parts["evaluated"].of("eval")  # the last batch comes when the loader is exhausted already, and after the eval
    t.equal([len(parts["evaluated"].st.inside(s, "forward")) for s in evals], [2, 2], "evaluated: batches")
    is_plain(parts["in_bfloat"], 5, 1, [1] * 5)


@test
def by_fabric(t):
    """Fabric of Lightning: no Trainer, wrapped objects."""
    parts = run_parts(t, TORCH + '''
from lightning.fabric import Fabric


def train(accumulate, **more):
    fabric = Fabric(accelerator="cpu", devices=1, **more)
    model = net()
    opt = sgd(model)
    model, opt = fabric.setup(model, opt)
    data, updates = fabric.setup_dataloaders(rows()), 0
    for epoch in range(2):
        for i, (x, y) in enumerate(data):
            again = (i + 1) % accumulate != 0
            with fabric.no_backward_sync(model, enabled=again):
                fabric.backward(F.mse_loss(model(x), y))
            if not again:
                fabric.clip_gradients(model, opt, max_norm=1.0)
                opt.step()
                opt.zero_grad()
                updates += 1
    return [updates, weights(model)]


@part
def plain():
    return train(1)


@part
def accumulated():
    return train(5)


@part
def in_bfloat():
    return train(1, precision="bf16-mixed")
''')
    is_plain(parts["plain"], 10, 2, [1] * 10)
    is_plain(parts["accumulated"], 2, 2, [5] * 2)
    is_plain(parts["in_bfloat"], 10, 2, [1] * 10)


@test
def by_an_engine(t):
    """An engine as DeepSpeed's: it is the module that is called, scales, counts batches, and updates in step() when enough have come."""
    parts = run_parts(t, TORCH + '''
class Optimizer:  # around torch's; none of its classes
    def __init__(self, inner):
        self.inner, self.param_groups, self.overflow = inner, inner.param_groups, False

    def step(self, closure=None):
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        self.overflow = not all(torch.isfinite(x).all() for x in grads)
        if not self.overflow:
            self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


class Engine(nn.Module):
    def __init__(self, model, accumulate, data):
        super().__init__()
        self.module, self.accumulate = model, accumulate
        self.optimizer, self.loader = Optimizer(torch.optim.Adam(model.parameters())), Loader(data)
        self.micro_steps = self.global_steps = self.skipped_steps = 0

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def backward(self, loss):
        (loss / self.accumulate).backward()
        return loss

    def step(self):
        self.micro_steps += 1
        if self.micro_steps % self.accumulate == 0:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.global_steps += 1
            self.skipped_steps += self.optimizer.overflow


class Loader:  # as its loader that begins anew by itself
    def __init__(self, data):
        self.data = data
        self.at = iter(data)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return next(self.at)
        except StopIteration:
            self.at = iter(self.data)
            return next(self.at)


def train(batches, accumulate=1, bad=None):
    engine = Engine(net(), accumulate, rows(8))
    for i in range(batches):
        x, y = next(engine.loader)
        loss = F.mse_loss(engine(x), y) * (float("inf") if i == bad else 1.0)
        engine.backward(loss)
        engine.step()
    return [engine.global_steps - engine.skipped_steps, weights(engine), engine.global_steps]


@part
def plain():
    return train(8)


@part
def accumulated():
    return train(8, 2)


@part
def overflow():
    return train(8, bad=2)
''')
    is_plain(parts["plain"], 8, 2, [1] * 8)
    is_plain(parts["accumulated"], 4, 2, [2] * 4)
    t.equal(parts["overflow"].own[2], 8, "overflow: the engine's own count")
    is_plain(parts["overflow"], 7, 2, [1, 1, 2, 1, 1, 1, 1])
    for part in parts.values():
        part.equal({s["attrs"]["module"] for s in part.of("forward")}, {"Engine"}, "modules")
