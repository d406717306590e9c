"""What a snapshot at each epoch costs a training: snapshot_train.py PYTHON. Runs with and without snapshots take turns.

    listing  what the training does itself: finding its tensors and where they lie
    wait     what it waits before its next update, until they were read
    epoch    how much longer an epoch is than without snapshots, all in all
"""
import json
import pathlib
import statistics
import subprocess
import sys

from compare import Collector, environment

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 5


def run(python, arguments, collector, snapshots):
    env = environment(True, collector.socket) | {"CIRRON_SNAPSHOTS": snapshots}
    done = subprocess.run([python, HERE / "snapshot_loop.py", *arguments], env=env, cwd=collector.folder.name, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def row(python, label, arguments):
    listing, wait, bare, epochs = [], [], [], {"off": [], "stats": []}
    with Collector() as collector:
        for _ in range(ROUNDS):
            for snapshots in epochs:
                got = run(python, arguments, collector, snapshots)
                epochs[snapshots].append(statistics.median(got["epochs"]))
                bare.append(got["bare"])
                n = got["health"]["snapshot_count"]
                if n:
                    listing.append(got["health"]["snapshot_list_ns"] / n / 1e6)
                    wait.append(got["health"]["snapshot_wait_ns"] / n / 1e6)
    more = [(a - b) * 1e3 for a, b in zip(epochs["stats"], epochs["off"])]
    read = statistics.median(bare) * 1e3
    print(f"  {label:38} listing {statistics.median(listing):6.2f} ms   wait {statistics.median(wait):6.2f} ms   epoch {statistics.median(more):+7.2f} ms"
          f"   to one bare read ({read:.1f} ms) {statistics.median(more) / read:.2f}", flush=True)


def main():
    python = sys.argv[1]
    print("A snapshot at each epoch (goals: listing 2 ms for ResNet-50's tensors, 5 ms for 10,000)")
    row(python, "161 tensors, 102 MB and gradients", ["resnet", "10"])
    row(python, "the same, 300 ms before the next update", ["resnet", "10", "300"])
    row(python, "10,000 of 16 numbers and gradients", ["many", "10"])
    row(python, "the same, 300 ms before the next update", ["many", "10", "300"])


if __name__ == "__main__":
    main()
