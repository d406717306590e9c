"""The beginning that the scripts of this suite share. Ranks are forked once torch is imported, which takes longer than the tests."""

RANKS = '''
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def meet(rank, world, **more):
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("meet"), rank=rank, world_size=world, **more)


def part():
    """A rank that leaves while the threads of gloo are at work, its own or another's, may be aborted by them, with or without an agent."""
    time.sleep(0.3)
    dist.destroy_process_group()
    time.sleep(0.3)


def fork_ranks(world, work):
    """work(rank) in a process each, with the variables of a launcher."""
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
            meet(rank, world)
            work(rank)
            part()
            sys.exit(0)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]


def rows(batches, size=4):
    torch.manual_seed(7)
    return DataLoader(TensorDataset(torch.randn(batches * size, 5), torch.randn(batches * size, 1)), batch_size=size)


def net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1))

'''

ENV = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
