"""The Trainer of transformers: epochs, steps, evaluations and marks are those of its TrainerState."""
from harness import test
from parts import one_inside_another, run_parts

TRAINER = '''
import torch
from torch import nn
from torch.nn import functional as F
import transformers
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
folder = tempfile.TemporaryDirectory()


class Net(nn.Module):
    def __init__(self, fails_at=None):
        super().__init__()
        torch.manual_seed(3)
        self.lin, self.calls, self.fails_at = nn.Linear(4, 1), 0, fails_at

    def forward(self, x=None, labels=None):
        self.calls += 1
        if self.calls == self.fails_at:
            raise ArithmeticError("as told")
        out = self.lin(x)
        return {"loss": F.mse_loss(out, labels), "logits": out}


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x, self.y = torch.randn(n, 4, generator=g), torch.randn(n, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        rows = Rows(16)
        while True:
            yield from (rows[i] for i in range(16))


def made(rows=Rows(10), model=None, kind=Trainer, callbacks=None, evals=Rows(4), **more):
    """Batches of 2, each step logged, nothing saved or evaluated if not asked for."""
    args = TrainingArguments(**{**dict(
        output_dir=folder.name, num_train_epochs=2, per_device_train_batch_size=2, per_device_eval_batch_size=2, logging_steps=1,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=0), **more})
    trainer = kind(model=model or Net(), args=args, train_dataset=rows, eval_dataset=evals, callbacks=callbacks)
    trainer.remove_callback(PrinterCallback)
    return trainer


def state(trainer):
    s = trainer.state
    drop = ("runtime", "per_second")
    history = [{k: v for k, v in x.items() if not k.endswith(drop)} for x in s.log_history]
    return dict(step=s.global_step, epoch=s.epoch, history=history)

'''


def logged(part, name):
    """What the state says was logged under this name: [(value, global step)]."""
    return [(x[name], x["step"]) for x in part.own["history"] if name in x]


def is_its_state(part, steps, epochs, evals=0, first_step=0, first_epoch=0):
    """Indices go on without a gap, each step lies in an epoch, each value is on the step it was logged after."""
    part.equal(part.own["step"], first_step + steps, "the state's global_step")
    part.counts(step=steps, epoch=epochs, eval=evals)
    part.equal(part.indices("step"), list(range(first_step, first_step + steps)), "indices of steps")
    part.equal(part.indices("epoch"), list(range(first_epoch, first_epoch + epochs)), "indices of epochs")
    part.check(all(any(a["name"] == "epoch" for a in part.st.above(s)) for s in part.of("step")), "a step outside the epochs")
    got = [(v, s["index"] + 1) for v, s in part.marks("loss", "point") if s["name"] == "step"]
    part.equal(got, logged(part, "loss"), "loss on the steps")
    part.equal(part.errors(), [], "errors")


@test
def plain_and_accumulated(t):
    """Also what comes and goes around it: evaluation by steps and epochs, logs by epochs, a second training, an endless data set."""
    parts = run_parts(t, TRAINER + '''
@part
def plain():
    trainer = made()
    trainer.train()
    is_watched(trainer.model)
    return state(trainer)


@part
def accumulated():  # 5 batches make 3 updates; evaluated after updates 2, 4 and 6
    trainer = made(gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2, max_grad_norm=0.5)
    trainer.train()
    return state(trainer)


@part
def by_epoch():
    trainer = made(logging_strategy="epoch", eval_strategy="epoch", num_train_epochs=3)
    trainer.train()
    return state(trainer)


@part
def twice():
    trainer = made(num_train_epochs=1)
    trainer.train()
    first = state(trainer)
    trainer.train()
    return dict(first=first, **state(trainer))


@part
def endless():
    trainer = made(rows=Endless(), max_steps=7, gradient_accumulation_steps=2)
    trainer.train()
    return state(trainer)


@part
def evaluated_alone():
    trainer = made(evals={"a": Rows(4), "b": Rows(6)})
    return [sorted(k for k in trainer.evaluate() if k.endswith("loss")), trainer.predict(Rows(8)).predictions.shape[0]]


@part
def then_torch():  # nobody owns the names any more
    job, data = Net(), torch.utils.data.DataLoader(Rows(6), batch_size=2)
    opt = torch.optim.SGD(job.parameters(), lr=0.1)
    for batch in data:
        job(**batch)["loss"].backward()
        opt.step()
        opt.zero_grad()
    hooks = ci.health()
    return "ok"
''')
    plain = parts["plain"]
    is_its_state(plain, 10, 2)
    t.equal([len(plain.st.inside(s, x)) for s in plain.of("step") for x in ("forward", "backward", "optimizer_step")], [1] * 30,
            "what a step holds")
    t.equal(len(plain.of("data_load")), 10, "data_loads")
    t.equal([v for v, s in plain.marks("train_loss", "summary")], [x["train_loss"] for x in plain.own["history"][-1:]], "train_loss")
    accumulated = parts["accumulated"]
    rest = accumulated.own["step"] == 6  # versions before 4.46 carry the fifth batch over into the next epoch, and end earlier
    is_its_state(accumulated, 6 if rest else 4, 2, evals=3 if rest else 2)
    t.equal([len(accumulated.st.inside(s, "forward")) for s in accumulated.of("step")], [2, 2, 1] * 2 if rest else [2, 2, 1, 2],
            "forwards of a step")
    t.equal([(v, s["name"], s["index"] + 1) for v, s in accumulated.marks("eval_loss")],
            [(v, "step", n) for v, n in logged(accumulated, "eval_loss")], "eval_loss")
    t.check(all(accumulated.st.parent(s)["name"] == "epoch" for s in accumulated.of("eval")), "evaluation outside the epochs")
    t.equal([len(accumulated.marks(x, "point")) for x in ("learning_rate", "grad_norm")], [accumulated.own["step"]] * 2,
            "other marks")
    by_epoch = parts["by_epoch"]
    by_epoch.counts(step=15, epoch=3, eval=3)
    for name in "loss", "eval_loss":
        t.equal([(v, s["name"], 5 * s["index"] + 5) for v, s in by_epoch.marks(name, "summary")],
                [(v, "epoch", n) for v, n in logged(by_epoch, name)], name)
    t.check(all(by_epoch.st.parent(s)["name"] == "epoch" for s in by_epoch.of("eval")), "evaluation outside its epoch")
    twice = parts["twice"]
    t.equal(twice.own["first"]["step"], 5, "first training")
    twice.counts(step=10, epoch=2)
    t.equal(twice.indices("step"), [*range(5), *range(5)], "indices begin anew with the state")
    is_its_state(parts["endless"], 7, 1)
    alone = parts["evaluated_alone"]
    t.equal(alone.own, [["eval_a_loss", "eval_b_loss"], 8], "its results")
    alone.counts(eval=3)
    t.equal([(s["name"], s["index"]) for x in "ab" for _, s in alone.marks(f"eval_{x}_loss")],
            [("eval", alone.of("eval")[i]["index"]) for i in (0, 1)], "marks")
    parts["then_torch"].counts(epoch=1, step=3)


@test
def stopped_resumed_and_failed(t):
    parts = run_parts(t, TRAINER + '''
class Worse(Trainer):
    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            return super().compute_loss(model, inputs, *args, **kwargs)
        self.bad = getattr(self, "bad", 0) + 1
        loss, out = super().compute_loss(model, inputs, return_outputs=True)
        return loss * 0 + self.bad, out


@part
def stopped_early():
    trainer = made(kind=Worse, num_train_epochs=9, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
                   metric_for_best_model="eval_loss", greater_is_better=False, callbacks=[EarlyStoppingCallback(2)])
    trainer.train()
    return state(trainer)


@part
def resumed():  # in the middle of the second epoch
    place = tempfile.mkdtemp(dir=folder.name)
    made(save_strategy="steps", save_steps=7, max_steps=7, output_dir=place).train()
    trainer = made(num_train_epochs=3, output_dir=place)
    with ci.scope("the rest"):
        trainer.train(resume_from_checkpoint=True)
    return state(trainer)


class StopsAt(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise KeyError("as told")


@part
def failed():
    found = []
    for trainer in made(model=Net(fails_at=8)), made(callbacks=[StopsAt()]):
        try:
            trainer.train()
        except Exception as error:
            found.append(type(error).__name__)
    return [found, state(trainer)]


@part
def failed_evaluating():
    trainer = made(model=Net(fails_at=6), eval_strategy="epoch")
    try:
        trainer.train()
    except ArithmeticError:
        return state(trainer)


@part
def then_torch():
    job, data = Net(), torch.utils.data.DataLoader(Rows(6), batch_size=2)
    opt = torch.optim.SGD(job.parameters(), lr=0.1)
    for batch in data:
        job(**batch)["loss"].backward()
        opt.step()
    return "ok"
''')
    stopped = parts["stopped_early"]
    is_its_state(stopped, 15, 3, evals=3)
    resumed = parts["resumed"]
    rest = resumed.st.of("the rest")[0]
    t.equal((resumed.own["step"], resumed.own["epoch"]), (15, 3.0), "resumed: its state")
    t.equal([s["index"] for s in resumed.st.inside(rest, "step")], [*range(7, 15)], "resumed: steps")
    t.equal([s["index"] for s in resumed.st.inside(rest, "epoch")], [1, 2], "resumed: epochs")
    failed = parts["failed"]
    t.equal(failed.own[0], ["ArithmeticError", "KeyError"], "exceptions")
    t.equal(failed.own[1]["step"], 3, "global_step of the second")
    t.equal(failed.errors(), [("epoch", "ArithmeticError"), ("step", "ArithmeticError"), ("forward", "ArithmeticError"),
                              ("epoch", "KeyError"), ("step", "KeyError")], "errors")
    t.equal(failed.indices("step"), [*range(8), *range(3)], "failed: steps")
    t.equal(failed.indices("epoch"), [0, 1, 0], "failed: epochs")
    evaluating = parts["failed_evaluating"]
    evaluating.counts(step=5, epoch=1, eval=1)
    t.equal([x for x, _ in evaluating.errors()], ["epoch", "eval", "forward"], "failed_evaluating: errors")
    parts["then_torch"].counts(epoch=1, step=3)


@test
def inside_one_another(t):
    """Subclasses, callbacks that train or have scopes of their own, threads, epochs made by hand."""
    parts = run_parts(t, TRAINER + '''
class Own(Trainer):
    def train(self, *args, **kwargs):
        with ci.scope("own train"):
            return super().train(*args, **kwargs)

    def log(self, logs, *args, **kwargs):
        super().log({**logs, "twice": 2 * logs.get("loss", 0)}, *args, **kwargs)


@part
def subclass():
    trainer = made(kind=Own)
    trainer.train()
    return state(trainer)


class Alone(Trainer):
    def train(self):  # asks for nothing of the Trainer's loop
        h, c = self.callback_handler, self.control
        h.on_train_begin(self.args, self.state, c)
        for epoch in range(2):
            self.state.epoch = float(epoch)
            h.on_epoch_begin(self.args, self.state, c)
            for step in range(3):
                h.on_step_begin(self.args, self.state, c)
                self.model(x=torch.randn(2, 4), labels=torch.randn(2, 1))
                self.state.global_step += 1
                h.on_step_end(self.args, self.state, c)
            h.on_epoch_end(self.args, self.state, c)
        raise ArithmeticError("as told")


@part
def loop_of_its_own():
    trainer = made(kind=Alone)
    try:
        trainer.train()
    except ArithmeticError:
        pass
    for batch in torch.utils.data.DataLoader(Rows(6), batch_size=2):  # torch's again
        trainer.model(**batch)
    return state(trainer)


class Busy(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        made(num_train_epochs=1, callbacks=[]).train()
        made().evaluate()

    def on_step_begin(self, args, state, control, **kwargs):
        self.scope = ci.scope("mine")
        self.scope.__enter__()
        ci.mark("begun", state.global_step)

    def on_step_end(self, args, state, control, **kwargs):
        self.scope.__exit__(None, None, None)
        ci.mark("ended", state.global_step)
        self.after = ci.scope("after")
        self.after.__enter__()

    def on_log(self, args, state, control, **kwargs):
        if "loss" in kwargs["logs"]:
            self.after.__exit__(None, None, None)


@part
def busy_callback():
    trainer = made(callbacks=[Busy()])
    trainer.train()
    return state(trainer)


@part
def by_hand():
    found = []
    for _ in ci.epochs(range(2)):
        trainer = made(num_train_epochs=1)
        trainer.train()
        found.append(trainer.state.global_step)
    return found


@part
def looked_at():  # a batch was taken before, and the iterator is kept
    trainer = made()
    kept = iter(trainer.get_train_dataloader())
    next(kept)
    trainer.train()
    return state(trainer)


def in_thread(trainer):
    with ci.scope("in the thread"):
        trainer.train()
        found.append(trainer.state.global_step)


found = []


@part
def threads():
    trainers = made(), made()  # accelerate's state is shared by all, and not to be made by two threads at a time
    both = [threading.Thread(target=in_thread, args=(x,)) for x in trainers]
    for x in both:
        x.start()
    for x in both:
        x.join()
    return found
''')
    subclass = parts["subclass"]
    is_its_state(subclass, 10, 2)
    t.equal([v for v, s in subclass.marks("twice", "point")], [2 * v for v, _ in logged(subclass, "loss")], "a log of its own")
    alone = parts["loop_of_its_own"]
    t.equal(([x["index"] for x in alone.of("epoch")], alone.indices("step")), ([0, 1], [*range(6)]), "loop_of_its_own")
    t.equal(len(alone.of("eval")), 1, "loop_of_its_own: evaluation by torch afterwards")
    busy = parts["busy_callback"]
    busy.counts(step=10, epoch=2, eval=2)
    one_inside_another(t, parts)
    t.equal([(v, s["index"] + 1) for v, s in busy.marks("loss", "point")], logged(busy, "loss"), "busy_callback: loss")
