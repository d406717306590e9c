"""Runs a program without the agent, with it, and without it again, in turns, and prints the ratios of its rounds.

A program prints the seconds of its rounds. `best` compares the quickest rounds (a tenth from below) of all runs of a side, `median` the middle ones of
each run, pairwise. The row "without, again" is no difference at all, so it shows what the machine's noise is worth.
"""
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["BUILD"])
AGENT = str(BUILD / "libcirron_agent.so")
# Else glibc gives the memory of large tensors back and asks for it again each step, or does not, as chance has it.
STEADY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26),
          "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def environment(agent, where):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CIRRON_") and k != "LD_PRELOAD"}
    env.update(STEADY)
    if agent:
        env.update(LD_PRELOAD=AGENT, CIRRON_SOCKET=str(where))
    return env


class Collector:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cirron-bench-")
        self.socket = pathlib.Path(self.folder.name) / "c.sock"
        self.process = subprocess.Popen([BUILD / "collectord", "--foreground", "--socket", self.socket,
                                         "--db", pathlib.Path(self.folder.name) / "t.db"], stderr=subprocess.DEVNULL)
        while not self.listens():
            assert self.process.poll() is None, "collectord did not start"
            time.sleep(0.01)
        return self

    def listens(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(str(self.socket)) == 0

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def run(command, agent, collector):
    done = subprocess.run(command, env=environment(agent, collector.socket), cwd=collector.folder.name, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stderr}")
    return [float(x) for x in done.stdout.split()]


def compare(label, command, rounds, unit=1.0):
    """Prints one row. `unit` is how many things one round of the program does."""
    sides = {"without": False, "agent": True, "again": False}
    runs = {side: [] for side in sides}
    with Collector() as collector:
        for i in range(rounds):
            order = list(sides)
            for side in order[i % 3:] + order[:i % 3]:
                runs[side].append(run(command, sides[side], collector))
    tenth = {side: statistics.quantiles([x for r in runs[side] for x in r], n=10)[0] for side in sides}
    row = f"  {label:22} {tenth['without'] / unit * 1e6:9.1f} us "
    for side in ("agent", "again"):
        middle = statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(runs[side], runs["without"]))
        row += f"   {'with the agent' if side == 'agent' else 'without, again'}: best {tenth[side] / tenth['without']:.3f} median {middle:.3f}"
    print(row, flush=True)


def count_instructions(python):
    """Of a step, by callgrind: says nothing of caches, but is the same on every machine and under every load."""
    epochs, steps = 7, 20
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null", python, HERE / "train.py",
               "counted", str(epochs), str(steps)]
    counts = []
    with Collector() as collector:
        for agent in (False, True, False):
            done = subprocess.run(command, env=environment(agent, collector.socket) | {"PYTHONHASHSEED": "0"}, cwd=collector.folder.name,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
            counts.append(int(re.search(r"Collected : (\d+)", done.stderr)[1]))
    print(f"  mlp, a step            {counts[0] / epochs / steps:9,.0f}      with the agent: {counts[1] / counts[0]:.4f}"
          f"   without, again: {counts[2] / counts[0]:.4f}")


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "calls":
        for python in arguments:
            version = subprocess.run([python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], capture_output=True, text=True)
            compare(version.stdout.strip(), [python, HERE / "calls.py"], 5)
    elif what == "train":
        python = arguments[0]
        compare("mlp, a step", [python, HERE / "train.py", "mlp", "24", "300"], 6, 300)
        compare("cnn, a step", [python, HERE / "train.py", "cnn", "8", "12"], 6, 12)
    elif what == "frameworks":
        for kind in "trainer", "lightning", "accelerate", "keras", "keras-jax":
            compare(kind + ", a step", [arguments[0], HERE / "loops.py", kind, "10", "200"], 6, 200)
    elif what == "instructions":
        count_instructions(arguments[0])
    else:  # with a collector: run something that prints for itself
        for transport in ("auto", "socket"):
            print(f"  CIRRON_TRANSPORT={transport}", flush=True)
            with Collector() as collector:
                more = {"CIRRON_SOCKET": str(collector.socket), "CIRRON_TRANSPORT": transport}
                subprocess.run([what, *arguments], env=environment(False, None) | more, check=True)


if __name__ == "__main__":
    main()
