"""What is installed around the programs: units, manual pages, completions, the package."""
import os
import pathlib
import re
import shutil
import subprocess

from harness import BUILD, PYTHONS, Skip, clean_env, test, test_each

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = {"cirron.1": [["cirron"], ["cirron", "run"]], "cirron-query.1": [["cirron-query"]], "collectord.8": [["collectord"]]}


def shell(*command, **more):
    return subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=120, **more)


def needs(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")


def make(case, *args):
    r = shell("make", "-C", ROOT, "--no-print-directory", f"B={BUILD.relative_to(ROOT)}", *args, env=dict(clean_env(), MAKEFLAGS=""))
    case.equal(r.returncode, 0, f"make {args}: {r.stderr[-300:]}")


def installed(case):
    root = case.folder / "root"
    make(case, "install", f"DESTDIR={root}", "PREFIX=/usr", "LIBDIR=/usr/lib/x")
    return root


def unit(case, name):
    return (installed(case) / "usr/lib/systemd/system" / name).read_text()


@test
def an_installation_works_where_it_lies(case):
    make(case, "install", f"DESTDIR={case.folder}", "PREFIX=/usr/local")
    case.folder.chmod(0o755)
    work = case.folder / "work"
    work.mkdir()
    case.collect()
    script = case.script("import cirron as ci\nwith ci.scope('seen'): pass\n")
    cirron = case.folder / "usr/local/bin/cirron"
    r = shell(cirron, "run", "--socket", case.collector.socket, PYTHONS[0], script, env=clean_env(), cwd=work)
    case.equal((r.returncode, r.stdout, r.stderr), (0, "", ""), "cirron run")
    case.equal([s["name"] for s in case.store().spans], ["seen"], "spans")
    case.equal(shell(cirron, "sessions", "--db", case.collector.db, env=clean_env()).returncode, 0, "cirron sessions")


@test
def units_have_what_the_collector_needs(case):
    service, listening = unit(case, "collectord.service"), unit(case, "collectord.socket")
    for line in ("Type=notify", "ExecStart=/usr/bin/collectord --foreground --group cirron $COLLECTORD_OPTIONS", "User=cirron",
                 "StateDirectory=cirron", "RuntimeDirectory=cirron", "RuntimeDirectoryPreserve=yes", "Requires=collectord.socket",
                 "NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictAddressFamilies=AF_UNIX", "SystemCallErrorNumber=EPERM"):
        case.check(f"\n{line}\n" in service, f"collectord.service lacks {line}")
    case.check(re.search(r"^WatchdogSec=\d+$", service, re.M), "no watchdog")
    for line in ("ProtectProc=", "PrivateUsers=yes", "PrivatePIDs="):  # /proc of other users' processes, and their credentials
        case.check(not re.search(f"^{line}", service, re.M), f"collectord.service has {line}")
    for line in ("ListenStream=/run/cirron/collectord.sock", "SocketMode=0660", "SocketGroup=cirron", "WantedBy=sockets.target"):
        case.check(f"\n{line}\n" in listening, f"collectord.socket lacks {line}")


@test
def units_verify(case):
    needs("systemd-analyze")
    units = installed(case) / "usr/lib/systemd/system"
    # The programs are where the unit says in the package only; here they lie below the test's folder.
    text = (units / "collectord.service").read_text().replace("/usr/bin/collectord", str(BUILD / "collectord"))
    (case.folder / "collectord.service").write_text(text)
    shutil.copy(units / "collectord.socket", case.folder)
    r = shell("systemd-analyze", "verify", "--man=no", case.folder / "collectord.service", case.folder / "collectord.socket")
    case.equal((r.returncode, r.stdout + r.stderr), (0, ""), "systemd-analyze verify")
    for extra in (None, "endings.conf"):
        name = "collectord.service"
        if extra:
            drop_in = re.sub(r"^\[Service\]$|^#.*$", "", (ROOT / "tools/dist/examples" / extra).read_text(), flags=re.M)
            (case.folder / name).write_text(text.replace("\n[Install]", drop_in + "\n[Install]"))
        r = shell("systemd-analyze", "security", "--offline=true", "--threshold=20", case.folder / name)
        case.equal(r.returncode, 0, f"exposure with {extra}: {r.stdout.splitlines()[-1:]}")


@test
def users_and_folders(case):
    needs("systemd-sysusers", "systemd-tmpfiles")
    root = installed(case)
    (root / "etc").mkdir(exist_ok=True)
    r = shell("systemd-sysusers", f"--root={root}", root / "usr/lib/sysusers.d/cirron.conf")
    if os.geteuid() != 0 and r.returncode:
        raise Skip("making users takes root")
    case.equal(r.returncode, 0, f"systemd-sysusers: {r.stderr}")
    entry = [x for x in (root / "etc/passwd").read_text().splitlines() if x.startswith("cirron:")]
    case.check(len(entry) == 1 and entry[0].split(":")[5] == "/var/lib/cirron", f"the user: {entry}")
    if os.geteuid() == 0:
        r = shell("systemd-tmpfiles", f"--root={root}", "--create", root / "usr/lib/tmpfiles.d/cirron.conf")
        case.equal(r.returncode, 0, f"systemd-tmpfiles: {r.stderr}")
        uid = int(entry[0].split(":")[2])
        for folder, mode in (("run/cirron", 0o755), ("var/lib/cirron", 0o750)):
            st = (root / folder).stat()
            case.equal((st.st_uid, st.st_mode & 0o777), (uid, mode), folder)


def help_options(words):
    r = shell(BUILD / words[0], *words[1:], "--help", env=clean_env())
    return set(re.findall(r"^  (--[a-z][a-z-]*)", r.stdout, re.M))


@test_each(sorted(PAGES))
def a_page_has_the_options_of_its_program(case, page):
    make(case, "man")
    text = (BUILD / "man" / page).read_text()
    in_page = {"-" + x for x in re.findall(r"^\.It Fl (-[a-z][a-z-]*)", text, re.M)}
    if page == "cirron.1":
        in_page.add("--version")  # in its synopsis
    in_help = set.union(*(help_options(words) for words in PAGES[page]))
    case.equal(sorted(in_page ^ in_help), [], "options in one and not in the other")
    if page == "cirron-query.1":
        listed = re.findall(r"^  ([a-z][a-z-]*) ", shell(BUILD / "cirron-query", "--help").stdout.split("Options,")[0], re.M)
        case.equal(re.findall(r"^\.It Cm ([a-z-]+)", text, re.M), listed, "commands")


@test
def settings_are_those_of_the_agent(case):
    make(case, "man")
    table = (ROOT / "agent/env.c").read_text().split("static const struct setting settings[]")[1].split("};")[0]
    known = set(re.findall(r'^\s*\{"([A-Z_]+)"', table, re.M))
    text = (ROOT / "docs/settings.md").read_text()
    in_docs = {x for x in re.findall(r"CIRRON_([A-Z_]+[A-Z])\b", text)}
    case.equal(sorted(known - in_docs), [], "settings that docs/settings.md does not have")
    in_page = set(re.findall(r"^\.It Ev CIRRON_([A-Z_]+)$", (BUILD / "man/cirron-settings.7").read_text(), re.M))
    case.equal(sorted(in_page ^ set(re.findall(r"^\| `CIRRON_([A-Z_]+)`", text, re.M))), [], "settings in page or table only")
    case.equal(sorted(in_page - known), [], "settings that the agent does not know")


@test_each([*sorted(PAGES), "cirron-settings.7"])
def pages_are_clean(case, page):
    needs("man", "groff")
    make(case, "man")
    env = dict(clean_env(), LC_ALL="C.UTF-8", MANWIDTH="80", MANPAGER="cat")
    r = shell("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", BUILD / "man" / page, env=env)
    case.equal((r.returncode, r.stderr), (0, ""), "man --warnings")
    case.check("@" not in (BUILD / "man" / page).read_text(), "something is not filled in")


def path_with_programs():
    return dict(clean_env(), PATH=f"{BUILD}:{os.environ['PATH']}")


def bash_words(*line):
    script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cirron; printf "%s\\n" "${COMPREPLY[@]}"'
    r = shell("bash", "-c", script, ROOT / "tools/dist/completions/cirron.bash", *line, env=path_with_programs())
    assert not r.stderr, r.stderr
    return set(r.stdout.split())


@test
def bash_completes(case):
    commands = {"report", "sessions", "spans", "doctor", "sql"}
    case.check(commands | {"run"} <= bash_words("cirron", ""), "commands of cirron")
    case.check(commands <= bash_words("cirron-query", "") and "run" not in bash_words("cirron-query", ""), "commands of cirron-query")
    case.equal(bash_words("cirron-query", "--format", ""), {"table", "json", "jsonl", "csv"}, "formats")
    case.equal(bash_words("cirron-query", "spans", "--sl"), {"--slowest"}, "an option of spans")
    case.equal(bash_words("cirron-query", "sql", "--sl"), set(), "an option that sql does not have")
    case.equal(bash_words("cirron-query", "snapshot", ""), {"now"}, "what snapshot takes")
    case.check({"weight", "gradient"} <= bash_words("cirron-query", "snapshots", "--kind", ""), "kinds")
    case.equal(bash_words("collectord", "--"), help_options(["collectord"]), "options of collectord")
    case.equal(bash_words("cirron", "run", "--"), help_options(["cirron", "run"]) | {"--"}, "options of cirron run")
    case.check("true" in bash_words("cirron", "run", "--debug", "--", "tru"), "a command to run")
    case.equal(bash_words("cirron", "run", "--cpu-time", "o"), {"on", "off"}, "values")


@test
def fish_completes(case):
    needs("fish")

    def words(line):
        load = "".join(f"source {f};" for f in sorted((ROOT / "tools/dist/completions").glob("*.fish")))
        r = shell("fish", "--no-config", "-c", f"{load} complete -C '{line}'", env=dict(path_with_programs(), HOME=str(case.folder)))
        case.equal(r.stderr, "", f"errors after {line!r}")
        return {x.split("\t")[0] for x in r.stdout.splitlines()}

    case.check({"run", "report", "doctor"} <= words("cirron "), "commands of cirron")
    case.equal(words("cirron run --no"), {"--no-check", "--no-autostart"}, "options of cirron run")
    case.equal(words("cirron spans --sl"), {"--slowest"}, "options of a command")
    case.check("doctor" in words("cirron-query do"), "commands of cirron-query")
    case.check(help_options(["collectord"]) <= words("collectord --"), "options of collectord")


@test
def zsh_reads_its_file(case):
    needs("zsh")
    r = shell("zsh", "-n", ROOT / "tools/dist/completions/_cirron")
    case.equal((r.returncode, r.stderr), (0, ""), "zsh -n")


@test
def the_package(case):
    needs("dpkg-deb", "dpkg-shlibdeps", "dpkg-gencontrol", "strip")
    for old in BUILD.glob("cirron_*.deb"):
        old.unlink()
    make(case, "deb")
    found = sorted(BUILD.glob("cirron_*.deb"))
    case.equal(len(found), 1, "packages")
    listing = [x.split(None, 5) for x in shell("dpkg-deb", "--contents", found[0]).stdout.splitlines()]
    names = {x[5].split(" -> ")[0].lstrip("."): x for x in listing}
    triplet = shell("cc", "-print-multiarch").stdout.strip()
    for name, mode in {f"/usr/lib/{triplet}/cirron/libcirron_agent.so": "-rw-r--r--", f"/usr/lib/{triplet}/cirron/libcirron_core.so": "-rw-r--r--",
                       f"/usr/lib/{triplet}/cirron/libcirron_sqlite.so": "-rw-r--r--", "/usr/bin/cirron": "-rwxr-xr-x",
                       "/usr/lib/python3/dist-packages/cirron": "lrwxrwxrwx", f"/usr/lib/{triplet}/cirron/python/cirron/py.typed": "-rw-r--r--",
                       f"/usr/lib/{triplet}/cirron/python/cirron/__init__.so": "lrwxrwxrwx",
                       "/usr/bin/cirron-query": "-rwxr-xr-x", "/usr/bin/collectord": "-rwxr-xr-x",
                       "/usr/lib/systemd/system/collectord.service": "-rw-r--r--", "/usr/lib/systemd/system/collectord.socket": "-rw-r--r--",
                       "/usr/lib/sysusers.d/cirron.conf": "-rw-r--r--", "/usr/lib/tmpfiles.d/cirron.conf": "-rw-r--r--",
                       "/usr/share/man/man1/cirron.1.gz": "-rw-r--r--", "/usr/share/man/man1/cirron-query.1.gz": "-rw-r--r--",
                       "/usr/share/man/man7/cirron-settings.7.gz": "-rw-r--r--", "/usr/share/man/man8/collectord.8.gz": "-rw-r--r--",
                       "/usr/share/bash-completion/completions/cirron": "-rw-r--r--",
                       "/usr/share/zsh/vendor-completions/_cirron": "-rw-r--r--",
                       "/usr/share/fish/vendor_completions.d/cirron.fish": "-rw-r--r--",
                       "/usr/share/doc/cirron/copyright": "-rw-r--r--", "/usr/share/doc/cirron/changelog.gz": "-rw-r--r--"}.items():
        case.equal(names.get(name, ["missing"])[0], mode, name)
    unpacked = case.folder / "unpacked"
    shell("dpkg-deb", "--extract", found[0], unpacked)
    modules = unpacked / "usr/lib/python3/dist-packages/cirron"
    for file in ("__init__.so", "__init__.pyi", "py.typed"):
        case.check((modules / file).is_file() and unpacked in (modules / file).resolve().parents, f"{file} of the Python package is not in it")
    case.equal({x[1] for x in listing}, {"root/root"}, "owners")
    case.check(not any(name.startswith(("/etc", "/var", "/run", "/usr/local")) for name in names), "files outside /usr")
    depends = shell("dpkg-deb", "--field", found[0], "Depends").stdout
    for library in ("libc6 (>=", "libevent-core", "libprotobuf-c1", "libsqlite3-0", "libzstd1", "passwd"):
        case.check(library in depends, f"Depends lacks {library}: {depends}")
    control = case.folder / "control"
    shell("dpkg-deb", "--control", found[0], control)
    for script in ("postinst", "prerm", "postrm"):
        case.equal(shell("sh", "-n", control / script).returncode, 0, script)
    before = found[0].read_bytes()
    make(case, "deb")
    case.check(found[0].read_bytes() == before, "two builds of the same tree differ")
