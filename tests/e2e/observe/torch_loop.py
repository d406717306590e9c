"""Trains a little, plain and compiled, and compares the counts of the observed functions. COUNTERS: where to write dynamo's counters."""
import ctypes
import json
import os

import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

traced = "LD_PRELOAD" in os.environ
agent = ctypes.CDLL(os.environ["TEST_AGENT"]) if traced else None
NAMES = ("Module._wrapped_call_impl", "Tensor.backward", "DataLoader.__iter__", "_BaseDataLoaderIter.__next__", "Optimizer.__init__")


def counts():
    return [agent.test_enters(n.encode()) for n in NAMES] if traced else [0] * len(NAMES)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def train(model, optimizer, loader):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


def step(model, optimizer, x, y):
    """Compiled as a whole: with backward and the optimizer inside."""
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
before = counts()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.optim.Adam(model.parameters())
for _ in range(2):
    train(model, optimizer, DataLoader(data, batch_size=4))
got = [a - b for a, b in zip(counts(), before)]
expected = [2 * 8 * 3, 2 * 8, 2, 2 * 9, 2]  # a net and its two layers; the loader's end is a call too
if traced and got != expected:
    print("plain:", got, "expected", expected)

torch._dynamo.reset()
torch._dynamo.utils.counters.clear()
compiled = torch.compile(Net(), backend="eager")
optimizer = torch.optim.Adam(compiled.parameters())
before = counts()
for _ in range(3):
    train(compiled, optimizer, DataLoader(data, batch_size=4))
after = counts()
whole = torch.compile(step, backend="eager")
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    whole(model, optimizer, *data[0:4])
    compiled(data[0:3][0])
compiled_got = [a - b for a, b in zip(after, before)][1:4]  # which modules are called depends on the version of torch
if traced and compiled_got != [3 * 8, 3, 3 * 9]:
    print("compiled:", compiled_got)
elif got == expected:
    print("counts are exact")
with open(os.environ["COUNTERS"], "w") as f:
    json.dump({k: dict(v) for k, v in torch._dynamo.utils.counters.items()}, f, indent=1, sort_keys=True)
