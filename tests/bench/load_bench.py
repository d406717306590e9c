"""collectord under load: many processes with a steady rate of spans each, then many short sessions.

  load_bench.py [PROCESSES [RATE [SECONDS [SESSIONS]]]]      default: 64 8000 30 1000

Prints what was dropped, collectord's share of a core and CPU time a span, how long a span takes from its end to where a query sees it
(a reader looks every 5 ms), the distance of commits, and its memory before and after SESSIONS short sessions.
"""
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD", HERE.parent.parent / "build"))
TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_kb(pid, what):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith(what + ":"):
            return int(line.split()[1])
    return 0


class Watch(threading.Thread):
    """Looks often at how far the store has got: the end of the latest span (last_ns of each session) and when commits come."""

    def __init__(self, db):
        super().__init__(daemon=True)
        self.db, self.stop, self.ages, self.commits = db, False, [], []

    def run(self):
        db = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, isolation_level=None)
        version, known = None, {}
        while not self.stop:
            now = db.execute("PRAGMA data_version").fetchone()[0]
            if now != version:
                version = now
                self.commits.append(time.monotonic())
                seen = time.time_ns()
                for sid, last in db.execute("SELECT sid, last_ns FROM sessions WHERE last_ns IS NOT NULL AND state = 'running'"):
                    if sid in known and last > known[sid]:
                        # spans ended evenly from the last one of the commit before until the last one of this
                        self.ages.extend((seen - known[sid] - (last - known[sid]) * k / 9) / 1e6 for k in range(10))
                    known[sid] = last
            time.sleep(0.005)
        db.close()


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def load(collectord, db, env, processes, rate, seconds):
    watch = Watch(db)
    before, begin = cpu_s(collectord.pid), time.monotonic()
    jobs = [subprocess.Popen([BUILD / "load_job", str(rate), str(seconds)], env=env, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    time.sleep(1)
    watch.start()
    outs = [j.communicate()[0].split() for j in jobs]
    took = time.monotonic() - begin
    watch.stop = True
    watch.join()
    emitted, dropped = (sum(int(o[i]) for o in outs) for i in (0, 1))
    used = cpu_s(collectord.pid) - before
    stored = 0
    for _ in range(100):
        with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as c:
            stored, running = c.execute("SELECT sum(spans), sum(state = 'running') FROM sessions").fetchone()
        if not running:
            break
        time.sleep(0.1)
    gaps = [(b - a) * 1e3 for a, b in zip(watch.commits, watch.commits[1:])]
    print(f"  {processes} x {rate}/s for {seconds} s (took {took:.1f} s): emitted {emitted}, dropped {dropped}, stored with the roots {stored}")
    print(f"  collectord {100 * used / took:.1f} % of a core, {used / max(emitted, 1) * 1e9:.0f} ns a span (goals: 15 %, 200 ns)")
    print(f"  from a span's end until a query sees it: p50 {quantile(watch.ages, 0.5):.0f} ms, p99 {quantile(watch.ages, 0.99):.0f} ms, "
          f"worst {max(watch.ages, default=0):.0f} ms (goal p99 500 ms)")
    print(f"  from commit to commit: median {quantile(gaps, 0.5):.0f} ms, p99 {quantile(gaps, 0.99):.0f} ms, worst {max(gaps, default=0):.0f} ms")
    sizes = {e: (db.parent / (db.name + e)).stat().st_size for e in ("", "-wal")}
    print(f"  {(sizes[''] + 0) / max(stored, 1):.1f} bytes a span in the store, WAL {sizes['-wal'] / 1e6:.1f} MB")


def many_sessions(collectord, env, sessions):
    levels = []
    for i in range(sessions):
        subprocess.run([BUILD / "load_job", "1000", "0.02"], env=env, stdout=subprocess.DEVNULL, check=True)
        if i in (sessions // 10, sessions // 2, sessions - 1):
            levels.append(memory_kb(collectord.pid, "VmRSS"))
    print(f"  {sessions} short sessions: resident {levels} kB after a tenth, half, all of them; last / first {levels[-1] / levels[0]:.2f}")


def main():
    processes, rate, seconds, sessions = (int(a) for a in (sys.argv[1:] + ["64", "8000", "30", "1000"][len(sys.argv) - 1:]))
    with tempfile.TemporaryDirectory() as folder:
        socket, db = pathlib.Path(folder) / "c.sock", pathlib.Path(folder) / "t.db"
        env = {k: v for k, v in os.environ.items() if not k.startswith("CIRRON_")} | {"CIRRON_SOCKET": str(socket)}
        collectord = subprocess.Popen([BUILD / "collectord", "--foreground", "--socket", socket, "--db", db])
        while not socket.exists():
            time.sleep(0.01)
        print(f"Machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        try:
            load(collectord, db, env, processes, rate, seconds)
            if sessions:
                many_sessions(collectord, env, sessions)
        finally:
            collectord.terminate()
            collectord.wait()


main()
