"""Small limits, missing folders, lost rights: the job gets what it would have got, whatever that leaves for us."""
import os
import shutil
import stat

from harness import PYTHONS, Skip, python_label, stop_collectors, test, test_each

each_python = test_each(PYTHONS, python_label)

# Opens spans on this thread, then shows how many descriptors the script itself still gets.
DESCRIPTORS = """
import os, resource, sys
LIMIT = %d
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
with ci.scope("first"):
    pass
got = []
try:
    while True:
        got.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e:
    print(len(got), got[:3], e.errno)
with ci.scope("second"):
    pass
for fd in got:
    os.close(fd)
with ci.scope("third"):
    pass
print("end")
"""


@test_each([10, 24, 64])
def few_descriptors(t, limit):
    """Where the limit leaves no room above what the script uses, ours are not taken from it."""
    t.collect()
    t.both([PYTHONS[0], t.script(DESCRIPTORS % limit)])


@test
def usual_descriptors(t):
    """Of 256 descriptors a few are ours, but the script's numbers are the same from the bottom."""
    t.collect()
    plain, traced = t.both([PYTHONS[0], t.script(DESCRIPTORS % 256)], same=False)
    t.equal(traced.rc, 0, "exit status")
    numbers = [int(x.out.split()[0]) for x in (plain, traced)]
    t.check(numbers[0] - numbers[1] <= 4, f"descriptors for the script: {numbers}")
    t.equal([s["name"] for s in t.store().spans], ["first", "second", "third"], "scopes")


SPANS = """
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
"""


@each_python
def files_may_not_grow(t, python):
    """A file size limit holds for our memory too, and going over it is a signal that ends the job."""
    t.collect()
    t.both([python, t.script("""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
""" + SPANS + """
with ci.scope("first"):
    ci.mark("m", 1)
import os, threading, time
def work():
    with ci.scope("other"):
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
# A thread outlives its join; an ending one of 3.8 loads libgcc, and the program aborts when that file is closed meanwhile.
while len(os.listdir("/proc/self/task")) > 1:
    time.sleep(0.001)
print("end", flush=True)
os.closerange(3, 4096)
time.sleep(0.2)
with ci.scope("last"):
    pass
""")])


@test_each([1, 3, 6, 12, 24])
def little_memory(t, mib):
    """The address space may grow by so much after the interpreter has started."""
    t.collect()
    t.both([PYTHONS[0], t.script("""
import resource, os
""" + SPANS + f"""
now = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (now + {mib} * 2**20,) * 2)
for n in range(100):
    with ci.scope("x", a=n):
        ci.mark("m", n)
try:
    big = [bytes(2**20) for _ in range(100)]
    print("no limit?")
except MemoryError:
    big = None
    print("MemoryError")
with ci.scope("after"):
    print("end")
""")])


@test
def no_locked_memory(t):
    t.collect()
    t.both([PYTHONS[0], t.script("import resource\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n" + SPANS + """
with ci.scope("first"):
    print("fine")
""")])
    t.equal(len(t.store().of("first")), 1, "scopes")


SMALLEST = """
import threading
for size in range(32768, 1 << 20, 4096):
    try:
        threading.stack_size(size)
        break
    except ValueError:
        pass
"""


@each_python
def smallest_thread_stack(t, python):
    """What Python allows a thread at least: 32 KiB, 3.14 some more; ours have to fit beside it."""
    t.collect()
    body = """
""" + SMALLEST + SPANS + """
def work():
    for n in range(20):
        with ci.scope("work", n, text="x" * 500, more={"a": [1, 2, 3]}) as s:
            ci.mark("m", n, note="y" * 500)
    done.append(1)
done = []
threads = [threading.Thread(target=work) for _ in range(4)]
for x in threads: x.start()
for x in threads: x.join()
print(len(done))
"""
    t.both([python, t.script(body)])
    t.equal(len(t.store().of("work")), 80, "scopes")


@test
def smallest_thread_stack_starts_a_collector(t):
    import private
    body = SMALLEST + SPANS + """
def work():
    with ci.scope("work"):
        done.append(1)
done = []
x = threading.Thread(target=work)
x.start()
x.join()
print(len(done))
"""
    try:
        out, err = private.private(t, [PYTHONS[0], "-c", body]).communicate(timeout=60)
        t.equal((out, err), ("1\n", ""), "output")
    finally:
        stop_collectors(t.folder)


@each_python
def deep_recursion_inside_scopes(t, python):
    t.collect()
    t.both([python, t.script(SPANS + """
import sys
def deep(n):
    with ci.scope("d", n, a=n):
        return deep(n + 1)
for _ in range(3):
    try:
        deep(0)
    except RecursionError as e:
        print(type(e).__name__)
with ci.scope("after"):
    print("end")
""")])
    t.equal([s["state"] for s in t.store().of("after")], ["closed"], "scope after it")


@test
def no_folder_at_all(t):
    """The working directory is gone, HOME is not set, and TMPDIR names nothing."""
    t.collect()
    code = SPANS + "import os\nwith ci.scope('first'):\n    print(os.environ.get('HOME'))\n"
    for agent in (False, True):
        gone = t.folder / f"gone{agent}"
        gone.mkdir()
        command = ["sh", "-c", 'rmdir "$0" && unset HOME && exec "$@"', gone, PYTHONS[0], "-c", code]
        done = t.run(command, agent, {"TMPDIR": "/no/such"}, cwd=gone)
        t.equal((done.rc, done.out, done.err), (0, "None\n", ""), "run in a deleted folder")
    t.equal(len(t.store().of("first")), 1, "scopes")


@test
def no_folder_and_no_collector(t):
    code = SPANS + "import os\nwith ci.scope('first'):\n    print('fine')\n"
    gone = t.folder / "gone"
    gone.mkdir()
    env = {k: v for k, v in t.env(True).items() if k != "CIRRON_SOCKET"}
    command = ["sh", "-c", 'rmdir "$0" && unset HOME && exec env -i "$@"', gone, *(f"{k}={v}" for k, v in env.items()), PYTHONS[0], "-c", code]
    done = t.run(command, False, cwd=gone)
    t.equal((done.rc, done.out, done.err), (0, "fine\n", ""), "run in a deleted folder")


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root")


@test
def rights_are_given_up(t):
    """The session and its connection live on in a process that is another user from then on; so does a new connection."""
    need_root()
    t.folder.chmod(0o755)
    t.collect()
    t.both([PYTHONS[0], t.script("import os, time\n" + SPANS + """
with ci.scope("root"):
    os.setgid(65534)
    os.setuid(65534)
with ci.scope("nobody"):
    print(os.getuid())
if os.fork() == 0:
    with ci.scope("child"):
        pass
    os._exit(0)
os.wait()
""")])
    st = t.store()
    for name in ("root", "nobody"):
        t.equal([s["state"] for s in st.of(name)], ["closed"], f"scope {name}")


@test
def root_is_changed(t):
    need_root()
    t.collect()
    new = t.folder / "new"
    new.mkdir()
    t.both([PYTHONS[0], t.script("import os, time, threading, encodings.idna\n" + SPANS + f"""
with ci.scope("before"):
    pass
os.chroot({str(new)!r})
os.chdir("/")
os.closerange(3, 1024)
for n in range(5):
    with ci.scope("after"):
        time.sleep(0.05)
if os.fork() == 0:
    with ci.scope("child"):
        pass
    os._exit(0)
print(os.listdir("/"), os.wait()[1])
""")])
    t.equal(len(t.store().of("before")), 1, "scopes")


@test
def no_proc(t):
    need_root()
    if not shutil.which("unshare"):
        raise Skip("no unshare")
    t.collect()
    command = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", PYTHONS[0], "-c",
               SPANS + "import os\nwith ci.scope('first'):\n    print(os.listdir('/proc'))\n"]
    if t.run(command, False).rc:
        raise Skip("mounts are not allowed here")
    t.both(command)
    t.equal(len(t.store().of("first")), 1, "scopes")


@test
def setuid_program(t):
    """The loader drops the preload there by itself."""
    need_root()
    t.folder.chmod(0o755)
    copy = t.folder / "id"
    shutil.copy(shutil.which("id"), copy)
    copy.chmod(0o4755 | stat.S_ISUID)
    t.both([copy, "-u"])
