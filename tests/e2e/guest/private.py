"""The collector that the agent starts where none is: no child of the job, shared by its ranks, and ended by itself."""
from harness import COLLECTORD, PYTHONS, Store, clean_env, collectors, python_label, stop_collectors, test, test_each, until

JOB = """
import os, signal, sys, time
seen = []
signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
import cirron as ci
for n in range(3):
    with ci.scope("work", index=n):
        time.sleep(0.05)
time.sleep(0.3)
children = open("/proc/self/task/%d/children" % os.getpid()).read() if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else ""
try:
    os.waitpid(-1, os.WNOHANG)
    print("there is a child")
except ChildProcessError:
    print("no child", len(seen), repr(children))
"""


def private(t, command, **more):
    env = {k: v for k, v in t.env(True).items() if k != "CIRRON_SOCKET"}
    env["XDG_RUNTIME_DIR"] = str(t.folder)
    env.update(more)
    cwd = t.folder / "job"
    cwd.mkdir(exist_ok=True)
    return t.start(["env", "-i", *(f"{k}={v}" for k, v in env.items()), *command], False, cwd=cwd)


@test_each(PYTHONS, python_label)
def started_where_none_is(t, python):
    try:
        process = private(t, [python, "-c", JOB])
        out, err = process.communicate(timeout=60)
        t.equal((process.returncode, out, err), (0, "no child 0 ''\n", ""), "status and output")
        t.check(len(collectors(t.folder)) <= 1, "more than one collector")
        db = t.folder / "job" / ".cirron" / "traces.db"
        until(db.exists, 10, "the store")
    finally:
        stop_collectors(t.folder)
    st = Store(db)
    t.equal([s["index"] for s in st.of("work")], [0, 1, 2], "scopes")
    t.equal([s["state"] for s in st.sessions], ["finished"], "state of the session")


@test
def shared_by_ranks_that_start_together(t):
    try:
        ranks = [private(t, [PYTHONS[0], "-c", JOB], RANK=str(n), WORLD_SIZE="6") for n in range(6)]
        for process in ranks:
            out, err = process.communicate(timeout=60)
            t.equal((process.returncode, err), (0, ""), "status and stderr of a rank")
        t.check(len(collectors(t.folder)) <= 1, f"{len(collectors(t.folder))} collectors")
    finally:
        stop_collectors(t.folder)
    st = Store(t.folder / "job" / ".cirron" / "traces.db")
    t.equal(sorted(s["rank"] for s in st.sessions), list(range(6)), "ranks of the sessions")
    t.equal(len(st.of("work")), 18, "scopes")


@test
def forbidden(t):
    process = private(t, [PYTHONS[0], "-c", JOB], CIRRON_AUTOSTART="0")
    out, _ = process.communicate(timeout=60)
    t.equal((process.returncode, out), (0, "no child 0 ''\n"), "status and output")
    t.equal(collectors(t.folder), [], "collectors")
    t.check(not (t.folder / "job" / ".cirron").exists(), "a folder was made")


@test
def a_folder_that_cannot_be_written(t):
    env = {k: v for k, v in t.env(True).items() if k != "CIRRON_SOCKET"}
    env["XDG_RUNTIME_DIR"] = str(t.folder)
    process = t.start(["env", "-i", *(f"{k}={v}" for k, v in env.items()), PYTHONS[0], "-c", JOB], False, cwd="/proc")
    out, err = process.communicate(timeout=60)
    t.equal((process.returncode, out), (0, "no child 0 ''\n"), "status and output")
    t.check(len(err.splitlines()) <= 1, f"more than one line on stderr: {err!r}")
    stop_collectors(t.folder)


@test
def ends_by_itself(t):
    import subprocess
    socket, db = t.folder / "c.sock", t.folder / "traces.db"
    process = subprocess.Popen([COLLECTORD, "--foreground", "--socket", socket, "--db", db, "--idle-exit", "1"], env=clean_env(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    t.equal(process.wait(30), 0, "exit status of an idle collector")
