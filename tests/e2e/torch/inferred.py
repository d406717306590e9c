"""Loops without a DataLoader: steps come of updates alone, and the report says what it has not seen."""
import json
import subprocess

from harness import QUERY, clean_env, test, test_each
from loops import apart, tally, trace


def report(t, *options):
    r = subprocess.run([QUERY, "--db", t.collector.db, *options, "report"], capture_output=True, text=True, env=clean_env())
    t.equal((r.returncode, r.stderr), (0, ""), "the report")
    return r.stdout


@test
def updates_alone_are_steps(t):
    """Batches made by hand, two to an update, evaluation now and then: the steps come of the updates, and the report says what it has not seen."""
    st = trace(t, """
job = Learner(kind=torch.optim.AdamW)
for i in range(12):
    if i % 4 == 0:
        job.model.eval()
        with torch.no_grad():
            for _ in range(3):
                job.model(torch.randn(3, 5))
        job.model.train()
    for _ in range(2):
        job.gradient(torch.randn(3, 5), torch.randn(3, 1))
    job.update()
job.show()
""")
    t.counts(st.spans, step=12, forward=33, backward=24, optimizer_step=12)
    t.equal([s["index"] for s in st.of("step")], list(range(12)), "indices")
    t.equal([tally(st, s) for s in st.of("step")], [{"forward": 2, "backward": 2, "optimizer_step": 1}] * 12, "what the steps hold")
    apart(t, st.of("step"), "steps")
    said = json.loads(report(t, "--format", "json"))
    t.check("no DataLoader" in said["not_seen"] and said["training"]["waiting"] is None, f"the report: {said['not_seen']}, {said['training']}")
    text = report(t)
    t.check("\nNot seen  where data comes from" in text and "the loader" not in text, text[:900])


@test
def optimizers_that_take_turns_share_a_step(t):
    st = trace(t, """
critic, maker = Learner(), Learner(nn.Linear(5, 5))
for i in range(8):
    for _ in range(2 if i % 2 else 1):
        critic.model(maker.model(torch.randn(3, 5)).detach()).mean().backward()
    critic.update()
    if i % 2:
        critic.model(maker.model(torch.randn(3, 5))).mean().backward()
        maker.update()
lbfgs = torch.optim.LBFGS(critic.model.parameters(), max_iter=3)
def closure():
    lbfgs.zero_grad()
    loss = critic.model(torch.ones(3, 5)).pow(2).mean()
    loss.backward()
    return loss
for _ in range(2):
    lbfgs.step(closure)
critic.show()
""")
    steps = st.of("step")
    t.equal([tally(st, s)["optimizer_step"] for s in steps], [1, 2, 1, 2, 1, 2, 1, 3, 1], "updates in each step")
    t.equal([s for s in st.of("optimizer_step") if not any(a["name"] == "step" for a in st.above(s))], [], "updates in no step")
    apart(t, steps, "steps")


@test
def scopes_and_epochs_of_a_loop_without_a_loader(t):
    st = trace(t, """
job = Learner()
for e in ci.epochs(range(2)):
    for i in range(3):
        with ci.scope("turn"):
            with ci.scope("ahead"):
                loss = F.mse_loss(job.model(torch.randn(3, 5)), torch.randn(3, 1))
            loss.backward()
            with ci.scope("apply"):
                job.update()
            ci.mark("loss", loss.item())
job.show()
""")
    t.counts(st.spans, epoch=2, step=6, forward=6, backward=6, optimizer_step=6, turn=6, ahead=6, apply=6)
    t.equal({st.parent(s)["name"] for s in st.of("step")}, {"turn"}, "what steps lie in")
    t.equal({st.parent(s)["name"] for n in ("ahead", "apply", "backward") for s in st.of(n)}, {"step"}, "what lies in steps")
    t.equal(len(st.marks_of("loss")), 6, "marks")


@test_each([True, False])
def updates_beside_loaders_are_no_steps(t, first):
    """Of a loader that is made before the first update or after it: the loop that counts is a pass over it, what came before was to warm up."""
    st = trace(t, """
job, data = Learner(), rows(4) if %s else None
job.learn(torch.ones(3, 5), torch.ones(3, 1))
data = data or rows(4)
for _ in range(2):
    for x, y in data:
        job.learn(x, y)
job.show()
""" % first)
    t.counts(st.spans, epoch=2, step=8, data_load=8, forward=9, backward=9, optimizer_step=9)
    t.equal([s["index"] for s in st.of("step")], list(range(8)), "indices")


@test
def updates_in_no_loop_that_is_known(t):
    st = trace(t, """
job, data = Learner(), rows(4)
for _ in range(5):
    job.learn(torch.ones(3, 5), torch.ones(3, 1))
job.show()
""")
    t.counts(st.spans, forward=5, backward=5, optimizer_step=5)
    said = json.loads(report(t, "--format", "json"))["not_seen"]
    t.equal(said, "steps: 5 updates were in no pass over a DataLoader and no framework's loop", "the report")
