"""`cirron run`: what it hands on, what it refuses, and that nothing of it stays."""
import os
import shutil
import signal
import subprocess

from harness import AGENT, BUILD, PYTHONS, clean_env, test, test_each, until

CIRRON = BUILD / "cirron"


def cirron(case, *args, env=None, cwd=None, **more):
    base = dict(clean_env(), **(env or {}))
    return subprocess.run([CIRRON, *map(str, args)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          env=base, cwd=cwd or case.folder, **more)


def refused(case, status, part, *args, **more):
    r = cirron(case, *args, **more)
    case.equal(r.returncode, status, f"exit status of {args}")
    case.equal(r.stdout, "", f"output of {args}")
    case.check(r.stderr.startswith("cirron: ") and r.stderr.count("\n") == 1 and part in r.stderr, f"{args}: {r.stderr!r} lacks {part!r}")


@test
def records_a_script(case):
    case.collect()
    script = case.script("import cirron as ci\nwith ci.scope('seen'): print('hello')\n")
    r = cirron(case, "run", "--socket", case.collector.socket, "--", PYTHONS[0], script)
    case.equal((r.returncode, r.stdout, r.stderr), (0, "hello\n", ""), "the script")
    case.equal([s["name"] for s in case.store().spans], ["seen"], "spans")


@test
def settings_become_variables(case):
    names = "CIRRON_SOCKET CIRRON_AUTOSTART CIRRON_RUN_ID CIRRON_MODULE_DEPTH CIRRON_CPU_TIME CIRRON_WORKERS CIRRON_RING_BYTES " \
            "CIRRON_TRANSPORT CIRRON_DEBUG".split()
    show = ["/usr/bin/env"]
    r = cirron(case, "run", "--no-check", "--socket=/nowhere", "--no-autostart", "--run-id", "a b", "--module-depth=3", "--cpu-time",
               "on", "--workers", "--ring-bytes=128K", "--transport", "auto", "--debug", "--", *show, env={"CIRRON_DEBUG": "0"})
    got = dict(line.split("=", 1) for line in r.stdout.splitlines() if "=" in line)
    case.equal([got.get(n) for n in names], ["/nowhere", "0", "a b", "3", "on", "1", "128K", "auto", "1"], "the settings")
    case.equal(got.get("LD_PRELOAD"), str(AGENT), "LD_PRELOAD")


@test
def appends_to_a_preload(case):
    other = case.folder / "other.so"
    shutil.copy(AGENT, other)  # any library will do
    for before, after in ((f"{other}", f"{other}:{AGENT}"), (f"{AGENT}", f"{AGENT}"), (f"{other} {AGENT}", f"{other} {AGENT}"), ("", f"{AGENT}")):
        r = cirron(case, "run", "--no-check", "env", env={"LD_PRELOAD": before})
        case.equal([x for x in r.stdout.splitlines() if x.startswith("LD_PRELOAD=")], [f"LD_PRELOAD={after}"], f"behind {before!r}")


@test
def it_is_replaced_by_the_command(case):
    p = subprocess.Popen([CIRRON, "run", "--no-check", "--", "sh", "-c", "echo $$; kill -STOP $$; exit 7"], stdout=subprocess.PIPE, text=True,
                         env=clean_env(), cwd=case.folder)
    case.equal(p.stdout.readline(), f"{p.pid}\n", "its process")
    os.waitid(os.P_PID, p.pid, os.WSTOPPED)
    p.send_signal(signal.SIGCONT)
    case.equal(p.wait(10), 7, "exit status")
    p.stdout.close()
    with subprocess.Popen([CIRRON, "run", "--no-check", "sleep", "60"], env=clean_env()) as p:
        until(lambda: b"sleep" in open(f"/proc/{p.pid}/cmdline", "rb").read(), 10, "the command")
        p.send_signal(signal.SIGTERM)
        case.equal(p.wait(10), -signal.SIGTERM, "ended by")


@test
def arguments_go_through_untouched(case):
    r = cirron(case, "run", "--no-check", "printf", "%s|", "--help", "", "a b", "--", "-x")
    case.equal((r.returncode, r.stdout), (0, "--help||a b|--|-x|"), "arguments")
    case.equal(cirron(case, "run", "--no-check", "--", "--version").returncode, 127, "a command that looks like an option")


@test
def statuses_of_env(case):
    (case.folder / "no-program").write_text("")
    refused(case, 127, "no-such-command: No such file", "run", "--no-check", "no-such-command")
    refused(case, 126, "no-program: Permission denied", "run", "--no-check", "./no-program")
    refused(case, 126, "Permission denied", "run", "--no-check", "/")


@test
def refuses_what_cannot_work(case):
    for part, args in (("run needs a command", ()), ("run needs a command", ("--",)), ("no option --sokcet", ("--sokcet", "x", "true")),
                       ("--socket needs a value", ("--socket",)), ("--debug takes no value", ("--debug=1", "true")),
                       ("auto|on|off", ("--cpu-time", "often", "true")), ("1 to 63", ("--module-depth", "64", "true")),
                       ("64K to 64M", ("--ring-bytes", "1K", "true")), ("64K to 64M", ("--ring-bytes=65M", "true")),
                       ("107 bytes", ("--socket", "x" * 108, "true")), ("no option -x", ("-x", "true")),
                       ("--agent /nowhere.so: No such file", ("--agent", "/nowhere.so", "true"))):
        refused(case, 125, part, "run", *args)
    odd = case.folder / "a b.so"
    shutil.copy(AGENT, odd)
    refused(case, 125, "blank or colon", "run", "--agent", odd, "true")


@test
def refuses_where_nobody_listens(case):
    refused(case, 125, "there is no such socket", "run", "--socket", case.folder / "none.sock", "true")
    case.collect().kill()
    refused(case, 125, "nobody answers", "run", "--socket", case.collector.socket, "true")
    refused(case, 125, "nobody answers", "run", "true", env={"CIRRON_SOCKET": str(case.collector.socket)})
    case.collector.start()
    case.equal(cirron(case, "run", "--socket", case.collector.socket, "true").returncode, 0, "once it runs")
    # An agent that does nothing needs nobody.
    r = cirron(case, "run", "--socket", case.folder / "none.sock", "true", env={"CIRRON_ENABLED": "off"})
    case.equal((r.returncode, r.stderr), (0, ""), "with CIRRON_ENABLED=off")


def alone(case, *names):
    """An installation with only these programs, so that the system's are out of reach."""
    folder = case.folder / "alone"
    folder.mkdir(exist_ok=True)
    for name in names:
        shutil.copy(BUILD / name, folder)
    return folder


@test
def checks_that_a_private_collector_can_start(case):
    if os.path.exists("/run/cirron/collectord.sock"):
        return
    empty = {"PATH": "/nowhere"}

    def run(folder, *args, env=empty, **more):
        return subprocess.run([folder / "cirron", "run", *args, "/bin/true"], capture_output=True, text=True, timeout=60,
                              env=dict(clean_env(), **env), **({"cwd": case.folder} | more))

    folder = alone(case, "cirron")
    case.check("libcirron_agent.so was not found" in run(folder).stderr, "without the agent")
    folder = alone(case, "libcirron_agent.so")
    r = run(folder)
    case.check(r.returncode == 125 and "collectord was not found" in r.stderr, f"without collectord: {r.stderr}")
    case.equal(run(folder, "--no-check").returncode, 0, "with --no-check")
    folder = alone(case, "collectord")
    case.equal(run(folder).returncode, 0, "with collectord")
    r = run(folder, "--no-autostart")
    case.check(r.returncode == 125 and "none may be started" in r.stderr, f"with --no-autostart: {r.stderr}")
    case.folder.chmod(0o755)
    stranger = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"] if os.geteuid() == 0 else []
    r = subprocess.run([*stranger, folder / "cirron", "run", "true"], capture_output=True, text=True, timeout=60, env=clean_env(), cwd="/")
    case.check(r.returncode == 125 and "cannot be made in this directory" in r.stderr, f"in /: {r.stderr}")


@test
def other_verbs_are_cirron_querys(case):
    r = cirron(case, "sessions", "--db", case.folder / "none.db")
    case.check(r.returncode == 1 and r.stderr.startswith("cirron-query: ") and "no such store" in r.stderr, f"sessions: {r}")
    case.equal(cirron(case, "doctor", "--help").stdout.split("\n")[0], "Usage: cirron-query doctor [OPTION ...]", "help of a verb")
    case.check(cirron(case, "no-such-verb").returncode == 2, "an unknown verb")
    refused(case, 2, "what is to be done", )
    refused(case, 2, "no option --no-such", "--no-such")


@test_each(["", "run"])
def help_and_version(case, verb):
    r = cirron(case, *filter(None, [verb]), "--help")
    case.check(r.returncode == 0 and r.stdout.startswith("Usage: cirron run ") and not r.stderr, f"help: {r}")
    if not verb:
        r = cirron(case, "--version")
        case.check(r.returncode == 0 and r.stdout.startswith("cirron ") and r.stdout.count("\n") == 1, f"version: {r}")


@test
def overhead_check_ends_as_the_command_did(case):
    """It waits for the command, so it has to hand on what would have reached it."""
    quiet = ["run", "--no-check", "--overhead-check", "--"]
    env = {"CIRRON_DB": case.folder / "none.db"}
    for script, status in (("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", -9), ("kill -TERM $$", -15)):
        r = cirron(case, *quiet, "sh", "-c", "echo out; echo err >&2; " + script, env=env)
        case.equal((r.returncode, r.stdout), (status, "out\n"), script)
        lines = r.stderr.splitlines()
        case.check(len(lines) == 2 and lines[0] == "err" and lines[1].startswith("cirron: what recording cost is not known"), f"{script}: {r.stderr!r}")
    r = cirron(case, *quiet, "env", env=env)
    case.check("CIRRON_OVERHEAD_CHECK=1" in r.stdout.splitlines(), "the setting")
    r = cirron(case, *quiet, "no-such-command", env=env)
    case.equal((r.returncode, r.stderr.count("\n")), (127, 1), f"a command that is not there: {r.stderr!r}")


@test
def overhead_check_passes_signals_on(case):
    trap = "trap 'echo heard; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    p = subprocess.Popen([CIRRON, "run", "--no-check", "--overhead-check", "--", "sh", "-c", trap], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=dict(clean_env(), CIRRON_DB=str(case.folder / "none.db")), cwd=case.folder)
    case.equal(p.stdout.readline(), "ready\n", "the command")
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=30)
    case.equal((p.returncode, out), (5, "heard\n"), "ended by its own handler")
