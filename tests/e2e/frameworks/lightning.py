"""The Trainer of Lightning: epochs, steps, evaluations and marks are those of its progress and its loggers.

LIGHTNING names the package: lightning.pytorch or pytorch_lightning, which hold the same code.
"""
from harness import test, test_each
from parts import one_inside_another, run_parts

LIGHTNING = '''
import contextlib, importlib, io, logging
import torch
from torch import nn
from torch.nn import functional as F

logging.disable(logging.WARNING)
pl = importlib.import_module(os.environ.get("LIGHTNING", "lightning.pytorch"))
torch.set_num_threads(1)
folder = tempfile.TemporaryDirectory()
DataLoader = torch.utils.data.DataLoader


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(n)
        self.x, self.y = torch.randn(n, 4, generator=g), torch.randn(n, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        rows = Rows(16)
        while True:
            yield from (rows[i] for i in range(16))


def rows(n):
    return DataLoader(Rows(n), batch_size=2)


class Net(pl.LightningModule):
    def __init__(self, fails_at=None, error=ArithmeticError):
        super().__init__()
        torch.manual_seed(3)
        self.lin, self.calls, self.fails_at, self.error = nn.Linear(4, 1), 0, fails_at, error

    def forward(self, x):
        self.calls += 1
        if self.calls == self.fails_at:
            raise self.error("as told")
        return self.lin(x)

    def loss(self, batch):
        return F.mse_loss(self(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log("rows", float(len(batch[0])), on_step=True, on_epoch=False)
        return loss

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.log("val_loss", self.loss(batch), on_step=True, on_epoch=True)

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Seen(pl.loggers.Logger):
    """Keeps what it is told; `epoch` is added by Lightning."""

    def __init__(self):
        super().__init__()
        self.told = []

    name, version = "seen", 0

    def log_hyperparams(self, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step=None):
        self.told.append([step, {k: v for k, v in metrics.items() if k != "epoch"}])


class Progress(pl.Callback):
    """What each batch and each epoch was, by the Trainer's own account: the number of updates before the batch, the epoch's index."""

    def __init__(self):
        self.batches, self.epochs, self.evals = [], [], 0

    def on_train_epoch_start(self, trainer, module):
        self.epochs.append(trainer.current_epoch)

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.batches.append([trainer.global_step, trainer.current_epoch])

    def on_validation_start(self, trainer, module):
        self.evals += 1


def made(callbacks=(), **more):
    """Batches of 2, each step logged, nothing saved if not asked for."""
    trainer = pl.Trainer(**{**dict(
        accelerator="cpu", devices=1, max_epochs=2, log_every_n_steps=1, logger=Seen(), enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder.name, callbacks=[Progress(), *callbacks]), **more})
    return trainer


def state(trainer):
    progress = next(x for x in trainer.callbacks if isinstance(x, Progress))
    return dict(step=trainer.global_step, epoch=trainer.current_epoch, batches=progress.batches, epochs=progress.epochs,
                evals=progress.evals, told=trainer.logger.told if trainer.logger else None,
                known={k: v.item() for k, v in trainer.callback_metrics.items()})

'''

THEN_TORCH = '''
@part
def then_torch():  # nobody owns the names any more
    job = Net()
    opt = torch.optim.SGD(job.parameters(), lr=0.1)
    for batch in rows(6):
        job.loss(batch).backward()
        opt.step()
        opt.zero_grad()
    return "ok"
'''


def logged(part, name):
    return [(m[name], step) for step, m in part.own["told"] if name in m]


def is_its_state(part, last_unfinished=False, evals=0):
    """Spans are one for each number of updates that a batch began with, in the epoch that it said. -> those numbers."""
    begun = list(dict.fromkeys(tuple(x) for x in part.own["batches"]))
    if last_unfinished:
        begun.pop()
    part.counts(step=len(begun), epoch=len(part.own["epochs"]), eval=evals)
    part.equal(part.indices("epoch"), part.own["epochs"], "indices of epochs")
    steps = part.of("step")
    inside = [(s["index"], next((a["index"] for a in part.st.above(s) if a["name"] == "epoch"), None)) for s in steps]
    part.equal(inside, begun, "steps, and epochs around them")
    part.equal(part.errors(), [], "errors")
    return [x for x, _ in begun]


def marks_are_logged(part, name, where, kind):
    """Each value that its logger was told is one mark, on a span of this name."""
    got = part.marks(name, kind)
    part.equal([v for v, _ in got], [v for v, _ in logged(part, name)], name)
    part.equal({s["name"] for _, s in got}, {where}, f"where {name} is")
    return [s for _, s in got]


@test_each(["lightning.pytorch", "pytorch_lightning"])
def lightning_plain_and_accumulated(t, package):
    """Also what comes and goes around it: validation at the end and within epochs, endless data, evaluations alone, a second fit."""
    parts = run_parts(t, LIGHTNING + '''
@part
def plain():
    trainer, model = made(), Net()
    trainer.fit(model, rows(10))
    is_watched(model)
    return state(trainer)


@part
def without_logger():
    trainer = made(logger=False)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


@part
def logged_seldom():
    trainer = made(log_every_n_steps=3)
    trainer.fit(Net(), rows(10))
    return state(trainer)


@part
def accumulated():  # 5 batches make 3 updates; a look at 2 batches of validation before
    trainer = made(accumulate_grad_batches=2, gradient_clip_val=0.5)
    trainer.fit(Net(), rows(10), rows(6))
    return state(trainer)


@part
def validated_within():
    trainer = made(val_check_interval=2, num_sanity_val_steps=0)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


@part
def by_epoch():  # every other epoch, and two sets of data
    trainer = made(max_epochs=4, check_val_every_n_epoch=2, num_sanity_val_steps=0)
    trainer.fit(Net(), rows(10), [rows(4), rows(6)])
    return state(trainer)


@part
def steps_in_the_middle():
    trainer = made(max_epochs=-1, max_steps=7, num_sanity_val_steps=0)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


@part
def endless():
    trainer = made(max_epochs=-1, max_steps=4, accumulate_grad_batches=2)
    trainer.fit(Net(), DataLoader(Endless(), batch_size=2))
    return state(trainer)


@part
def limited():
    trainer = made(limit_train_batches=3, limit_val_batches=1)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


@part
def scheduled():
    class Scheduled(Net):
        def configure_optimizers(self):
            opt = torch.optim.Adam(self.parameters())
            return [opt], [dict(scheduler=torch.optim.lr_scheduler.StepLR(opt, 2), interval="step")]

    trainer = made(callbacks=[pl.callbacks.LearningRateMonitor("step")])
    trainer.fit(Scheduled(), rows(10))
    return state(trainer)


@part
def twice():
    trainer, model = made(max_epochs=1), Net()
    trainer.fit(model, rows(10))
    first = trainer.global_step
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, rows(10))
    return dict(first=first, **state(trainer))


@part
def alone():
    trainer, model = made(), Net()
    found = [trainer.validate(model, rows(4), verbose=False), trainer.test(model, rows(6), verbose=False)]
    return dict(found=[x for y in found for x in y], predicted=len(trainer.predict(model, rows(8))), **state(trainer))

''' + THEN_TORCH, LIGHTNING=package)
    plain = parts["plain"]
    t.equal((plain.own["step"], plain.own["epoch"]), (10, 2), "plain: its state")
    t.equal(is_its_state(plain), [*range(10)], "plain: steps")
    t.equal([plain.st.order(s) for s in plain.of("step")], [["data_load", "forward", "backward", "optimizer_step"]] * 10,
            "what a step holds")
    t.equal({len(plain.st.inside(s)) for s in plain.of("step")}, {4}, "what a step holds at any depth")
    t.equal([s["index"] for s in marks_are_logged(plain, "loss_step", "step", "point")], [*range(10)], "plain: loss_step")
    t.equal([v for v, s in plain.marks("rows", "point")], [2.0] * 10, "plain: a number that is no tensor")
    t.equal([s["index"] for s in marks_are_logged(plain, "loss_epoch", "epoch", "summary")], [0, 1], "plain: loss_epoch")
    bare = parts["without_logger"]
    is_its_state(bare, evals=3)
    t.equal([(v, s["index"]) for v, s in bare.marks("loss_step")], [(v, s["index"]) for v, s in plain.marks("loss_step")],
            "without_logger: the same marks")
    t.equal([(x, bare.marks(x, "summary")[-1][0]) for x in ("loss_epoch", "val_loss_epoch")],
            [(x, bare.own["known"][x]) for x in ("loss_epoch", "val_loss_epoch")], "without_logger: what callbacks see")
    seldom = parts["logged_seldom"]
    t.equal([s["index"] for s in marks_are_logged(seldom, "loss_step", "step", "point")], [2, 5, 8], "logged_seldom")
    accumulated = parts["accumulated"]
    t.equal((accumulated.own["step"], is_its_state(accumulated, evals=3)), (6, [*range(6)]), "accumulated: steps")
    t.equal([len(accumulated.st.inside(s, "forward")) for s in accumulated.of("step")], [2, 2, 1] * 2, "accumulated: forwards")
    t.equal([s["index"] for s in marks_are_logged(accumulated, "val_loss_epoch", "epoch", "summary")], [0, 1], "accumulated: val_loss")
    t.equal([len(accumulated.st.inside(s, "forward")) for s in accumulated.of("eval")], [2, 3, 3], "accumulated: batches looked at")
    t.equal([(accumulated.st.parent(s) or s)["name"] for s in accumulated.of("eval")], ["accumulated", "epoch", "epoch"],
            "accumulated: where evaluations are")
    marks_are_logged(accumulated, "val_loss_step", "eval", "point")
    within = parts["validated_within"]
    is_its_state(within, evals=4)
    t.equal([s["index"] for s in marks_are_logged(within, "val_loss_epoch", "step", "point")], [1, 3, 6, 8], "validated_within: marks")
    t.equal({within.st.parent(s)["name"] for s in within.of("eval")}, {"epoch"}, "validated_within: where evaluations are")
    by_epoch = parts["by_epoch"]
    is_its_state(by_epoch, evals=2)
    for i in 0, 1:
        at = marks_are_logged(by_epoch, f"val_loss_epoch/dataloader_idx_{i}", "epoch", "summary")
        t.equal([s["index"] for s in at], [1, 3], f"by_epoch: set {i}")
    middle = parts["steps_in_the_middle"]
    t.equal((middle.own["step"], is_its_state(middle, evals=middle.own["evals"])), (7, [*range(7)]), "steps_in_the_middle")
    t.equal([len(middle.st.inside(s, "step")) for s in middle.of("epoch")], [5, 2], "steps_in_the_middle: in the epochs")
    endless = parts["endless"]
    t.equal((endless.own["step"], is_its_state(endless)), (4, [*range(4)]), "endless")
    t.equal([len(endless.st.inside(s, "forward")) for s in endless.of("step")], [2] * 4, "endless: forwards")
    t.equal(len(is_its_state(parts["limited"], evals=3)), 6, "limited")
    scheduled = parts["scheduled"]
    is_its_state(scheduled)
    twice = parts["twice"]
    t.equal((twice.own["first"], is_its_state(twice)), (5, [*range(10)]), "twice: indices go on with the state")
    alone = parts["alone"]
    alone.counts(eval=3)
    t.equal([(v, s["name"], s["index"]) for x in ("val_loss_epoch", "test_loss") for v, s in alone.marks(x, "summary")],
            [(alone.own["found"][i][x], "eval", alone.of("eval")[i]["index"]) for i, x in enumerate(("val_loss_epoch", "test_loss"))],
            "alone: marks")
    t.equal([len(alone.st.inside(s, "forward")) for s in alone.of("eval")], [2, 3, 4], "alone: forwards")
    parts["then_torch"].counts(epoch=1, step=3)


@test
def lightning_stopped_resumed_and_failed(t):
    parts = run_parts(t, LIGHTNING + '''
class Worse(Net):
    def on_validation_epoch_end(self):
        self.bad = getattr(self, "bad", 0) + 1
        self.log("worse", float(self.bad))


@part
def stopped_early():
    trainer = made(max_epochs=9, callbacks=[pl.callbacks.EarlyStopping("worse", patience=2)], num_sanity_val_steps=0)
    trainer.fit(Worse(), rows(10), rows(4))
    return state(trainer)


class Stops(pl.Callback):
    def on_train_batch_end(self, trainer, *args, **kwargs):
        trainer.should_stop = trainer.global_step == 7


@part
def stopped_in_the_middle():
    trainer = made(max_epochs=9, callbacks=[Stops()], num_sanity_val_steps=0)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


class SkipsRest(Net):
    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx == 3 else None


@part
def rest_of_the_epoch_skipped():
    trainer = made()
    trainer.fit(SkipsRest(), rows(10))
    return state(trainer)


def saved(**more):
    place = tempfile.mkdtemp(dir=folder.name)
    trainer = made(enable_checkpointing=True, default_root_dir=place, callbacks=[
        pl.callbacks.ModelCheckpoint(place, filename="it", **more)])
    return trainer, place + "/it.ckpt"


@part
def resumed():  # after the first epoch of three
    trainer, place = saved()
    trainer.fit_loop.max_epochs = 1
    trainer.fit(Net(), rows(10))
    trainer = made(max_epochs=3)
    with ci.scope("the rest"):
        trainer.fit(Net(), rows(10), ckpt_path=place)
    return state(trainer)


@part
def resumed_in_the_middle():
    trainer, place = saved(every_n_train_steps=7)
    trainer.fit(Net(), rows(10))
    trainer = made(max_epochs=3)
    with ci.scope("the middle"):
        trainer.fit(Net(), rows(10), ckpt_path=place)
    return state(trainer)


@part
def failed():
    found = []
    for model in Net(fails_at=8), Net(fails_at=3, error=KeyboardInterrupt), Net(fails_at=4, error=SystemExit):
        trainer = made()
        try:
            trainer.fit(model, rows(10))
        except BaseException:  # Lightning may take a KeyboardInterrupt for a reason to end well, or exit
            pass
        found.append(state(trainer))
    return found


@part
def failed_evaluating():
    trainer = made(num_sanity_val_steps=0)
    try:
        trainer.fit(Net(fails_at=6), rows(10), rows(4))
    except ArithmeticError:
        return state(trainer)


@part
def failed_before():  # in the look at the validation
    trainer = made()
    try:
        trainer.fit(Net(fails_at=1), rows(10), rows(4))
    except ArithmeticError:
        return state(trainer)

''' + THEN_TORCH)
    stopped = parts["stopped_early"]
    t.equal((stopped.own["step"], len(is_its_state(stopped, evals=3))), (15, 15), "stopped_early: steps")
    t.equal([(v, s["name"], s["index"]) for v, s in stopped.marks("worse", "summary")],
            [(1.0 + i, "epoch", i) for i in range(3)], "stopped_early: marks")
    middle = parts["stopped_in_the_middle"]
    t.equal((middle.own["step"], len(is_its_state(middle, evals=2))), (7, 7), "stopped_in_the_middle: steps")
    t.equal([(s["name"], s["index"]) for _, s in middle.marks("val_loss_epoch", "summary")], [("epoch", 0), ("epoch", 1)],
            "stopped_in_the_middle: marks")
    skipped = parts["rest_of_the_epoch_skipped"]
    t.equal(skipped.own["step"], 6, "rest_of_the_epoch_skipped: its state")
    t.equal(skipped.indices("step"), [*range(6)], "rest_of_the_epoch_skipped: steps")
    t.equal([len(skipped.st.inside(s, "step")) for s in skipped.of("epoch")], [3, 3], "rest_of_the_epoch_skipped: in the epochs")
    for name, scope, first in ("resumed", "the rest", 5), ("resumed_in_the_middle", "the middle", 7):
        part = parts[name]
        rest = part.st.of(scope)[0]
        t.equal(part.own["step"], [s["index"] for s in part.st.inside(rest, "step")][-1] + 1, f"{name}: its state")
        t.equal([s["index"] for s in part.st.inside(rest, "step")], [x for x, _ in part.own["batches"]], f"{name}: steps")
        t.equal(part.own["batches"][0][0], first, f"{name}: first step")
        epochs = list(dict.fromkeys(y for _, y in part.own["batches"]))
        t.equal([s["index"] for s in part.st.inside(rest, "epoch")], epochs, f"{name}: epochs")
        t.equal(epochs, [1, 2], f"{name}: its epochs")
    failed = parts["failed"]
    t.equal([x["step"] for x in failed.own], [7, 2, 3], "failed: its states")
    error = [(x, e) for e in ("ArithmeticError", "KeyboardInterrupt", "SystemExit") for x in ("epoch", "step", "optimizer_step", "forward")]
    t.equal(failed.errors(), error, "failed: errors")
    t.equal(failed.indices("step"), [*range(8), *range(3), *range(4)], "failed: steps")
    t.equal(failed.indices("epoch"), [0, 1, 0, 0], "failed: epochs")
    evaluating = parts["failed_evaluating"]
    evaluating.counts(step=5, epoch=1, eval=1)
    t.equal([x for x, _ in evaluating.errors()], ["epoch", "eval", "forward"], "failed_evaluating: errors")
    before = parts["failed_before"]
    before.counts(eval=1)
    t.equal([x for x, _ in before.errors()], ["eval", "forward"], "failed_before: errors")
    parts["then_torch"].counts(epoch=1, step=3)


@test
def lightning_manual_optimization(t):
    """The script updates by itself: with two optimizers, every other batch, not at all, by a closure."""
    parts = run_parts(t, LIGHTNING + '''
class Manual(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = nn.Linear(4, 1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.lin.parameters(), lr=0.1), torch.optim.Adam(self.other.parameters())

    def training_step(self, batch, batch_idx):
        for i, (opt, part) in enumerate(zip(self.optimizers(), (self.lin, self.other))):
            loss = F.mse_loss(part(batch[0]), batch[1])
            opt.zero_grad()
            self.manual_backward(loss)
            opt.step()
            self.log(f"loss{i}", loss)


class EveryOther(Manual):
    def training_step(self, batch, batch_idx):
        self.manual_backward(self.loss(batch))
        if batch_idx % 2:
            opt = self.optimizers()[0]
            opt.step()
            opt.zero_grad()


class Never(Manual):
    def training_step(self, batch, batch_idx):
        self.manual_backward(self.loss(batch))


class ByClosure(Manual):
    def training_step(self, batch, batch_idx):
        opt = self.optimizers()[0]

        def closure():
            opt.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            return loss

        opt.step(closure=closure)


class Iterator(Net):  # the batch is fetched by the script
    def training_step(self, dataloader_iter):
        batch = next(dataloader_iter)
        return self.loss(batch[0] if isinstance(batch[0], (list, tuple)) else batch)


@part
def two_optimizers():
    trainer = made()
    trainer.fit(Manual(), rows(10))
    return state(trainer)


@part
def every_other():
    trainer = made()
    trainer.fit(EveryOther(), rows(10))
    return state(trainer)


@part
def never():
    trainer = made()
    trainer.fit(Never(), rows(10))
    return state(trainer)


class Repeated(Net):  # the closure is called once and then twice more
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters(), max_iter=3, tolerance_grad=0, tolerance_change=0)


@part
def repeated():
    trainer = made(max_epochs=1)
    trainer.fit(Repeated(), rows(6))
    return state(trainer)


@part
def by_closure():
    trainer = made()
    trainer.fit(ByClosure(), rows(10))
    return state(trainer)


@part
def by_iterator():
    trainer = made()
    trainer.fit(Iterator(), rows(10))
    return state(trainer)

''')
    two = parts["two_optimizers"]
    t.equal((two.own["step"], is_its_state(two)), (20, [*range(0, 20, 2)]), "two_optimizers: steps")
    t.equal([len(two.st.inside(s, x)) for s in two.of("step") for x in ("forward", "backward", "optimizer_step")], [2] * 30,
            "two_optimizers: what a step holds")
    for i in 0, 1:
        at = marks_are_logged(two, f"loss{i}", "step", "point")
        t.equal([s["index"] for s in at], [*range(0, 20, 2)], f"two_optimizers: loss{i}")
    every = parts["every_other"]  # the fifth batch of an epoch is in no step: its update comes in the next epoch, or never
    t.equal(every.own["step"], 4, "every_other: its state")
    every.counts(step=4, epoch=2)
    t.equal(every.indices("step"), [*range(4)], "every_other: steps")
    t.equal([len(every.st.inside(s, "forward")) for s in every.of("step")], [2] * 4, "every_other: forwards")
    t.equal(len(every.of("forward")), 10, "every_other: all forwards")
    parts["never"].counts(epoch=2)
    t.equal(len(parts["never"].of("backward")), 10, "never: backwards")
    repeated = parts["repeated"]
    t.equal((repeated.own["step"], is_its_state(repeated)), (3, [*range(3)]), "repeated")
    t.equal([repeated.st.order(s) for s in repeated.of("step")], [["data_load", "forward", "backward", "optimizer_step"]] * 3,
            "repeated: what a step holds")
    t.equal([repeated.st.order(s) for s in repeated.of("optimizer_step")], [["forward", "backward"] * 2] * 3, "repeated: in the update")
    closure = parts["by_closure"]
    t.equal((closure.own["step"], is_its_state(closure)), (10, [*range(10)]), "by_closure")
    by_iterator = parts["by_iterator"]
    t.equal((by_iterator.own["step"], by_iterator.indices("step")), (10, [*range(10)]), "by_iterator")
    t.equal([len(by_iterator.st.inside(s, "data_load")) for s in by_iterator.of("step")], [1] * 10, "by_iterator: data_loads")


@test
def lightning_inside_one_another(t):
    """Callbacks that train or have scopes of their own, threads, epochs made by hand, an iterator that is kept."""
    parts = run_parts(t, LIGHTNING + '''
class Busy(pl.Callback):
    def on_train_epoch_end(self, trainer, module):
        made(max_epochs=1).fit(Net(), rows(6))
        made().validate(Net(), rows(4), verbose=False)

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.scope = ci.scope("mine")
        self.scope.__enter__()
        ci.mark("begun", trainer.global_step)

    def on_train_batch_end(self, trainer, *args):
        self.scope.__exit__(None, None, None)
        ci.mark("ended", trainer.global_step)
        self.after = ci.scope("after")
        self.after.__enter__()

    def on_validation_start(self, trainer, module):
        if trainer.global_step:
            self.after.__exit__(None, None, None)


@part
def busy_callback():
    trainer = made(callbacks=[Busy()], val_check_interval=1)
    trainer.fit(Net(), rows(10), rows(4))
    return state(trainer)


@part
def by_hand():
    found = []
    for _ in ci.epochs(range(2)):
        trainer = made(max_epochs=1)
        trainer.fit(Net(), rows(10))
        found.append(trainer.global_step)
    return found


@part
def looked_at():
    data = rows(10)
    kept = iter(data)
    next(kept)
    trainer = made()
    trainer.fit(Net(), data)
    return state(trainer)


def in_thread():
    with ci.scope("in the thread"):
        trainer = made()
        trainer.fit(Net(), rows(10))
        found.append(trainer.global_step)


found = []


@part
def threads():
    both = [threading.Thread(target=in_thread) for _ in range(2)]
    for x in both:
        x.start()
    for x in both:
        x.join()
    return found


@part
def rate_is_looked_for():  # trains a little, and takes it back
    tuner = importlib.import_module(pl.__name__ + ".tuner").Tuner
    trainer, model = made(), Net()
    model.lr = 0.1
    with contextlib.redirect_stderr(io.StringIO()):  # its bar
        tuner(trainer).lr_find(model, rows(10), num_training=4, update_attr=False)
    with ci.scope("in earnest"):
        trainer.fit(model, rows(10))
    return state(trainer)
''')
    busy = parts["busy_callback"]
    busy.counts(step=10, epoch=2, eval=busy.own["evals"] + 2)
    one_inside_another(t, parts)
    t.equal([(v, s["index"]) for v, s in busy.marks("loss_step", "point")], [(v, i) for i, (v, _) in enumerate(logged(busy, "loss_step"))],
            "busy_callback: loss")
    rate = parts["rate_is_looked_for"]
    st = rate.st
    earnest = st.of("in earnest")[0]
    t.equal(([s["index"] for s in st.inside(earnest, "step")], rate.own["step"]), ([*range(10)], 10), "rate_is_looked_for")
