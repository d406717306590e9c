"""Tensors that collectord reads out of processes that list them: part of suite.py."""
import contextlib
import errno
import json
import os
import pathlib
import sqlite3
import struct
import subprocess
import sys
import urllib.parse

from lister import ask
from harness import QUERY, WAIT_S, Collector, Skip, clean_env, test, test_each, until

HERE = str(pathlib.Path(__file__).parent)


class Job:
    """A script that plays a traced process: the names of lister.py are there."""

    def __init__(self, case, script, path=None, prefix=()):
        code = f"import sys; sys.path.insert(0, {HERE!r})\nfrom lister import *\n" + script
        self.process = subprocess.Popen([*prefix, sys.executable, "-c", code, str(path or case.collect().socket)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=clean_env())
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def hear(self, word):
        line = self.process.stdout.readline().split()
        assert line and line[0] == word, f"{word} awaited: {line}"
        return line[1:]

    def say(self, word="go"):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self):
        status = self.process.wait(WAIT_S)
        assert status == 0, f"the job: exit status {status}"


def rows(case, sql):
    with contextlib.closing(sqlite3.connect(f"file:{case.collector.db}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


@test
def tensors_of_all_kinds(case):
    """From the request to the store: statistics, shapes, names, what could not be read and why."""
    with Job(case, """
p = begin()
nan, inf = float("nan"), float("inf")
p.snapshot([Tensor("w.grad", [1, 2, 3, 4], flags=GRADIENT, shape=[2, 2]), Tensor("w", [-1, 0, 1, nan, inf, -inf], shape=[2, 3]),
            Tensor(b"odd\\xff\\0\\"name", [5.0], F64, "d", shape=[], model="m"), Tensor("empty", [], shape=[0, 3]),
            Tensor("all nan", [nan, nan]), Tensor("meta", [], dtype=0, reason="meta", dtype_name="float32", shape=[7]),
            Tensor("c", [1, 2, 3, 4], flags=COMPLEX, shape=[2]), Tensor("s", [1], flags=SPARSE | COPY)],
           epoch=3, flags=0)
tell("stored", p.area.number(DONE))
p.goodbye()
""") as job:
        case.equal(job.hear("stored"), ["8"], "done")
        job.end()
    got = rows(case, "SELECT snapshot, pass, span, tensor_name, model, kind, shape, dtype, mode, count, nans, infs, neg_infs, zeros, mean, std, min, max,"
                     " torn, blob_uri, attrs FROM snapshots ORDER BY snapshot")
    std = 1.118033988749895
    case.equal(got, [
        (1000, 1, 7, "w.grad", "net", "gradient", "[2,2]", "float32", "stats", 4, 0, 0, 0, 0, 2.5, std, 1.0, 4.0, 0, None, "{}"),
        (1001, 1, 7, "w", "net", "weight", "[2,3]", "float32", "stats", 6, 1, 1, 1, 1, 0.0, (2 / 3) ** .5, -1.0, 1.0, 0, None, "{}"),
        (1002, 1, 7, 'odd\ufffd\0"name', "m", "weight", "[]", "float64", "stats", 1, 0, 0, 0, 0, 5.0, 0.0, 5.0, 5.0, 0, None, "{}"),
        (1003, 1, 7, "empty", "net", "weight", "[0,3]", "float32", "stats", 0, 0, 0, 0, 0, None, None, None, None, 0, None, "{}"),
        (1004, 1, 7, "all nan", "net", "weight", "[2]", "float32", "stats", 2, 2, 0, 0, 0, None, None, None, None, 0, None, "{}"),
        (1005, 1, 7, "meta", "net", "weight", "[7]", "float32", "stats", *[None] * 9, 0, None, '{"reason":"meta"}'),
        (1006, 1, 7, "c", "net", "weight", "[2]", "complex64", "stats", 4, 0, 0, 0, 0, 2.5, std, 1.0, 4.0, 0, None, '{"complex":true}'),
        (1007, 1, 7, "s", "net", "weight", "[1]", "float32", "stats", 1, 0, 0, 0, 0, 1.0, 0.0, 1.0, 1.0, 0, None, '{"sparse":true,"copy":true}'),
    ], "records")
    case.equal(rows(case, "SELECT histogram, magnitude FROM snapshots WHERE snapshot = 1000"),
               [("[1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1]", "[" + "0," * 24 + "3,1" + ",0" * 6 + "]")], "histograms")
    case.equal(rows(case, "SELECT pass, span, epoch, step, reason, mode, records, list_ns, wait_ns, torn, own, blobs, blob_error, read_ns > 0"
                          " FROM snapshot_passes"), [(1, 7, 3, None, "epoch", "stats", 8, 1234, 99, 0, 0, 0, None, 1)], "pass")


@test
def what_was_torn(case):
    """The verdict comes when the process goes on: before or long after it is stored."""
    with Job(case, """
p = begin()
t = [Tensor(f"w{i}", [i]) for i in range(4)]
p.area.write(1, t)
p.say_request()
p.until(FINISHED)
p.area.memory[PAGE + ENTRY + 34] |= TORN
p.area.settle(torn_from=3, torn=1)
p.until(STORED)
p.area.write(2, t, first=2000)
p.say_request()
p.until(FINISHED)
tell("late")
wait()
assert p.area.word(STORED) == 1
p.area.settle(torn_from=2)
p.until(STORED)
p.area.write(3, t, first=3000)
p.say_request()
p.until(FINISHED)
tell("done")
wait()
""") as job:
        job.hear("late")
        until(lambda: rows(case, "SELECT count(*), sum(torn) FROM snapshots WHERE pass = 2") == [(4, 0)], what="records without a verdict")
        case.equal(rows(case, "SELECT pass, torn FROM snapshot_passes"), [(1, 2), (2, 0)], "passes")
        job.say()
        job.hear("done")
        job.process.kill()
        until(lambda: rows(case, "SELECT count(*) FROM snapshot_passes") == [(3,)], what="the last one")
    case.equal(rows(case, "SELECT pass, group_concat(torn) FROM snapshots GROUP BY pass"), [(1, "0,1,0,1"), (2, "0,0,1,1"), (3, "0,0,0,0")], "torn")
    case.equal(rows(case, "SELECT pass, torn FROM snapshot_passes"), [(1, 2), (2, 2), (3, 0)], "passes at last")


@test
def a_model_that_is_given_back(case):
    """Memory that is gone costs its own record, and nothing else."""
    with Job(case, """
p = begin()
t = [Tensor("a", [1]), Tensor("gone", [2]), Tensor("b", [3])]
t[1].address = 4096
t.append(Tensor("partly", bytes(8192), U8, "B"))
t[3].shape = [1 << 40]
t.append(Tensor("over and over", [1], shape=[1 << 20, 1 << 20], strides=[0, 0]))
t.append(Tensor("twice", [4], shape=[2], strides=[0]))
p.snapshot(t)
p.goodbye()
""") as job:
        job.end()
    got = rows(case, "SELECT tensor_name, mean, attrs FROM snapshots ORDER BY snapshot")
    gone = '{"error":"Bad address"}'
    case.equal(got, [("a", 1.0, "{}"), ("gone", None, gone), ("b", 3.0, "{}"), ("partly", None, gone),
                     ("over and over", None, '{"error":"File too large"}'), ("twice", 4.0, "{}")], "records")


@test
def killed_while_it_is_read(case):
    with Job(case, """
p = begin(4096, 1 << 20)
t = [Tensor(f"w{i}", bytes(1 << 21)) for i in range(200)]
p.area.write(1, t)
p.say_request()
while p.area.number(DONE) < 5:
    pass
tell("reading")
wait()
""") as job:
        job.hear("reading")
        job.process.kill()
        until(lambda: rows(case, "SELECT records FROM snapshot_passes") == [(200,)], what="what there is of it")
    got = rows(case, "SELECT snapshot - 1000, count, attrs FROM snapshots ORDER BY snapshot")
    whole = sum(row[1] is not None for row in got)
    case.check(5 <= whole < 200, f"{whole} were read")
    case.equal(got, [(i, 1 << 19, "{}") for i in range(whole)] + [(i, None, '{"error":"the process ended first"}') for i in range(whole, 200)], "records")
    case.store()


@test
def collector_killed_while_it_reads(case):
    """The next one goes on with the same request: nothing is missing, nothing twice."""
    case.collect()
    with Job(case, """
p = begin(4096, 1 << 20)
t = [Tensor(f"w{i}", bytes(1 << 19)) for i in range(600)]
p.area.write(1, t)
p.say_request()
while p.area.number(DONE) < 5:
    pass
tell("reading")
wait()
p.hangup()
p.hello()
p.say_request()
p.until(FINISHED)
tell("finished")
wait()
p.hangup()
p.hello()
p.say_request()
p.area.settle()
p.until(STORED)
p.say_request()
p.goodbye()
""") as job:
        job.hear("reading")
        case.collector.kill()
        case.collector.start()
        case.equal(rows(case, "SELECT count(*) FROM snapshots"), [(0,)], "records of half a pass")
        job.say()
        job.hear("finished")
        case.collector.kill()
        case.collector.start()
        job.say()
        job.end()
    case.equal(rows(case, "SELECT count(*), count(DISTINCT tensor_name), sum(count), sum(attrs = '{}') FROM snapshots"), [(600, 600, 600 << 17, 600)], "records")
    case.equal(rows(case, "SELECT pass, records FROM snapshot_passes"), [(1, 600)], "passes")
    case.store()


@test
def ended_while_it_reads(case):
    """SIGTERM waits for no tensors; the next collector reads the rest."""
    case.collect()
    with Job(case, """
p = begin(4096, 1 << 20)
t = [Tensor(f"w{i}", bytes(1 << 21)) for i in range(300)]
p.area.write(1, t)
p.say_request()
while p.area.number(DONE) < 5:
    pass
tell("reading", os.getpid())
wait()
p.hangup()
p.hello()
p.say_request()
p.until(FINISHED)
p.area.settle()
p.until(STORED)
p.goodbye()
""") as job:
        job.hear("reading")
        case.equal(case.collector.stop(), 0, "exit status of collectord")
        case.equal(rows(case, "SELECT count(*) FROM snapshots"), [(0,)], "records of half a pass")
        case.collector.start()
        job.say()
        job.end()
    case.equal(rows(case, "SELECT count(*), sum(count), sum(attrs = '{}') FROM snapshots"), [(300, 300 << 19, 300)], "records")


REFUSED = """
p.area.write(1, [Tensor("w.grad", [1, 2], flags=GRADIENT), Tensor("w", [3])])
p.say_request()
while not p.area.number(REFUSED):
    time.sleep(0.001)
tell("refused", p.area.number(REFUSED), p.area.number(DONE))
for i in range(2):  # it computes itself
    struct.pack_into("<iI5Q5d", p.area.memory, PAGE + 64 * ENTRY + i * RESULT, 0, 0, 2 - i, 0, 0, 0, 0, 1.5 + i, .5, 1, 2, 3)
struct.pack_into("<I", p.area.memory, FLAGS, OWN)
struct.pack_into("<I", p.area.memory, DONE, 2)
p.area.word(FINISHED, 1)
p.area.settle(torn_from=1)
p.until(STORED)
p.area.write(2, [Tensor("w", [3])], flags=OWN, first=2000)
p.say_request()
tell("own")
wait()
"""


def computes_itself(case, job, error):
    case.equal(job.hear("refused"), [str(error), "0"], "why, and how many were read")
    job.hear("own")
    job.process.kill()
    until(lambda: rows(case, "SELECT count(*) FROM snapshot_passes") == [(2,)], what="both")
    case.equal(rows(case, "SELECT pass, tensor_name, kind, count, mean, torn, attrs FROM snapshots ORDER BY snapshot"),
               [(1, "w.grad", "gradient", 2, 1.5, 0, "{}"), (1, "w", "weight", 1, 2.5, 1, "{}"),
                (2, "w", "weight", None, None, 0, '{"error":"the process ended first"}')], "records")
    case.equal(rows(case, "SELECT own, torn FROM snapshot_passes"), [(1, 1), (1, 0)], "passes")


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def needs_root(case):
    """Tests of other users' processes. They may come into the folder."""
    if os.geteuid() != 0 or subprocess.run([*NOBODY, "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("needs root and setpriv")
    os.chmod(case.folder, 0o777)


@test
def a_process_that_nobody_may_read(case):
    """Not dumpable, so the kernel refuses: it is told, and computes itself."""
    needs_root(case)
    case.collector = Collector(case.folder)
    case.collector.prefix = NOBODY
    case.collector.start()
    with Job(case, "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\np = begin()\n" + REFUSED, prefix=NOBODY) as job:
        computes_itself(case, job, 1)
    log = case.collector.log.read_text()
    case.equal(log.count("computes its snapshots itself"), 1, "lines about it in " + log)


@test
def a_process_of_another_user(case):
    """Never read, though root could."""
    needs_root(case)
    case.collector = Collector(case.folder)
    case.collector.options = ["--any-user"]
    case.collector.start()
    with Job(case, "p = begin()\n" + REFUSED, prefix=NOBODY) as job:
        computes_itself(case, job, 1)
    case.equal(rows(case, "SELECT uid FROM sessions"), [(65534,)], "whose it is")


@test
def twenty_thousand_tensors(case):
    """They do not hold up the others: the rings of another process are emptied all the while."""
    with Job(case, """
p = begin(20000, 1 << 21)
t = Tensor("w", range(16))
many = []
for i in range(20000):
    c = object.__new__(Tensor)
    c.__dict__.update(t.__dict__, name=b"layer.%d.weight" % i, memory=t.memory)
    many.append(c)
p.snapshot(many)
tell("stored")
wait()
many[0].more = {"flags": GRADIENT}
p.snapshot(many[:1], 2, first=90000)
p.goodbye()
""") as job:
        job.hear("stored")
        case.equal(rows(case, "SELECT count(*), count(DISTINCT tensor_name), min(mean), max(mean) FROM snapshots"), [(20000, 20000, 7.5, 7.5)], "records")
        case.equal(rows(case, "SELECT records FROM snapshot_passes"), [(20000,)], "passes")
        job.say()
        job.end()
    case.equal(rows(case, "SELECT pass, count(*) FROM snapshots GROUP BY pass"), [(1, 20000), (2, 1)], "records at last")


@test
def a_new_area_for_each(case):
    """A process that does not wait until the one before is stored."""
    with Job(case, """
p = begin()
t = [Tensor(f"w{i}", [i]) for i in range(5)]
areas = []
for n in range(1, 6):
    p.make(5 * n)
    p.say_area()
    p.area.write(n, t, first=1000 * n)
    p.say_request()
    areas.append(p.area)
for p.area in areas:
    p.until(FINISHED)
    p.area.settle()
for p.area in areas:
    p.until(STORED)
p.goodbye()
""") as job:
        job.end()
    case.equal(rows(case, "SELECT pass, count(*), sum(mean) FROM snapshots GROUP BY pass"), [(n, 5, 10.0) for n in range(1, 6)], "records")


HOSTILE = {
    "too small": "p.area.bytes = 100; p.say_area()",
    "of another size": "p.area.bytes -= 8; p.say_area()",
    "not sealed": "p.area.fd, _ = player.memfd(p.area.bytes, 0); p.say_area()",
    "no memfd": "p.area.fd = os.open('/dev/zero', os.O_RDWR); p.say_area()",
    "of another session": "p.make(8); p.area.word(32, 5); p.say_area()",
    "more entries than there is room": "p.make(8); struct.pack_into('<I', p.area.memory, 12, 1 << 20); p.say_area()",
    "without a descriptor": "p.send(field_bytes(6, field_int(1, p.area.bytes)))",
    "request of nothing": "p.send(field_bytes(7, field_int(1, 0)))",
}


@test_each(tuple(HOSTILE))
def an_area_that_cannot_be(case, kind):
    with Job(case, f"p = begin()\n{HOSTILE[kind]}\np.socket.settimeout(20)\nassert p.socket.recv(1) == b''\n") as job:
        job.end()
    case.equal(case.collector.stop(), 0, "exit status of collectord")


@test
def entries_that_cannot_be(case):
    """Anything in entries and text: the process is answered, and collectord goes on."""
    with Job(case, """
import random
chance = random.Random(5)
p = begin(16, 1 << 12)
t = [Tensor(f"w{i}", range(100)) for i in range(16)]
for n in range(1, 200):
    p.area.write(n, t, first=100 * n)
    for _ in range(chance.randrange(1, 4)):
        i, at = chance.randrange(16), chance.choice((8, 12, 16, 20, 24, 28, 32, 33, 34))
        struct.pack_into("<I" if at < 32 else "<B", p.area.memory, PAGE + i * ENTRY + at, chance.choice((0, 1, 2, 4, 8, 64, 65, 200, 255, 0, 0) if at > 31 else
                         (0, 4, 8, 1 << 12, (1 << 12) - 4, 1 << 31, (1 << 32) - 8, WHOLE)))
    if n % 7 == 0:
        p.area.memory[p.area.text_at:p.area.text_at + 4096] = os.urandom(4096)
    if n % 11 == 0:
        struct.pack_into("<II", p.area.memory, COUNT, chance.choice((0, 17, 1 << 31)), chance.choice((0, 16, 99)))
    p.say_request()
    p.until(FINISHED)
    p.area.settle(chance.getrandbits(32))
    p.until(STORED)
p.snapshot(t, 1000, first=1000000)
p.goodbye()
""") as job:
        job.end()
    case.equal(rows(case, "SELECT count(*), sum(mean) FROM snapshots WHERE pass = 1000"), [(16, 16 * 49.5)], "the last one, which is right")
    case.equal(case.collector.stop(), 0, "exit status of collectord")


@test
def an_area_that_changes_all_the_time(case):
    with Job(case, """
p = begin(64, 1 << 12)
t = [Tensor(f"w{i}", range(100)) for i in range(64)]
end, n = time.monotonic() + 2, 0
while time.monotonic() < end:
    n += 1
    p.area.write(n, t, first=100 * n)
    p.say_request()
    for at in (NUMBER, DONE, FINISHED, STORED, SETTLED, COUNT):
        p.area.memory[PAGE + n % 64 * ENTRY:PAGE + n % 64 * ENTRY + 40] = os.urandom(40)
        p.area.memory[at:at + 8] = os.urandom(8)
    p.area.word(NUMBER, n)
p.goodbye()
""") as job:
        job.end()
    case.equal(case.collector.stop(), 0, "exit status of collectord")


SENT = """
p = Lister()
p.connect()
p.send(field_bytes(1, player.hello_fields(p) + field_int(21, 1)))
def tensor(name, mean=1.5, flags=0, stats=True, **more):
    data = struct.pack("<5Q5d48Q", 4, 0, 0, 0, 1, mean, .5, 1, 2, 3, *range(48))
    fields = field_bytes(1, name) + field_bytes(2, b"net") + field_bytes(3, player.varint(2) * 2) + field_int(4, F32) + field_int(5, flags)
    return field_bytes(4, fields + (field_bytes(10, data) if stats else field_bytes(7, b"meta")))
def head(count, gradients=1):
    return field_bytes(2, b"".join(field_int(i, v) for i, v in enumerate((7, 1000, time.monotonic_ns(), 6, 1, count, gradients, 2, 0, 11, 12, 13), 1)))
def sent(number, *parts, first=0, last=False):
    p.send(field_bytes(8, field_int(1, number) + b"".join(parts) + field_int(3, first) + field_int(5, last)))
"""


@test
def sent_in_messages(case):
    """Where no memory is shared. What was begun and never ended is nothing."""
    with Job(case, SENT + """
sent(1, head(3), tensor(b"lost", 9))
sent(2, head(3), tensor(b"w.grad", 1, GRADIENT), tensor(b"w\\xff", 2, TORN))
sent(2, tensor(b"meta", 0, 0, False), first=2, last=True)
sent(3, head(0, 0), last=True)
sent(4, tensor(b"the end of one that began elsewhere"), first=5, last=True)
p.goodbye()
""") as job:
        job.end()
        until(lambda: rows(case, "SELECT count(*) FROM snapshot_passes") == [(2,)], what="the passes")
    case.equal(rows(case, "SELECT snapshot, pass, span, tensor_name, model, kind, shape, dtype, count, zeros, mean, torn, attrs FROM snapshots"), [
        (1000, 2, 7, "w.grad", "net", "gradient", "[2,2]", "float32", 4, 1, 1.0, 0, "{}"),
        (1001, 2, 7, "w\ufffd", "net", "weight", "[2,2]", "float32", 4, 1, 2.0, 1, "{}"),
        (1002, 2, 7, "meta", "net", "weight", "[2,2]", "float32", None, None, None, 0, '{"reason":"meta"}')], "records")
    case.equal(rows(case, "SELECT pass, epoch, step, reason, records, list_ns, read_ns, wait_ns, torn, own FROM snapshot_passes"),
               [(2, 3, -1, "steps", 3, 11, 12, 13, 1, 1), (3, 3, -1, "steps", 0, 11, 12, 13, 0, 1)], "passes")


BAD_SENT = {
    "more than there are": 'sent(1, head(1), tensor(b"a"), tensor(b"b"))',
    "in another order": 'sent(1, head(3), tensor(b"a"))\nsent(1, tensor(b"b"), first=2)',
    "not all of them": 'sent(1, head(3), tensor(b"a"), last=True)',
    "statistics of another size": 'sent(1, head(1), field_bytes(4, field_bytes(10, b"x" * 8)))',
    "too long a name": 'sent(1, head(1), tensor(b"a" * 1025))',
    "too many": "sent(1, head(1 << 21))",
    "no number": "sent(0, head(1))",
}


@test_each(tuple(BAD_SENT))
def a_message_that_cannot_be(case, kind):
    with Job(case, SENT + BAD_SENT[kind] + "\np.socket.settimeout(20)\nassert p.socket.recv(1) == b''\n") as job:
        job.end()
    case.equal(case.collector.stop(), 0, "exit status of collectord")
    case.equal(rows(case, "SELECT count(*) FROM snapshots"), [(0,)], "records")


WANTED = "struct.unpack_from('<Q', p.segment, 112)[0]"


@test
def asked_for_by_a_command(case):
    path = case.collect().socket
    case.equal(ask(path), (0, errno.ESRCH), "the answer where nobody is")
    shared = "p = begin()\ntell('session', p.session)\n"
    with Job(case, shared + f"while {WANTED} < 2:\n    time.sleep(.001)\ntell('wanted', {WANTED})\nwait()\np.goodbye()\n") as one, \
            Job(case, shared + f"wait()\ntell('wanted', {WANTED})\np.goodbye()\n") as other, \
            Job(case, SENT + """
tell("session", p.session)
while True:
    p.socket.settimeout(60)
    (size,) = struct.unpack("<I", p.socket.recv(4))
    data = p.socket.recv(size)
    if data[0] == 9 << 3 | 2:
        break
tell("command", data.hex())
wait()
""") as sends:
        first = int(one.hear("session")[0])
        other.hear("session")
        sends.hear("session")
        until(lambda: rows(case, "SELECT count(*) FROM sessions") == [(3,)], what="the sessions")
        case.equal(ask(path, first), (1, 0), "the answer for one")
        case.equal(ask(path), (3, 0), "the answer for all")
        case.equal(ask(path, 5), (0, errno.ESRCH), "the answer for one that is not there")
        case.equal(ask(path, first, 7), (0, errno.EOPNOTSUPP), "the answer to another command")
        case.equal(one.hear("wanted"), ["2"], "one is told")
        other.say()
        case.equal(other.hear("wanted"), ["1"], "the other is told")
        case.equal(sends.hear("command"), ["4a0408011801"], "what is sent to the third")
        one.say()
        one.end()
        other.end()
    case.equal(case.collector.stop(), 0, "exit status of collectord")


@test
def a_command_of_another_user(case):
    """Root may ask everybody's jobs, others their own."""
    needs_root(case)
    case.collector = Collector(case.folder)
    case.collector.options = ["--any-user"]
    case.collector.start()
    asks = [*NOBODY, sys.executable, "-c", f"import sys; sys.path.insert(0, {HERE!r}); import lister; print(lister.ask({str(case.collector.socket)!r}))"]
    stays = f"p = begin()\ntell('began')\nwait()\ntell('wanted', {WANTED})\np.goodbye()\n"
    with Job(case, stays) as of_root:
        of_root.hear("began")
        until(lambda: rows(case, "SELECT count(*) FROM sessions") == [(1,)], what="the session")
        r = subprocess.run(asks, capture_output=True, text=True, env=clean_env())
        case.equal(r.stdout, f"(0, {errno.EPERM})\n", f"the answer ({r.stderr})")
        with Job(case, stays, prefix=NOBODY) as of_nobody:
            of_nobody.hear("began")
            until(lambda: rows(case, "SELECT count(*) FROM sessions") == [(2,)], what="the sessions")
            r = subprocess.run(asks, capture_output=True, text=True, env=clean_env())
            case.equal(r.stdout, "(1, 0)\n", f"the answer ({r.stderr})")
            case.equal(ask(case.collector.socket), (2, 0), "root's answer")
            of_nobody.say()
            case.equal(of_nobody.hear("wanted"), ["2"], "nobody's job is told")
            of_nobody.end()
        of_root.say()
        case.equal(of_root.hear("wanted"), ["1"], "root's job is told")
        of_root.end()


@test
def asked_for_by_cirron_query(case):
    """From the command to the table: the job lists its tensors once it is told, and the client waits for what became of them."""
    path = case.collect().socket
    query = [str(QUERY), "snapshot", "now", "--db", str(case.collector.db), "--session", "last"]
    env = dict(clean_env(), CIRRON_SOCKET=str(path))
    with Job(case, f"""
p = begin()
tell("began")
while {WANTED} < 1:
    time.sleep(.001)
p.snapshot([Tensor("w.grad", [1, float("nan"), 3], flags=GRADIENT), Tensor("w", [1, 2, 3, 4])], epoch=3, step=41, reason=3)
wait()
""") as job:
        job.hear("began")
        until(lambda: rows(case, "SELECT count(*) FROM sessions") == [(1,)], what="the session")
        r = subprocess.run([*query, "--format", "jsonl"], capture_output=True, text=True, env=env)
        case.equal((r.returncode, r.stderr), (0, ""), "snapshot now")
        got = json.loads(r.stdout)
        case.equal([got[k] for k in ("pass", "epoch", "step", "records", "torn", "wait_ns", "list_ns")], [1, 3, 41, 2, 0, 99, 1234], "what it says")
        r = subprocess.run([*query, "--timeout", "1"], capture_output=True, text=True, env=env)
        case.equal((r.returncode, r.stdout), (1, ""), "of a job that takes no steps any more")
        case.check("took no snapshot within 1 s" in r.stderr, r.stderr)
        r = subprocess.run([query[0], "first-bad", "--db", query[4]], capture_output=True, text=True, env=env)
        case.check(r.returncode == 3 and "w.grad is not finite in the snapshot asked for at step 41 of epoch 3" in r.stdout, r.stdout + r.stderr)
    until(lambda: "does not run any more" in subprocess.run(query, capture_output=True, text=True, env=env).stderr, what="the end of the job")


# ---- tensors in files ----

def read_file(path):
    """A safetensors file by the format's description: {name: (dtype, shape, bytes)} and its metadata."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + size].decode()), data[8 + size:]
    assert size % 8 == 0, "the data are not aligned"
    metadata = header.pop("__metadata__")
    ends = sorted(h["data_offsets"] for h in header.values())
    assert [a for a, _ in ends] == [0] + [b for _, b in ends][:-1] and (not ends or ends[-1][1] == len(body)), f"holes: {ends}, {len(body)}"
    return {name: (h["dtype"], h["shape"], body[slice(*h["data_offsets"])]) for name, h in header.items()}, metadata


BY_LIBRARY = """
import sys, safetensors.torch, safetensors
for path in sys.argv[1:]:
    tensors = safetensors.torch.load_file(path)
    with safetensors.safe_open(path, "pt") as f:
        assert sorted(f.keys()) == sorted(tensors) and f.metadata()["format"] == "pt"
    print(sorted((k, str(v.dtype), list(v.shape), v.flatten().tolist()) for k, v in tensors.items()))
"""


@test
def tensors_in_files(case):
    folder = case.folder / "out put%ü"
    folder.mkdir()
    (folder / ".weights.safetensors.00000000.tmp").write_text("of a writer that was killed")
    (folder / "weights.safetensors.mine").write_text("of the user")
    with Job(case, f"""
p = begin()
p.snapshot([Tensor("w.grad", [1, 2], flags=GRADIENT), Tensor("flag", b"\\1\\0\\1", BOOL, "B"), Tensor("w", [3, 4, 5, 6], shape=[2, 2]),
            Tensor("half", b"\\0\\x3c" * 3, F16, "H"), Tensor("double", [7], F64, "d", shape=[]), Tensor("empty", [], shape=[0, 2]),
            Tensor("meta", [], dtype=0, reason="meta", shape=[7]), Tensor(b'q"\\\\\\n\\xff', [8]), Tensor("w", [9]), Tensor("__metadata__", [1]),
            Tensor("c", [1, 2], flags=COMPLEX, shape=[1]), Tensor("turned", [0, 1, 2, 3, 4, 5], shape=[3, 2], strides=[1, 3])],
           folder={str(folder)!r}, flags=BLOBS)
p.goodbye()
""") as job:
        job.end()
    weights, gradients = folder / "weights.safetensors", folder / "gradients.safetensors"
    case.equal(sorted(x.name for x in folder.iterdir()), ["gradients.safetensors", "weights.safetensors", "weights.safetensors.mine"], "files")
    got, metadata = read_file(weights)

    def floats(*values):
        return struct.pack(f"<{len(values)}f", *values)

    case.equal(got, {"w": ("F32", [2, 2], floats(3, 4, 5, 6)), "flag": ("BOOL", [3], b"\1\0\1"), "half": ("F16", [3], b"\0\x3c" * 3),
                     "double": ("F64", [], struct.pack("<d", 7)), "empty": ("F32", [0, 2], b""), 'q"\\\n\ufffd': ("F32", [1], floats(8)),
                     "c": ("F32", [1, 2], floats(1, 2)), "turned": ("F32", [3, 2], floats(0, 3, 1, 4, 2, 5))}, "weights")
    (span,) = rows(case, "SELECT prefix || '0000000000000007' FROM sessions")[0]
    case.equal(metadata, {"format": "pt", "span": span, "torn": "false"}, "metadata")
    case.equal(read_file(gradients)[0], {"w.grad": ("F32", [2], floats(1, 2))}, "gradients")
    uri = "file://" + urllib.parse.quote(str(folder)) + "/{}.safetensors"
    records = rows(case, "SELECT tensor_name, mode, blob_uri FROM snapshots ORDER BY snapshot")
    kept = ["w.grad", "flag", "w", "half", "double", "empty", 'q"\\\n\ufffd', "c", "turned"]
    case.equal(records[:6] + records[7:8] + records[10:], [(name, "full", uri.format("gradients" if name == "w.grad" else "weights")) for name in kept], "records")
    case.equal(records[6:7] + records[8:10], [(name, "stats", None) for name in ("meta", "w", "__metadata__")], "records of those that cannot be in it")
    case.equal(rows(case, "SELECT mode, blobs, blob_error FROM snapshot_passes"), [("full", 3, None)], "pass")
    python = os.environ.get("TORCH_PYTHON")
    if not python or subprocess.run([python, "-c", "import safetensors.torch"], capture_output=True).returncode:
        return  # the files were read above by the format's description; e2e-snapshots reads those of real models by the library
    r = subprocess.run([python, "-c", BY_LIBRARY, weights, gradients], capture_output=True, text=True, env=clean_env())
    case.equal((r.returncode, r.stdout.splitlines()[-1:]), (0, ["[('w.grad', 'torch.float32', [2], [1.0, 2.0])]"]), "by the library: " + r.stderr[-500:])
    case.check("('half', 'torch.float16', [3], [1.0, 1.0, 1.0])" in r.stdout and "('turned', 'torch.float32', [3, 2], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0])" in r.stdout,
               "by the library: " + r.stdout)


@test
def torn_files_say_so(case):
    folder = case.folder / "out"
    folder.mkdir()
    with Job(case, f"""
p = begin()
t = [Tensor(f"w{{i}}", bytes(1 << 22)) for i in range(40)]
p.area.write(1, t, flags=BLOBS | SAMPLED)
p.say_request({str(folder)!r})
while p.area.number(DONE) < 3:
    pass
p.area.settle(torn_from=3)
p.until(STORED)
p.goodbye()
""") as job:
        job.end()
    got, metadata = read_file(folder / "weights.safetensors")
    case.equal((len(got), metadata["torn"]), (40, "true"), "the file")
    case.equal(rows(case, "SELECT mode, sum(torn), count(*) FROM snapshots"), [("sampled", 37, 40)], "records")
    case.equal(rows(case, "SELECT mode, torn FROM snapshot_passes"), [("sampled", 37)], "pass")


FULL = """
p = begin()
t = [Tensor("w.grad", [1], flags=GRADIENT)] + [Tensor(f"w{{i}}", bytes(1 << 20)) for i in range(8)]
p.snapshot(t, folder={folder!r}, flags=BLOBS)
{then}
p.goodbye()
"""


@test_each(("no folder", "not writable", "full", "a file in its way", "gone tensor"))
def files_that_cannot_be_written(case, why):
    """Statistics are kept, the error is said once, nothing half is left."""
    folder, prefix = case.folder / "out", []
    folder.mkdir()
    script, error, then = FULL, errno.EACCES, ""
    if why in ("not writable", "full"):
        needs_root(case)
    case.collector = Collector(case.folder)
    if why == "not writable":
        prefix = case.collector.prefix = NOBODY
        folder.chmod(0o755)
    elif why == "full":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], check=True)
        error = errno.ENOSPC
    elif why == "a file in its way":
        (folder / "weights.safetensors").mkdir()
        error = errno.EISDIR
    elif why == "no folder":
        script, error = FULL.replace("os.O_DIRECTORY", "0"), errno.ENOTDIR
        then = "pass"
    else:
        script, error = FULL.replace("p.snapshot(t,", "t[5].address = 4096\np.snapshot(t,"), errno.EFAULT
    case.collector.start()
    target = "/dev/null" if why == "no folder" else str(folder)
    script = script.format(folder=target, then=then)
    if why == "no folder":
        script = script.replace("p = begin()", "os.O_DIRECTORY = 0\np = begin()")
    try:
        with Job(case, script, prefix=prefix) as job:
            job.end()
        left = sorted(x.name for x in folder.iterdir())
    finally:
        if why == "full":
            subprocess.run(["umount", folder], check=True)
    expected = {"a file in its way": ["gradients.safetensors", "weights.safetensors"]}.get(why, [])
    case.equal(left, expected, "files")
    blobs = 2 if why == "a file in its way" else 0
    case.equal(rows(case, "SELECT mode, blobs, blob_error FROM snapshot_passes"), [("full", blobs, error)], "pass")
    case.equal(rows(case, "SELECT DISTINCT kind, mode, blob_uri IS NULL FROM snapshots ORDER BY kind"),
               [("gradient", "full" if blobs else "stats", int(not blobs)), ("weight", "stats", 1)], "records")
    case.equal(rows(case, "SELECT count(*), count(mean) FROM snapshots"), [(9, 8 if why == "gone tensor" else 9)], "statistics")
    log = case.collector.log.read_text()
    case.equal(log.count("cannot be written"), 1, "lines about it in " + log)


@test_each(("job", "collector"))
def killed_while_it_is_written(case, who):
    """No half file under its name, and the next writer removes what the dead one left."""
    folder = case.folder / "out"
    folder.mkdir()
    case.collect()
    with Job(case, f"""
p = begin()
t = [Tensor(f"w{{i}}", bytes(1 << 22)) for i in range(60)]
p.area.write(1, t, flags=BLOBS)
p.say_request({str(folder)!r})
while p.area.number(DONE) < 5:
    pass
tell("reading")
wait()
p.hangup()
p.hello()
p.say_request({str(folder)!r})
p.until(FINISHED)
p.area.settle()
p.until(STORED)
p.snapshot(t[:2], 2, folder={str(folder)!r}, flags=BLOBS, first=2000)
p.goodbye()
""") as job:
        job.hear("reading")
        if who == "job":
            job.process.kill()
            until(lambda: rows(case, "SELECT records FROM snapshot_passes") == [(60,)], what="what there is of it")
            case.equal(list(folder.iterdir()), [], "files")
            case.equal(rows(case, "SELECT DISTINCT mode FROM snapshots"), [("stats",)], "records")
            return
        case.collector.kill()
        case.equal([x.suffix for x in folder.iterdir()], [".tmp"], "what is left of it")
        case.collector.start()
        job.say()
        job.end()
    case.equal(rows(case, "SELECT pass, count(*), count(count), count(blob_uri) FROM snapshots GROUP BY pass"), [(1, 60, 60, 0), (2, 2, 2, 2)], "records")
    case.equal(rows(case, "SELECT pass, blobs, blob_error FROM snapshot_passes"), [(1, 0, errno.ECANCELED), (2, 1, None)], "passes")
    case.equal(len(read_file(folder / "weights.safetensors")[0]), 2, "the second file")
    case.equal([x.name for x in folder.iterdir()], ["weights.safetensors"], "files")
