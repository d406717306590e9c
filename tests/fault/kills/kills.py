"""kill -9, of the job, of the collector, and of both, at moments nobody chose: kills.py [-k PATTERN] [-j N] [--keep DIR].

The job (job.c) keeps books of its own in a file; what the store holds has to agree with them. ROUNDS is how many times each is
killed: 20 jobs and 10 collectors by default, ROUNDS=10 for ten times as many.
"""
import collections
import contextlib
import mmap
import os
import pathlib
import random
import sqlite3
import struct
import subprocess
import sys
import time

import harness
from harness import BUILD, QUERY, TORCH_PYTHON, Skip, alone, clean_env, test, test_each, until

JOB = BUILD / "kills_job"
ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
MAX_SPANS, HEAD, ENTRY = 1 << 21, 64, 16
PART = HEAD + MAX_SPANS * ENTRY


def within_s():
    """What was closed has to be in the store within a second; a machine with more work than processors is slower than that."""
    return 1.0 if os.getloadavg()[0] < (os.cpu_count() or 1) else 5.0


class Job:
    """A running job, and its books."""

    def __init__(self, case, threads=1, pause_us=100):
        self.threads = threads
        self.path = case.folder / f"log{case.runs}"
        self.path.touch()
        self.process = case.start([JOB, self.path, threads, pause_us], env={"LD_PRELOAD": ""})
        until(lambda: self.path.stat().st_size, 20, "the job's books")
        with self.path.open("r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)
        # A process that dies before its Hello is out was never traced: the first spans send it, and the rings.
        until(lambda: all(self.number(at) > 50 for at in self.parts()), 20, "the job's first spans")

    def number(self, at):
        return struct.unpack_from("<Q", self.map, at)[0]

    def parts(self):
        return [HEAD + i * PART for i in range(self.threads)]

    def entries(self):
        """(id, end_ns) of all spans in the books, in order within each thread."""
        out = []
        for at in self.parts():
            n = self.number(at)
            out += struct.iter_unpack("<QQ", self.map[at + HEAD:at + HEAD + n * ENTRY])
        return out

    def marks(self):
        return [self.number(at + 8) for at in self.parts()]

    def open(self):
        return {self.number(at + 16) for at in self.parts()} - {0}

    def kill(self):
        self.process.kill()

    def reap(self):
        self.process.communicate()

    def stop(self):
        struct.pack_into("<Q", self.map, 0, 1)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, f"the job ended with {self.process.returncode}: {err[-300:]}"

    def drop(self):
        self.map.close()
        self.path.unlink()


def ask(case, sql):
    """Rows of numbers from the store, by way of cirron-query because raw spans are packed."""
    r = subprocess.run([QUERY, "--db", case.collector.db, "--format", "csv", "sql", sql], capture_output=True, text=True, timeout=60,
                       env=clean_env())
    assert r.returncode == 0, r.stderr[-300:]
    return [tuple(int(x) if x.lstrip("-").isdigit() else x for x in line.split(",")) for line in r.stdout.splitlines()[1:]]


def session_of(case, pid):
    found = ask(case, f"SELECT sid, state, spans, marks, emitted_spans, emitted_marks, dropped_total FROM sessions WHERE pid = {pid}")
    names = ("sid", "state", "spans", "marks", "emitted_spans", "emitted_marks", "dropped_total")
    return dict(zip(names, found[0])) if found else None


def sound(case):
    with contextlib.closing(sqlite3.connect(case.collector.db, timeout=10)) as db:
        case.equal(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], "integrity_check")


def stored_of(case, sid):
    closed = [x[0] for x in ask(case, f"SELECT span FROM spans WHERE sid = {sid} AND state = 'closed' AND kind = 'user'")]
    values = [x[0] for x in ask(case, f"SELECT value FROM marks WHERE sid = {sid}")]
    return closed, values


def agree(case, job, session, in_flight):
    """The store and the books agree. in_flight: so many spans (and marks) the agent may have had of which the books know nothing."""
    closed, values = stored_of(case, session["sid"])
    stored, booked = set(closed), {x[0] for x in job.entries()}
    case.equal(len(closed), len(stored), "a span is stored once")
    unknown, missing = len(stored - booked), len(booked - stored)
    lost_marks, unknown_marks = lost_marks_of(job.marks(), values)
    case.check(unknown <= in_flight, f"{unknown} stored spans are not in the books")
    case.check(unknown_marks <= in_flight, f"{unknown_marks} stored marks are not in the books")
    lost = missing + lost_marks
    case.check(lost <= session["dropped_total"] <= lost + 2 * in_flight,
               f"{missing} of {len(booked)} spans and {lost_marks} marks are missing, {session['dropped_total']} dropped")
    between = session["emitted_spans"] + session["emitted_marks"] - session["spans"] - session["marks"] - session["dropped_total"]
    case.check(0 <= between <= in_flight, f"emitted - stored - dropped = {between}: {session}")
    return lost


def lost_marks_of(made, values):
    """How many marks are not stored, and how many are that are not in the books. Each thread counts from 0."""
    stored, lost, unknown = collections.Counter(values), 0, 0
    for value in range(max(made + [max(stored, default=0)]) + 1):
        booked = sum(n > value for n in made)
        lost += max(0, booked - stored[value])
        unknown += max(0, stored[value] - booked)
    return lost, unknown


def chance_of(case):
    print(f"     seed {SEED}", flush=True)
    return random.Random(SEED)


@test
def the_job_is_killed(case):
    """What was closed is there within a second, what was open is unfinished."""
    case.collect()
    chance, worst, total = chance_of(case), 0.0, 0
    for i in range(20 * ROUNDS):
        job = Job(case, threads=chance.choice((1, 1, 3)), pause_us=chance.choice((0, 50, 300)))
        pid = job.process.pid
        time.sleep(chance.uniform(0, 0.25))
        job.kill()
        began = time.monotonic()
        job.reap()

        def over():
            s = session_of(case, pid)
            return s if s and s["state"] == "killed" else None

        session = until(over, 10, f"round {i}: the session to be killed")
        took = time.monotonic() - began
        worst = max(worst, took)
        case.check(took <= within_s(), f"round {i}: the end was stored after {took:.2f} s")
        agree(case, job, session, job.threads)
        unfinished = {x[0] for x in ask(case, f"SELECT span FROM spans WHERE sid = {session['sid']} AND state = 'unfinished'")}
        case.check(job.open() <= unfinished, f"round {i}: {job.open() - unfinished} were open and are not unfinished")
        case.check(len(unfinished) <= 1 + 2 * job.threads, f"round {i}: {len(unfinished)} are unfinished")
        total += len(job.entries())
        job.drop()
    sound(case)
    print(f"     {20 * ROUNDS} jobs killed with {total} spans, the slowest end took {worst:.2f} s", flush=True)


def end_of(case, pid, expected):
    """The session of this process once it is over."""
    session = until(lambda: (lambda s: s if s and s["state"] != "running" else None)(session_of(case, pid)), 15,
                    f"the end of the session of pid {pid}")
    case.equal(session["state"], expected, "state")
    return session


@test_each((False, True), {False: "steady", True: "at once"}.get)
@alone
def the_collector_is_killed(case, at_once):
    """Under load, again and again, on the same store and socket: nothing missing, nothing doubled. A collector that dies before it has
    committed anything is one that the agent waits for, up to 5 s: then the rings may fill, and what is dropped is counted exactly."""
    case.collect()
    chance = chance_of(case)
    job = Job(case, threads=2, pause_us=(100 if at_once else 300) * ROUNDS)  # the books have to last
    pid = job.process.pid
    for _ in range(10 * ROUNDS):
        time.sleep(chance.uniform(0.02, 0.4) if at_once else chance.uniform(0.2, 2))
        case.collector.kill()
        sound(case)
        case.collector.start()
    job.stop()
    lost = agree(case, job, end_of(case, pid, "finished"), 0)
    case.check(at_once or not lost, f"{lost} are missing")
    sound(case)
    print(f"     {10 * ROUNDS} collectors killed, {len(job.entries())} spans, {lost} dropped and counted", flush=True)


@test
def both_are_killed(case):
    """The memory dies with them: what was closed a second before is there, nothing is doubled, the store is sound."""
    chance = chance_of(case)
    for i in range(3 * ROUNDS):
        case.collect() if case.collector is None else case.collector.start()
        job = Job(case, threads=2, pause_us=200)
        pid = job.process.pid
        time.sleep(1.2 + chance.uniform(0, 0.4))
        at = time.monotonic_ns()
        for end in chance.sample((job.kill, case.collector.kill), 2):
            end()
            time.sleep(chance.choice((0, 0, 0.003, 0.2)))
        job.reap()
        sound(case)
        case.collector.start()
        session = until(lambda: (lambda s: s if s and s["state"] in ("lost", "killed") else None)(session_of(case, pid)), 10,
                        f"round {i}: the session to be over")
        closed, _ = stored_of(case, session["sid"])
        stored, booked = set(closed), job.entries()
        case.equal(len(closed), len(stored), f"round {i}: a span is stored once")
        old = {n for n, end_ns in booked if end_ns < at - 1_000_000_000}
        case.check(len(stored - {n for n, _ in booked}) <= job.threads, f"round {i}: stored spans are not in the books")
        case.check(len(old - stored) <= session["dropped_total"], f"round {i}: {len(old - stored)} of {len(old)} old spans are missing")
        case.check(old, f"round {i}: no old spans, the test does not test")
        case.collector.kill()
        job.drop()
    sound(case)


TRAINING = """
import os, sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=4)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
while True:
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        os.write(out, b"x")
"""


@test
def a_training_is_killed(case):
    """The real loop: each update that the script has seen is in the store."""
    if not os.path.exists(TORCH_PYTHON) or subprocess.run([TORCH_PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("no torch under TORCH_PYTHON")
    case.collect()
    chance, script = chance_of(case), case.script(TRAINING)
    for i in range(2 * ROUNDS):
        seen = case.folder / f"seen{i}"
        seen.touch()
        process = case.start([TORCH_PYTHON, script, seen])
        until(lambda: seen.stat().st_size > 10 or process.poll() is not None, 60, "the training")
        time.sleep(chance.uniform(0, 0.5))
        process.kill()
        process.communicate()
        session = until(lambda: (lambda s: s if s and s["state"] == "killed" else None)(session_of(case, process.pid)), 10, "its end")
        counts = dict(ask(case, f"SELECT kind, count(*) FROM spans WHERE sid = {session['sid']} AND state = 'closed' GROUP BY 1"))
        updates = seen.stat().st_size
        for kind in ("optimizer_step", "forward", "backward", "data_load"):
            got = counts.get(kind, 0)
            case.check(updates <= got <= updates + 1, f"round {i}: {got} {kind} for {updates} updates")
        case.check(updates - 1 <= counts.get("step", 0) <= updates + 1, f"round {i}: {counts.get('step')} steps for {updates} updates")
        case.equal(session["dropped_total"], 0, f"round {i}: dropped")
    sound(case)


assert JOB.exists(), f"{JOB} is not built: make fault"
if __name__ == "__main__":
    harness.main()
