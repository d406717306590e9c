"""A million spans of a job that is warm: nothing is asked of the system for them."""
import json
import pathlib
import platform
import subprocess

from harness import PYTHONS, QUERY, TRANSPORT, Skip, clean_env, python_label, test_each, until

# From here on any system call but these ends the process at once. The look at the connection, once in 5 s, is fstat and recvfrom.
SCRIPT = """
import ctypes, os, resource, struct, sys
import cirron as ci
ALLOWED = %r
work = ci.scope("work")
def spans(n):
    for _ in range(n):
        with work:
            pass
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
spans(20000)  # the collector is found
code = [(0x20, 0, 0, 0)]  # the call's number
code += [(0x15, len(ALLOWED) - i, 0, nr) for i, nr in enumerate(ALLOWED)]
code += [(6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)]  # kill the process, or let it pass
filter = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
program = Program(len(code), filter)
libc = ctypes.CDLL(None, use_errno=True)
text = b"filter refused"
if libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0:
    spans(20000)  # and what ctypes allocated is settled
    before = faults()
    spans(1000000)
    text = b"%%d faults" %% (faults() - before)
os.write(1, text)
os._exit(0)
"""
# write, getrusage, exit_group, fstat, newfstatat, recvfrom
CALLS = {"x86_64": [1, 98, 231, 5, 262, 45], "aarch64": [64, 165, 94, 80, 79, 207]}
CLOCK = pathlib.Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
WITHOUT_CALLS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


def session_of(t, pid):
    """A million spans are too many to be looked at one by one."""
    seen = []

    def ended():
        command = [QUERY, "--db", t.collector.db, "--format", "jsonl", "sessions"]
        lines = subprocess.run(command, capture_output=True, text=True, env=clean_env()).stdout.splitlines()
        seen[:] = [s for s in map(json.loads, lines) if s["pid"] == pid]
        return seen and seen[0]["state"] != "running"

    until(ended, 30, "the session to end")
    return seen[0]


@test_each(PYTHONS, python_label)
def a_million_spans(t, python):
    if TRANSPORT == "socket":
        raise Skip("messages are system calls")
    if platform.machine() not in CALLS or CLOCK.read_text().strip() not in WITHOUT_CALLS:
        raise Skip("this machine's clock is a system call, or its calls have other numbers")
    t.collect()
    for _ in range(3):  # the system takes a page away now and then, to see whether it is needed; what we do is the same each time
        done = t.run([python, "-c", SCRIPT % CALLS[platform.machine()]], True, {"CIRRON_RING_BYTES": "64M"})
        if done.out == "filter refused":
            raise Skip("system calls cannot be filtered here")
        if done.rc or done.out == "0 faults":
            break
    t.equal((done.rc, done.out, done.err), (0, "0 faults", ""), "what a million spans took")
    session = session_of(t, done.pid)
    t.equal((session["spans"], session["dropped_total"]), (1040000, 0), "spans stored, and dropped")
