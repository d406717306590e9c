"""A small network learns to tell circles, squares and crosses apart. Ordinary PyTorch: nothing in here knows of cirron.

Two things go wrong on purpose, as they do in real trainings: pictures are "decoded" slowly, so that the loop waits for data, and
in epoch 3 the disk of this little world is slower still.
"""
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

SIZE, EPOCHS = 24, 5


class Shapes(Dataset):
    """Noisy pictures of one of three shapes, each drawn when it is asked for."""

    def __init__(self, count, seed):
        self.count, self.seed, self.delay_s = count, seed, 0.0008

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.delay_s)  # the slow decoder
        chance = torch.Generator().manual_seed(self.seed * 100_000 + i)
        kind = i % 3
        x, y = torch.randint(8, SIZE - 8, (2,), generator=chance).tolist()
        rows, columns = torch.meshgrid(torch.arange(SIZE) - y, torch.arange(SIZE) - x, indexing="ij")
        if kind == 0:
            picture = (rows**2 + columns**2 - 25).abs() < 9
        elif kind == 1:
            picture = torch.maximum(rows.abs(), columns.abs()) == 5
        else:
            picture = ((rows == columns) | (rows == -columns)) & (rows.abs() < 6)
        return picture.float().unsqueeze(0) + 0.5 * torch.randn(1, SIZE, SIZE, generator=chance), kind


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def train(model, optimizer, loader):
    model.train()
    total = 0.0
    for pictures, kinds in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pictures), kinds)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(pictures).argmax(1) == kinds).sum().item() for pictures, kinds in loader)
    return right / len(loader.dataset)


torch.set_num_threads(1)
torch.manual_seed(1)
learn, held_out = Shapes(768, 1), Shapes(192, 2)
learn_loader = DataLoader(learn, batch_size=32, shuffle=True)
held_out_loader = DataLoader(held_out, batch_size=96)
model = Network()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(EPOCHS):
    learn.delay_s = 0.0024 if epoch == 3 else 0.0008
    loss = train(model, optimizer, learn_loader)
    print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out_loader):.1%}", flush=True)
