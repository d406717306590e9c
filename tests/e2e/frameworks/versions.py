"""Versions of frameworks that were not tested: what fits is recorded, one line, ci.health() and the report say what does not.

The packages are made up here, as no real one of such a version exists; what they lack is what a later one may lack.
"""
import json
import subprocess

from harness import PYTHONS, QUERY, clean_env, python_label, test, test_each

HANDLER = '''
class CallbackHandler:
    def __init__(self, state):
        self.state = state
    def on_train_begin(self, args, state, control): pass
    def on_train_end(self, args, state, control): pass
    def on_epoch_begin(self, args, state, control): pass
    def on_epoch_end(self, args, state, control): pass
    def on_step_begin(self, args, state, control): pass
    def on_step_end(self, args, state, control): pass
    def on_log(self, LOG): pass
'''
TRAINER = '''
from transformers.trainer_callback import CallbackHandler


class State:
    epoch, global_step = 0, 0


class Trainer:
    def __init__(self):
        self.state = State()
        self.handler = CallbackHandler(self.state)

    def train(self):
        return self._inner_training_loop()

    def _inner_training_loop(self):
        told = (None, self.state, None)
        self.handler.on_train_begin(*told)
        for epoch in range(2):
            self.handler.on_epoch_begin(*told)
            for step in range(3):
                self.handler.on_step_begin(*told)
                self.state.global_step += 1
                self.handler.on_step_end(*told)
                self.handler.on_log(*told, {"loss": 0.5})
            self.handler.on_epoch_end(*told)
            self._maybe_log_save_evaluate()
        self.handler.on_train_end(*told)

    def _maybe_log_save_evaluate(self): pass
    def evaluate(self): pass
    def predict(self): pass
    def evaluation_loop(self): pass
'''
TRAIN = '''
import json, os, sys
from transformers.trainer import Trainer
import cirron as ci
MORE
Trainer().train()
print("trained")
'''
LAZY = '''
import sys, types
__version__ = "VERSION"
class Lazy(types.ModuleType):
    def __init__(self, of):
        super().__init__(of)
        self._objects, self.__path__ = {"__version__": __version__}, __path__
    def __getattr__(self, name):
        raise AttributeError(name)
lazy = Lazy(__name__)
lazy.__spec__ = __spec__
sys.modules[__name__] = lazy
'''


def package(t, version, lazy=False, log="args, state, control, logs", trainer=TRAINER, name="transformers"):
    at = t.folder / "packages" / name
    at.mkdir(parents=True)
    (at / "__init__.py").write_text((LAZY if lazy else '__version__ = "VERSION"\n').replace("VERSION", version) if version else "")
    if name == "transformers":
        (at / "trainer_callback.py").write_text(HANDLER.replace("LOG", log))
        (at / "trainer.py").write_text(trainer)


def train(t, python=None, lines=0, more="", rc=0, **env):
    t.collect()
    plain, traced = t.both([python or t.python, t.script(TRAIN.replace("MORE", more))], lines=lines, same=False,
                           env={"PYTHONPATH": t.folder / "packages", **env})
    t.equal(traced.rc, rc, "exit status")
    t.equal("trained" in traced.out, rc == 0, "it trained")
    return traced, t.store()


def report(t, *more):
    [session] = [s["id"] for s in t.store().sessions if s["pid"] == t.last_traced]
    r = subprocess.run([QUERY, "--db", t.collector.db, "--session", session, "report", *more], capture_output=True, text=True, env=clean_env())
    t.equal((r.returncode, r.stderr), (0, ""), "report")
    return r.stdout


HEALTH = 'print(json.dumps(ci.health()["frameworks"]))'
LINE = ("cirron: not tested with transformers 99.0.1 (4.41 to 5.24 were): what fits is recorded; cirron-query report and ci.health() "
        "say what does not\n")
# evaluate is gone, predict is no plain function, on_log has other arguments
CHANGED = TRAINER.replace("    def evaluate(self): pass\n", "").replace("def predict(self): pass", "predict = len")
MISSING = ["transformers.trainer:Trainer.evaluate", "transformers.trainer:Trainer.predict",
           "transformers.trainer_callback:CallbackHandler.on_log"]


@test_each(PYTHONS, python_label)
def what_fits_is_recorded(t, python):
    package(t, "99.0.1", log="args, control, state, logs", trainer=CHANGED)
    traced, st = train(t, python, lines=1, more=HEALTH)
    t.equal(traced.err, LINE, "stderr")
    found = json.loads(traced.out.splitlines()[0])
    t.equal(sorted(found["transformers"].pop("missing")), MISSING, "health(): missing")
    t.equal(found, {"transformers": {"version": "99.0.1", "tested": "4.41 to 5.24", "in_range": False, "observed": 11}}, "health()")
    t.counts(st.spans, epoch=2, step=6)
    t.equal([s["index"] for s in st.of("step")], list(range(6)), "steps")
    t.equal((st.marks_of("loss"), [m["value"] for m in st.marks_of("cirron.framework")]), ([], ["transformers 99.0.1"]), "marks")
    [said] = json.loads(report(t, "--json"))["frameworks"]
    t.equal(sorted(said.pop("missing")), MISSING, "report: missing")
    t.equal(said, {"package": "transformers", "version": "99.0.1", "tested": "4.41 to 5.24", "in_range": False, "observed": 11}, "report")
    text = report(t)
    t.check("Versions  transformers 99.0.1 was not tested with (4.41 to 5.24 were): 11 functions are observed\n" in text, text)
    t.check(all(f"          not as expected: {x}\n" in text for x in MISSING), text)


@test
def versions_that_were_tested(t):
    """Nothing is said of them, where all is there; and of what is not, in the report alone."""
    package(t, "5.24.7rc1+local", lazy=True)
    traced, st = train(t, more=HEALTH)
    t.equal(json.loads(traced.out.splitlines()[0]),
            {"transformers": {"version": "5.24.7rc1+local", "tested": "4.41 to 5.24", "in_range": True, "observed": 14, "missing": []}},
            "health()")
    t.equal(len(st.marks_of("loss")), 6, "numbers")
    t.check("Versions" not in report(t), "the report says something")
    (t.folder / "packages/transformers/trainer.py").write_text(CHANGED)
    traced, st = train(t, more=HEALTH)
    t.check("Versions  transformers 5.24.7rc1+local: 12 functions are observed\n          not as expected: transformers.trainer:Trainer.ev"
            in report(t), report(t))


@test
def odd_versions(t):
    """The bounds are whole; what is no version is none."""
    for version, line in (("4.41.0", 0), ("4.40.9", 1), ("5.25.0.dev0", 1), ("5.3", 0), ("10.0", 1), ("", 0), ("none", 1)):
        package(t, version, lazy=version > "5")
        traced, _ = train(t, lines=1)
        t.equal(traced.err.count("not tested with transformers"), line, f"lines for {version!r}")
        subprocess.run(["rm", "-rf", t.folder / "packages"], check=True)


@test
def a_module_that_runs_again(t):
    """More is missing than can be named; and what was, is there when the module is loaded once more."""
    folder = t.folder / "packages/keras/src"
    for name in ("callbacks", "backend/torch", "backend/jax", "backend/tensorflow"):
        (folder / name).mkdir(parents=True)
    for path in ("../__init__.py", "__init__.py", "callbacks/__init__.py", "callbacks/callback_list.py", "backend/__init__.py",
                 *(f"backend/{x}/{y}.py" for x in ("torch", "jax", "tensorflow") for y in ("__init__", "trainer"))):
        (folder / path).write_text("__version__ = '99.0'\n" if path.startswith("..") else "")
    later = "class CallbackList:\n" + "".join(f"    def {x}(self, logs=None): pass\n" for x in ("on_train_begin", "on_train_end", "on_test_begin"))
    r = t.run([t.python, t.script(f"""
import cirron as ci, importlib, pathlib
import keras.src.callbacks, keras.src.callbacks.callback_list as module
for x in "torch", "jax", "tensorflow":
    importlib.import_module(f"keras.src.backend.{{x}}.trainer")
before = ci.health()["frameworks"]["keras"]
pathlib.Path(module.__file__).write_text({later!r})
importlib.invalidate_caches()
importlib.reload(module)
after = ci.health()["frameworks"]["keras"]
print(before["observed"], len(before["missing"]), after["observed"], len(after["missing"]))
with ci.scope("x"):
    pass
""")], env={"PYTHONPATH": t.folder / "packages", "PYTHONDONTWRITEBYTECODE": 1, "CIRRON_AUTOSTART": 0})
    t.equal((r.rc, r.out), (0, "0 24 3 21\n"), "the run")
    t.equal(r.err.count("\n"), 1, "lines: " + r.err)


@test
def only_where_something_is_recorded(t):
    package(t, "99.0.1")
    package(t, "0.4.1", name="torch")
    t.collect()
    for said, text, env in (
            (0, "import transformers.trainer, torch", {}),
            (1, "import transformers.trainer, torch, cirron as ci\nwith ci.scope('x'): pass", {}),
            (1, "import cirron as ci\nwith ci.scope('x'):\n    import transformers, torch\nwith ci.scope('y'): pass", {}),
            (0, "import transformers.trainer, torch, cirron as ci\nwith ci.scope('x'): pass", {"RANK": 1}),
            (1, "import transformers.trainer, torch, cirron as ci\nwith ci.scope('x'): pass", {"RANK": 0, "WORLD_SIZE": 2}),
            (0, "import transformers.trainer, torch, cirron as ci\nwith ci.scope('x'): pass", {"CIRRON_FRAMEWORKS": "none"}),
            (1, "import transformers, torch, os, cirron as ci\nwith ci.scope('x'):\n    if not os.fork():\n"
                "        with ci.scope('y'): pass\n        os._exit(0)\n    os.wait()", {})):
        r = t.run([t.python, t.script(text)], env={"PYTHONPATH": t.folder / "packages", **env})
        lines = r.err.splitlines()
        t.equal((r.rc, sum("transformers 99.0.1" in x for x in lines), sum("torch 0.4.1" in x for x in lines)), (0, said, said),
                f"{text!r} with {env}: {r.err}")
    marks = t.store().marks_of("cirron.framework")
    t.equal(len({m["span_id"][:16] for m in marks}), 6, "sessions that say so")  # rank 1 and the forked child, too


@test
def known_after_a_kill(t):
    package(t, "99.0.1", trainer=CHANGED)
    traced, _ = train(t, lines=1, rc=-9, more="import signal, time\nTrainer().train()\ntime.sleep(1)\nos.kill(os.getpid(), 9)")
    t.check("Versions  transformers 99.0.1 was not tested with" in report(t), "the report does not say")


@test
def the_real_ones(t):
    """All that is to be found in the tested versions is found: otherwise the tables are wrong."""
    t.collect()
    plain, traced = t.both([t.python, t.script(f'''
import json, os
os.environ["KERAS_BACKEND"] = "torch"
import keras, lightning.pytorch, pytorch_lightning, sklearn.linear_model, torch.distributed, transformers.trainer
try:
    import cirron as ci
    with ci.scope("x"): ci.wrap(sklearn.linear_model.LinearRegression())
    {HEALTH}
except ImportError: pass
''')], same=False)
    found = json.loads(traced.out)
    t.equal(sorted(found), ["keras", "lightning", "pytorch_lightning", "sklearn", "torch", "transformers"], "packages")
    for name, says in found.items():
        t.equal((says["in_range"], says["missing"]), (True, []), f"{name} {says['version']}")
