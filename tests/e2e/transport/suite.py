"""Records as messages, where no memory is shared: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import collections
import contextlib
import ctypes
import errno
import os
import platform
import random
import resource
import signal
import socket
import sqlite3
import struct
import sys
import time

from harness import PYTHONS, Skip, Store, main, python_label, test, test_each, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "collectord"))
import player  # noqa: E402

WORK = """
import cirron as ci, json, os, threading, time
def work(n):
    with ci.scope("outer", n, text="x" * 200):
        for i in range(20):
            with ci.scope("inner", i):
                ci.mark("value", i / 4)
        ci.mark("words", "y" * 70)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for x in threads: x.start()
for x in threads: x.join()
work(4)
print(json.dumps([ci.health()["transport"], any("memfd:cirron" in x for x in open("/proc/self/maps"))]))
"""


def shape(st, pid):
    """All that does not differ from run to run."""
    mine = [s for s in st.all if s["pid"] == pid]
    marks = [m for m in st.marks if m["span_id"] in {s["id"] for s in mine}]
    attrs = lambda s: str({k: v for k, v in s["attrs"].items() if k != "pid"})  # the root's
    return (collections.Counter((s["name"], s["index"], s["state"], attrs(s), (st.parent(s) or {}).get("name")) for s in mine),
            collections.Counter((m["name"], str(m["value"])) for m in marks))


def same_as_shared(t, python, **how):
    """The run with shared memory, and the one that is to go by messages: the store holds the same."""
    t.collect()
    shared = t.run([python, t.script(WORK)])
    sent = t.run([python, t.script(WORK)], **how)
    t.equal((shared.rc, shared.out, shared.err), (0, '["ring", true]\n', ""), "with shared memory")
    t.equal((sent.rc, sent.out, sent.err), (0, '["socket", false]\n', ""), "with messages")
    st = t.store()
    t.equal(shape(st, sent.pid), shape(st, shared.pid), "what is stored")
    t.equal(len([s for s in st.of("inner") if s["pid"] == sent.pid]), 100, "scopes")
    t.equal([s["state"] for s in st.sessions], ["finished"] * 2, "states")
    t.equal([s["dropped"] for s in st.sessions], [{}] * 2, "dropped")


@test_each(PYTHONS, python_label)
def as_asked(t, python):
    same_as_shared(t, python, env={"CIRRON_TRANSPORT": "socket"})


# What each machine calls them.
CALLS = {"x86_64": {"memfd_create": 319, "sendmsg": 46}, "aarch64": {"memfd_create": 279, "sendmsg": 211}}.get(platform.machine(), {})


def refusing(call, error):
    """For preexec_fn: a seccomp filter, as containers have one."""
    code = b"".join(struct.pack("<HBBI", *x) for x in (
        (0x20, 0, 0, 0),                       # load the number of the call
        (0x15, 0, 1, CALLS[call]),             # this one?
        (0x06, 0, 0, 0x00050000 | error),      # it fails
        (0x06, 0, 0, 0x7FFF0000)))             # all else is as ever
    libc = ctypes.CDLL(None, use_errno=True)
    program = ctypes.create_string_buffer(code)
    fprog = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(program)))

    def apply():
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, fprog) or not program:
            os._exit(99)

    return apply


@test_each([("memfd_create", errno.ENOSYS), ("memfd_create", errno.EPERM), ("sendmsg", errno.EPERM)],
           lambda x: f"{x[0]}: {errno.errorcode[x[1]]}")
def refused_by_a_sandbox(t, what):
    if not CALLS:
        raise Skip("the numbers of system calls are not known here")
    t.collect()
    r = t.run([PYTHONS[0], t.script(WORK)], preexec_fn=refusing(*what))
    t.equal((r.rc, r.out[:9], r.err), (0, '["socket"', ""), "run")
    t.equal(len(t.store().of("inner")), 100, "scopes")


@test
def files_may_not_grow(t):
    """Going over the limit of file sizes would be a signal that ends the job: there is no shared memory then."""
    t.collect()
    r = t.run([PYTHONS[0], t.script("import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
                                    "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n" + WORK)])
    t.equal((r.rc, r.out[:9], r.err), (0, '["socket"', ""), "run")
    t.equal(len(t.store().of("inner")), 100, "scopes")


@test
def no_descriptor_at_all(t):
    """Neither memory nor a socket: nothing is recorded, nothing said."""
    t.collect()
    r = t.run([PYTHONS[0], t.script(WORK)], env={"CIRRON_TRANSPORT": "socket"},
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    t.equal((r.rc, r.out, r.err), (0, "[null, false]\n", ""), "run")


KILLED = """
import cirron as ci, os, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
n = 0
with ci.scope("around"):
    while True:
        with ci.scope("s", n):
            pass
        os.write(out, b"%d %d\\n" % (n, time.monotonic_ns()))
        n += 1
        if n % 5 == 0:
            time.sleep(0.001)
"""


@test
def sigkill_takes_the_last_moment_only(t):
    """What was closed a tick before the last span is there; what is there is exact; what was open then is unfinished."""
    t.collect()
    for i in range(3):
        path = t.folder / f"seen{i}"
        process = t.start([PYTHONS[0], t.script(KILLED), path], env={"CIRRON_TRANSPORT": "socket"})
        until(lambda: path.exists() and path.stat().st_size > 20000, what="the job's first spans")
        process.kill()
        process.communicate()
        t.last_traced = process.pid
        st = t.store(faults=False)
        session = [s for s in st.sessions if s["pid"] == process.pid][0]
        seen = [tuple(map(int, x.split())) for x in path.read_text().splitlines()[:-1]]
        stored = sorted(s["index"] for s in st.of("s", process.pid) if s["state"] == "closed")
        t.equal(stored, list(range(len(stored))), f"round {i}: spans, each once")
        old = [n for n, ns in seen if ns < seen[-1][1] - 100_000_000]
        t.check(len(stored) >= len(old) > 0, f"round {i}: {len(stored)} are stored, {len(old)} of {len(seen)} are old")
        t.equal((session["state"], session["exit_signal"], session["dropped"]), ("killed", 9, {}), f"round {i}: its end")
        t.equal({s["name"] for s in st.all if s["pid"] == process.pid and s["state"] == "unfinished"} - {"s"},
                {"cirron.session", "around"}, f"round {i}: unfinished")


BUSY = """
import cirron as ci, time
end = time.monotonic() + 1.5
n = 0
while time.monotonic() < end:
    with ci.scope("s", n):
        ci.mark("m", n)
    n += 1
print(n)
"""


def numbers(t, pid):
    with contextlib.closing(sqlite3.connect(t.collector.db, timeout=10)) as db:
        return db.execute("SELECT emitted_spans + emitted_marks, spans + marks, dropped_total FROM sessions WHERE pid = ?", (pid,)).fetchone()


@test_each(["for a while", "to the end"])
def the_collector_stands_still(t, how):
    """Rings fill up; what does not fit is dropped and counted, and the job goes on."""
    t.collect()
    process = t.start([PYTHONS[0], t.script(BUSY)], env={"CIRRON_TRANSPORT": "socket", "CIRRON_RING_BYTES": "64K", "CIRRON_RING_BYTES_MAX": "64K"})
    time.sleep(0.7)
    t.collector.process.send_signal(signal.SIGSTOP)
    if how == "for a while":
        time.sleep(0.4)
        t.collector.process.send_signal(signal.SIGCONT)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    t.check(time.monotonic() - began < 4, "the job waited for the collector")
    t.equal((process.returncode, err), (0, ""), "the job")
    t.collector.process.send_signal(signal.SIGCONT)
    t.last_traced = process.pid
    t.store(faults=False)
    emitted, stored, dropped = numbers(t, process.pid)
    t.equal(emitted, stored + dropped, "spans and marks")
    t.check(dropped > 0, "nothing was dropped: the test does not test")
    if how == "for a while":
        t.equal(stored + dropped, 2 * int(out) + 1, "all that the script made, and the root")


@test
def another_program_takes_its_place(t):
    """exec without a word: the session is over, although the process lives."""
    t.collect()
    process = t.start([PYTHONS[0], t.script("import cirron as ci, os, time\nwith ci.scope('s'): pass\ntime.sleep(0.2)\n"
                                            "with ci.scope('s'): pass\nos.execv('/bin/sleep', ['sleep', '60'])\n")],
                      env={"CIRRON_TRANSPORT": "socket"})

    def over():
        try:
            return [s["state"] for s in Store(t.collector.db).sessions] == ["finished"]
        except AssertionError:
            return False

    until(over, 15, "the session's end")
    t.check(process.poll() is None, "the process has ended")
    process.kill()
    process.communicate()


def hello(p):
    body = p.hello_body()
    inner = body[body.index(player.field_int(1, 1)):]
    p.connect()
    p.send(player.field_bytes(1, inner + player.field_int(21, 1)))


def batch(**f):
    fields = dict(ring=1, cells=1024, position=0, tid=1, count=0, records=b"")
    fields.update(f)
    numbers = dict(ring=1, cells=2, position=3, tid=4, count=5, emitted=7, dropped=9, shows=12)
    parts = [player.field_int(numbers[k], v) for k, v in fields.items() if k in numbers]
    parts += [player.field_bytes(n, fields[k]) for k, n in (("records", 6), ("open", 13)) if k in fields]
    return player.field_bytes(5, b"".join(parts))


THREAD = bytes([5, 99, 2])  # a RING_THREAD
SPAN = bytes([1, 0, 0, 0, 4, 2, 2, 2])  # id 2 below 1
GOOD = dict(count=2, records=THREAD + SPAN, emitted=1)
BAD = {
    "cut off": dict(count=2, records=(THREAD + SPAN)[:-1]),
    "bytes left": dict(count=1, records=THREAD + SPAN),
    "no records": dict(count=1000),
    "no such type": dict(count=1, records=b"\x00"),
    "no such bits": dict(count=1, records=bytes([5 | 31 << 3, 9, 0])),
    "text that is too long": dict(count=2, records=bytes([1 | 16 << 3, 0, 0, 0, 4, 2, 2, 2, 1, 61]) + b"x" * 61),
    "more than the ring holds": dict(count=2000, records=THREAD * 2000),
    "a gap": dict(position=50, count=1, records=THREAD),
    "the end of the world": dict(position=(1 << 64) - 2, count=1, records=THREAD),
    "no such ring": dict(ring=0, count=1, records=THREAD),
    "no such size": dict(ring=2, cells=1000, count=1, records=THREAD),
    "another size": dict(cells=2048, count=1, records=THREAD),
    "open spans cut off": dict(shows=1, open=b"\x00\x01"),
    "a slot too far": dict(shows=1, open=bytes([0, 0x80, 2, 0, 0, 0, 1, 0, 4, 2, 2])),
}


def refused(p, seconds=10):
    p.socket.settimeout(seconds)
    with contextlib.suppress(ConnectionResetError):
        while True:
            if not p.socket.recv(4096):
                return True
    return True


@test
def messages_that_cannot_be(t):
    """Each ends its connection, with one line in the log, and costs nobody else anything."""
    t.collect()
    p = player.Player(t.collector.socket)
    for name, wrong in BAD.items():
        hello(p)
        p.send(batch(**GOOD))
        p.send(batch(**wrong))
        try:
            refused(p)
        except socket.timeout:
            t.check(False, f"{name}: the connection goes on")
        p.socket.close()
    hello(p)
    p.send(player.field_bytes(4, player.field_int(1, 5000) + player.field_bytes(2, b"x")))  # names from nowhere
    t.check(refused(p), "names")
    p = player.Player(t.collector.socket)  # it shares its memory, and sends
    p.hello()
    p.send(batch(**GOOD))
    t.check(refused(p), "both ways")
    p = player.Player(t.collector.socket)  # a Hello that says both
    p.connect()
    body = p.hello_body()
    p.send(player.field_bytes(1, body[body.index(player.field_int(1, 1)):] + player.field_int(21, 1)), p.segment_fd)
    t.check(refused(p), "a descriptor it does not need")
    done = t.run([PYTHONS[0], t.script(WORK)], env={"CIRRON_TRANSPORT": "socket"})
    until(lambda: any(s["pid"] == done.pid and s["state"] == "finished" for s in Store(t.collector.db).sessions), what="the honest one")
    st = Store(t.collector.db)
    t.equal(len(st.of("inner", done.pid)), 100, "scopes of the honest one")
    log = t.collector.log.read_text()
    t.check("its span_batch cannot be accepted" in log, f"the log says nothing: {log[-300:]}")
    t.check(log.count("\n") < 8, f"the log is flooded: {log[:500]}")
    dropped = [s["dropped"] for s in st.sessions if s["pid"] == os.getpid()]
    t.equal(max(d.get("damaged", 0) for d in dropped), len(BAD), "damaged")


@test
def noise_in_messages(t):
    """Thousands of them, right but for a byte."""
    t.collect()
    chance = random.Random(5)
    whole = batch(count=42, records=THREAD + SPAN * 40 + THREAD, shows=1, open=bytes([0, 1, 0, 0, 0, 1, 0, 4, 2, 2]))
    p = player.Player(t.collector.socket)
    for _ in range(300):
        hello(p)
        with contextlib.suppress(OSError):
            for _ in range(10):
                data = bytearray(whole)
                data[chance.randrange(3, len(data))] = chance.randrange(256)
                p.send(bytes(data))
        p.socket.close()
    t.check(t.collector.process.poll() is None, "the collector has ended")
    done = t.run([PYTHONS[0], t.script(WORK)], env={"CIRRON_TRANSPORT": "socket"})
    until(lambda: any(s["pid"] == done.pid and s["state"] == "finished" for s in Store(t.collector.db).sessions), what="the honest one")
    t.equal(len(Store(t.collector.db).of("inner", done.pid)), 100, "scopes of the honest one")


main()
