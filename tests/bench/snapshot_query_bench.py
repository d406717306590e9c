"""How long questions to a store with very many snapshots take, the start of the program included.

  snapshot_query_bench.py [FOLDER [TENSORS [SNAPSHOTS]]]      default: the temporary folder, 10000, 100: 2 million records

Makes a store of one session with a weight and a gradient for each tensor, one NaN in the last snapshot (kept, so that a second run
begins at once). Of five runs each the best wall and CPU time are printed.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import query_bench

sys.path.insert(0, str(query_bench.ROOT / "tests/e2e/query"))
import tensors


def fill(store, count, snapshots):
    store.execute("PRAGMA synchronous = OFF")
    rng = random.Random(1)
    stats = tensors.stats([rng.gauss(0, 1) for _ in range(4096)])
    columns = [c for c in tensors.RECORD if c != "blob_uri"]
    insert = f"INSERT INTO snapshots({', '.join(columns)}) VALUES({', '.join('?' * len(columns))})"
    for number in range(1, snapshots + 1):
        def rows():
            for i in range(2 * count):
                name = f"encoder.layers.{i % count}.attention.weight"
                got = {**stats, "mean": rng.random(), "norm": number + rng.random(), "nans": int(number == snapshots and i == count)}
                yield (1, number * 1_000_000 + i, number, 2, name + ".grad" * (i < count), "Encoder", "gradient" if i < count else "weight", "[64,64]",
                       "float32", "stats", *(got[k] for k in tensors.STATS), 10 ** 18 + number, 0, "{}")
        store.executemany(insert, rows())
        tensors.insert(store, "snapshot_passes", tensors.PASS, {"sid": 1, "pass": number, "span": 2, "epoch": number - 1, "reason": "epoch", "mode": "stats",
                       "ts_ns": 10 ** 18 + number, "records": 2 * count, **dict.fromkeys("list_ns read_ns wait_ns torn own blobs".split(), 0)})


def make(folder, count, snapshots):
    path = folder / f"snapshot_query_bench.{count}.{snapshots}.db"
    if not path.exists():
        small = query_bench.make(folder, 0.001)
        partly = path.with_suffix(".making")
        partly.write_bytes(small.read_bytes())
        with tensors.opened(partly) as store:
            fill(store, count, snapshots)
        partly.rename(path)
    return path


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    count, snapshots = int(sys.argv[2]) if len(sys.argv) > 2 else 10000, int(sys.argv[3]) if len(sys.argv) > 3 else 100
    store = make(folder, count, snapshots)
    records = 2 * count * snapshots
    print(f"{records:,} records: {store.stat().st_size / records:.0f} bytes each; load {os.getloadavg()[0]:.1f}")
    bad = subprocess.run([query_bench.QUERY, "first-bad", "--db", store], capture_output=True, text=True)
    assert bad.returncode == 3 and "encoder.layers.0.attention.weight is not finite" in bad.stdout, bad
    for what, *command in (("all tensors", "snapshots"), ("one tensor", "snapshots", "encoder.layers.7.attention.weight"), ("one epoch", "snapshots", "--epoch", "5"),
                           ("two epochs compared", "diff-tensors", "0", "last"), ("first bad value", "first-bad", "--json"), ("report", "report"),
                           ("20,000 records as JSON", "snapshots", "--format", "jsonl", "--limit", "20000")):
        wall, cpu = query_bench.timed("sh", "-c", '"$@" >/dev/null 2>&1 || [ $? = 3 ]', "sh", query_bench.QUERY, "--db", store, *command)
        print(f"  {what:<24} {wall:6.3f} s  CPU {cpu:6.3f} s")


if __name__ == "__main__":
    main()
