"""What the cases of this suite share: the program under test, its stores, its expected outputs."""
import contextlib, fcntl, json, os, pathlib, pty, struct, subprocess, sys, termios

WORK = pathlib.Path(sys.argv[1])
UPDATE = "--update" in sys.argv
QUERY, MAKE = os.environ["exec_query"], os.environ["make_store"]
GOLDEN = pathlib.Path(__file__).with_name("golden")
ENV = {"PATH": os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C.UTF-8", "HOME": str(WORK)}


class Skip(Exception):
    pass


def run(*args, env=None, cwd=None, **more):
    done = subprocess.run([QUERY, *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                          env={**ENV, **(env or {})}, cwd=cwd or WORK, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def db(name):
    return WORK / f"{name}.db"


def ok(*args, **more):
    rc, out, err = run(*args, **more)
    assert rc == 0, f"exit {rc}: {err}"
    return out


def rows(name, *args):
    return [json.loads(line, parse_constant=lambda c: 1 / 0) for line in ok(*args, "--db", db(name), "--format", "jsonl").split("\n")
            if line]


def golden(name, text):
    path = GOLDEN / f"{name}.txt"
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())  # trailing blanks say nothing
    if UPDATE:
        path.write_text(text)
    want = path.read_text()
    if text != want:
        import difflib
        raise AssertionError("\n" + "\n".join(difflib.unified_diff(want.split("\n"), text.split("\n"), str(path), "now", "", "", 1)))


def refused(status, part, *args, **more):
    rc, out, err = run(*args, **more)
    assert rc == status, f"exit {rc}, want {status}: {err}"
    assert out == "", f"stdout: {out[:80]}"
    assert err.startswith("cirron-query: ") and err.count("\n") == 1 and err.endswith("\n"), f"not one line: {err!r}"
    assert part in err, f"{part!r} is not in {err!r}"


def on_terminal(env, *args, width=60):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    proc = subprocess.Popen([QUERY, *args], stdin=slave, stdout=slave, stderr=slave, env={**ENV, "TERM": "xterm", **env})
    os.close(slave)
    out = b""
    with contextlib.suppress(OSError):
        while part := os.read(master, 65536):
            out += part
    os.close(master)
    assert proc.wait(30) == 0
    return out.decode()
