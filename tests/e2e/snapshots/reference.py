"""What a record of a tensor has to say, computed by the script itself in double precision, and how that is compared with the store.

Scripts consist of parts (parts.py of the suite frameworks). Each returns what its snapshots have to be, in order: a list of
{name: numbers}, made of copies that were taken before the epoch ended.
"""
import contextlib
import math
import sqlite3

from parts import run_parts

SCRIPT = '''
import contextlib, copy, gc, math, random, signal, time
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(5)
AGENT = hasattr(ci, "watch")
if not AGENT:
    ci.watch = lambda model, name=None: None
    ci.profile = lambda **k: None
    ci.shutdown = ci.flush = lambda: None


def part(function, add=part):
    def run():
        time.sleep(0.05)  # no more than eight snapshots wait for the store
        return function()

    run.__name__ = function.__name__
    add(run)
    return function


def numbers(x):
    """Of any array."""
    x = np.asarray(x, dtype=np.float64).ravel()
    finite = x[np.isfinite(x)]
    got = dict(count=x.size, nan=int(np.isnan(x).sum()), inf=int(np.isposinf(x).sum()), neg_inf=int(np.isneginf(x).sum()),
               zero=int((x == 0).sum()), mean=None)
    histogram, magnitude = np.zeros(16, int), np.zeros(32, int)
    if finite.size:
        low, high = finite.min(), finite.max()
        top, scale = high if high > low else low + 1, 1.0
        with np.errstate(over="ignore"):  # docs/snapshots.md
            scale = 0.5 if np.isinf(top - low) else 2.0 ** 600 if np.isinf(16 / (top - low)) else 1.0
            x, least, most = finite * scale, low * scale, top * scale
        wide = finite.astype(np.longdouble)
        mean = wide.sum() / wide.size
        got.update(mean=float(mean), std=float(np.sqrt(((wide - mean) ** 2).mean())), min=float(low) + 0.0, max=float(high) + 0.0,
                   norm=float(np.sqrt((wide ** 2).sum())))
        if high == low:
            histogram[0] = finite.size
        else:
            np.add.at(histogram, np.minimum(15, ((x - least) * (16 / (most - least))).astype(int)), 1)
        there = finite[finite != 0]
        np.add.at(magnitude, np.clip((np.frexp(np.abs(there))[1] - 1 + 48) // 2, 0, 31), 1)
    return dict(got, histogram=histogram.tolist(), magnitude=magnitude.tolist())


def of_tensor(t):
    shape, dtype = list(t.shape), str(t.dtype).split(".")[1]
    if t.layout != torch.strided:
        t = t._values() if t.layout == torch.sparse_coo else t.values()
        shape = list(t.shape)
    if t.is_complex():
        t = torch.view_as_real(t)
    return dict(numbers(t.double().numpy()), shape=shape, dtype=dtype)


def copies(*models, named=None):
    """Of all parameters and gradients, under the names that their records have."""
    kept = {}
    for i, model in enumerate(models):
        before = f"{(named or {})[i]}." if named else ""
        for name, p in model.named_parameters():
            kept[before + name] = p.detach().clone()
            if p.grad is not None:
                kept[f"{before}{name}.grad"] = p.grad.detach().clone()
    return kept


def told(kept):
    return {name: of_tensor(t) for name, t in kept.items()}


def rows(batches=3, width=4, size=2):
    return DataLoader(TensorDataset(torch.randn(batches * size, width), torch.randn(batches * size, 1)), batch_size=size)


def net(width=4, hidden=6, depth=1):
    inner = [x for _ in range(depth) for x in (nn.Linear(hidden, hidden), nn.Tanh())]
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), *inner, nn.Linear(hidden, 1))


def learn(model, opt, x, y, to_none=True):
    opt.zero_grad(set_to_none=to_none)
    F.mse_loss(model(x), y).backward()
    opt.step()


def one_epoch(model, opt, loader, **more):
    """The state after its last step."""
    for x, y in loader:
        learn(model, opt, x, y, **more)
        kept = copies(model)
    return kept
'''

EXACT = "count nan inf neg_inf zero min max".split()


def wrong_with(row, own):
    """What of a record is not as the script computed it; empty: nothing."""
    stats, found = row["stats"], []
    if (row["shape"], row["dtype"]) != (own["shape"], own["dtype"]):
        found.append(f"{row['shape']} {row['dtype']} instead of {own['shape']} {own['dtype']}")
    if stats is None:
        return found + [f"no numbers: {row['attrs']}"]
    for key in EXACT:
        if stats[key] != own.get(key):
            found.append(f"{key} {stats[key]!r} instead of {own.get(key)!r}")
    if own["mean"] is None:
        found += [key for key in ("mean", "std", "norm") if stats[key] is not None]
    else:
        spread = own["norm"] / math.sqrt(own["count"] - own["nan"] - own["inf"] - own["neg_inf"])
        for key, slack in (("mean", 1e-12 * spread), ("std", 1e-12 * spread), ("norm", 0)):
            if not abs(stats[key] - own[key]) <= 1e-9 * abs(own[key]) + slack:
                found.append(f"{key} {stats[key]!r} instead of {own[key]!r}")
        if stats["histogram"]["counts"] != own["histogram"]:
            found.append(f"histogram {stats['histogram']['counts']} instead of {own['histogram']}")
    if stats["magnitude"]["counts"] != own["magnitude"]:
        found.append("magnitude")
    return found


class Snapshot:
    def __init__(self, span, rows):
        self.span, self.rows = span, {r["tensor_name"]: r for r in rows}
        self.twice = len(rows) - len(self.rows)

    def kinds(self):
        return [(r["kind"], name) for name, r in self.rows.items()]


class Snapshots:
    """Of a store: records by their spans, and the rows of snapshot_passes."""

    def __init__(self, st):
        self.st, self.records = st, st.rows("snapshots")
        with contextlib.closing(sqlite3.connect(f"file:{st.db}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            self.passes = [dict(r) for r in db.execute("SELECT * FROM snapshot_passes ORDER BY ts_ns")]

    def below(self, span=None):
        """Those of a span, or of all, in the order of time."""
        mine = {s["id"] for s in self.st.inside(span)} | {span["id"]} if span else None
        groups = {}
        for r in self.records:
            if mine is None or r["span_id"] in mine:
                groups.setdefault((r["ts_ns"], r["session_id"], r["span_id"]), []).append(r)
        return [Snapshot(self.st.by_id.get(key[2]), groups[key]) for key in sorted(groups)]


def compare(t, what, snapshots, own, torn=False):
    """One snapshot for each that the script tells, with the same names and numbers. torn: or it says that it was changed, or gone."""
    t.equal(len(snapshots), len(own), f"{what}: number of snapshots")
    for i, (snapshot, expected) in enumerate(zip(snapshots, own)):
        here = f"{what}, snapshot {i}"
        t.equal(sorted(snapshot.rows), sorted(expected), f"{here}: records")
        t.equal(snapshot.twice, 0, f"{here}: records that are there twice")
        for name in set(snapshot.rows) & set(expected):
            row = snapshot.rows[name]
            t.equal(row["kind"], "gradient" if name.endswith(".grad") else "weight", f"{here}, {name}: kind")
            if torn and (row["torn"] or "error" in row["attrs"]):
                continue
            t.check(not row["torn"], f"{here}, {name}: torn")
            wrong = wrong_with(row, expected[name])
            t.check(not wrong, f"{here}, {name}: {'; '.join(wrong)[:300]}")


def snapshot_parts(t, body, plain=True, **env):
    """{name: Part} with `snapshots` of each. plain: the script is run without the agent, too."""
    env = {"CIRRON_SNAPSHOT_WAIT_MS": 60000, **env}
    t.collect()
    parts = run_parts(t, SCRIPT + body, plain, COLLECTOR=t.collector.process.pid, **env)
    snapshots = Snapshots(next(iter(parts.values())).st)
    for part in parts.values():
        part.all, part.snapshots = snapshots, snapshots.below(part.st.of(part.name)[0])
    return parts
