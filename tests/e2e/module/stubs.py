"""The type stubs say what the module has: names, parameters with their defaults, members, keys of the dicts. Type checkers take them, and
what those take and refuse is what the module does."""
import ast
import json
import sys

from common import TORCH
from harness import PACKAGE, PYTHONS, Skip, python_label, test, test_each

STUB = PACKAGE / "cirron/__init__.pyi"
KINDS = ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY", "VAR_KEYWORD")
ITSELF = ("self", "cls")

LIVE = r"""
import cirron, inspect, json, pathlib, sys

def params(function):
    return [[p.name, p.kind.name, None if p.default is p.empty else repr(p.default)] for p in inspect.signature(function).parameters.values()]

def methods(cls):
    return {n: [p for p in params(getattr(cls, n)) if p[0] != "self"] for n in vars(cls) if n[0] != "_" and callable(getattr(cls, n))}

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
    "methods": {n: methods(c) for n, c in classes.items()}, "Cirron": params(cirron.Cirron) if sys.version_info >= (3, 10) else None,  # before, it is dropped
    "fields": {type(x).__name__: sorted(vars(x)) for x in (yaml, yaml.profiling, yaml.serving_config)},
    "keys": {"_Health": sorted(cirron.health()), "_Trace": sorted(trace), "_Span": sorted(trace["roots"][0]), "_Mark": sorted(trace["roots"][0]["marks"][0])},
}, sys.stdout)
"""


def params(function):
    a = function.args
    plain = [(x.arg, KINDS[0]) for x in a.posonlyargs] + [(x.arg, KINDS[1]) for x in a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + [repr(ast.literal_eval(x)) for x in a.defaults]
    found = [[name, kind, default] for (name, kind), default in zip(plain, defaults) if name not in ITSELF]
    found += [[x.arg, KINDS[2], default and repr(ast.literal_eval(default))] for x, default in zip(a.kwonlyargs, a.kw_defaults)]
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

    def methods(self, name):
        found = {}
        for n in self.classes[name].body:
            if isinstance(n, ast.FunctionDef) and n.name[0] != "_" and "property" not in decorators(n):
                found.setdefault(n.name, params(n))
        return found

    def made_by(self, name):
        return next(params(n) for n in self.classes[name].body if isinstance(n, ast.FunctionDef) and n.name == "__new__")


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
        case.equal({n: k for n, k in declared.members(name).items() if n != "__getattr__"}, offered, f"members of {name}")
        case.equal(declared.methods(name), live["methods"].get(name), f"parameters of {name}'s methods")
    if live["Cirron"]:
        case.equal(declared.made_by("Cirron"), live["Cirron"], "parameters of Cirron()")
    for name, keys in {**live["keys"], **live["fields"]}.items():
        case.equal(declared.fields(name), keys, f"fields of {name}")


GOOD = r"""
import asyncio
import functools
import json
import pathlib
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional, Tuple

import cirron as ci

version: str = ci.__version__
profiler: ci.Profiler = ci.profile(
    {"torch": {"epoch_steps": 500}}, frameworks=("torch",), snapshots="off", sample_rate=1, flush_interval=0.5, path=pathlib.Path("cirron.yaml"), output=["stdout", "none"])
on: bool = profiler.enabled
hooks: List[str] = profiler.installed_hooks
rank: Optional[Any] = profiler.platform_context.get("rank")
same: ci.Cirron = profiler.cirron
rate: float = same.sample_rate
sinks: int = len(same.output)

with ci.scope("fit", 3, lr=0.1) as s, ci.scope(name="in", index=None):
    s.attrs["late"] = [1, {"k": None}]
    ci.mark("loss", 0.5, kind="summary", unit="nats")
    ci.mark("on", True)
    ci.mark(name="text", value="x")
    label: Tuple[str, Optional[int], Optional[str], Optional[str]] = (s.name, s.index, s.id, s.parent_id)

def returns_from_a_scope() -> int:
    with ci.scope("in a function"):
        return 1

number: int = returns_from_a_scope()
loop: ci.LoopIterator[int] = ci.epochs(range(3))
size: int = len(loop)
for epoch in loop:
    number = epoch
    for line in ci.batches(["a", "b"]):
        if line.upper() == "A":
            break
loop.close()

@ci.scope("f")
def f(x: int, *, y: str = "") -> str:
    return str(x) + y
text: str = f(1, y="z")

@ci.scope("generator")
def generator() -> Iterator[int]:
    yield 1
first: int = next(generator())

@ci.scope("later")
async def later(x: int) -> int:
    return x

@ci.scope("items")
async def items() -> AsyncIterator[int]:
    yield 2

async def main() -> int:
    return await later(1) + sum([x async for x in items()])
number = asyncio.run(main())

class Net:
    @ci.scope("forward", part=1)
    def forward(self, x: float) -> float:
        return x * 2

    @staticmethod
    @ci.scope("static")
    def static(x: int) -> int:
        return x

    @classmethod
    @ci.scope("class")
    def named(cls, name: str) -> "Net":
        return cls()

    def fit(self, x: float) -> "Net":
        return self

ratio: float = Net.named("a").forward(0.5) + Net.static(1)
bound: int = ci.scope("partial")(functools.partial(int, "7"))()

net = Net()
ci.watch(net)
ci.watch(net, name="other")
ci.watch(None)
estimator: Net = ci.wrap(net).fit(0.1)
unknown: Any = estimator
if isinstance(unknown, ci.WrappedEstimator):
    plain: Any = unknown.__wrapped__
    unknown.fit(0.5)

shown: str = profiler.trace("json")
spans: int = ci.trace("dict", name="fit", last=5)["span_count"]
values = [m["value"] for span in ci.trace(format="dict")["roots"] for m in span["marks"]]
for root in ci.trace("dict")["roots"]:
    ended: Optional[int] = root["end_ns"]
    attributes: Dict[str, Any] = root["attrs"]
    names = [child["name"] for child in root["children"]]
ci.trace()
loaded: Any = json.loads(ci.trace("json", "fit"))

tracer = ci.Cirron(sample_rate=0.5, output="none", output_dir=pathlib.Path("out"))
with tracer.scope("s"):
    tracer.mark("m", 1)
for x in tracer.batches(tracer.epochs([1.5])):
    ratio = x
rows: int = tracer.trace("dict")["span_count"]
estimator = tracer.wrap(net)
settings: Dict[str, Any] = profiler.settings
default: ci.Cirron = ci.get_default()

where: Optional[pathlib.Path] = ci.find_cirron_yaml()
found = ci.load_cirron_yaml(pathlib.Path("cirron.yaml"))
if found is not None:
    framework: str = found.framework
    if found.profiling is not None:
        limit: Optional[float] = found.profiling.sample_rate
    if found.serving_config is not None:
        runtime: Optional[str] = found.serving_config.runtime
try:
    ci.load_cirron_yaml("nowhere.yaml")
except (ci.CirronError, ci.CirronDependencyError, ci.CirronYamlError) as error:
    why: str = str(error)

health = ci.health()
dropped: int = health["mark_drop_count"] + health["scope_drop_count"]
ci.flush()
profiler.flush()
profiler.shutdown()
ci.shutdown()
handle: ci.Profiler = tracer.profile({"sample_rate": 0.5}, frameworks=["torch"], enabled=False)
"""
# The module raises for each, too.
BAD = ["ci.mark('m')", "ci.mark('m', 1, 'point')", "ci.mark('m', 1, kind='other')", "ci.scope()", "ci.scope('a', 1, 2)", "ci.scope('a')(3)", "ci.Scope('a')", "ci.epochs(iterable=[1])",
       "ci.epochs(3)", "len(ci.batches(3))", "ci.LoopIterator([1])", "ci.profile(snapshots='none')", "ci.profile(frameworks='torch')", "ci.profile(frameworks=[1])",
       "ci.profile(output='disk')", "ci.profile(output={'none'})", "ci.profile([1])", "ci.profile(sample_rate='1')", "ci.profile(other=1)", "ci.trace('xml')",
       "ci.trace(name=3)", "ci.trace(last='1')", "ci.trace('dict')['nothing']", "ci.health()['nothing']", "with ci.scope('s') as s: s.id = 'x'",
       "ci.get_default().sample_rate = 0.5", "ci.Cirron('out')", "ci.Cirron(snapshots='none')", "ci.Cirron().profile({}, ['torch'])", "ci.nothing",
       "class Mine(ci.Cirron): pass", "ci.load_cirron_yaml(3)", "ci.find_cirron_yaml(start=3)", "ci.watch()", "ci.wrap()", "ci.flush(1)", "ci.Cirron().health()"]
YAML = 'name: a\nframework: sklearn\ntype: regression\nversion: "1"\nprofiling:\n  sample_rate: 0.5\nservingConfig: {}\n'


def checker(case):
    """Runs a module of mypy's with its arguments: of the one for the tests, or one beside the interpreters."""
    for python in [*TORCH, sys.executable, *PYTHONS]:
        if case.run([python, "-c", "import mypy"], agent=False).rc == 0:
            env = {"PYTHONPATH": PACKAGE, "MYPYPATH": PACKAGE, "CIRRON_AUTOSTART": 0}
            return lambda module, *arguments: case.run([python, "-m", module, *arguments], agent=False, env=env, cwd=case.folder)
    raise Skip("no mypy here")


@test
def a_type_checker_takes_them(case):
    run = checker(case)
    case.script("import cirron as ci\n" + "".join(line + "\n" for line in BAD), "bad.py")
    case.script(GOOD, "good.py")
    r = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", "--no-color-output", "good.py", "bad.py")
    said = [line for line in r.out.splitlines() if ": error:" in line]
    case.equal([line for line in said if not line.startswith("bad.py")], [], f"what is right, {r.err}")
    wrong = {int(line.split(":")[1]) for line in said if line.startswith("bad.py")}
    case.equal([BAD[i] for i in range(len(BAD)) if i + 2 not in wrong], [], "wrong lines that pass")


@test
def stubs_are_the_module_to_mypy(case):
    """mypy's own comparison. Left out: how classes may be combined; __cirron__, by which objects find their module; what is said otherwise."""
    run = checker(case)
    (case.folder / "allowed").write_text("cirron.*.__cirron__\ncirron.WrappedEstimator.__getattr__\ncirron.LoopIterator.__class_getitem__\n")
    r = run("mypy.stubtest", "--concise", "--ignore-disjoint-bases", "--allowlist", "allowed", "cirron")
    case.equal((r.rc, r.err), (0, ""), r.out[-2000:])


@test_each(PYTHONS + TORCH, python_label)
def the_module_agrees_with_the_checker(case, python):
    """What passes runs, and what does not pass raises."""
    (case.folder / "cirron.yaml").write_text(YAML)
    env = {"PYTHONPATH": PACKAGE, "CIRRON_AUTOSTART": 0}
    r = case.run([python, case.script(GOOD, "good.py")], agent=False, env=env, cwd=case.folder)
    case.equal((r.rc, r.err), (0, ""), "what passes")
    r = case.run([python, case.script(f"""
import cirron as ci
for line in {BAD!r}:
    try:
        exec(line)
    except (TypeError, ValueError, LookupError, AttributeError):
        continue
    print(line)
""")], agent=False, env=env)
    case.equal((r.rc, r.out, r.err), (0, "", ""), "wrong lines that run")
