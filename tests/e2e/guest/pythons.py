"""Python programs run as if the agent were absent, on every interpreter of this machine."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from harness import AGENT, CORE, LEFT_ALONE, PYTHONS, Skip, python_label, test, test_each

each_python = test_each(PYTHONS, python_label)

# A script that uses the module if it is there, so that a session with ring and connection exists.
USE = """
import os, sys
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
with ci.scope("first"):
    ci.mark("one", 1)
"""

STATE = USE + """
import locale, random, signal, threading
status = dict(x.split(":", 1) for x in open("/proc/self/status").read().splitlines() if ":" in x)
print([(k, status[k].strip()) for k in ("Threads", "SigBlk", "SigIgn", "SigCgt", "Umask")])
print(os.getcwd() == os.path.realpath("."), sorted(k for k in os.environ if not k.startswith(("CIRRON_", "LD_"))))
print(locale.setlocale(locale.LC_ALL, None), [str(signal.getsignal(s)) for s in (2, 13, 15, 17)])
random.seed(5)
with ci.scope("second"):
    print(random.random())
print(sys.gettrace(), sys.getprofile(), threading.active_count(), sys.getrecursionlimit())
def deep(n):
    try:
        return deep(n + 1)
    except RecursionError:
        return n
print(deep(0) > 900)
class Odd(Exception): pass
try:
    with ci.scope("third"):
        raise Odd("thrown")
except Odd as e:
    print(type(e), e.args, e.__traceback__.tb_lineno)
import json, decimal, collections, subprocess, email, unittest, ctypes
print(len(json.dumps(list(range(100)))))
print("end", file=sys.stderr)
"""

FORKS = USE + """
import subprocess, warnings
warnings.simplefilter("always")
for n in range(3):
    child = os.fork()
    if child == 0:
        with ci.scope("child"):
            pass
        os._exit(n)
    print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
print(subprocess.run(["sh", "-c", "echo shell; exit 2"], stdout=subprocess.PIPE).returncode)
print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 9"], os.environ), 0)[1])
      if sys.version_info >= (3, 9) else os.WEXITSTATUS(os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 9"], os.environ), 0)[1]))
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE).stdout)
print(subprocess.run(["ls", "/proc/self/fd"], close_fds=False, stdout=subprocess.PIPE).stdout)
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, 2]))
    try:
        os.wait()
    except ChildProcessError:
        print("no child is left")
"""

ENDINGS = {
    "exit 7": ("sys.exit(7)", 7),
    "exit text": ("sys.exit('reason')", 1),
    "hard exit": ("os._exit(3)", 3),
    "exception": ("raise KeyError('k')", 1),
    "sigterm": ("os.kill(os.getpid(), 15)", -15),
    "sigint": ("os.kill(os.getpid(), 2)\nfor _ in range(10**7): pass", -2),
    "abort": ("os.abort()", -6),
    "exec": ("sys.stdout.flush(); os.execv(sys.executable, [sys.executable, '-c', 'print(40 + 2)'])", 0),
    "exec shell": ("sys.stdout.flush(); os.execv('/bin/sh', ['sh', '-c', 'ls /proc/self/fd; exit 5'])", 5),
    "at exit": ("import atexit; atexit.register(print, 'bye')", 0),
    "thread is left": ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", 0),
    "stdout closed": ("os.close(1)", None),
}


@each_python
def state_of_the_process(t, python):
    t.collect()
    t.both([python, t.script(STATE)])
    st = t.store()
    t.equal([s["name"] for s in st.spans], ["first", "second", "third"], "spans")


@each_python
def development_mode(t, python):
    t.collect()
    t.both([python, "-X", "dev", "-X", "faulthandler", t.script(STATE)])


@each_python
def debug_allocator(t, python):
    t.collect()
    t.both([python, t.script(STATE)], env={"PYTHONMALLOC": "debug"})


@each_python
def children(t, python):
    t.collect()
    t.both([python, "-W", "always", t.script(FORKS)])
    st = t.store()
    t.equal(len(st.of("first")), 1, "scopes of the parent")
    t.equal(len({s["pid"] for s in st.of("child")}), 3, "processes of the children's scopes")


@each_python
def ways_to_end(t, python):
    t.collect()
    for name, (code, status) in ENDINGS.items():
        _, traced = t.both([python, "-c", USE + "print('before', flush=True)\n" + code])
        if status is not None:
            t.equal(traced.rc, status, f"exit status of {name}")
    st = t.store()
    firsts = st.of("first")
    t.equal((len(firsts), {s["state"] for s in firsts}), (len(ENDINGS), {"closed"}), "scopes closed before the end")


@each_python
def descriptors_0_to_2_closed(t, python):
    """Ours never land on the numbers of the standard streams."""
    t.collect()
    code = USE + """
import os
with ci.scope("second"):
    got = os.open("/dev/null", os.O_RDWR)
fd = os.open("result", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"%d" % got)
"""
    for number, agent in ((1, False), (2, True)):
        t.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", python, t.script(code)], agent)
    plain, traced = ((t.folder / f"run{n}" / "result").read_text() for n in (1, 2))
    t.equal(traced, plain, "first descriptor that the script gets")


@each_python
def nobody_listens(t, python):
    t.both([python, t.script(STATE)], lines=1)
    t.both([python, t.script(FORKS)], lines=1)


@each_python
def switched_off(t, python):
    """Off means absent: there is nothing to import, and nothing is stored."""
    t.collect()
    done = t.run([python, "-c", "import os\nprint(len(os.listdir('/proc/self/fd')))\nimport cirron"], env={"CIRRON_ENABLED": "0"})
    plain = t.run([python, "-c", "import os\nprint(len(os.listdir('/proc/self/fd')))\nimport cirron"], agent=False)
    t.equal(done, plain._replace(pid=done.pid, wall_s=done.wall_s), "run with CIRRON_ENABLED=0")
    t.check("ModuleNotFoundError" in done.err, "import cirron did not fail")
    t.equal(t.store().sessions, [], "sessions")


@each_python
def one_line_for_a_bad_setting(t, python):
    for name, value in (("CIRRON_CPU_TIME", "perhaps"), ("CIRRON_ENABLED", "maybe"), ("CIRRON_RING_BYTES", "12"), ("CIRRON_MODULE_DEPTH", "x")):
        done = t.run([python, "-c", "print(5)"], env={name: value})
        t.equal((done.rc, done.out), (0, "5\n"), f"run with {name}={value}")
        lines = done.err.splitlines()
        t.check(len(lines) == 1 and lines[0].startswith("cirron") and name in lines[0], f"stderr for {name}={value}: {done.err!r}")


@each_python
def unwritable_folder(t, python):
    """Not even root can make a file in /proc."""
    t.collect()
    t.both([python, "-c", USE + "print('fine')"], cwd="/proc", lines=1)
    t.equal(len(t.store().of("first")), 1, "scopes")


@each_python
def no_threads_while_forking(t, python):
    t.collect()
    _, traced = t.both([python, "-c", USE + """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print(len(seen), os.listdir("/proc/self/task") == [str(os.getpid())])
"""])
    t.equal(traced.out, "0 True\n", "warnings, single thread")


@each_python
def ways_to_start(t, python):
    t.collect()
    body = USE + "\nprint(__name__, [os.path.basename(a) for a in sys.argv])\n"
    folder = t.folder / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text(body)
    archive = t.folder / "app.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", str(archive), str(folder / "__main__.py")], check=True)
    ways = [["-c", body], ["-m", "app"], [folder], [archive], ["-I", "-S", "-c", body], ["-E", "-s", "-B", "-O", folder], ["-u", folder]]
    for way in ways:
        t.both([python, *way, "more"], cwd=t.folder)
    for agent in (False, True):
        t.equal(t.run(["sh", "-c", '"$@" - more <app/__main__.py', "sh", python], agent, cwd=t.folder).out, "__main__ ['-', 'more']\n",
                "script from standard input")
    t.equal(len(t.store().of("first")), len(ways) + 1, "scopes")


@each_python
def loaded_twice(t, python):
    t.collect()
    copy = t.folder / "second" / "libcirron_agent.so"
    copy.parent.mkdir()
    copy.write_bytes(AGENT.read_bytes())
    copy.with_name(CORE.name).write_bytes(CORE.read_bytes())
    _, traced = t.both([python, "-c", USE + "print('once')"], lines=0)
    done = t.run([python, "-c", USE + "print('once')"], env={"LD_PRELOAD": f"{AGENT}:{copy}"})
    t.equal((done.rc, done.out, done.err), (traced.rc, traced.out, traced.err), "run with two copies")
    t.equal([len([s for s in t.store().of("first") if s["pid"] == p]) for p in (traced.pid, done.pid)], [1, 1], "scopes")


@each_python
def profilers_and_tracers_keep_working(t, python):
    t.collect()
    t.both([python, "-c", USE + """
import cProfile, io, pstats
def work(n):
    return sum(range(n))
calls = []
sys.setprofile(lambda frame, event, arg: calls.append(event) if frame.f_code.co_name == "work" else None)
work(3)
sys.setprofile(None)
lines = []
def tracer(frame, event, arg):
    if frame.f_code.co_name == "work":
        lines.append(event)
    return tracer
sys.settrace(tracer)
work(3)
sys.settrace(None)
profile = cProfile.Profile()
profile.enable()
work(3)
with ci.scope("inside"):
    work(4)
profile.disable()
stats = {k[2]: v[0] for k, v in pstats.Stats(profile).stats.items()}
print(calls, lines, stats["work"])
"""])


FAKE = """
#include <locale.h>
#include <stdio.h>
const char *Py_GetVersion(void) { return VERSION; }
int Py_IsInitialized(void) { return 1; }
int main(void) { printf("%s\\n", setlocale(LC_ALL, "C")); return 5; }
"""


@test_each(["3.7.16 (default)", "3.13.15 experimental free-threading build (main)", "3.14.8 free-threading build (main)", "3.16.0a1 (main, Nov 30 2026)", "4.0.0", "3.14.8 (main) of which most is missing", "", "nonsense"])
def unknown_version(t, version):
    """It runs as if we were absent, and only CIRRON_DEBUG makes it say so."""
    if not shutil.which("cc"):
        raise Skip("no compiler")
    source, program = t.folder / "v.c", t.folder / "v"
    source.write_text(FAKE)
    subprocess.run(["cc", f'-DVERSION="{version}"', "-rdynamic", "-o", program, source], check=True)
    t.collect()
    t.both([program])
    t.both([program], env={"CIRRON_DEBUG": "1", "CIRRON_ENABLED": "0"})
    t.both([program], env={"CIRRON_RING_BYTES": "12"})
    done = t.run([program], env={"CIRRON_DEBUG": "1"})
    why = "a build without the GIL" if "free-threading" in version else "none that is known here"
    said = f"cirron: Python {version.split(' ')[0]} is {why}: nothing of it is recorded\n"
    t.equal((done.rc, done.out, done.err), (5, "C\n", said), "run with CIRRON_DEBUG=1")
    t.equal(t.store().sessions, [], "sessions")


def unknown_pythons():
    found = (pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions").glob("*/bin/python")
    return [str(x) for x in found if re.match(r"2\.|3\.[5-7]\.|3\.(1[6-9]|[2-9]\d)\.", x.parts[-3])]


@test_each(unknown_pythons() + LEFT_ALONE, python_label)
def unknown_interpreter(t, python):
    """Left alone: nothing to import, nothing recorded, and one line if asked."""
    t.collect()
    code = "import locale, os, sys\nlocale.setlocale(locale.LC_ALL, '')\nprint(sys.version, 'cirron' in sys.builtin_module_names)\nsys.exit(4)"
    t.both([python, "-c", code])
    _, traced = t.both([python, "-c", code], env={"CIRRON_DEBUG": "1"}, lines=1)
    t.equal((traced.rc, len(re.findall("nothing .*is recorded", traced.err))), (4, 1), "exit status, lines that say so")
    t.equal(t.store().sessions, [], "sessions")


BY_NAME = f"""
import importlib.util as u
spec = u.spec_from_file_location("cirron", {str(CORE)!r})
try:
    u.module_from_spec(spec)
except ImportError:
    print("ImportError")
"""

PARALLEL = USE + """
import threading
def work():
    for _ in range(300):
        with ci.scope("in parallel"):
            ci.mark("m", 1)
        for x in map(str, range(9)): pass
threads = [threading.Thread(target=work) for _ in range(8)]
for x in threads: x.start()
for x in threads: x.join()
print("done")
"""


@test_each(LEFT_ALONE, python_label)
def left_alone(t, python):
    """Programs of all kinds do there what they do without the agent, `import cirron` included."""
    t.collect()
    for code in (STATE, FORKS, PARALLEL, "import cirron"):
        t.both([python, t.script(code)])
    for code, status in ENDINGS.values():
        t.both([python, "-c", USE + code], same=status is not None)
    by_name = t.run([python, "-c", BY_NAME], agent=False)
    t.equal((by_name.rc, by_name.out, by_name.err), (0, "ImportError\n", ""), "the agent's file imported by name")
    t.equal(t.store().sessions, [], "sessions")


@test
def core_is_missing(t):
    """The preloaded file alone: nothing happens, and only CIRRON_DEBUG makes it say so."""
    alone = t.folder / "alone" / AGENT.name
    alone.parent.mkdir()
    alone.write_bytes(AGENT.read_bytes())
    command = [PYTHONS[0], "-c", "import sys; print('cirron' in sys.builtin_module_names); sys.exit(3)"]
    for more in ({}, {"CIRRON_DEBUG": "0"}, {"CIRRON_DEBUG": "On", "CIRRON_ENABLED": "off"}):
        done = t.run(command, False, {"LD_PRELOAD": alone, **more})
        t.equal((done.rc, done.out, done.err), (3, "False\n", ""), f"run with {more}")
    done = t.run(command, False, {"LD_PRELOAD": alone, "CIRRON_DEBUG": "On"})
    t.equal((done.rc, done.out, done.err.count("\n")), (3, "False\n", 1), "run with CIRRON_DEBUG")
    t.check(done.err.startswith("cirron: nothing is recorded: ") and CORE.name in done.err, f"what is said: {done.err!r}")


@test
def other_libc(t):
    if not shutil.which("musl-gcc"):
        raise Skip("no musl-gcc")
    source, program = t.folder / "v.c", t.folder / "v"
    source.write_text(FAKE)
    subprocess.run(["musl-gcc", '-DVERSION="3.13.0 (main)"', "-rdynamic", "-o", program, source], check=True)
    t.collect()
    plain, _ = t.both([program])
    t.equal(plain.rc, 5, "exit status")
    done = t.run([program], env={"CIRRON_DEBUG": "1"})
    t.equal((done.rc, done.out, done.err.count("\n")), (5, plain.out, 1), "run with CIRRON_DEBUG")
    t.check(done.err.startswith("cirron: nothing is recorded: "), f"what is said: {done.err!r}")


@test
def interpreters_of_other_versions(t):
    if len(PYTHONS) < 2:
        raise Skip("only one interpreter here")
    t.collect()
    code = f"""
import subprocess, sys
with ci.scope("main"):
    for python in {PYTHONS!r}:
        r = subprocess.run([python, "-c", {USE!r} + "print(sys.version_info[:2])"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        print(r.returncode, r.stdout, r.stderr)
"""
    t.both([PYTHONS[0], t.script(USE + code)])
    t.equal(len({s["pid"] for s in t.store().of("first")}), len(PYTHONS) + 1, "processes")
