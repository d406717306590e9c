"""What observing chosen functions costs: code that is not observed (percent), and a call of one that is (nanoseconds, without the probe's own work).

    BUILD=build python3 tests/bench/observe_cost.py PYTHON...

Not observed: processes with and without the agent in turns, each of which has imported an observed module first, so that whatever that
leaves behind is measured too; the quickest tenth of all rounds of a side. "again" is a second series without the agent: the noise.
Observed: in one process, the same method of two classes, one observed, in turns.
"""
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import time

SUITE = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "observe"
ROUNDS, SAMPLES = 7, 40


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Point:
    def __init__(self, x=0):
        self.x = x

    def moved(self, by):
        return Point(self.x + by)

    @property
    def value(self):
        return self.x


def methods():
    p = Point()
    for i in range(600):
        p = p.moved(i)


def properties():
    p = Point()
    for _ in range(2000):
        p.value


def keys():
    sorted(range(2000), key=lambda v: -v)


def arithmetic():
    n = 0
    for i in range(5000):
        n += i * i & 7


def raising():
    for _ in range(500):
        try:
            raise KeyError
        except KeyError:
            pass


BENCHES = {"fib": lambda: fib(13), "methods": methods, "properties": properties, "keys": keys, "arithmetic": arithmetic, "raising": raising}


def seconds(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def tenth(values):
    return statistics.quantiles(values, n=10)[0]


def worker():
    from observed import things

    things.plain(1)
    for function in BENCHES.values():
        seconds(function)
    rows = [(name, seconds(function)) for _ in range(SAMPLES) for name, function in BENCHES.items()]
    print(*(f"{name}={value:.9f}" for name, value in rows))


def observed():
    agent = ctypes.PyDLL(os.environ["TEST_AGENT"])
    agent.test_observe_for_nothing.argtypes = [ctypes.py_object]
    kinds = {}
    for name in ("observed", "plain"):
        scope = {}
        exec("class Model:\n  def step(self, a): return a\n  def __call__(self, a): return a\n"
             "def loop(m):\n  for i in range(3000): m.step(i)\n"
             "def call(m):\n  for i in range(3000): m(i)\n", scope)
        kinds[name] = scope
    model = kinds["observed"]["Model"]
    assert [agent.test_observe_for_nothing(f) for f in (model.step, model.__call__)] == [0, 0]
    cells = []
    for loop in ("loop", "call"):
        times = {name: [] for name in kinds}
        for _ in range(200):
            for name, scope in kinds.items():
                times[name].append(seconds(lambda: scope[loop](scope["Model"]())))
        cells.append((tenth(times["observed"]) - tenth(times["plain"])) / 3000 * 1e9)
    print(f"  by name {cells[0]:+.1f} ns, through __call__ {cells[1]:+.1f} ns")


def main():
    sys.path[:0] = [str(SUITE), str(SUITE.parent)]
    from suite import build
    from harness import clean_env

    agent, _ = build()
    base = {**clean_env(), "PYTHONPATH": str(SUITE), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "TEST_AGENT": str(agent)}
    with_agent = {**base, "LD_PRELOAD": str(agent)}
    for python in sys.argv[1:]:
        times = {side: {name: [] for name in BENCHES} for side in ("without", "with", "again")}
        for i in range(ROUNDS):
            order = list(times)[i % 3:] + list(times)[:i % 3]
            for side in order:
                out = subprocess.run([python, __file__, "--worker"], env=with_agent if side == "with" else base, check=True, capture_output=True, text=True)
                for cell in out.stdout.split():
                    name, value = cell.split("=")
                    times[side][name].append(float(value))
        print(python)
        best = {side: {name: tenth(v) for name, v in rows.items()} for side, rows in times.items()}
        for side in ("with", "again"):
            print(f"  {side:6}" + "  ".join(f"{name} {(best[side][name] / best['without'][name] - 1) * 100:+.1f} %" for name in BENCHES))
        subprocess.run([python, __file__, "--observed"], env=with_agent, check=True)


if "--worker" in sys.argv:
    worker()
elif "--observed" in sys.argv:
    observed()
else:
    main()
