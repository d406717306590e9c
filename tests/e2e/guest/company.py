"""In company: other preloads, other tools in the interpreter, several interpreters in a process, programs that start many others."""
import shutil
import subprocess

from harness import AGENT, BUILD, PYTHONS, Skip, python_label, test, test_each

each_python = test_each(PYTHONS, python_label)

HEAD = """
import os, sys, threading, time
try:
    import cirron as ci
except ImportError:
    import contextlib
    class ci:
        scope = staticmethod(lambda *a, **k: contextlib.nullcontext())
        mark = staticmethod(lambda *a, **k: None)
        epochs = batches = staticmethod(iter)
"""

INTERPOSER = r"""
#include <stddef.h>
#include <string.h>
#include <unistd.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static _Atomic long live;
void *malloc(size_t n) { live++; char *p = __libc_malloc(n); if (p) memset(p, 0xa5, n); return p; }
void *calloc(size_t n, size_t m) { live++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { if (!p) live++; return __libc_realloc(p, n); }
void free(void *p) { if (p) live--; __libc_free(p); }
"""


def library(t, name, text):
    if not shutil.which("cc"):
        raise Skip("no compiler")
    source, made = t.folder / f"{name}.c", t.folder / f"{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, source], check=True)
    return made


USE = HEAD + """
def work(n):
    with ci.scope("work", n, text="x"):
        ci.mark("m", "y" * 50)
        return sum(range(n))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for x in threads: x.start()
for x in threads: x.join()
if os.fork() == 0:
    work(100)
    os._exit(0)
print(os.wait()[1])
"""


@test_each(["before", "after", "both sides"])
def beside_a_malloc_preload(t, order):
    other = library(t, "other", INTERPOSER)
    t.collect()
    preload = {"before": f"{other}:{AGENT}", "after": f"{AGENT}:{other}", "both sides": f"{other} {AGENT} {other}"}[order]
    plain = t.run([PYTHONS[0], t.script(USE)], False)
    done = t.run([PYTHONS[0], t.script(USE)], env={"LD_PRELOAD": preload})
    t.equal((done.rc, done.out, done.err), (plain.rc, plain.out, plain.err), "run")
    t.equal(len(t.store().of("work")), 9, "scopes")


@test
def beside_a_setlocale_preload(t):
    """Somebody else may stand in front of, or behind, the one function that the agent stands in for."""
    other = library(t, "other", """
#define _GNU_SOURCE
#include <dlfcn.h>
char *setlocale(int category, const char *locale) {
  return ((char *(*)(int, const char *))dlsym(RTLD_NEXT, "setlocale"))(category, locale);
}
""")
    t.collect()
    for preload in (f"{other}:{AGENT}", f"{AGENT}:{other}"):
        done = t.run([PYTHONS[0], t.script(USE + "import locale\nprint(locale.setlocale(0))\n")], env={"LD_PRELOAD": preload})
        t.equal((done.rc, done.err), (0, ""), "run")
    t.equal(len(t.store().of("work")), 18, "scopes")


@test
def sanitized_program(t):
    """Its runtime wants to be first; whatever it says to a preload it says to any."""
    if not shutil.which("cc"):
        raise Skip("no compiler")
    (t.folder / "a.c").write_text("int main(void) { return 3; }\n")
    made = subprocess.run(["cc", "-fsanitize=address", "-o", t.folder / "a", t.folder / "a.c"], capture_output=True)
    if made.returncode:
        raise Skip("no AddressSanitizer")
    empty = library(t, "empty", "int nothing;")
    other, ours = (t.run([t.folder / "a"], env={"LD_PRELOAD": x}) for x in (empty, AGENT))
    t.equal((ours.rc, ours.out), (other.rc, other.out), "as with any preload")


TOOLS = {
    "tracemalloc": (["-X", "tracemalloc=10"], ""),
    "faulthandler": (["-X", "faulthandler"], "import faulthandler\nfaulthandler.dump_traceback_later(60)\n"),
    "import time": (["-X", "importtime"], ""),
    "dev and tracemalloc": (["-X", "dev", "-X", "tracemalloc"], ""),
    "isolated": (["-I"], ""),
    "optimized": (["-OO"], ""),
    "audit hook": ([], "import sys\nsys.addaudithook(lambda *a: None)\n"),
    "audit hook that refuses hooks": ([], """
import sys
def hook(event, args):
    if event == "sys.addaudithook":
        raise RuntimeError("no more hooks")
sys.addaudithook(hook)
"""),
    "settrace in threads": ([], "import threading, sys\nthreading.settrace(lambda *a: None)\nsys.settrace(lambda *a: None)\n"),
    "setprofile": ([], "import threading, sys\nthreading.setprofile(lambda *a: None)\nsys.setprofile(lambda *a: None)\n"),
    "gc at each allocation": ([], "import gc\ngc.set_threshold(1)\n"),
    "gc off": ([], "import gc\ngc.disable()\n"),
    "gc debug": ([], "import gc\ngc.set_debug(gc.DEBUG_SAVEALL)\n"),
    "switch interval": ([], "import sys\nsys.setswitchinterval(1e-6)\n"),
}


@test_each(list(TOOLS))
def with_tools_of_python(t, name):
    t.collect()
    options, start = TOOLS[name]
    for python in PYTHONS:
        lines = 10000 if name == "import time" else 0
        plain, traced = (t.run([python, "-W", "ignore", *options, t.script(start + USE + "for n in range(300): work(n)\n")], x) for x in (False, True))
        t.equal((traced.rc, traced.out), (plain.rc, plain.out), f"run of {python}")
        t.check(abs(len(traced.err.splitlines()) - len(plain.err.splitlines())) <= lines // 1000 * 2, f"stderr of {python}: {traced.err[:300]!r}")
    t.equal(len(t.store().of("work")), 309 * len(PYTHONS), "scopes")


@each_python
def collections_while_weak_references_die(t, python):
    """Callbacks and finalizers that open scopes, in the middle of ours."""
    t.collect()
    t.both([python, t.script(HEAD + """
import gc, weakref
gc.set_threshold(3)
class Node:
    def __init__(self):
        self.me = self
    def __del__(self):
        with ci.scope("finalizer", a=1):
            ci.mark("f", 1)
def gone(_):
    with ci.scope("callback"):
        pass
class Text:
    def __str__(self):
        Node()
        gc.collect()
        return "text"
    __repr__ = __str__
kept = []
for n in range(200):
    node = Node()
    kept.append(weakref.ref(node, gone))
    del node
    with ci.scope("outer", n, text=Text(), many={"a": Text()}) as s:
        for x in ci.epochs(range(2)):
            ci.mark("m", x, note=Text())
gc.collect()
print("end")
""")])
    st = t.store()
    t.equal(len(st.of("outer")), 200, "scopes")
    t.equal(len(st.of("callback")), 200, "scopes of callbacks")


@each_python
def subinterpreters(t, python):
    t.collect()
    t.both([python, "-W", "ignore", t.script(HEAD + """
try:
    import _interpreters as si
    create, run = (lambda: si.create("legacy")), si.run_string
except ImportError:
    try:
        import _xxsubinterpreters as si
        create, run = si.create, si.run_string
    except ImportError:
        si = None
CODE = '''
try:
    import cirron
    with cirron.scope("sub"):
        cirron.mark("m", 1)
except ImportError:
    pass
import json, collections
'''
def one():
    for _ in range(3):
        i = create()
        run(i, CODE)
        si.destroy(i)
with ci.scope("main"):
    if si:
        one()
        threads = [threading.Thread(target=one) for _ in range(3)]
        for x in threads: x.start()
        for x in threads: x.join()
with ci.scope("main"):
    print("end")
""")])
    t.equal(len(t.store().of("main")), 2, "scopes of the main interpreter")


EMBEDDER = r"""
#include <Python.h>
#include <stdio.h>
int main(void) {
  for (int n = 0; n < 3; n++) {
    Py_InitializeEx(n != 1);
    PyRun_SimpleString("try:\n import cirron as ci\n with ci.scope('embedded'):\n  ci.mark('m', 1)\nexcept ImportError:\n pass\n"
                       "import json, threading\nx = threading.Thread(target=json.dumps, args=({},))\nx.start()\nx.join()\n");
    printf("%d\n", Py_FinalizeEx());
  }
  return 4;
}
"""


@test
def embedded_and_started_again(t):
    config = shutil.which(PYTHONS[0] + "-config") or shutil.which("python3-config")
    if not config or not shutil.which("cc"):
        raise Skip("no python3-config")
    source, program = t.folder / "e.c", t.folder / "e"
    source.write_text(EMBEDDER)
    flags = subprocess.run([config, "--embed", "--cflags", "--ldflags"], capture_output=True, text=True).stdout.split()
    made = subprocess.run(["cc", "-o", program, source, *flags], capture_output=True, text=True)
    if made.returncode:
        raise Skip("no libpython to link with: " + made.stderr.strip()[-80:])
    if "libpython" not in subprocess.run(["ldd", program], capture_output=True, text=True).stdout and "Py_GetVersion" not in \
            subprocess.run(["nm", "-D", program], capture_output=True, text=True).stdout:
        raise Skip("libpython is in the program, and hidden in it")
    t.collect()
    _, traced = t.both([program])
    t.equal(traced.rc, 4, "exit status")
    t.check(len(t.store().of("embedded")) >= 1, "no scope of an embedded interpreter")


@test
def extension_that_is_closed_again(t):
    """Without preload the file may be opened and closed like any library; threads that used it may end later."""
    core = BUILD / "libcirron_core.so"
    if not core.exists():
        core = AGENT
    code = f"""
import ctypes, _ctypes, threading, os
for path in ({str(AGENT)!r}, {str(core)!r}) * 3:
    handle = ctypes.CDLL(path)._handle
    _ctypes.dlclose(handle)
x = threading.Thread(target=print, args=("thread",))
x.start()
x.join()
if os.fork() == 0:
    os._exit(0)
print(os.wait()[1])
"""
    done = t.run([PYTHONS[0], "-c", code], False, {"CIRRON_SOCKET": t.folder / "none"})
    t.equal((done.rc, done.out, done.err), (0, "thread\n0\n", ""), "run")


@test
def many_small_programs(t):
    """git, tar, a compiler, make: trees of processes with pipes between them."""
    for tool in ("git", "tar", "cc", "make"):
        if not shutil.which(tool):
            raise Skip(f"no {tool}")
    t.both(["bash", "-ec", """
exec 2>&1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main r && cd r
printf 'all: a\\na: a.c\\n\\tcc -o a a.c\\n' >Makefile
echo 'int main(void) { return 7; }' >a.c
git add . && git -c user.name=n -c user.email=e commit -qm one && git log --format=%H
git clone -q . ../c && git -C ../c fsck
make -s && (./a; echo $?)
tar -cf - Makefile a.c | tar -tvf - | awk '{ print $NF }' | sort -r
tar -czf x.tgz a.c && tar -xOzf x.tgz
cat <(echo one) <(echo two) | while read -r x; do echo "$x" | tr a-z A-Z; done
coproc cat; echo through >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"; echo "$line"
timeout 0.2 sleep 5 || echo $?
echo 'print(6*7)' | python3 -
find . -name '*.c' -print0 | xargs -0 -n1 wc -l
ulimit -n 20; ls /proc/self/fd | wc -l
env -i sh -c 'echo $0'
"""])


@test
def server_with_many_requests(t):
    """Descriptors and memory stay where they are, over thousands of requests in threads that come and go."""
    t.collect()
    done = t.run([PYTHONS[0], t.script(HEAD + """
import http.server, socketserver, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with ci.scope("request", path=self.path):
            ci.mark("m", 1)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")
    def log_message(self, *a): pass
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = "http://127.0.0.1:%d/" % server.server_address[1]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def look():
    rss = int(next(x for x in open("/proc/self/status") if x.startswith("RssAnon")).split()[1])
    return rss, len(os.listdir("/proc/self/fd"))
def ask(n):
    for i in range(n):
        with opener.open(url + str(i % 7)) as r:
            assert r.read() == b"ok"
ask(200)
before = look()
ask(1500)
after = look()
print(after[0] - before[0] < 4096, after[1] - before[1] < 4)
server.shutdown()
""")])
    t.equal((done.rc, done.out, done.err), (0, "True True\n", ""), "memory and descriptors")
    t.equal(len(t.store().of("request")), 1700, "scopes")


@each_python
def generators_that_wander_leave_no_memory(t, python):
    """A generator that one thread begins and another ends, as servers do it with every request."""
    t.collect()
    done = t.run([python, t.script(HEAD + """
import queue
def generator(n):
    with ci.scope("wanders", n, text="x" * 200):
        yield n
def begin():
    while True:
        n = todo.get()
        if n is None:
            return
        g = generator(n)
        next(g)
        begun.put(g)
        with ci.scope("beside"):
            pass
todo, begun = queue.Queue(), queue.Queue()
x = threading.Thread(target=begin)
x.start()
def turn(many):
    for n in range(many):
        todo.put(n)
        begun.get().close()
def rss(): # without the rings, which grow in a burst
    return int(next(x for x in open("/proc/self/status") if x.startswith("RssAnon")).split()[1])
turn(3000)
before = rss()
turn(15000)
print(rss() - before < 1500 or rss() - before)
todo.put(None)
x.join()
""")])
    t.equal((done.rc, done.out, done.err), (0, "True\n", ""), "memory")


HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
  (void)argc;
  ((void (*)(void))dlsym(dlopen(argv[1], RTLD_NOW), "names_python"))();
  void *python = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  if (!python)
    return 77;
  ((void (*)(int))dlsym(python, "Py_InitializeEx"))(0);
  ((int (*)(const char *))dlsym(python, "PyRun_SimpleString"))("try:\n import cirron as ci\n with ci.scope('hosted'):\n  pass\n"
                                                               "except ImportError:\n pass\n");
  printf("%d\n", ((int (*)(void))dlsym(python, "Py_FinalizeEx"))());
  return 0;
}
"""


@test
def library_that_is_only_called_python(t):
    """A library of that name without an interpreter in it does not keep the agent from the one that comes later."""
    found = subprocess.run([PYTHONS[0], "-c", "import sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('INSTSONAME'))"],
                           capture_output=True, text=True).stdout.strip()
    named = library(t, "libpythonic", '#include <locale.h>\nvoid names_python(void) { setlocale(LC_ALL, "C"); }\n')
    source, host = t.folder / "host.c", t.folder / "host"
    source.write_text(HOST)
    subprocess.run(["cc", "-o", host, source, "-ldl"], check=True)
    t.collect()
    plain, _ = t.both([host, named, found])
    if plain.rc == 77:
        raise Skip("no shared libpython")
    t.equal(len(t.store().of("hosted")), 1, "scopes")
