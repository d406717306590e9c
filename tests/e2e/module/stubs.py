"""The type stubs say what the module has: names, parameters with their defaults, members, keys of the dicts; and type checkers take them."""
import ast
import json
import os
import shutil
import subprocess
import sys

from common import TORCH
from harness import PACKAGE, PYTHONS, Skip, clean_env, python_label, test, test_each

STUB = PACKAGE / "cirron/__init__.pyi"
KINDS = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY", "VAR_KEYWORD")

LIVE = r"""
import cirron, inspect, json, pathlib, sys

def params(function):
    return [[p.name, p.kind.name, None if p.default is p.empty else repr(p.default)] for p in inspect.signature(function).parameters.values()]

def members(cls):
    kinds = {"getset_descriptor": "property", "method_descriptor": "method", "wrapper_descriptor": "method", "builtin_function_or_method": "static"}
    return {n: kinds.get(type(v).__name__, type(v).__name__) for n, v in vars(cls).items()}

names = [n for n in dir(cirron) if not n.startswith("__")]
classes = {n: getattr(cirron, n) for n in names if isinstance(getattr(cirron, n), type)}
file = pathlib.Path("cirron.yaml")
file.write_text('name: a\nframework: sklearn\ntype: regression\nversion: "1"\nprofiling: {}\nservingConfig: {}\n')
yaml = cirron.load_cirron_yaml(file)
with cirron.scope("s", n=1):
    cirron.mark("m", 1)
trace = cirron.trace("dict")

def final(cls):
    try:
        type("Derived", (cls,), {})
    except TypeError:
        return True
    return False

json.dump({
    "names": names, "version": type(cirron.__version__).__name__,
    "functions": {n: params(getattr(cirron, n)) for n in names if n not in classes},
    "classes": {n: {"bases": [b.__name__ for b in c.__bases__ if b is not object], "members": members(c), "final": final(c)} for n, c in classes.items()},
    "fields": {type(x).__name__: sorted(vars(x)) for x in (yaml, yaml.profiling, yaml.serving_config)},
    "keys": {"_Health": sorted(cirron.health()), "_Trace": sorted(trace), "_Span": sorted(trace["roots"][0]), "_Mark": sorted(trace["roots"][0]["marks"][0])},
}, sys.stdout)
"""


def params(function):
    a = function.args
    plain = [(x.arg, KINDS[0]) for x in a.posonlyargs] + [(x.arg, KINDS[1]) for x in a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + [repr(ast.literal_eval(x)) for x in a.defaults]
    found = [[name, kind, default] for (name, kind), default in zip(plain, defaults)]
    return found + ([[a.kwarg.arg, KINDS[3], None]] if a.kwarg else [])


def decorators(node):
    return {d.id for d in node.decorator_list if isinstance(d, ast.Name)}


class Declared:
    def __init__(self):
        self.functions, self.classes = {}, {}
        for node in ast.parse(STUB.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, params(node))
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node

    def public(self):
        return {n: c for n, c in self.classes.items() if not n.startswith("_")}

    def fields(self, name):
        return sorted(n.target.id for n in self.classes[name].body if isinstance(n, ast.AnnAssign))

    def members(self, name):
        kinds = {"property": "property", "staticmethod": "static"}
        return {n.name: next((kinds[d] for d in kinds if d in decorators(n)), "method")
                for n in self.classes[name].body if isinstance(n, ast.FunctionDef) and n.name not in vars(object)}


@test_each(PYTHONS + TORCH, python_label)
def stubs_are_the_module(case, python):
    r = case.run([python, case.script(LIVE)], agent=False, env={"PYTHONPATH": PACKAGE, "CIRRON_AUTOSTART": 0})
    case.equal((r.rc, r.err), (0, ""), "the module's own account")
    live, declared = json.loads(r.out), Declared()
    case.equal(sorted([*declared.functions, *declared.public()]), live["names"], "public names")
    case.equal(live["version"], "str", "__version__")
    for name, expected in live["functions"].items():
        case.equal(declared.functions.get(name), expected, f"parameters of {name}()")
    for name, node in declared.public().items():
        c = live["classes"].get(name, {"bases": [], "members": {}, "final": False})
        bases = [ast.unparse(b).split(".")[-1].split("[")[0] for b in node.bases]
        case.equal([b for b in bases if b != "Generic"], c["bases"], f"bases of {name}")
        case.equal("final" in decorators(node), c["final"], f"{name} cannot be derived from")
        # What every object has is not declared.
        offered = {n: k for n, k in c["members"].items() if k in ("property", "method", "static") and n not in vars(object) and n != "__weakref__"}
        case.equal(declared.members(name), offered, f"members of {name}")
    for name, keys in {**live["keys"], **live["fields"]}.items():
        case.equal(declared.fields(name), keys, f"fields of {name}")


GOOD = r"""
import pathlib
import cirron as ci

with ci.scope("fit", index=3, lr=0.1) as s:
    s.attrs["late"] = 1
    ci.mark("loss", 0.5, kind="summary", unit="nats")
number: int = 0
for epoch in ci.epochs(range(3)):
    number = epoch
@ci.scope("f")
def f(x: int) -> str:
    return str(x)
text: str = f(1)
profiler: ci.Profiler = ci.profile(snapshots="off", output=["stdout", "none"], path=pathlib.Path("x"))
shown: str = profiler.trace("json")
spans: int = ci.trace("dict")["span_count"]
marks = [m["value"] for span in ci.trace("dict")["roots"] for m in span["marks"]]
tracer = ci.Cirron(sample_rate=0.5, output="none")
handle: ci.Profiler = tracer.profile(frameworks=["torch"])
with tracer.scope("s"):
    rows: int = tracer.trace("dict")["span_count"]
found = ci.load_cirron_yaml(pathlib.Path("cirron.yaml"))
if found is not None and found.profiling is not None:
    rate = found.profiling.sample_rate
dropped: int = ci.health()["mark_drop_count"]
class Estimator:
    def fit(self) -> "Estimator": return self
ci.wrap(Estimator()).fit()
try:
    ci.flush()
except (ci.CirronError, ci.CirronDependencyError, ci.CirronYamlError):
    pass
"""
BAD = ["ci.mark('m')", "ci.mark('m', 1, kind='other')", "ci.scope()", "ci.epochs(iterable=[1])", "ci.profile(snapshots='none')", "ci.trace('xml')",
       "ci.health()['nothing']", "with ci.scope('s') as s: s.id = 'x'", "ci.nothing", "ci.epochs(3)"]


def mypy():
    """The command, or a reason to skip: one beside the interpreters, in PATH, or that MYPY names."""
    found = os.environ.get("MYPY") or shutil.which("mypy")
    if found:
        return [found]
    for python in [sys.executable, *PYTHONS, *TORCH]:
        if subprocess.run([python, "-c", "import mypy"], capture_output=True, env=clean_env()).returncode == 0:
            return [python, "-m", "mypy"]
    raise Skip("no mypy here")


@test
def a_type_checker_takes_them(case):
    command = mypy()
    bad = case.script("import cirron as ci\n" + "".join(line + "\n" for line in BAD), "bad.py")
    good = case.script(GOOD, "good.py")
    env = dict(clean_env(), MYPYPATH=str(PACKAGE))
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-color-output", "--cache-dir", case.folder / "cache"]
    r = subprocess.run([*command, *options, good], capture_output=True, text=True, env=env)
    case.equal((r.returncode, r.stdout), (0, ""), "what is right")
    r = subprocess.run([*command, *options, bad], capture_output=True, text=True, env=env)
    wrong = {int(line.split(":")[1]) for line in r.stdout.splitlines() if ": error:" in line}
    case.equal(sorted(wrong), list(range(2, 2 + len(BAD))), f"lines found to be wrong: {r.stdout}")
