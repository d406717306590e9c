"""The beginning that the scripts of this suite share. Put in front of each as text, so that a started worker finds it too."""

TORCH = '''
import os
import signal
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

try:
    import cirron as ci
except ImportError:  # run without the agent: the same script, nothing recorded
    import contextlib

    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
        epochs = staticmethod(iter)

torch.set_num_threads(1)
torch.manual_seed(7)


def rows(batches, size=3, **more):
    data = TensorDataset(torch.randn(batches * size, 5), torch.randn(batches * size, 1))
    return DataLoader(data, batch_size=size, **more)


class Learner:
    def __init__(self, model=None, kind=torch.optim.SGD, **more):
        self.model = model or nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))
        self.opt = kind(self.model.parameters(), **{"lr": 0.05, **more})

    def gradient(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        return loss

    def update(self):
        self.opt.step()
        self.opt.zero_grad()

    def learn(self, x, y):
        loss = self.gradient(x, y)
        self.update()
        return loss.item()

    def show(self):
        print("weights", sum(p.detach().double().sum().item() for p in self.model.parameters()), flush=True)

'''
