"""A training that is nothing but its parameters: snapshot_loop.py resnet|many EPOCHS [PAUSE_MS]. Prints JSON: seconds of each epoch, of one bare read of
the same memory, and what the agent says of its snapshots.

resnet: tensors of the shapes of ResNet-50's 161 parameters (25.6 million numbers) and as many gradients; many: 10,000 of 16 numbers. An epoch is two
updates; PAUSE_MS is what comes after it, before the next update: an evaluation, say.
"""
import json
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

kind, epochs, pause = sys.argv[1], int(sys.argv[2]), float((sys.argv + ["0"])[3]) / 1000


def resnet():
    yield from ((64, 3, 7, 7), (64,), (64,))
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from ((width, inputs, 1, 1), (width,), (width,), (width, width, 3, 3), (width,), (width,), (4 * width, width, 1, 1), (4 * width,), (4 * width,))
            if block == 0:
                yield from ((4 * width, inputs, 1, 1), (4 * width,), (4 * width,))
            inputs = 4 * width
    yield from ((1000, 2048), (1000,))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        shapes = resnet() if kind == "resnet" else [(16,)] * 10000
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(0.05 * torch.randn(s)) for s in shapes)
        self.anchor = torch.zeros((), requires_grad=True)

    def forward(self, x):
        return self.anchor * x.sum()


torch.set_num_threads(1)
torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.weights, lr=1e-6)
gradients = [0.01 * torch.randn(w.shape) for w in net.weights]
loader, spent = DataLoader(TensorDataset(torch.zeros(2, 1))), []
for epoch in range(epochs + 1):
    begin = time.perf_counter()
    for (x,) in loader:
        opt.zero_grad()
        net(x).backward()
        for w, g in zip(net.weights, gradients):
            w.grad = g.detach()  # of its own: what an update drops is not what the next one brings
        opt.step()
    time.sleep(pause)
    spent.append(time.perf_counter() - begin)
begin = time.perf_counter()
for tensor in [w.detach() for w in net.weights] + gradients:
    tensor.sum()
bare = time.perf_counter() - begin
try:
    import cirron

    health = {k: v for k, v in cirron.health().items() if k.startswith("snapshot")}
except ImportError:
    health = {}
print(json.dumps({"epochs": spent[1:], "bare": bare, "health": health}))
