"""Collectors that are none: whatever sits at the end of CIRRON_SOCKET, the job runs as it would, and for as long as it would."""
import contextlib
import os
import pathlib
import socket
import subprocess
import threading
import time

from harness import AGENT, PYTHONS, Skip, alone, test, test_each

JOB = """
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
import time
end = time.monotonic() + 1.0
n = 0
while time.monotonic() < end:
    with ci.scope("work", n):
        ci.mark("m", n)
    n += 1
print("done")
"""


class Listener:
    """Accepts as it is told to, in a thread."""

    def __init__(self, path, manner, backlog=16):
        self.manner, self.held, self.stop = manner, [], False
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(backlog)
        self.socket.settimeout(0.05)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.stop:
            if self.manner is None:
                time.sleep(0.05)
                continue
            with contextlib.suppress(socket.timeout, OSError):
                peer, _ = self.socket.accept()
                self.manner(self, peer)

    def close(self):
        self.stop = True
        self.thread.join()
        for s in (self.socket, *self.held):
            s.close()


def hold(listener, peer):
    listener.held.append(peer)


def drop(_, peer):
    peer.close()


def flood(listener, peer):
    peer.settimeout(0.05)
    with contextlib.suppress(OSError):
        while not listener.stop:
            try:
                peer.send(b"\xff" * 65536)
            except socket.timeout:
                continue
    peer.close()


def answer_nonsense(listener, peer):
    with contextlib.suppress(OSError):
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    listener.held.append(peer)


MANNERS = {"nobody accepts": None, "accepts and never reads": hold, "accepts and closes": drop, "floods": flood, "speaks HTTP": answer_nonsense}


def timed(t, env, slower=0.6):
    """The best of a few: the machine may have other things to do."""
    took = []
    for _ in range(3):
        plain, traced = t.both([PYTHONS[0], t.script(JOB)], env=env)
        t.equal(traced.err, plain.err, "stderr")
        took.append(traced.wall_s - plain.wall_s)
        if took[-1] < slower:
            return
    t.check(False, f"took longer than without the agent, each time: {took}")


@test_each(list(MANNERS))
def listener(t, name):
    path = t.folder / "odd.sock"
    odd = Listener(path, MANNERS[name])
    try:
        timed(t, {"CIRRON_SOCKET": path})
    finally:
        odd.close()


@test
def full_backlog(t):
    path = t.folder / "odd.sock"
    odd = Listener(path, None, backlog=0)
    callers = []
    try:
        with contextlib.suppress(BlockingIOError):
            while len(callers) < 50:
                callers.append(socket.socket(socket.AF_UNIX))
                callers[-1].setblocking(False)
                callers[-1].connect(str(path))
        timed(t, {"CIRRON_SOCKET": path})
    finally:
        odd.close()
        for c in callers:
            c.close()


def place(folder, kind):
    path = folder / "place"
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_text("text")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop of links":
        path.symlink_to(path)
    elif kind == "datagram":
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(str(path))
    elif kind == "stale":
        s = socket.socket(socket.AF_UNIX)
        s.bind(str(path))
        s.close()
    elif kind == "device":
        return pathlib.Path("/dev/null")
    elif kind == "below a file":
        path.write_text("text")
        return path / "c.sock"
    elif kind == "no such folder":
        return folder / "no" / "such" / "c.sock"
    return path


@test_each(["directory", "file", "fifo", "loop of links", "datagram", "stale", "device", "below a file", "no such folder", "nothing"])
def no_stream_socket(t, kind):
    timed(t, {"CIRRON_SOCKET": place(t.folder, kind)})


@test
@alone
def too_long(t):
    """One line says so, once; nothing else is looked for."""
    plain, traced = t.both([PYTHONS[0], t.script(JOB)], env={"CIRRON_SOCKET": "/tmp/" + "x" * 200}, lines=1)
    t.check(traced.wall_s - plain.wall_s < 0.6, "took longer")
    t.check("CIRRON_SOCKET" in traced.err and len(traced.err.splitlines()) == 1, f"stderr: {traced.err!r}")


@test
def of_another_user(t):
    """A stranger's socket is not used: he would see what this user does."""
    if os.geteuid() != 0:
        raise Skip("needs root")
    try:
        subprocess.run([PYTHONS[0], "-S", "-c", ""], user=65534, check=True)
    except OSError:
        raise Skip("another user may not start this interpreter") from None
    if subprocess.run(["test", "-r", AGENT], user=65534).returncode:
        raise Skip("another user may not read the agent")
    t.folder.chmod(0o777)
    path = t.folder / "odd.sock"
    seen = []

    def listen(_, peer):
        peer.settimeout(0.2)
        with contextlib.suppress(OSError):
            seen.append(peer.recv(100))
        peer.close()

    odd = Listener(path, listen)
    path.chmod(0o777)
    try:
        code = f"import os\nos.setuid(65534)\nos.environ['CIRRON_SOCKET'] = {str(path)!r}\nos.environ['LD_PRELOAD'] = {str(t.env()['LD_PRELOAD'])!r}\n"
        code += f"os.execv({PYTHONS[0]!r}, [{PYTHONS[0]!r}, '-c', {JOB!r}])"
        done = t.run([PYTHONS[0], "-c", code], False)
        t.equal((done.rc, done.out), (0, "done\n"), "a run as another user")
        root_is_trusted = any(seen)
        t.check(root_is_trusted, "root's collector was not used")
    finally:
        odd.close()


@test
def memory_does_not_grow(t):
    """Spans that nobody takes are counted, not kept."""
    done = t.run([PYTHONS[0], t.script("""
import resource
import cirron as ci
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4
def work(n):
    for i in range(n):
        with ci.scope("s%d" % (i % 5000), i, text="x"):
            ci.mark("mark", "value %d" % i)
work(20000)
before = rss()
work(150000)
print(rss() - before < 2048, ci.health()["transport"] if "transport" in ci.health() else "")
""")])
    t.equal((done.rc, done.out.split()[:1], done.err), (0, ["True"], ""), "resident size stays")
