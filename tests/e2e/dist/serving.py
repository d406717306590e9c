"""collectord as a service for several users: privileges, who may come, quotas, the service manager's watchdog."""
import contextlib
import grp
import json
import os
import pathlib
import pwd
import signal
import socket
import sqlite3
import subprocess
import sys

from harness import COLLECTORD, PYTHONS, QUERY, Skip, clean_env, test, until

PLAYERS = str(pathlib.Path(__file__).resolve().parents[1] / "collectord")
NOBODY, OTHER = 65534, 54321


def needs_root():
    if os.geteuid() != 0:
        raise Skip("changing users takes root")


def open_folder(case):
    """A folder every user can get through to."""
    case.folder.chmod(0o755)
    return case.folder


@contextlib.contextmanager
def collector(case, *options, env=None):
    folder = open_folder(case)
    path, db = folder / "run" / "c.sock", folder / "lib" / "traces.db"
    log = open(folder / "collectord.log", "ab")
    command = [COLLECTORD, "--foreground", "--socket", path, "--db", db, *options]
    with log, subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=dict(clean_env(), **(env or {}))) as p:
        try:
            until(lambda: path.exists() or p.poll() is not None, 10, "its socket")
            if p.poll() is not None:
                raise AssertionError((folder / "collectord.log").read_text())
            yield p, path, db
        finally:
            p.terminate()
            case.equal(p.wait(20), 0, "exit status of collectord")


@contextlib.contextmanager
def player(case, path, uid=None, groups=()):
    """A process that plays a traced one, of that user. It changes its user itself: others may not be able to start this Python."""
    become = f"os.setgroups({list(groups)}); os.setgid({uid}); os.setuid({uid}); " if uid is not None else ""
    script = f"import os, sys; sys.path.insert(0, {PLAYERS!r}); import player; {become}player.main()"
    with subprocess.Popen([sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, env=clean_env(), cwd="/") as p:
        try:
            yield p
        finally:
            p.kill()
            with contextlib.suppress(BrokenPipeError):
                p.stdin.close()


def say(p, line):
    """True: done. False: the player gave up, its collector refused it."""
    try:
        p.stdin.write(line + "\n")
        p.stdin.flush()
    except BrokenPipeError:
        return False
    return p.stdout.readline() == "ok\n"


def sessions(db, what="pid, state, exit_code, exit_signal"):
    if not db.exists():
        return []
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as store:
        return store.execute(f"SELECT {what} FROM sessions ORDER BY sid").fetchall()


def recorded(p, db):
    return say(p, "hello") and say(p, "ring 1") and bool(until(lambda: (p.pid,) in sessions(db, "pid"), 5, "the session"))


def group_of_nobody():
    return grp.getgrgid(pwd.getpwuid(NOBODY).pw_gid).gr_name


@test
def root_is_given_up(case):
    needs_root()
    with collector(case, "--user", "nobody") as (p, path, db):
        status = pathlib.Path(f"/proc/{p.pid}/status").read_text()
        ids = {line.split(":")[0]: line.split(":")[1].split() for line in status.splitlines()}
        case.equal(ids["Uid"], [str(NOBODY)] * 4, "user ids")
        case.equal(ids["Gid"], [str(pwd.getpwuid(NOBODY).pw_gid)] * 4, "group ids")
        case.check("0" not in ids["Groups"], f"groups {ids['Groups']}")
        case.equal((ids["CapEff"], ids["CapPrm"]), (["0" * 16], ["0" * 16]), "capabilities")
        case.equal(ids["NoNewPrivs"], ["1"], "no new privileges")
        for at, mode in ((path.parent, 0o700), (db.parent, 0o700), (path, 0o600), (db, 0o600)):
            st = at.stat()
            case.equal((st.st_uid, st.st_mode & 0o777), (NOBODY, mode), f"owner and mode of {at.name}")
        with player(case, path) as t:  # root may always come
            case.check(recorded(t, db), "root's process is refused")


@test
def nobody_else_may_come(case):
    needs_root()
    with collector(case, "--user", "nobody") as (_, path, db):
        with player(case, path, OTHER) as t:
            case.equal(say(t, "hello"), False, "Hello of another user")
        path.parent.chmod(0o755)
        path.chmod(0o666)  # whatever the modes became, the peer is looked at
        with player(case, path, OTHER) as t:
            until(lambda: not say(t, "hello"), 10, "the refusal of another user at an open socket")
        case.equal(sessions(db), [], "sessions")
    case.check("user 54321 is refused" in (case.folder / "collectord.log").read_text(), "no word about it")


@test
def a_group_may_come_and_read(case):
    needs_root()
    name, gid = group_of_nobody(), pwd.getpwuid(NOBODY).pw_gid
    with collector(case, "--user", "nobody", "--group", name) as (_, path, db):
        for at, mode in ((path.parent, 0o755), (db.parent, 0o750), (path, 0o660), (db, 0o640)):
            st = at.stat()
            case.equal((st.st_uid, st.st_gid, st.st_mode & 0o777), (NOBODY, gid, mode), f"owner, group and mode of {at.name}")
        with player(case, path, OTHER, [gid]) as member, player(case, path, OTHER) as stranger:
            case.check(recorded(member, db), "a member is refused")
            case.equal(say(stranger, "hello"), False, "Hello of a stranger")
        case.equal(db.with_name("traces.db-wal").stat().st_mode & 0o777, 0o640, "mode of the log")
        read = "import os, sqlite3, sys; os.setgroups({}); os.setgid(54321); os.setuid(54321); " \
               "print(sqlite3.connect('file:%s?mode=ro' % sys.argv[1], uri=True).execute('SELECT count(*) FROM sessions').fetchone())"
        for groups, wanted in (([gid], 0), ([], 1)):
            r = subprocess.run([sys.executable, "-c", read.format(groups), db], capture_output=True, text=True, cwd="/")
            case.equal(r.returncode, wanted, f"exit status of a reader with groups {groups}")


@test
def a_store_made_before_is_shared(case):
    needs_root()
    with collector(case, "--user", "nobody"):
        pass
    with collector(case, "--user", "nobody", "--group", group_of_nobody()) as (_, _path, db):
        case.equal(db.stat().st_mode & 0o777, 0o640, "mode of the store")


@test
def any_user_may_come(case):
    needs_root()
    with collector(case, "--user", "nobody", "--any-user") as (_, path, db):
        case.equal((path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777), (0o755, 0o666), "modes")
        case.equal(db.stat().st_mode & 0o777, 0o600, "mode of the store")
        with player(case, path, OTHER) as t:
            case.check(recorded(t, db), "another user is refused")
        case.equal(sessions(db, "uid"), [(OTHER,)], "user of the session")


@test
def one_user_cannot_have_it_all(case):
    needs_root()
    with collector(case, "--user", "nobody", "--any-user", "--max-sessions", "4") as (_, path, db), contextlib.ExitStack() as all_of_them:
        def one(uid):
            return all_of_them.enter_context(player(case, path, uid))

        case.equal([recorded(one(OTHER), db) for _ in range(2)], [True, True], "the first two of a user")
        third = one(OTHER)
        case.check(say(third, "hello"), "the third cannot connect")
        until(lambda: "user 54321 has 2 sessions" in (case.folder / "collectord.log").read_text(), 5, "the line about it")
        case.check(recorded(one(OTHER + 1), db), "another user finds no room")
        # Connections without a Hello: 2 * 2 + 32 of a user, and those of others are not in question.
        idle = []
        for _ in range(80):
            s = all_of_them.enter_context(contextlib.closing(socket.socket(socket.AF_UNIX)))
            s.connect(str(path))
            idle.append(s)
        case.check(recorded(one(OTHER + 2), db), "no room beside idle connections of root")


TOO_MANY = """
import time, cirron as ci
end = time.monotonic() + 2
while time.monotonic() < end:
    for n in range(50):
        with ci.scope("noise"):
            pass
    time.sleep(0.001)
"""
A_FEW = """
import time, cirron as ci
for n in range(50):
    with ci.scope("music"):
        time.sleep(0.01)
"""


def jobs(case, path, *scripts):
    """Runs them at once, with threads' memory as small as it may be."""
    env = {"CIRRON_SOCKET": path, "CIRRON_RING_BYTES": "64K", "CIRRON_RING_BYTES_MAX": "64K"}
    running = [case.start([PYTHONS[0], "-c", script], env=env) for script in scripts]
    for p in running:
        out, err = p.communicate(timeout=60)
        case.equal((p.returncode, out, err), (0, "", ""), "a job's end")
    return [p.pid for p in running]


def numbers(db, pid):
    """Of the session of that process: spans emitted, stored, dropped, the root being one. Waits for its end."""
    found = []

    def ended():
        lines = subprocess.run([QUERY, "--db", db, "--format", "jsonl", "sessions"], capture_output=True, text=True, env=clean_env())
        found[:] = [s for s in map(json.loads, lines.stdout.splitlines()) if s["pid"] == pid and s["state"] != "running"]
        return found

    until(ended, 20, "the session's end")
    return found[0]["emitted_spans"], found[0]["spans"], found[0]["dropped_total"]


@test
def more_than_a_session_may_send_a_second(case):
    """What exceeds its rate is dropped in the process and counted there; the others lose nothing."""
    with collector(case, "--max-rate", "500") as (_, path, db):
        noisy, modest = jobs(case, path, TOO_MANY, A_FEW)
        emitted, stored, dropped = numbers(db, noisy)
        case.equal(stored + dropped, emitted, "stored and dropped")
        case.check(emitted > 10000, f"only {emitted} spans were tried")
        # A second's worth at once, then 500 a second, and at its end what is in the ring and beside it.
        case.check(1000 <= stored <= 500 * 8 + 2 * 1024, f"stored {stored} of {emitted}")
        case.equal(numbers(db, modest), (51, 51, 0), "the other job's spans")
    lines = [x for x in (case.folder / "collectord.log").read_text().splitlines() if "max-rate" in x]
    case.equal(len(lines), 1, "lines about it")
    case.check(f"pid {noisy}" in lines[0], lines[0])


@test
def more_than_a_session_may_send_in_all(case):
    with collector(case, "--max-session-bytes", str(1 << 20)) as (_, path, db):
        noisy, modest = jobs(case, path, TOO_MANY, A_FEW)
        emitted, stored, dropped = numbers(db, noisy)
        case.equal(stored + dropped, emitted, "stored and dropped")
        case.check(16000 <= stored <= 16384 + 4096 + 2 * 1024 < emitted, f"stored {stored} of {emitted}")
        case.equal(numbers(db, modest), (51, 51, 0), "the other job's spans")


@test
def the_end_of_another_users_process(case):
    """Of a process of another user the kernel may not tell how it ended. Then it is not made up."""
    needs_root()
    with collector(case, "--user", "nobody", "--any-user") as (_, path, db):
        with player(case, path, OTHER) as t:
            case.check(recorded(t, db), "refused")
            t.send_signal(signal.SIGKILL)
            until(lambda: sessions(db)[0][1] != "running", 10, "the end of the session")  # while it is a zombie: t is not waited for
            case.check(sessions(db)[0][1:] in (("killed", None, 9), ("lost", None, None)), f"what became of it: {sessions(db)}")
        if tuple(int(x) for x in os.uname().release.split("-")[0].split(".")[:2]) < (6, 15):
            return  # nobody will ever know
        with player(case, path, OTHER) as t:
            case.check(recorded(t, db), "refused")
            t.send_signal(signal.SIGKILL)
            t.wait()
            until(lambda: sessions(db)[1][1] != "running", 10, "the end of the session")
            case.equal(sessions(db)[1][1:], ("killed", None, 9), "what became of one whose parent waited")


@test
def names_that_are_none(case):
    for option, name in (("--user", "no-such-user"), ("--group", "no-such-group")):
        r = subprocess.run([COLLECTORD, "--foreground", "--socket", case.folder / "s", "--db", case.folder / "d", option, name],
                           capture_output=True, text=True, timeout=10)
        case.equal(r.returncode, 1, f"exit status with {option}")
        case.check(r.stderr.count("\n") == 1 and f"{option} {name}: there is no such" in r.stderr, r.stderr)
    needs_root()
    other = subprocess.run(["setpriv", "--reuid", str(OTHER), "--clear-groups", COLLECTORD, "--foreground", "--user", "root"],
                           capture_output=True, text=True, timeout=10)
    case.check(other.returncode == 1 and "only root can" in other.stderr, f"{other}")


@test
def signs_of_life(case):
    notify = case.folder / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(notify))
        manager.settimeout(10)
        with collector(case, env={"NOTIFY_SOCKET": str(notify), "WATCHDOG_USEC": "200000"}) as (p, _, _db):
            case.equal([manager.recv(100) for _ in range(4)], [b"READY=1"] + 3 * [b"WATCHDOG=1"], "what it said")
            p.send_signal(signal.SIGSTOP)  # hangs: no more signs
            manager.settimeout(0.5)
            with contextlib.suppress(socket.timeout):
                while True:
                    manager.recv(100)
            p.send_signal(signal.SIGCONT)
            manager.settimeout(10)
            case.equal(manager.recv(100), b"WATCHDOG=1", "once it goes on")
        rest = []
        while not rest or rest[-1] != b"STOPPING=1":
            rest.append(manager.recv(100))
        case.check(set(rest[:-1]) <= {b"WATCHDOG=1"}, f"at the end: {rest}")
        for env in ({"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {}):
            with collector(case, env={"NOTIFY_SOCKET": str(notify), **env}):
                case.equal(manager.recv(100), b"READY=1", "first")
                manager.settimeout(0.4)
                with contextlib.suppress(socket.timeout):
                    case.check(False, f"a sign that is not asked for: {manager.recv(100)}")
                manager.settimeout(10)
            case.equal(manager.recv(100), b"STOPPING=1", "last")
