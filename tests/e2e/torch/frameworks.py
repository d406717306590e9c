"""Which frameworks are observed: CIRRON_FRAMEWORKS, cirron.yaml, profile(frameworks=...)."""
from harness import test, test_each
from scripts import TORCH

PROJECT = "name: x\nframework: pytorch\ntype: embedding\nversion: '1'\n"
LOOP = """
with ci.scope("mine"):
    job = Learner()
    for x, y in rows(3):
        job.learn(x, y)
print(len(job.opt.param_groups))
"""


def names(t, body=LOOP, **env):
    t.collect()
    r = t.run([t.python, t.script(TORCH + body)], env=env)
    t.equal(r.rc, 0, "exit status: " + r.err[-300:])
    return [s["name"] for s in t.store().spans], r.err


@test_each(["none", "tensorflow,sklearn"])
def not_by_the_environment(t, value):
    t.equal(names(t, CIRRON_FRAMEWORKS=value), (["mine"], ""), "spans, stderr")


@test_each(["torch", "transformers", "keras,torch"])
def by_the_environment(t, value):
    found, err = names(t, CIRRON_FRAMEWORKS=value)
    t.equal((found.count("step"), err), (3, ""), "steps, stderr")


@test
def not_by_the_file(t):
    """Read when torch is imported; what it says holds above the environment."""
    (t.folder / "cirron.yaml").write_text(PROJECT + "profiling:\n  frameworks: []\n")
    t.equal(names(t, CIRRON_FRAMEWORKS="torch"), (["mine"], ""), "spans, stderr")


@test
def a_file_that_is_wrong(t):
    (t.folder / "cirron.yaml").write_text(PROJECT + "profiling:\n  frameworks: torch\n")
    found, err = names(t)
    t.equal(found.count("step"), 3, "steps")
    t.equal(err.count("\n"), 1, "lines on stderr: " + err)
    t.check("cirron.yaml:6: profiling.frameworks must be a list of texts, not torch; the file is not used" in err, err)


@test
def by_profile(t):
    """On, off and on again in one process; what the script makes by hand stays."""
    found, err = names(t, "ci.profile(frameworks=[])\nassert ci.health()['installed_hooks'] == []\n" + LOOP +
                       "ci.shutdown()\np = ci.profile(frameworks=['torch'])\nassert p.installed_hooks == ['torch']\n" + LOOP)
    t.equal(err, "", "stderr")
    t.equal((found.count("mine"), found.count("step"), found.count("forward"), found.count("epoch")), (2, 3, 3, 1), "spans")


@test
def by_profile_above_the_environment(t):
    found, err = names(t, "ci.profile(frameworks=['torch'])\n" + LOOP, CIRRON_FRAMEWORKS="none")
    t.equal((found.count("step"), err), (3, ""), "steps, stderr")
