"""What the functions of the module cost, in nanoseconds beyond an empty loop, against the least that they could cost in C (floors.c).

  surface.py PYTHON ...     for each interpreter: floors built with its headers, then both in turns, in one process under the agent

The quickest of many short rounds is compared; between two rounds the collector has time to read.
"""
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
COUNT, ROUNDS = 10000, 120
GOALS = {"scope": 1.5, "mark": 2.0, "epochs": 2.0, "batches": 2.0}


def measured():
    import cirron as ci
    import floors

    class Plain:
        """What a script would write for itself: nested spans, kept in a list."""

        def __init__(self, name):
            self.name = name

        def __enter__(self):
            self.parent = open_spans[-1] if open_spans else None
            open_spans.append(self)
            self.begin = time.perf_counter_ns()
            return self

        def __exit__(self, *exception):
            end = time.perf_counter_ns()
            open_spans.pop()
            kept.append((self.name, self.parent, self.begin, end))

    open_spans, kept = [], []

    def empty():
        for _ in range(COUNT):
            pass

    def scope(make):
        def run():
            for _ in range(COUNT):
                with make("x"):
                    pass
        return run

    def mark(put):
        def run():
            for _ in range(COUNT):
                put("loss", 1.0)
        return run

    def loop(over):
        def run():
            for _ in over(range(COUNT)):
                pass
        return run

    cases = {"empty": empty, "scope": scope(ci.scope), "scope in C": scope(floors.span), "scope in Python": scope(Plain), "mark": mark(ci.mark),
             "mark in C": mark(floors.mark), "epochs": loop(ci.epochs), "batches": loop(ci.batches), "loop in C": loop(floors.each)}
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, run in cases.items():
            begin = time.perf_counter_ns()
            run()
            best[name] = min(best[name], (time.perf_counter_ns() - begin) / COUNT)
            kept.clear()
            time.sleep(0.002)
    for name, floor in (("scope", "scope in C"), ("scope", "scope in Python"), ("mark", "mark in C"), ("epochs", "loop in C"), ("batches", "loop in C")):
        ours, least = best[name] - best["empty"], best[floor] - best["empty"]
        goal = f" (goal {GOALS[name]})" if floor.endswith("C") else ""
        print(f"    {name:8} {ours:6.1f} ns   {floor:16} {least:6.1f} ns   ratio {ours / least:.2f}{goal}", flush=True)


def importing():
    begin = time.process_time_ns()
    import cirron  # noqa: F401
    print(f"    import   {(time.process_time_ns() - begin) / 1e6:6.3f} ms of CPU time (goal 1)", flush=True)


def main():
    if sys.argv[1] == "--measure":
        importing()
        sys.path.insert(0, sys.argv[2])
        measured()
        return
    import compare
    for python in sys.argv[1:]:
        where = "import sys, sysconfig; print('%d.%d.%d' % sys.version_info[:3]); print(sysconfig.get_path('include'))"
        version, include = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.split()
        if not pathlib.Path(include, "Python.h").exists():
            print(f"  {version}: not measured, there are no headers of it")
            continue
        with compare.Collector() as collector:
            folder = collector.folder.name
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", "-o", f"{folder}/floors.so", HERE / "floors.c"], check=True)
            print(f"  {version}")
            subprocess.run([python, HERE / "surface.py", "--measure", folder], env=compare.environment(True, collector.socket), check=True)


if __name__ == "__main__":
    main()
