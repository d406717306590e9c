"""collectord from outside: suite.py [-k PATTERN] [-j N] [--keep DIR]."""
import ast
import contextlib
import os
import pathlib
import random
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import harness
import snapshots  # noqa: F401  its tests are of this suite
from harness import COLLECTORD, WAIT_S, Skip, clean_env, test, test_each, until

PLAYER = str(pathlib.Path(__file__).with_name("player.py"))
EPOCH, STEP, FORWARD, ROOT_KIND, DOUBTFUL = 2, 4, 6, 1, 16


class Traced:
    """A process that plays a traced one."""

    def __init__(self, case, path=None):
        self.process = subprocess.Popen([sys.executable, PLAYER, str(path or case.collect().socket)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=clean_env())
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def say(self, *lines, answer=True):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            if answer:
                assert self.process.stdout.readline() == "ok\n", f"{line}: no answer"

    def begin(self):
        self.say("hello", "ring 1")

    def end(self):
        self.process.stdin.close()
        return self.process.wait(20)


def rows(case, sql):
    with contextlib.closing(sqlite3.connect(f"file:{case.collector.db}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


def state(case):
    found = rows(case, "SELECT state, exit_code, exit_signal, goodbye FROM (SELECT *, 0 AS goodbye FROM sessions)")
    return [row[:3] for row in found]


def sockets(pid):
    """How many it has open."""
    links = []
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(fd))
    return sum(x.startswith("socket:") for x in links)


def until_state(case, wanted, seconds=WAIT_S):
    """For the one session there is; without it, Case.store() may come before it."""
    until(lambda: [row[0] for row in state(case)] == [wanted], seconds, f"the session to be {wanted}")


@test
def a_session_from_begin_to_end(case):
    with Traced(case) as t:
        t.begin()
        t.say("open 2 1 epoch 2 0", "open 3 2 step 4 0", "span 4 3 forward 6", "span 3 2 step 4", "span 2 1 epoch 2", "span 1 0 cirron.session 1",
              "goodbye")
        t.end()
        until_state(case, "finished")
    st = case.store()
    case.equal(state(case), [("finished", 0, None)], "state")
    case.equal([(s["name"], s["rank"]) for s in st.spans], [("epoch", 2), ("step", 2), ("forward", 2)], "spans")
    case.equal([s["name"] for s in st.above(st.of("forward")[0])], ["step", "epoch"], "ancestors of forward")
    case.equal(rows(case, "SELECT epoch, forwards FROM steps"), [(2, 1)], "steps")
    case.equal(rows(case, "SELECT kind, end_ns IS NULL FROM epochs"), [("epoch", 0)], "epochs")
    session = st.sessions[0]
    case.equal((session["argv"], session["host"], session["world_size"]), (["train.py", '--name="\ufffd"'], "host\ufffd", 4), "session")
    case.equal(rows(case, "SELECT spans, emitted_spans, dropped, dropped_total FROM sessions"), [(4, 4, "{}", 0)], "counts")


@test
def a_process_that_is_gone_before_it_was_seen(case):
    case.collect()
    for _ in range(10):
        with Traced(case) as t:
            t.say("hello", "ring 1", "span 5 1 quick 0", "span 1 0 cirron.session 1", "goodbye", answer=False)
            t.end()
    until(lambda: rows(case, "SELECT count(*) FROM sessions") == [(10,)], WAIT_S, "the sessions")
    st = case.store()
    case.equal(len(st.of("quick")), 10, "spans")
    case.equal({s["state"] for s in st.sessions}, {"finished"}, "states")


@test
def killed_with_spans_open(case):
    with Traced(case) as t:
        t.begin()
        t.say("open 2 1 epoch 2 0", "open 3 2 step 4 16", "span 4 3 forward 6", "open 5 3 inner 0 0")
        t.process.kill()
        t.process.wait()
        until_state(case, "killed")
    st = case.store()
    case.equal(state(case), [("killed", None, 9)], "state")
    case.equal(sorted((s["name"], s["state"]) for s in st.all),
               [("cirron.session", "unfinished"), ("epoch", "unfinished"), ("forward", "closed"), ("inner", "unfinished")], "spans")
    case.equal(st.parent(st.of("forward")[0])["name"], "epoch", "parent of what lay in a step that never was")
    case.equal(st.parent(st.of("inner")[0])["name"], "epoch", "parent of an open span in it")
    case.equal(rows(case, "SELECT count(*) FROM epochs WHERE end_ns IS NULL"), [(1,)], "unfinished epochs")


@test
def killed_by_a_signal_after_goodbye(case):
    with Traced(case) as t:
        t.begin()
        t.say("span 1 0 cirron.session 1", "goodbye")
        t.process.send_signal(signal.SIGTERM)
        t.process.wait()
        until_state(case, "killed")
    case.equal(state(case), [("killed", None, 15)], "state")


@test
def nothing_is_waited_for_after_goodbye(case):
    """Of two that end at the same moment without a connection, the one that said goodbye first, though it is looked at last."""
    with Traced(case) as said, Traced(case) as silent:
        for t, last in ((said, ["goodbye"]), (silent, [])):
            t.begin()
            t.say("span 1 0 cirron.session 1", *last, "hangup")
            until(lambda: sockets(case.collector.process.pid) == 1, what="the connection to be let go")
        case.collector.process.send_signal(signal.SIGSTOP)
        for t in (silent, said):
            t.process.kill()
            t.process.wait()
        case.collector.process.send_signal(signal.SIGCONT)
        until(lambda: [row[0] for row in state(case)] == ["killed"] * 2, what="both sessions to end")
    end = dict(rows(case, "SELECT pid, end_ns FROM sessions"))
    case.check(end[said.pid] < end[silent.pid], f"ends: {end[said.pid]} after goodbye, {end[silent.pid]} without")


@test
def exit_status_of_a_process_nobody_waited_for(case):
    with Traced(case) as t:
        t.begin()
        t.process.stdin.write("no_such_verb\n")  # an AttributeError: exit status 1
        t.process.stdin.flush()
        until(lambda: state(case) and state(case)[0][0] == "finished", 10, "the session to end")
        case.equal(state(case), [("finished", 1, None)], "state while it is a zombie")


@test
def becomes_another_program(case):
    with Traced(case) as t:
        t.begin()
        t.say("span 5 1 before 0", "open 6 1 holding 0 0")
        t.say("exec sleep 60", answer=False)
        until_state(case, "finished")
        case.equal(t.process.poll(), None, "sleep's end")
        st = case.store()
        case.equal([(s["name"], s["state"]) for s in st.spans], [("before", "closed"), ("holding", "unfinished")], "spans")


@test
def goes_on_without_its_connection(case):
    with Traced(case) as t:
        t.begin()
        t.say("span 5 1 one 0", "hangup", "span 6 1 two 0")
        until(lambda: rows(case, "SELECT spans FROM sessions") == [(2,)], WAIT_S, "what came after the connection's end")
        case.equal(state(case)[0][0], "running", "state")
        t.say("hello", "span 7 1 three 0", "ring 2", "goodbye")
        t.end()
    st = case.store()
    case.equal([s["name"] for s in st.spans], ["one", "two", "three"], "spans")
    case.equal(len(st.sessions), 1, "sessions")


@test
def nothing_lost_nothing_doubled(case):
    """kill -9 of the collector again and again under load."""
    count, kills = 40000, 0
    chance = random.Random(5)
    with Traced(case) as t:
        t.begin()
        t.say("open 2 1 epoch 2 0")
        t.say(f"survive {count}", answer=False)
        while kills < 25 and not select.select([t.process.stdout], [], [], chance.uniform(0.02, 0.4))[0]:
            case.collector.kill()
            kills += 1
            case.collector.start()
        case.equal(t.process.stdout.readline(), "ok\n", "answer")
        t.say("span 1 0 cirron.session 1", "survive 0", "goodbye")  # whose collector may have been killed after the last span
        t.end()
        until_state(case, "finished")
    case.check(kills >= 5, f"only {kills} kills happened")
    st = case.store(faults=False)
    ids = [int(s["id"][16:], 16) for s in st.of("burst")]
    case.equal(len(set(ids)), len(ids), "spans stored once")
    case.equal(len(ids), count, f"spans after {kills} kills")
    case.equal(rows(case, "SELECT spans, dropped_total, state FROM sessions"), [(count + 1, 0, "finished")], "the session's own count")
    case.equal(rows(case, "SELECT sum(count) FROM rollups JOIN names USING(name) WHERE text = 'burst'"), [(count,)], "roll-ups")
    case.equal({s["thread_id"] for s in st.of("burst")}, {t.pid}, "thread, also of what a later collector read")


@test
def many_rings_at_once(case):
    with Traced(case) as t:
        t.say("hello", *(f"ring {n}" for n in range(1, 33)), "burst 50000", "span 1 0 cirron.session 1", "goodbye")
        t.end()
        until_state(case, "finished")
    st = case.store()
    case.equal(len(st.of("burst")), 50000, "spans")
    case.equal(rows(case, "SELECT max(sealed), sum(count) FROM block_meta"), [(1, 50001)], "blocks")


@test
def a_ring_goes_on_in_another(case):
    """What a RING_AFTER comes after is read first, also where it is handed over second."""
    with Traced(case) as t:
        t.say("ring 1", "in 1 3 2 forward 6")
        t.say("hello", "ring 2", "after 2 1 2", "in 2 2 1 step 4")
        time.sleep(0.5)
        t.say("after 1 2 3", "in 1 4 1 last 0", "goodbye")
        t.end()
        until_state(case, "finished")
    case.equal(rows(case, "SELECT span, forwards FROM steps"), [(2, 1)], "the step")
    case.equal(rows(case, "SELECT spans, emitted_spans, dropped FROM sessions"), [(3, 3, "{}")], "counts")


@test
def rings_that_wait_for_each_other(case):
    with Traced(case) as t, Traced(case) as honest:
        t.say("hello", "ring 1", "ring 2", "after 1 2 1000", "after 2 1 1000", "after 2 77 1", "in 1 4 1 one 0", "in 2 5 1 two 0")
        honest.begin()
        honest.say("span 5 1 fine 0", "goodbye")
        honest.end()
        until(lambda: rows(case, "SELECT spans FROM sessions WHERE state = 'finished'") == [(1,)], WAIT_S, "the other session")
        t.end()
        until(lambda: rows(case, "SELECT spans, dropped FROM sessions WHERE emitted_spans = 2") == [(2, "{}")], WAIT_S, "what waited")


@test
def sigterm_leaves_the_living_running(case):
    with Traced(case) as t, Traced(case) as dead:
        dead.begin()
        t.begin()
        t.say("span 5 1 one 0")
        dead.process.kill()
        dead.process.wait()
        began = time.monotonic()
        case.equal(case.collector.stop(), 0, "exit status")
        case.check(time.monotonic() - began < 2, "took longer than 2 s")
        case.check(not case.collector.socket.exists(), "the socket file is left")
        case.equal(sorted(row[0] for row in state(case)), ["killed", "running"], "states")
        t.say("hangup", "span 6 1 two 0")
        case.collector.start()
        t.say("hello", "span 7 1 three 0")
        until(lambda: rows(case, "SELECT spans FROM sessions WHERE state = 'running'") == [(3,)], WAIT_S, "the rest")
        t.say("goodbye")
        t.end()
    st = case.store()
    case.equal([s["name"] for s in st.spans], ["one", "two", "three"], "spans")
    case.equal(sorted(row[0] for row in state(case)), ["finished", "killed"], "states at last")


@test
def left_by_a_collector_that_died(case):
    with Traced(case) as t:
        t.begin()
        t.say("open 2 1 holding 0 0", "span 5 1 one 0")
        until(lambda: rows(case, "SELECT spans FROM sessions") == [(1,)], WAIT_S, "the first commit")
        case.collector.kill()
        case.collector.start()
        time.sleep(0.3)
        case.equal(state(case)[0][0], "running", "state while its process lives")
        t.process.kill()
        t.process.wait()
        until_state(case, "lost")
    case.equal(rows(case, "SELECT spans FROM sessions"), [(1,)], "stored spans")
    case.equal(rows(case, "SELECT count(*) FROM open_spans"), [(2,)], "open spans")


@test
def strangers_cost_only_themselves(case):
    with Traced(case) as t:
        t.begin()
        script = str(pathlib.Path(__file__).with_name("strangers.py"))
        strangers = subprocess.run([sys.executable, script, str(case.collector.socket)], timeout=60, capture_output=True, text=True)
        case.equal((strangers.returncode, strangers.stderr), (0, ""), "the strangers")
        t.say("span 5 1 fine 0", "goodbye")
        t.end()
    st = case.store()
    case.equal(len(st.of("fine")), 1, "spans of the honest one")
    log = case.collector.log.read_text()
    case.check(log.count("\n") < 5, f"the log is flooded: {log[:500]}")
    fds = os.listdir(f"/proc/{case.collector.process.pid}/fd")
    case.check(len(fds) < 25, f"descriptors leak: {len(fds)}")


HOSTILE = str(pathlib.Path(__file__).with_name("hostile.py"))


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@test_each(("random_rings", "jumping_heads", "never_waits", "overlapping_names", "many_names", "moves", "many_sessions",
            "silent_connections"))
def hostile_memory(case, kind):
    """While one process writes nonsense, another loses nothing, waits for nothing, and the collector stays small."""
    path = case.collect().socket
    collector = case.collector.process.pid
    before = resident_mib(collector)
    with subprocess.Popen([sys.executable, HOSTILE, str(path), "3", kind], env=clean_env(), stderr=subprocess.PIPE, text=True) as stranger:
        time.sleep(0.3)
        with Traced(case) as t:
            t.begin()
            for i in range(10):
                t.say(f"span {5 + i} 1 fine 0")
                time.sleep(0.05)
            t.say("burst 3000")
            until(lambda: rows(case, f"SELECT spans FROM sessions WHERE pid = {t.pid}") == [(3010,)], 10, "the honest one's spans")
            t.say("goodbye")
            t.end()
        peak = int(next(x for x in pathlib.Path(f"/proc/{collector}/status").read_text().splitlines() if "VmHWM" in x).split()[1]) / 1024
        case.equal(stranger.wait(60), 0, "the stranger")
        case.equal(stranger.stderr.read(), "", "the stranger's stderr")
    until(lambda: rows(case, "SELECT count(*) FROM sessions WHERE state = 'running'") == [(0,)], 10, "the sessions' ends")
    case.equal(rows(case, f"SELECT spans, dropped FROM sessions WHERE pid = {t.pid}"), [(3010, "{}")], "the honest one's counts")
    case.equal(rows(case, "PRAGMA integrity_check"), [("ok",)], "the store")
    case.check(peak - before < 192, f"the collector grew to {peak:.0f} MiB")
    size = case.collector.db.stat().st_size / 2**20
    case.check(size < 64, f"the store has {size:.0f} MiB")
    log = case.collector.log.read_text()
    case.check(log.count("\n") < 5, f"the log is flooded: {log[:500]}")
    case.equal(subprocess.run([harness.QUERY, "--db", case.collector.db], capture_output=True, text=True).returncode, 0, "cirron-query")


@test
def with_somebody_elses_prefix(case):
    """Neither a living session, nor one that waits for its process, nor one that is over, is written by another process."""
    def intrude(prefix, *command):
        r = subprocess.run([*command, sys.executable, HOSTILE, str(case.collector.socket), "0.6", "somebody_else", prefix],
                           capture_output=True, text=True, env=clean_env(), timeout=30)
        case.equal(r.returncode, 0, "the intruder: " + r.stderr[-200:])
        case.equal(rows(case, "SELECT count(*) FROM sessions"), [(1,)], "sessions")
        case.equal(rows(case, "SELECT spans FROM sessions"), [(2,)], "spans")

    with Traced(case) as t:
        t.begin()
        t.say("span 5 1 one 0", "span 6 1 two 0")
        prefix = until(lambda: rows(case, "SELECT prefix FROM sessions WHERE spans = 2"), WAIT_S, "the first commit")[0][0]
        intrude(prefix)
        case.collector.kill()
        case.collector.start()
        intrude(prefix)
        t.say("hangup", "hello", "goodbye")
        t.end()
    until_state(case, "finished")
    intrude(prefix)
    case.equal(state(case), [("finished", 0, None)], "state")


@test
def another_user(case):
    if os.geteuid() != 0 or subprocess.run(["setpriv", "--reuid=65534", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("needs root and setpriv")
    path = case.collect().socket
    for at in (case.folder, path):
        os.chmod(at, 0o777)
    script = "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(5); sys.exit(s.recv(1) != b'')"
    for _ in range(20):
        r = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", script, str(path)], env=clean_env(), timeout=20)
        case.equal(r.returncode, 0, "the refused one")
    log = case.collector.log.read_text()
    case.equal(log.count("\n"), 1, "lines: " + log)


@test
def a_second_one_on_the_same_store(case):
    case.collect()
    command = [COLLECTORD, "--foreground", "--socket", case.folder / "other.sock", "--db", case.collector.db]
    second = subprocess.run(command, capture_output=True, text=True, timeout=20)
    case.equal(second.returncode, 1, "exit status")
    case.equal(second.stderr.count("\n"), 1, "lines: " + second.stderr)
    case.check(str(case.collector.db) in second.stderr, "the line does not name the store: " + second.stderr)
    private = subprocess.run([*command, "--idle-exit", "5"], capture_output=True, text=True, timeout=20)
    case.equal((private.returncode, private.stderr), (0, ""), "a private one")
    command[3], command[5] = case.collector.socket, case.folder / "other.db"
    third = subprocess.run(command, capture_output=True, text=True, timeout=20)
    case.equal((third.returncode, third.stderr.count("\n")), (1, 1), "on the same socket: " + third.stderr)
    case.check(case.collector.answers(), "the first one no longer answers")


@test
def what_cannot_be_opened(case):
    (case.folder / "file").write_text("mine")
    long = case.folder / ("x" * 120)
    for path in (case.folder / "file", long, "/nowhere/deep/down/s.sock", "/proc/s.sock"):
        r = subprocess.run([COLLECTORD, "--foreground", "--socket", path, "--db", case.folder / "t.db"], capture_output=True, text=True,
                           timeout=20)
        case.equal((r.returncode, r.stderr.count("\n")), (1, 1), f"{path}: {r.stderr}")
        case.check(str(path) in r.stderr, f"the line does not name {path}: {r.stderr}")
    case.equal((case.folder / "file").read_text(), "mine", "somebody's file")
    r = subprocess.run([COLLECTORD, "--foreground", "--socket", case.folder / "s", "--db", case.folder / "file"], capture_output=True,
                       text=True, timeout=20)
    case.equal((r.returncode, r.stderr.count("\n")), (1, 1), f"not a database: {r.stderr}")
    r = subprocess.run([COLLECTORD, "--no-such-thing"], capture_output=True, text=True, timeout=20)
    case.equal((r.returncode, r.stderr.count("\n")), (2, 1), f"usage: {r.stderr}")


@test
def a_stale_socket_is_replaced(case):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        s.bind(str(case.folder / "c.sock"))
    case.collect()
    case.equal(case.collector.socket.stat().st_mode & 0o777, 0o600, "mode of the socket")
    case.equal(case.collector.db.stat().st_mode & 0o077, 0, "others' rights on the store")


@test
def ended_as_soon_as_it_accepts(case):
    """The socket is there a moment before the loop is: SIGTERM in between ends it in good order all the same."""
    for i in range(12):
        path = case.folder / f"{i}.sock"
        with subprocess.Popen([COLLECTORD, "--foreground", "--socket", path, "--db", case.folder / f"{i}.db"]) as p:
            until(path.exists, what="its socket")
            p.terminate()
            case.equal(p.wait(WAIT_S), 0, "exit status")


@test
def ends_when_idle(case):
    path, db = case.folder / "p.sock", case.folder / "sub" / "p.db"
    with subprocess.Popen([COLLECTORD, "--foreground", "--socket", path, "--db", db, "--idle-exit", "1"]) as p:
        until(path.exists, 10, "its socket")
        with Traced(case, path) as t:
            t.begin()
            time.sleep(1.5)
            case.equal(p.poll(), None, "its end while a session is alive")
            t.say("goodbye")
            t.end()
        case.equal(p.wait(10), 0, "exit status")
    case.check(not path.exists(), "the socket is left")


@test
def goes_into_the_background(case):
    path, db = case.folder / "b.sock", case.folder / "b.db"
    r = subprocess.run([COLLECTORD, "--socket", path, "--db", db, "--idle-exit", "1"], timeout=20, stdin=subprocess.DEVNULL)
    case.equal(r.returncode, 0, "exit status of the starter")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        case.equal(s.connect_ex(str(path)), 0, "the socket, as soon as the starter has returned")
    until(lambda: not path.exists(), 10, "its end")
    (case.folder / "taken").write_text("x")
    r = subprocess.run([COLLECTORD, "--socket", case.folder / "taken", "--db", db], timeout=20, stderr=subprocess.DEVNULL)
    case.equal(r.returncode, 1, "exit status of the starter when it cannot")


@test
def service_manager(case):
    """Socket activation and readiness."""
    notify, path = case.folder / "notify", case.folder / "a.sock"
    with contextlib.ExitStack() as stack:
        ready, listening = (stack.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX, kind)))
                            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM))
        ready.bind(str(notify))
        ready.settimeout(10)
        listening.bind(str(path))
        listening.listen(5)
        shell = f'exec 3<&{listening.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" --foreground --db "$1"'
        env = dict(clean_env(), NOTIFY_SOCKET=str(notify))
        p = stack.enter_context(subprocess.Popen(["bash", "-c", shell, COLLECTORD, case.folder / "a.db"], env=env,
                                                 pass_fds=[listening.fileno()]))
        case.equal(ready.recv(100), b"READY=1", "first message")
        with Traced(case, path) as t:
            t.begin()
            t.say("goodbye")
            t.end()
        p.terminate()
        case.equal(ready.recv(100), b"STOPPING=1", "last message")
        case.equal(p.wait(10), 0, "exit status")
    case.check(path.exists(), "the service manager's socket was removed")


def listens(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        return s.connect_ex(str(path)) == 0


@contextlib.contextmanager
def retaining(case, *options):
    """A collector with limits on the store of the test."""
    path = case.folder / "r.sock"
    with subprocess.Popen([COLLECTORD, "--foreground", "--socket", path, "--db", case.collector.db, *options], stderr=subprocess.PIPE,
                          text=True) as p:
        until(lambda: listens(path), 10, "it to listen")
        p.socket_path = path
        yield p
        p.terminate()
        p.log = p.stderr.read()
        case.equal(p.wait(10), 0, "exit status")


@test
def old_sessions_leave_the_store(case):
    for _ in range(3):
        with Traced(case) as t:
            t.begin()
            t.say("span 5 1 one 0", "goodbye")
            t.end()
    until(lambda: [x[0] for x in state(case)] == ["finished"] * 3, 10, "their ends")
    case.equal(case.collector.stop(), 0, "exit status")
    with contextlib.closing(sqlite3.connect(case.collector.db)) as db, db:
        db.execute("UPDATE sessions SET end_ns = end_ns - 3 * 86400 * 1000000000, last_ns = NULL WHERE sid = 2")
        db.execute("UPDATE sessions SET state = 'erased', id = 'erased 3' WHERE sid = 3")  # a collector died over it
    with retaining(case, "--keep-days", "2") as p:
        until(lambda: rows(case, "SELECT sid FROM sessions") == [(1,)], 10, "the old one to go")
        case.equal(rows(case, "SELECT DISTINCT sid FROM block_meta"), [(1,)], "blocks")
        time.sleep(0.2)
    case.check("removed 1 session that had ended, with 1 spans" in p.log and p.log.count("retention") == 1, "log: " + p.log)


@test
def the_store_stays_below_its_limit(case):
    case.collect()
    case.equal(case.collector.stop(), 0, "exit status")
    limit = 1 << 20
    with retaining(case, "--max-db-bytes", str(limit)) as p, Traced(case, p.socket_path) as alive:
        alive.say("hello", "ring 1", "span 5 1 one 0")
        for _ in range(6):
            with Traced(case, p.socket_path) as t:
                t.say("hello", "ring 1 65536", "burst 60000", "span 1 0 cirron.session 1", "goodbye")
                t.end()
            until(lambda: rows(case, "SELECT count(*) FROM sessions WHERE state = 'running'") == [(1,)], 20, "its end")
        alive.say("span 6 1 one 0")
        size = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        until(lambda: rows(case, size)[0][0] <= limit and not rows(case, "SELECT 1 FROM sessions WHERE state = 'erased'"), 20, "room")
        until(lambda: rows(case, "PRAGMA freelist_count") == [(0,)], 10, "free pages to be given back")
        left = rows(case, "SELECT sid FROM sessions ORDER BY sid")
        case.check(left[0] == (1,) and left[-1] == (7,) and len(left) < 7, f"sessions left: {left}")
        until(lambda: rows(case, "SELECT state, spans FROM sessions WHERE sid = 1") == [("running", 2)], WAIT_S, "the running one to go on")
        case.equal(rows(case, "SELECT sum(m.count) = (SELECT sum(spans) FROM sessions) FROM block_meta m"), [(1,)], "blocks fit sessions")
        case.equal(rows(case, "PRAGMA integrity_check"), [("ok",)], "integrity")
    case.check("removed" in p.log and "cannot" not in p.log, "log: " + p.log)


@test
def backups_while_it_writes(case):
    """Each copy is one moment of the store: spans, blocks and ring positions fit each other."""
    copies = []
    with Traced(case) as t:
        t.begin()
        t.say("burst 3000")
        until(lambda: state(case) and rows(case, "SELECT spans > 0 FROM sessions") == [(1,)], 10, "the first commit")
        for number in range(4):
            t.say("burst 2000")
            for how in (".backup", "VACUUM INTO"):
                copy = case.folder / f"{how.strip('.').split()[0]}{number}.db"
                command = f"{how} '{copy}'"
                r = subprocess.run(["sqlite3", "-cmd", ".timeout 5000", case.collector.db, command], capture_output=True, text=True)
                case.equal((r.returncode, r.stderr), (0, ""), command)
                copies.append(copy)
        t.say("span 1 0 cirron.session 1", "goodbye")
        t.end()
        until_state(case, "finished")
    for copy in copies:
        with contextlib.closing(sqlite3.connect(copy)) as db:
            case.equal(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], f"{copy.name}: integrity")
            spans, = db.execute("SELECT spans FROM sessions").fetchone()
            kept, = db.execute("SELECT sum(count) FROM block_meta").fetchone()
            case.check(0 < spans == kept, f"{copy.name}: {spans} spans, {kept} in blocks")
        r = subprocess.run([harness.QUERY, "--db", copy, "sql", "SELECT count(*) AS n FROM spans WHERE state = 'closed'", "--format", "csv"],
                           capture_output=True, text=True)
        case.equal(r.stdout.split(), ["n", str(spans)], f"{copy.name}: spans")


@test
def clear_beside_a_collector(case):
    with Traced(case) as busy:
        busy.begin()
        with Traced(case) as t:
            t.begin()
            t.say("burst 900", "span 1 0 cirron.session 1", "goodbye")
            t.end()
        until(lambda: [x[0] for x in state(case)] == ["running", "finished"], 10, "its end")
        busy.say("burst 500")
        r = subprocess.run([harness.QUERY, "--db", case.collector.db, "clear", "--yes", "--json"], capture_output=True, text=True)
        case.equal((r.returncode, r.stderr), (0, ""), "clear")
        case.check('"sessions":1' in r.stdout.replace(" ", "") and '"spans":901' in r.stdout.replace(" ", ""), "clear said: " + r.stdout)
        busy.say("span 7 1 one 0", "span 1 0 cirron.session 1", "goodbye")
        busy.end()
        until_state(case, "finished")
    case.equal(rows(case, "SELECT sid, spans FROM sessions"), [(1, 502)], "sessions")
    case.equal(rows(case, "SELECT sid, sum(count) FROM block_meta"), [(1, 502)], "blocks")


@test
def a_full_disk(case):
    """Nothing is stored while there is no room, and all of it when there is again."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("needs root and a mount namespace")
    disk, path = pathlib.Path(tempfile.mkdtemp(dir=case.folder)), case.folder / "f.sock"
    mount = 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'
    with subprocess.Popen(["unshare", "-m", "sh", "-c", mount, disk, COLLECTORD, "--foreground", "--socket", path, "--db", disk / "t.db"],
                          stderr=subprocess.PIPE, text=True) as p:
        until(path.exists, 10, "its socket")
        fill = pathlib.Path(f"/proc/{p.pid}/root{disk}") / "fill"
        look = f"import sqlite3; print(sqlite3.connect('{disk}/t.db').execute('SELECT spans, state FROM sessions').fetchall())"

        def stored():  # SQLite does not follow /proc/PID/root, so from inside
            command = ["nsenter", "-m", "-t", str(p.pid), sys.executable, "-c", look]
            return ast.literal_eval(subprocess.run(command, capture_output=True, text=True).stdout or "[]")

        with Traced(case, path) as t:
            t.say("hello", "ring 1 65536", "span 5 1 one 0")
            until(lambda: stored() == [(1, "running")], WAIT_S, "the first commit")
            with fill.open("wb", 0) as f, contextlib.suppress(OSError):
                while f.write(bytes(4096)):
                    pass
            t.say("burst 60000")
            time.sleep(1.2)
            case.check(stored()[0][0] < 60001, "all is stored on a full disk: the test does not test")
            t.say("span 1 0 cirron.session 1", "goodbye")
            t.end()
            time.sleep(0.5)
            fill.unlink()
            until(lambda: stored() == [(60002, "finished")], 10, "all of it, once there is room")
        p.terminate()
        case.equal(p.wait(10), 0, "exit status")
        log = p.stderr.read()
        case.check(log.count("cannot be written") == 1 and log.count("again") == 1, "log: " + log)


@test
def idle_costs_nothing(case):
    case.collect()
    path = f"/proc/{case.collector.process.pid}/status"

    def switches():
        return sum(int(x.split()[1]) for x in pathlib.Path(path).read_text().splitlines() if "ctxt_switches" in x)

    until(lambda: pathlib.Path(path).exists(), WAIT_S, "the process")
    time.sleep(0.5)
    before = switches()
    time.sleep(1)
    case.check(switches() - before <= 2, f"{switches() - before} wake-ups in a second without sessions")


harness.main()
