"""A training whose steps are as short as they get (mlp), or of an ordinary length (cnn). Prints the seconds of each epoch.

The network of 32-16-4 with batches of 8 is the worst case for anything that costs by the step. `counted` is that one under
callgrind, which is switched on for the epochs after the second.
"""
import os
import subprocess
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

kind, epochs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
torch.manual_seed(0)
if kind in ("mlp", "counted"):
    model = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
    inputs, batch, classes = torch.randn(8 * steps, 32), 8, 4
else:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
    inputs, batch, classes = torch.randn(16 * steps, 3, 32, 32), 16, 10
loader = DataLoader(TensorDataset(inputs, torch.randint(0, classes, (len(inputs),))), batch_size=batch)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


def epoch():
    begin = time.perf_counter()
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return time.perf_counter() - begin


def count(on):
    if kind == "counted":
        subprocess.run(["callgrind_control", "-i", on, str(os.getpid())], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


epoch()
if kind == "counted":
    epoch()
count("on")
print(*(epoch() for _ in range(epochs)))
count("off")
