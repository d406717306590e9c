"""Calls of collectord that fail: faults.py [-k PATTERN] [-j N] [--keep DIR].

While a job runs, the Nth call of a kind fails, for once or for many; N moves on until no more calls come. After each the books of
the job have to agree with the store, and the collector must be the one that was there. ROUNDS is how many N are tried of a kind.
"""
import errno
import mmap
import os
import random
import struct
import subprocess
import time

import harness
import kills
from harness import BUILD, COLLECTORD, clean_env, test_each, until

LIBRARY = BUILD / "libfault.so"
ROUNDS = int(os.environ.get("ROUNDS", "1"))
KINDS = {
    "malloc": (1, errno.ENOMEM, 400), "write": (2, errno.ENOSPC, 60), "write_io": (2, errno.EIO, 60), "sync": (3, errno.EIO, 2),
    "mmap": (4, errno.ENOMEM, 10), "accept": (5, errno.EMFILE, 2), "recvmsg": (6, errno.ENOBUFS, 6), "epoll": (7, errno.ENOMEM, 30),
    "open": (8, errno.EMFILE, 4), "read": (9, errno.EIO, 4),
}
# In a store that fits the cache, for a process that said goodbye, and where the memory that is there suffices.
NOT_CALLED = ("read", "open", "mmap")


class Faulty(harness.Collector):
    def start(self):
        orders = self.db.with_name("orders")
        orders.write_bytes(bytes(48))
        with orders.open("r+b") as f:
            self.orders = mmap.mmap(f.fileno(), 0)
        env = dict(clean_env(), LD_PRELOAD=str(LIBRARY), FAULT_FILE=str(orders))
        with open(self.log, "ab") as log:
            command = [COLLECTORD, "--foreground", "--socket", self.socket, "--db", self.db]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        until(self.answers, 20, "collectord to listen")
        return self

    def order(self, kind, skip, count, err):
        self.orders[0:48] = struct.pack("<QQQQQQ", 0, skip, count, err, 0, 0)
        self.orders[0:8] = struct.pack("<Q", kind)

    def failed(self):
        return struct.unpack_from("<Q", self.orders, 40)[0]


@test_each(tuple(KINDS))
def calls_fail(case, name):
    kind, err, reach = KINDS[name]
    case.collector = Faulty(case.folder).start()
    chance, failed = random.Random(kills.SEED), 0
    for i in range(6 * ROUNDS):
        skip, count = chance.randrange(reach), chance.choice((1, 1, 3, 1000))
        case.collector.order(kind, skip, count, err)
        # A refused connection or ring is tried again: the job goes on until that has happened. Much is to be written in some.
        job = kills.Job(case, threads=2, pause_us=150 if name in ("sync", "read") else 1000)
        pid = job.process.pid
        time.sleep(0.8)
        failed += case.collector.failed()
        case.collector.order(0, 0, 0, 0)
        case.equal(case.collector.process.poll(), None, f"{name} {skip}+{count}: collectord's end")
        until(lambda: kills.session_of(case, pid), what=f"{name} {skip}+{count}: the session")
        job.stop()
        session = kills.end_of(case, pid, "finished")
        before = len(case.wrong)
        kills.agree(case, job, session, 0)
        case.wrong[before:] = [f"{name} {skip}+{count}: {text}" for text in case.wrong[before:]]
        job.drop()
        if case.wrong:
            break
    kills.sound(case)
    case.collector.order(kind, 0, 1 << 40, err)  # and from now on: it has to end all the same
    status = case.collector.stop()
    failed += case.collector.failed()
    case.check(status in (0, 1), f"exit status {status}")
    if name != "read":
        kills.sound(case)
    case.check(failed or name in NOT_CALLED, "no call failed: the test does not test")
    lines = case.collector.log.read_text().count("\n")
    case.check(lines <= 8 + 12 * ROUNDS, f"{lines} lines in the log")  # a round's failure, and that it is over
    print(f"     {name}: {failed} calls failed, {lines} lines in the log", flush=True)


@test_each((1, 7, 40, 150, 400))
def starting_fails(case, nth):
    """A collector whose start fails says one line and ends; the next one is not hindered by what it left."""
    socket, db, orders = case.folder / "c.sock", case.folder / "traces.db", case.folder / "orders"
    for name, (kind, err, _) in KINDS.items():
        orders.write_bytes(struct.pack("<QQQQQQ", kind, nth - 1, 1 << 40, err, 0, 0))
        env = dict(clean_env(), LD_PRELOAD=str(LIBRARY), FAULT_FILE=str(orders))
        command = [COLLECTORD, "--foreground", "--socket", socket, "--db", db]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        try:
            _, err_text = process.communicate(timeout=0.7)
        except subprocess.TimeoutExpired:  # it runs all the same, or as well as it can
            orders.write_bytes(bytes(48))
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                case.check(False, f"{name} {nth}: does not end")
            err_text = process.stderr.read()
            process.stderr.close()
        else:
            case.check(process.returncode == 1, f"{name} {nth}: exit status {process.returncode}")
            case.check(1 <= err_text.count("\n") <= 2, f"{name} {nth}: says {err_text!r}")
        case.check(process.returncode in (0, 1), f"{name} {nth}: exit status {process.returncode}: {err_text[-200:]}")
    case.collect()
    job = kills.Job(case)
    pid = job.process.pid
    job.stop()
    kills.agree(case, job, kills.end_of(case, pid, "finished"), 0)


if __name__ == "__main__":
    harness.TESTS[:] = [t for t in harness.TESTS if t[1].__module__ == "__main__"]
    harness.main()
