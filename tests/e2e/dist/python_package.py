"""The Python package cirron: as it is installed, and as a wheel."""
import base64
import hashlib
import os
import re
import zipfile

from harness import BUILD, PYTHONS, Skip, clean_env, python_label, test, test_each
from packaging import ROOT, installed, make, needs, shell

SCRIPT = "import cirron as ci\nwith ci.scope('seen') as s: ci.mark('m', 1)\nprint(s.id is not None, ci.__file__)\n"


def run(case, *command, **env):
    """Without preload, unless env says so; the store is asked when its session is there."""
    r = case.run(command, agent=False, env=dict(env, CIRRON_SOCKET=case.collector.socket), cwd=case.folder)
    case.last_traced = r.pid
    return r


@test_each(PYTHONS, python_label)
def an_installation_has_it(case, python):
    case.collect()
    folder = installed(case) / "usr/lib/x/cirron/python"
    r = run(case, python, case.script(SCRIPT), PYTHONPATH=folder)
    case.equal((r.rc, r.out, r.err), (0, f"True {folder}/cirron/__init__.so\n", ""), "the run")
    case.equal([s["name"] for s in case.store().spans], ["seen"], "spans")
    inside = [os.path.realpath(folder / "cirron/__init__.so"), os.path.realpath(folder.parent / "libcirron_core.so")]
    case.equal(inside[0], inside[1], "the module is the agent's own file")


def built(case):
    """A wheel of the test's own: others build one at the same time."""
    needs("objdump", "strip")
    make(case, "all")
    out = case.folder / "wheel"
    out.mkdir(exist_ok=True)
    for name in ("libcirron_agent.so", "libcirron_core.so"):
        (out / name).exists() or (out / name).symlink_to(BUILD / name)
    r = shell(ROOT / "tools/dist/wheel.sh", env=dict(clean_env(), B=str(out), VERSION="0.1.0", TRIPLET=shell("cc", "-print-multiarch").stdout.strip()))
    case.equal((r.returncode, r.stderr), (0, ""), "wheel.sh")
    return sorted(out.glob("*.whl"))


@test
def make_wheel_makes_one(case):
    needs("objdump", "strip")
    for old in BUILD.glob("cirron-*.whl"):
        old.unlink()
    make(case, "wheel")
    case.equal(len(list(BUILD.glob("cirron-*.whl"))), 1, "wheels")


@test
def the_wheel(case):
    found = built(case)
    case.equal(len(found), 1, "wheels")
    machine = os.uname().machine
    match = re.fullmatch(rf"cirron-0\.1\.0-(cp38-abi3-manylinux_(\d+)_(\d+)_{machine})\.whl", found[0].name)
    case.check(match is not None, f"name {found[0].name}")
    with zipfile.ZipFile(found[0]) as z:
        files = {i.filename: (i.external_attr >> 16 & 0o777, z.read(i)) for i in z.infolist() if not i.is_dir()}
    info = "cirron-0.1.0.dist-info/"
    expected = {"cirron/__init__.so": 0o755, "cirron/libcirron_agent.so": 0o755, "cirron/libcirron_core.so": 0o755, "cirron/__init__.pyi": 0o644,
                "cirron/py.typed": 0o644, **{info + x: 0o644 for x in ("LICENSE", "METADATA", "RECORD", "WHEEL")}}
    case.equal({name: mode for name, (mode, _) in files.items()}, expected, "files")
    record = {}
    for line in files[info + "RECORD"][1].decode().splitlines():
        name, digest, size = line.rsplit(",", 2)
        record[name] = (digest, size)
    for name, (_, data) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        case.equal(record.pop(name, None), ("", "") if name.endswith("/RECORD") else (f"sha256={digest}", str(len(data))), f"RECORD of {name}")
    case.equal(record, {}, "RECORD of files that are not there")
    case.check(f"\nTag: {match.group(1)}\n" in files[info + "WHEEL"][1].decode(), "the tag in WHEEL")
    # No symbol version that is newer than what the name promises.
    promised = tuple(int(x) for x in match.groups()[1:])
    versions = set()
    for name in ("cirron/__init__.so", "cirron/libcirron_agent.so"):
        (case.folder / "library.so").write_bytes(files[name][1])
        versions |= {tuple(map(int, x.split("."))) for x in re.findall(r"GLIBC_(\d+\.\d+)", shell("objdump", "-p", case.folder / "library.so").stdout)}
    case.equal(max(versions), promised, "newest glibc version asked for")
    before = found[0].read_bytes()
    case.check(built(case)[0].read_bytes() == before, "two builds of the same tree differ")


def environment(case, python):
    place = case.folder / "venv"
    r = shell(python, "-m", "venv", place, env=clean_env())
    if r.returncode:
        raise Skip(f"{python} makes no virtual environment: {(r.stdout + r.stderr).strip()[-100:]}")
    return place


def files_in(place):
    return sorted(str(p) for p in place.rglob("*") if "__pycache__" not in p.parts)


@test_each(PYTHONS, python_label)
def pip_installs_and_removes_it(case, python):
    case.collect()
    place = environment(case, python)
    before = files_in(place)

    def pip(*args):
        env = dict(clean_env(), PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_CACHE_DIR="1", PIP_CONFIG_FILE="/dev/null")
        r = shell(place / "bin/python", "-m", "pip", "--quiet", *args, env=env)
        case.equal((r.returncode, r.stderr), (0, ""), f"pip {args[0]}")

    pip("install", built(case)[0])
    r = run(case, place / "bin/python", case.script(SCRIPT))
    case.equal((r.rc, r.out[:5], r.err), (0, "True ", ""), "imported")
    module = r.out.split()[1]
    case.check(module.startswith(str(place)), f"which file: {module}")
    agent = os.path.join(os.path.dirname(module), "libcirron_agent.so")
    r = run(case, place / "bin/python", "-c", "import cirron\nwith cirron.scope('preloaded'): print(cirron.__spec__.origin)", LD_PRELOAD=agent)
    case.equal((r.rc, r.out, r.err), (0, "built-in\n", ""), "preloaded")
    case.equal([s["name"] for s in case.store().spans], ["seen", "preloaded"], "spans")
    pip("uninstall", "--yes", "cirron")
    case.equal(files_in(place), before, "what is left")
