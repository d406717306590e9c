"""Adds snapshots of tensors with known numbers to stores that make_store made (scenarios tensors, shards), by the schema alone."""
import contextlib, json, math, random, sqlite3

STATS = "count nans infs neg_infs zeros mean std min max norm histogram magnitude".split()
RECORD = ["sid", "snapshot", "pass", "span", "tensor_name", "model", "kind", "shape", "dtype", "mode", *STATS, "blob_uri", "ts_ns", "torn", "attrs"]
PASS = "sid pass span epoch step reason mode ts_ns records list_ns read_ns wait_ns torn own blobs blob_error".split()


def stats(values):
    """As proto/tensor_stats.h has it, in the plainest way."""
    finite = [v for v in values if math.isfinite(v)]
    got = {"count": len(values), "nans": sum(map(math.isnan, values)), "infs": values.count(math.inf), "neg_infs": values.count(-math.inf),
           "zeros": finite.count(0), "mean": None, "std": None, "min": None, "max": None, "norm": None}
    histogram, magnitude = [0] * 16, [0] * 32
    if finite:
        mean, low, high = math.fsum(finite) / len(finite), min(finite), max(finite)
        top = low + 1 if low == high else high
        got |= {"mean": mean, "std": math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / len(finite)), "min": low, "max": high,
                "norm": math.sqrt(math.fsum(v * v for v in finite))}
        for v in finite:
            histogram[min(15, int((v - low) * (16 / (top - low))))] += 1
            if v:
                magnitude[min(31, max(0, (math.frexp(abs(v))[1] - 1 + 48) // 2))] += 1
    return got | {"histogram": json.dumps(histogram), "magnitude": json.dumps(magnitude)}


def insert(store, table, columns, row):
    store.execute(f"INSERT INTO {table}({','.join(columns)}) VALUES({','.join('?' * len(columns))})", [row.get(c) for c in columns])


@contextlib.contextmanager
def opened(path):
    with contextlib.closing(sqlite3.connect(path)) as store:
        yield store
        store.commit()


def add_pass(store, sid, number, tensors, reason="epoch", epoch=None, step=None, **more):
    """tensors: (name, kind, shape, values or the reason why there are none, more of the record). Gradients go first. Behind epoch `epoch`."""
    span, end, first = store.execute("WITH e AS (SELECT e.sid, e.span, coalesce(e.end_ns, s.last_ns) AS end_ns FROM epochs e JOIN sessions s"
                                     " USING (sid) WHERE e.sid = ? AND kind = 'epoch' AND idx = ?) SELECT span, end_ns,"
                                     " (SELECT max(mark) FROM marks m WHERE m.sid = e.sid AND m.ts_ns <= e.end_ns) + 64 FROM e", (sid, epoch)).fetchone()
    taken, = store.execute("SELECT max(snapshot) FROM snapshots WHERE sid = ?", (sid,)).fetchone()
    record = max(first, (taken or 0) + 1)
    tensors = sorted(tensors, key=lambda t: t[1] != "gradient")
    for name, kind, shape, values, *rest in tensors:
        row = {"model": "net", "dtype": "float32", "mode": "stats", "torn": 0, "attrs": "{}", "ts_ns": end}
        row |= {"attrs": json.dumps({"reason": values})} if isinstance(values, str) else stats(values)
        row |= {"sid": sid, "snapshot": record, "pass": number, "span": span, "tensor_name": name, "kind": kind, "shape": json.dumps(shape)}
        insert(store, "snapshots", RECORD, row | (rest[0] if rest else {}))
        record += 1
    insert(store, "snapshot_passes", PASS, {"sid": sid, "pass": number, "span": span, "epoch": epoch, "step": step, "reason": reason, "mode": "stats",
           "ts_ns": end, "records": len(tensors), "list_ns": 400_000, "read_ns": 9_000_000, "wait_ns": 2_000_000, "torn": 0, "own": 0, "blobs": 0, **more})


def model(epoch, bad):
    """A small network whose head learns, whose first layer is frozen, and whose gradients are not finite from `bad` on."""
    rng = random.Random(7)
    draw = lambda n, spread, shift=0.0: [rng.gauss(shift, spread) for _ in range(n)]
    frozen, head, grad = draw(216, 0.2), draw(80, 0.1), draw(80, 0.01)
    head = [v * (1 + epoch / 4) + epoch / 50 for v in head]
    worse = [math.nan if epoch >= bad and i % 8 == 0 else v / (1 + epoch) for i, v in enumerate(grad)]
    if epoch >= bad:
        worse[1], worse[2] = math.inf, -math.inf
    return [("conv1.weight", "weight", [8, 3, 3, 3], frozen), ("bn.bias", "weight", [8], [0.0] * 8),
            ("head.weight", "weight", [10, 8], head), ("head.bias", "weight", [10], [0.5] * 10),
            ("steps", "weight", [], [float(20 * (epoch + 1))], {"dtype": "int64"}),
            ("odd\x1b[31m\n", "weight", [2], "meta", {"dtype": "float8_e4m3fn"}),
            ("head.weight.grad", "gradient", [10, 8], worse),
            ("head.bias.grad", "gradient", [10], [math.nan] * 10 if epoch >= bad else [0.001] * 10)]


def fill_training(path, sid=1, bad=2):
    """Three epochs, with a blob, a torn record and the trouble that there can be."""
    with opened(path) as store:
        for epoch in range(3):
            tensors = model(epoch, bad)
            if epoch == 1:
                tensors[2] += ({"torn": 1, "blob_uri": "snapshots/s/weights.safetensors", "mode": "full"},)
            add_pass(store, sid, epoch + 1, tensors, epoch=epoch, torn=int(epoch == 1), blobs=3 * (epoch == 1), own=int(epoch == 2),
                     blob_error=28 if epoch == 2 else None)


def fill_shards(path):
    """Two ranks: each has its half of `split`, and both the same `whole`."""
    with opened(path) as store:
        for sid, sign in ((1, 1), (2, -1)):
            for epoch in range(2):
                add_pass(store, sid, epoch + 1, [("split", "weight", [4], [sign * v * (epoch + 1) for v in (1.0, 2.0, 4.0, 8.0)]),
                                                 ("whole", "weight", [2], [1.0, 3.0])], epoch=epoch)
