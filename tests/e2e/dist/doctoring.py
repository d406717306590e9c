"""`cirron-query doctor`: each finding, brought about."""
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys

from harness import AGENT, BUILD, QUERY, Skip, clean_env, test, until

LIBRARIES = ("libcirron_agent.so", "libcirron_core.so")
SYSTEM_SOCKET = "/run/cirron/collectord.sock"


def doctor(case, *args, program=QUERY, env=None, prefix=(), cwd=None):
    base = dict(clean_env(), CIRRON_SOCKET=str(case.collector.socket) if case.collector else "", **(env or {}))
    r = subprocess.run([*map(str, prefix), program, "doctor", *map(str, args)], capture_output=True, text=True, timeout=60, env=base,
                       cwd=cwd or case.folder)
    case.equal(r.stderr, "", "error output")
    return r.returncode, r.stdout.splitlines()


def found(case, result, status, area, *parts):
    """A line of that status and area with all the parts; the exit status fits the lines."""
    rc, lines = result
    case.check(any(line.split()[:2] == [status, area] and all(p in line for p in parts) for line in lines),
               f"no line '{status} {area} ... {' ... '.join(parts)}' in\n" + "\n".join(lines))
    case.equal(rc, 3 if any(x.startswith("fail ") for x in lines) else 0, "exit status")
    for line in lines:
        case.check(line.split()[0] in ("ok", "warn", "fail"), f"a line of another form: {line!r}")
        case.check(line.startswith("ok") or ";" in line, f"no word about what to do: {line!r}")


def none_runs():
    if os.path.exists(SYSTEM_SOCKET):
        raise Skip(f"there is a {SYSTEM_SOCKET}")


def as_stranger():
    return ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"] if os.geteuid() == 0 else []


def installation(case, *names):
    folder = case.folder / "inst"
    folder.mkdir(exist_ok=True)
    for name in ("cirron-query", *names):
        shutil.copy(BUILD / name, folder)
    return folder


@test
def all_is_well(case):
    case.collect()
    case.run([os.environ.get("PYTHONS", "python3").split()[0], case.script("import cirron as ci\nwith ci.scope('a'): pass\n")])
    case.store()
    result = doctor(case, "--db", case.collector.db)
    case.equal((result[0], [x for x in result[1] if not x.startswith("ok ")]), (0, []), "status, and what is not ok")
    found(case, result, "ok", "kernel", "memfd")
    found(case, result, "ok", "kernel", "pidfd")
    found(case, result, "ok", "agent", str(AGENT))
    found(case, result, "ok", "collector", str(case.collector.socket), "answers")
    found(case, result, "ok", "store", "1 sessions", "a collector writes to it")


@test
def machine_formats(case):
    rc, lines = doctor(case, "--format", "jsonl", "--db", case.folder / "none.db")
    rows = [json.loads(line) for line in lines]
    case.equal({tuple(r) for r in rows}, {("status", "area", "finding")}, "fields")
    case.equal((rc, [r["status"] for r in rows if r["area"] == "store"]), (3, ["fail"]), "a store that is not there")


@test
def refused_by_the_kernel(case):
    """What a seccomp profile refuses, as a container's would. A filter of our own, put on by a small program."""
    tool = case.folder / "without"
    source = case.folder / "without.c"
    source.write_text(r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(argv[1]), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {4, code};
  if (argc < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return 77;
  execv(argv[2], argv + 2);
  return 78;
}
""")
    if subprocess.run(["cc", "-o", tool, source]).returncode or subprocess.run([tool, "319", "/bin/true"]).returncode == 77:
        raise Skip("no seccomp filter can be set")
    found(case, doctor(case, prefix=[tool, 319]), "warn", "kernel", "memfd_create is refused")  # numbers of x86-64
    found(case, doctor(case, prefix=[tool, 72]), "warn", "kernel", "sealing a memfd is refused")
    found(case, doctor(case, prefix=[tool, 46]), "warn", "kernel", "passing a descriptor")
    found(case, doctor(case, prefix=[tool, 434]), "warn", "kernel", "pidfd_open is refused")


@test
def few_descriptors(case):
    found(case, doctor(case, prefix=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]), "warn", "kernel", "64 descriptors")


@test
def the_agents_file(case):
    folder = installation(case, "collectord")
    program = folder / "cirron-query"
    found(case, doctor(case, program=program), "fail", "agent", "is not where")
    (folder / "libcirron_agent.so").write_text("cut off")
    found(case, doctor(case, program=program), "fail", "agent", "not a library")
    data = bytearray(AGENT.read_bytes())
    data[18] = 0xB7  # e_machine: aarch64
    (folder / "libcirron_agent.so").write_bytes(data)
    found(case, doctor(case, program=program), "fail", "agent", "another machine")
    shutil.copy(AGENT, folder)
    found(case, doctor(case, program=program), "fail", "agent", "libcirron_core.so: No such file")
    shutil.copy(BUILD / "libcirron_core.so", folder)
    found(case, doctor(case, program=program), "ok", "agent", str(folder / "libcirron_agent.so"))
    (folder / "libcirron_agent.so").chmod(0o600)
    found(case, doctor(case, program=program), "warn", "agent", "not every user can read it")


@test
def how_it_is_preloaded(case):
    """The loader complains of a file that is not there; that is not the doctor's line."""
    def with_preload(value):
        base = dict(clean_env(), LD_PRELOAD=value)
        r = subprocess.run([QUERY, "doctor"], capture_output=True, text=True, env=base, cwd=case.folder, timeout=60)
        return r.returncode, r.stdout.splitlines()

    found(case, with_preload(f"{AGENT}"), "ok", "agent", "LD_PRELOAD names it")
    found(case, with_preload("/nowhere/libcirron_agent.so"), "fail", "agent", "/nowhere/libcirron_agent.so: No such file")
    found(case, with_preload("libcirron_agent.so"), "warn", "agent", "without a folder")
    copy = case.folder / "libcirron_agent.so"
    shutil.copy(AGENT, copy)
    found(case, with_preload(f"{copy}"), "warn", "agent", "not the one of this installation")
    found(case, doctor(case, env={"CIRRON_ENABLED": "off"}), "warn", "agent", "CIRRON_ENABLED=off")


@test
def a_socket_that_does_not_take_us(case):
    path = case.folder / "x.sock"
    named = {"CIRRON_SOCKET": str(path)}

    def look(env=None):
        base = dict(clean_env(), **(env or named))
        r = subprocess.run([QUERY, "doctor"], capture_output=True, text=True, env=base, cwd=case.folder, timeout=60)
        return r.returncode, r.stdout.splitlines()

    found(case, look(), "fail", "collector", "no such socket")
    found(case, look({"CIRRON_SOCKET": "/" + "x" * 200}), "fail", "collector", "File name too long")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        s.bind(str(path))
        found(case, look(), "fail", "collector", "nobody answers")
        s.listen(5)
        found(case, look(), "ok", "collector", "answers")
    path.unlink()
    runtime = case.folder / "runtime"
    (runtime / "cirron").mkdir(parents=True)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        s.bind(str(runtime / "cirron" / "collectord.sock"))
    found(case, look({"XDG_RUNTIME_DIR": str(runtime)}), "warn", "collector", "nobody answers")  # the agent goes on to the next


@test
def sockets_of_other_users(case):
    if os.geteuid() != 0:
        raise Skip("changing users takes root")
    case.folder.chmod(0o755)
    program = installation(case, "collectord", *LIBRARIES) / "cirron-query"
    run = case.folder / "run"
    run.mkdir(mode=0o755)
    path = run / "c.sock"
    env = {"CIRRON_SOCKET": str(path), "PATH": os.environ["PATH"]}

    def look():
        r = subprocess.run([*as_stranger(), program, "doctor"], capture_output=True, text=True, env=env, cwd="/", timeout=60)
        return r.returncode, r.stdout.splitlines()

    with subprocess.Popen([BUILD / "collectord", "--foreground", "--socket", path, "--db", case.folder / "t.db"],
                          stderr=subprocess.DEVNULL, env=clean_env()) as p:
        until(path.exists, 10, "its socket")
        found(case, look(), "fail", "collector", "may not connect", "join the socket's group")
        path.chmod(0o666)
        found(case, look(), "fail", "collector", "hangs up on this user")
        p.terminate()
    listen = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); " \
             "os.chmod(sys.argv[1], 0o666); os.setuid(54322); s.listen(5); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", listen, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        p.stdout.readline()
        found(case, look(), "fail", "collector", "user 54322 answers", "chown the folder")
        p.stdin.close()


@test
def no_collector_can_be_started(case):
    none_runs()
    found(case, doctor(case, env={"CIRRON_AUTOSTART": "no"}), "fail", "collector", "CIRRON_AUTOSTART forbids")
    case.folder.chmod(0o755)
    full = installation(case, "collectord", *LIBRARIES) / "cirron-query"
    found(case, doctor(case, program=full, prefix=as_stranger(), cwd="/"), "fail", "collector", "cannot keep its store in this directory")
    for name in ("collectord", *LIBRARIES):
        full.with_name(name).unlink()
    found(case, doctor(case), "ok", "collector", "the agent starts a private one")
    folder = installation(case, *LIBRARIES)
    program = folder / "cirron-query"
    found(case, doctor(case, program=program, env={"PATH": "/nowhere"}), "fail", "collector", "neither beside this program nor in PATH")
    (folder / "collectord").write_text("#!/bin/sh\nexit 1\n")
    (folder / "collectord").chmod(0o755)
    found(case, doctor(case, program=program), "fail", "collector", "cannot be run")
    (folder / "collectord").write_text("#!/bin/sh\necho collectord 0.0.1\n")
    found(case, doctor(case, program=program), "warn", "collector", "collectord 0.0.1", "install both anew")


@test
def stores_that_cannot_be_read(case):
    if not os.path.exists("/var/lib/cirron"):
        found(case, doctor(case), "warn", "store", "none yet")
    bad = case.folder / "bad.db"
    found(case, doctor(case, "--db", bad), "fail", "store", "no such store", "record something")
    bad.write_text("no database" * 100)
    found(case, doctor(case, "--db", bad), "fail", "store", "not a store", "move it away")
    if os.geteuid() == 0:
        case.folder.chmod(0o755)
        program = installation(case, "collectord", *LIBRARIES) / "cirron-query"
        for mode, hint in ((0o640, "join the group root"), (0o600, "ask its owner")):
            bad.chmod(mode)
            found(case, doctor(case, "--db", bad, program=program, prefix=as_stranger()), "fail", "store", "Permission denied", hint)


@test
def sessions_left_behind(case):
    case.collect()
    script = case.script("import cirron as ci, sys\nwith ci.scope('a'): pass\nprint(flush=True)\nsys.stdin.read()\n")
    p = case.start([os.environ.get("PYTHONS", "python3").split()[0], script], stdin=subprocess.PIPE)
    db = case.collector.db
    try:
        p.stdout.readline()

        def running():
            with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as s:
                return s.execute("SELECT count(*) FROM sessions WHERE state = 'running'").fetchone()[0]
        until(running, 10, "the session")
        case.collector.kill()
        result = doctor(case, "--db", db)
        found(case, result, "warn", "store", "1 sessions are left running")
        found(case, result, "ok", "store", "no collector writes")
    finally:
        p.communicate()
    with contextlib.closing(sqlite3.connect(db)) as s, s:
        s.execute("UPDATE sessions SET dropped_total = 12")
    found(case, doctor(case, "--db", db), "warn", "store", "lost 12 records")


@test
def a_disk_without_room(case):
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("a small disk takes root and a mount namespace")
    case.collect()
    disk = case.folder / "disk"
    disk.mkdir()

    def look(size, fill):
        shell = f'mount -t tmpfs -o size={size} none {disk} && cp {case.collector.db} {disk}/t.db && {fill} exec "$@"'
        return doctor(case, "--db", disk / "t.db", prefix=["unshare", "-m", "sh", "-c", shell, "sh"])

    found(case, look("8m", ""), "warn", "store", "MiB are left")
    found(case, look("8m", f"cat /dev/zero >{disk}/zero 2>/dev/null;"), "fail", "store", "is full")


@test
def the_machines_store_is_closed_to_us(case):
    """/var/lib/cirron of a namespace of our own, for a group that we are not in."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("another /var/lib takes root and a mount namespace")
    case.folder.chmod(0o755)
    program = installation(case, "collectord", *LIBRARIES) / "cirron-query"
    shell = 'mount -t tmpfs none /var/lib && mkdir -m 750 /var/lib/cirron && exec setpriv --reuid 54321 --regid 54321 --clear-groups "$@"'
    result = doctor(case, program=program, prefix=["unshare", "-m", "sh", "-c", shell, "sh"], cwd="/")
    found(case, result, "warn", "store", "cannot be entered", "join the group root")
