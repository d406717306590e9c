"""What the agent exports, imports and needs is what the lists beside this file say, and runs on a glibc of 2012."""
import os
import pathlib
import re
import shutil
import subprocess

from harness import AGENT, CORE, Skip, test

HERE = pathlib.Path(__file__).resolve().parent
OLDEST = (2, 17)


def listed(name):
    lines = (HERE / name).read_text().splitlines()
    return {x.split("#")[0].strip() for x in lines} - {""}


def tool(*command):
    if not shutil.which(command[0]):
        raise Skip(f"no {command[0]}")
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def exports(library):
    return {line.split()[-1].split("@")[0] for line in tool("nm", "-D", "--defined-only", str(library)).splitlines()}


def imports(library):
    """symbol -> version as text; "" for those without, which are weak."""
    found = {}
    for line in tool("objdump", "-T", str(library)).splitlines():
        m = re.search(r"\*UND\*\s+[0-9a-f]+\s+(?:\(?([\w.]+)\)?\s+)?([\w$]+)$", line)
        if m:
            found[m.group(2)] = (m.group(1) or "").replace("Base", "")
    return found


def needed(library):
    return set(re.findall(r"^\s+NEEDED\s+(\S+)", tool("objdump", "-p", str(library)), re.M))


def faults(library, lists):
    found = [f"exports {x}" for x in sorted(exports(library) ^ listed(f"{lists}.exports"))]
    known = listed(f"{lists}.imports")
    for symbol, version in sorted(imports(library).items()):
        if f"{symbol} {version}".strip() not in known:
            found.append(f"imports {symbol} {version}")
        number = re.fullmatch(r"GLIBC_([\d.]+)", version)
        if version and (not number or tuple(map(int, number.group(1).split("."))) > OLDEST):
            found.append(f"version {symbol} {version}")
    return found + [f"needs {x}" for x in sorted(needed(library) - listed(f"{lists}.needed"))]


@test
def agent_keeps_to_the_lists(t):
    t.equal(faults(AGENT, "agent"), [], "differences of the preloaded object")
    t.equal(faults(CORE, "core"), [], "differences of the core")


@test
def preloaded_object_stays_small(t):
    parts = re.findall(r"^\s+LOAD .*\n\s+filesz 0x([0-9a-f]+) memsz 0x([0-9a-f]+)", tool("objdump", "-p", str(AGENT)), re.M)
    t.equal(len(parts), 2, "mapped parts")
    t.check(all(int(size, 16) <= 4096 for part in parts for size in part), f"a part is larger than a page: {parts}")


@test
def a_planted_fault_is_found(t):
    if not shutil.which("cc"):
        raise Skip("no compiler")
    source, library = t.folder / "bad.c", t.folder / "bad.so"
    source.write_text("""
#include <math.h>
#include <pthread.h>
#include <stdio.h>
int planted_export(double x) { return (int)sin(x) + printf("%p", (void *)pthread_create); }
""")
    tool("cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", str(library), str(source), "-lm")
    found = faults(library, "core")
    for expected in ("exports planted_export", "exports PyInit_cirron", "imports printf", "needs libm.so.6"):
        t.check(any(x.startswith(expected) for x in found), f"not found: {expected}")
    if subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True).stdout.split()[-1:] >= ["2.34"]:
        t.check(any(x.startswith("version pthread_create") for x in found), "a new symbol version was not found")
