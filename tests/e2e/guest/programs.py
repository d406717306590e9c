"""Programs that are no Python: the agent is inert in them. No file, socket, descriptor, memory or output of ours."""
import os
import shutil
import subprocess

from harness import AGENT, QUERY, Skip, test, test_each

COMMANDS = {
    "shell": ["sh", "-c", "echo out; echo err >&2; exit 3"],
    "pipeline": ["sh", "-c", "printf 'b\\na\\n' | sort | head -n 1"],
    "descriptors": ["ls", "/proc/self/fd"],
    "no environment": ["sh", "-c", "env -i /bin/echo clean"],
    "killed": ["sh", "-c", "kill -TERM $$"],
    "background": ["sh", "-c", "sleep 0.05 & wait $!; echo $?"],
    "awk": ["awk", "BEGIN { print 1 + 1; exit 4 }"],
    "missing": ["sh", "-c", "/no/such/program; echo $?"],
}


def nothing_left(t, where=None):
    files = [str(p) for p in (where or t.folder).rglob("*") if p.name != "run1" and p.name != "run2" and not p.name.endswith(".sock")]
    t.check(not [f for f in files if "cirron" in f.rsplit("/", 1)[1]], f"files were made: {files}")


@test_each(list(COMMANDS))
def same_as_without(t, name):
    t.both(COMMANDS[name])
    nothing_left(t)


@test
def bad_settings_are_not_their_concern(t):
    t.both(["sh", "-c", "echo fine"], env={"CIRRON_CPU_TIME": "perhaps", "CIRRON_RING_BYTES": "-4", "CIRRON_DEBUG": "1"})


@test
def static_program(t):
    if not shutil.which("cc"):
        raise Skip("no compiler")
    source, program = t.folder / "s.c", t.folder / "s"
    source.write_text('#include <stdio.h>\nint main(void) { puts("static"); return 6; }\n')
    made = subprocess.run(["cc", "-static", "-o", program, source], capture_output=True, text=True)
    if made.returncode:
        raise Skip("no static libc: " + made.stderr.strip()[:80])
    _, traced = t.both([program])
    t.equal(traced.rc, 6, "exit status")


@test
def memory_and_threads(t):
    done = t.run(["sh", "-c", "cat /proc/self/maps; grep Threads /proc/self/status"])
    lines = done.out.splitlines()
    t.check(any(str(AGENT) in x for x in lines), "the agent is not loaded: " + done.err)
    ours = [x for x in lines if "memfd" in x or ("cirron" in x and str(AGENT) not in x and str(t.folder) not in x)]
    t.equal(ours, [], "mappings")
    t.equal(lines[-1].split(), ["Threads:", "1"], "threads")


@test
def nothing_reaches_a_collector(t):
    t.collect()
    t.run(["sh", "-c", "ls / | cat"])
    st = t.store()
    t.equal(st.sessions, [], "sessions")


@test
def our_own_programs_are_guests_too(t):
    t.both([QUERY, "--version"])


@test
def agent_file_is_gone(t):
    """A preload that cannot be loaded is the loader's affair; the copy that is loaded needs its file no more."""
    copy = t.folder / "copy.so"
    shutil.copy(AGENT, copy)
    done = t.run(["sh", "-c", f"rm {copy}; echo still; exec ls -d /"], env={"LD_PRELOAD": copy})
    t.equal((done.rc, done.out), (0, "still\n/\n"), "status and output")
    t.check(not os.path.exists(copy), "the copy was not removed")
