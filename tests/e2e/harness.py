"""What the end-to-end suites share: run a script with and without the agent, ask the store, count results.

A suite is a list of functions marked @test. Each gets a `Case`: a folder of its own, and a collector, socket and store of its own when it
asks for one. Standard library only, Python 3.8 or later.
"""
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
AGENT, CORE = BUILD / "libcirron_agent.so", BUILD / "libcirron_core.so"
COLLECTORD, QUERY = BUILD / "collectord", BUILD / "cirron-query"
PYTHONS = os.environ.get("PYTHONS", "").split() or [sys.executable]


def asked(python):
    """(its version, is it one that the agent leaves alone: without the GIL, or of another libc?)"""
    text = "import sys; print(*sys.version_info[:3], sys.abiflags)"
    words = subprocess.run([python, "-ISc", text], env={}, capture_output=True, text=True).stdout.split()
    with open(python, "rb") as f:
        return tuple(map(int, words[:3])), words[3:] == ["t"] or b"/ld-musl" in f.read(4096)


ASKED = {x: asked(x) for x in PYTHONS}
LEFT_ALONE = [x for x in PYTHONS if ASKED[x][1]]
PYTHONS = [x for x in PYTHONS if x not in LEFT_ALONE] or [sys.executable]
LONG = os.environ.get("LONG", "")  # 1: make check-long, all tests on all interpreters
# What has little to do with the version is tried on the system's own interpreter, the oldest and the newest.
SOME = [x for x in PYTHONS if LONG or x in (PYTHONS[0], min(PYTHONS, key=ASKED.get), max(PYTHONS, key=ASKED.get))]
TORCH_PYTHON = os.environ.get("TORCH_PYTHON", "")
PACKAGE = BUILD / "python"  # the agent as the Python package cirron
IMPORTED = os.environ.get("IMPORTED", "")  # 1: no preload, programs import the package instead
TRANSPORT = os.environ.get("TRANSPORT", "")  # socket: records go as messages wherever a test does not say otherwise
AUTOMATIC = ("epoch", "eval", "step", "batch", "data_load", "forward", "backward", "optimizer_step")
ROOT = "cirron.session"
ALONE = os.environ.get("ALONE", "")  # no: without the tests that are to have the machine for themselves; only: these
SLOW_S = 3  # the time of a test that takes longer is shown
WAIT_S = 60 if os.environ.get("CI") else 30

Done = collections.namedtuple("Done", "rc out err pid wall_s")


class Skip(Exception):
    """The machine lacks what this test needs; the text says what."""


def until(condition, seconds=WAIT_S, what="condition"):
    """Waits until condition() gives something true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.01)


def clean_env():
    """This process's environment without anything that concerns the agent or a launcher."""
    drop = ("LD_PRELOAD", "RANK", "LOCAL_RANK", "WORLD_SIZE", "PYTHONPATH", "XDG_RUNTIME_DIR", "TORCHELASTIC_RUN_ID")
    return {k: v for k, v in os.environ.items() if k not in drop and not k.startswith(("CIRRON_", "SLURM_", "PYTHON"))}


class Collector:
    """A collectord of the test's own."""

    def __init__(self, folder):
        self.socket, self.db, self.log, self.process = folder / "c.sock", folder / "traces.db", folder / "collectord.log", None
        self.prefix, self.options = [], []  # of its command

    def start(self):
        with open(self.log, "ab") as log:
            command = [*self.prefix, COLLECTORD, "--foreground", "--socket", self.socket, "--db", self.db, *self.options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_env())
        until(self.answers, 20, "collectord to listen")
        return self

    def answers(self):
        assert self.process.poll() is None, "collectord ended: " + self.log.read_text(errors="replace")[-500:]
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
            return s.connect_ex(str(self.socket)) == 0

    def stop(self):
        """Ends it in good order. Returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            return "killed: did not end within 20 s of SIGTERM"

    def kill(self):
        self.process.kill()
        self.process.wait()


def collectors(folder):
    """pids of collectors that keep a store below this folder: those that agents started, too."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                argv = f.read().split(b"\0")
            here = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if argv[0].endswith(b"collectord") and (here.startswith(str(folder)) or str(folder).encode() in b" ".join(argv)):
            found.append(int(pid))
    return found


def stop_collectors(folder):
    for pid in collectors(folder):
        os.kill(pid, signal.SIGTERM)
    until(lambda: not collectors(folder), 20, "the private collector to end")


class Store:
    """What cirron-query says of a store, as lists of dicts."""

    def __init__(self, db):
        self.db = db
        self.sessions, self.all, self.marks = (self.rows(x) for x in ("sessions", "spans", "marks"))
        self.by_id = {s["id"]: s for s in self.all}
        self.spans = sorted((s for s in self.all if s["name"] != ROOT), key=lambda s: (s["start_ns"], s["id"]))
        self.roots = [s for s in self.all if s["name"] == ROOT]

    def rows(self, command):
        r = subprocess.run([QUERY, "--db", self.db, "--format", "jsonl", command], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=WAIT_S, env=clean_env())
        assert r.returncode == 0, f"cirron-query {command}: exit status {r.returncode}, {r.stderr.strip()[-300:]}"
        return [json.loads(line) for line in r.stdout.splitlines()]

    def of(self, name, pid=None):
        return [s for s in self.spans if s["name"] == name and pid in (None, s["pid"])]

    def parent(self, span):
        return self.by_id.get(span["parent_id"])

    def above(self, span):
        """Ancestors, innermost first, without the root."""
        chain, at = [], self.parent(span)
        while at is not None and at["name"] != ROOT:
            assert at not in chain, "a span is its own ancestor"
            chain.append(at)
            at = self.parent(at)
        return chain

    def inside(self, span, name=None):
        """Descendants of a span, in order of their begin."""
        return [s for s in self.spans if span in self.above(s) and name in (None, s["name"])]

    def children(self, span):
        return [s for s in self.spans if s["parent_id"] == span["id"]]

    def order(self, span):
        return [s["name"] for s in self.children(span)]

    def marks_of(self, name):
        return sorted((m for m in self.marks if m["name"] == name), key=lambda m: m["ts_ns"])

    def faults(self):
        """Whatever must hold for any store: a list of what does not."""
        found = []
        if len(self.by_id) != len(self.all):
            found.append("a span is stored twice")
        sessions = {s["id"]: s for s in self.sessions}
        for s in self.all:
            parent = self.parent(s)
            session = sessions.get(s["session_id"])
            if session is None or session["pid"] != s["pid"]:
                found.append(f"{s['name']}: no session of its pid")
            elif parent is None and s["name"] != ROOT and session["state"] == "finished":
                found.append(f"{s['name']}: parent is not stored")
            if s["end_ns"] is not None and s["end_ns"] < s["start_ns"]:
                found.append(f"{s['name']}: ends before it starts")
            if (s["state"] == "closed") != (s["end_ns"] is not None):
                found.append(f"{s['name']}: state {s['state']} does not fit its end")
            if parent and (s["start_ns"] < parent["start_ns"] or (s["end_ns"] and parent["end_ns"] and s["end_ns"] > parent["end_ns"])):
                found.append(f"{s['name']}: reaches outside its parent {parent['name']}")
        return found


class Case:
    """What a test works with."""

    def __init__(self, folder):
        self.folder, self.collector, self.wrong, self.runs = folder, None, [], 0
        self.started = []
        self.last_traced = None

    def check(self, right, text):
        if not right:
            self.wrong.append(text)

    def equal(self, got, expected, what):
        self.check(got == expected, f"{what}: {got!r}, expected {expected!r}")

    def collect(self):
        """Starts the collector, or hands out the one that runs."""
        if self.collector is None:
            self.collector = Collector(self.folder).start()
        return self.collector

    def script(self, text, name="train.py"):
        path = self.folder / name
        path.write_text(text)
        return path

    def env(self, agent=True, **more):
        env = clean_env()
        env.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", TMPDIR=str(self.folder))
        if TRANSPORT:
            env["CIRRON_TRANSPORT"] = TRANSPORT
        if agent:
            env["PYTHONPATH" if IMPORTED else "LD_PRELOAD"] = str(PACKAGE if IMPORTED else AGENT)
            env["CIRRON_SOCKET"] = str(self.collector.socket if self.collector else self.folder / "nobody.sock")
        env.update({k: str(v) for k, v in more.items()})
        if agent and IMPORTED and "PYTHONPATH" in more:
            env["PYTHONPATH"] += f":{PACKAGE}"
        return env

    def start(self, command, agent=True, env=None, **popen):
        self.runs += 1
        cwd = popen.pop("cwd", None)
        if cwd is None:
            cwd = self.folder / f"run{self.runs}"
            cwd.mkdir()
        popen.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(x) for x in command], cwd=cwd, env=self.env(agent, **(env or {})), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", **popen)
        self.started.append(process)
        return process

    def run(self, command, agent=True, env=None, **popen):
        begin = time.monotonic()
        process = self.start(command, agent, env, **popen)
        if agent:
            self.last_traced = process.pid
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.check(False, "did not end within 120 s")
        return Done(process.returncode, out, err, process.pid, time.monotonic() - begin)

    def both(self, command, env=None, lines=0, same=True, **popen):
        """Without and with the agent: same exit status and output, at most `lines` lines more on stderr."""
        plain = self.run(command, False, env, **popen)
        traced = self.run(command, True, env, **popen)
        if same:
            self.equal(traced.rc, plain.rc, "exit status with the agent")
            self.equal(traced.out, plain.out, "stdout with the agent")
        extra = [x for x in traced.err.splitlines() if comparable(x) not in {comparable(y) for y in plain.err.splitlines()}]
        self.check(len(extra) <= lines and all(x.startswith("cirron") for x in extra), f"more on stderr with the agent: {extra[:3]}")
        return plain, traced

    def store(self, faults=True):
        """The store once every session has ended. The collector goes on. The program that ran last has a session, if it had
        anything to say, within a commit; one that is no Python never has one."""
        db, patience = self.collector.db, time.monotonic() + 1.5

        def settled():
            r = subprocess.run([QUERY, "--db", db, "--format", "jsonl", "sessions"], capture_output=True, text=True, env=clean_env())
            sessions = [json.loads(x) for x in r.stdout.splitlines()]
            if r.returncode or any(x["state"] == "running" for x in sessions):
                return False
            return self.last_traced in {None, *(x["pid"] for x in sessions)} or time.monotonic() > patience

        until(settled, 10, "the sessions to leave the state running")
        st = Store(db)
        if faults:
            self.wrong.extend(st.faults()[:5])
        return st

    def counts(self, spans, **expected):
        """Exactly these numbers of spans; automatic names that are not given must not occur."""
        got = collections.Counter(s["name"] for s in spans)
        for name in {*AUTOMATIC, *expected}:
            self.equal(got[name], expected.get(name, 0), f"number of {name}")

    def leave_nothing(self):
        """A test that failed half-way has programs that wait for it."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def close(self):
        if self.collector is not None and self.collector.process is not None:
            status = self.collector.stop()
            self.check(status in (0, -9), f"collectord ended with {status}: " + self.collector.log.read_text(errors="replace")[-300:])


def comparable(line):
    """An error line without what differs from run to run; numbers may stand in columns."""
    return re.sub(r"\s+", " ", re.sub(r"0x[0-9a-f]+|\d+|run\d+", "#", line))


TESTS = []
LONELY = set()


def alone(function):
    """For @test and below it: this one looks at the clock, so nothing else is run beside it."""
    LONELY.add(function)
    return function


def test(function):
    TESTS.append((function.__name__, function, ()))
    return function


def test_each(values, label=str):
    """The test once for each value, which is its second argument."""

    def add(function):
        TESTS.extend((f"{function.__name__}[{label(v)}]", function, (v,)) for v in values)
        return function

    return add


def python_label(path):
    """.../versions/3.12.1/bin/python3.12 -> 3.12.1; /usr/bin/python3.11 -> python3.11"""
    found = re.search(r"/versions/([\d.]+t?)/", path)
    return found.group(1) if found else pathlib.Path(path).name


def run_one(entry, keep):
    name, function, args = entry
    root = pathlib.Path(tempfile.mkdtemp(prefix="cirron-"))
    case = Case(root)
    try:
        function(case, *args)
        case.close()
    except Skip as reason:
        with contextlib.suppress(Exception):
            case.close()
        return name, "skip", [str(reason)]
    except Exception:  # whatever goes wrong in a test is that test's failure
        case.wrong.append(traceback.format_exc(limit=-3).strip())
        with contextlib.suppress(Exception):
            case.close()
    finally:
        case.leave_nothing()
        if keep and case.wrong:
            shutil.copytree(root, pathlib.Path(keep) / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("c.sock", "*.sock"))
        shutil.rmtree(root, ignore_errors=True)
    return name, "FAIL" if case.wrong else "ok", case.wrong


def timed(entry, keep):
    began = time.monotonic()
    return (*run_one(entry, keep), time.monotonic() - began)


def main():
    """-k PATTERN  -j N  --keep DIR, in any order."""
    argv = sys.argv[1:]
    option = {key: value for key, value in zip(argv, argv[1:]) if key.startswith("-")}
    chosen = [t for t in TESTS if re.search(option.get("-k", ""), t[0])]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tally = collections.Counter()
    for lonely, threads in ((False, int(option.get("-j", 1))), (True, 1)):
        if ALONE == ("no" if lonely else "only"):
            continue
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            those = [t for t in chosen if (t[1] in LONELY) == lonely]
            for name, result, reasons, took in pool.map(lambda t: timed(t, option.get("--keep")), those):
                tally[result] += 1
                name += f" ({took:.0f} s)" if took > SLOW_S else ""
                print(f"{result:4} {name}" + "".join("\n       " + r.replace("\n", "\n       ") for r in reasons[:8]), flush=True)
    print(f"{tally['ok']} passed, {tally['FAIL']} failed, {tally['skip']} skipped")
    sys.exit(1 if tally["FAIL"] else 0)
