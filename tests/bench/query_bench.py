"""How long questions to a large store take, the start of the program included, beside what plain SQLite needs for the same.

  query_bench.py [FOLDER [MILLIONS OF SPANS]]      default: the temporary folder, 10

Makes a store of one training session (make_store big; kept, so that a second run begins at once) and a table with a row a span. Of
five runs each the best wall and CPU time are printed, and the ratio of CPU times to the floor: a C loop over sqlite3_step on the rows.
"""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT, BUILD = HERE.parent.parent, pathlib.Path(os.environ.get("BUILD", HERE.parent.parent / "build"))
QUERY = BUILD / "cirron-query"


def timed(*command, runs=5):
    best = None
    for _ in range(runs):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([str(x) for x in command], check=True, stdout=subprocess.DEVNULL)
        wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        best = (min(wall, best[0]), min(cpu, best[1])) if best else (wall, cpu)
    return best


def make(folder, millions):
    store = folder / f"query_bench.{millions:g}.db"
    tool = folder / "make_store"
    objects = [BUILD / "obj/collectord" / o.name for o in (BUILD / "obj/collectord").glob("store*.o")]
    objects += [BUILD / "obj/collectord/schema.o", BUILD / "obj/collectord/utf8.o"]
    objects += [BUILD / "proto" / f"{o}.o" for o in ("block", "erase", "histogram")]
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-I.", "-o", tool, "tests/support/make_store.c", *objects,
                    "-lsqlite3", "-lzstd", "-lm", "-lpthread"], check=True, cwd=ROOT)
    if not store.exists():
        partly = store.with_suffix(".making")
        for end in ("", "-wal", "-shm", ".lock"):
            pathlib.Path(f"{partly}{end}").unlink(missing_ok=True)
        subprocess.run([tool, partly, "big", str(int(millions * 1e6))], check=True)
        partly.rename(store)
    return store


def rows(folder, store, millions):
    path = folder / f"query_bench.{millions:g}.rows.db"
    if not path.exists():
        partly = path.with_suffix(".making")
        partly.unlink(missing_ok=True)
        subprocess.run(["sqlite3", store, f".load {BUILD}/libcirron_sqlite", "PRAGMA synchronous = OFF", f"ATTACH '{partly}' AS r",
                        "CREATE TABLE r.r(id INTEGER PRIMARY KEY, parent INTEGER, name INTEGER, start_ns INTEGER, dur_ns INTEGER)",
                        "INSERT OR REPLACE INTO r.r SELECT span, parent, name_id, start_ns, dur_ns FROM spans"], check=True)
        partly.rename(path)
    return path


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    millions = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    store, one = make(folder, millions), make(folder, 1.0)
    table = rows(folder, store, millions)
    floor = folder / "query_floor"
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-D_GNU_SOURCE", "-o", floor, HERE / "query_floor.c", "-lsqlite3"], check=True)
    print(f"{millions:g} M spans: {store.stat().st_size / 1e6 / millions:.1f} bytes a span in the store (steps, marks and sums included), "
          f"{table.stat().st_size / 1e6 / millions:.1f} as rows; load {os.getloadavg()[0]:.1f}")
    floors = {what: timed(floor, table, what, runs=3) for what in ("names", "slowest")}
    for what, (wall, cpu) in floors.items():
        print(f"  floor: C loop over the rows, {what:<28} {wall:6.3f} s  CPU {cpu:6.3f} s")
    for what, goal, against, *command in (
            ("exact count, total, p50, p99 by name", 0.8, "names", "--db", store, "stats"),
            ("the same from the roll-ups", None, "names", "--db", store, "stats", "--fast"),
            ("20 slowest spans", 0.05, "slowest", "--db", store, "spans", "--slowest", "--limit", "20"),
            ("tree of an epoch of a million spans", 0.6, None, "--db", one, "tree"),
            ("report on a session of a million", 0.2, None, "--db", one, "report"),
            ("report on all", None, None, "--db", store, "report")):
        wall, cpu = timed(QUERY, *command)
        goal = f"  goal {goal * 1e3:.0f} ms" if goal else ""
        ratio = f"  {floors[against][1] / cpu:.1f} times as fast as the floor" if against else ""
        print(f"  {what:<38} {wall:6.3f} s  CPU {cpu:6.3f} s{goal}{ratio}")


if __name__ == "__main__":
    main()
