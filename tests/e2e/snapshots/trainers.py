"""The model that a framework trains is found, and each of its epochs has a snapshot."""
import os
import subprocess

from harness import Skip, TORCH_PYTHON, test, test_each
from reference import compare, snapshot_parts

TENSORFLOW_PYTHON = os.environ.get("TENSORFLOW_PYTHON") or TORCH_PYTHON
HAS_TENSORFLOW = not subprocess.run([TENSORFLOW_PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('tensorflow'))"],
                                    capture_output=True).returncode
BACKENDS = ["torch", "jax"] + ["tensorflow"] * HAS_TENSORFLOW


@test
def transformers_trainer(t):
    parts = snapshot_parts(t, '''
import transformers
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

transformers.logging.set_verbosity_error()
folder = tempfile.TemporaryDirectory()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = net(4, 6)

    def forward(self, x=None, labels=None):
        out = self.lin(x)
        return {"loss": F.mse_loss(out, labels), "logits": out}


class Items(torch.utils.data.Dataset):
    def __init__(self, n):
        self.x, self.y = torch.randn(n, 4), torch.randn(n, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Keeps(TrainerCallback):
    def __init__(self):
        self.kept = []

    def on_epoch_end(self, args, state, control, model=None, **more):
        self.kept.append(told(copies(model)))


@part
def trained():
    args = TrainingArguments(output_dir=folder.name, num_train_epochs=3, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                             eval_strategy="epoch", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=0)
    keeps = Keeps()
    trainer = Trainer(model=Net(), args=args, train_dataset=Items(9), eval_dataset=Items(4), callbacks=[keeps])
    trainer.remove_callback(PrinterCallback)
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        trainer.train()
    return keeps.kept
''')
    part = parts["trained"]
    compare(t, "trained", part.snapshots, part.own)
    t.equal({r["model"] for s in part.snapshots for r in s.rows.values()}, {"Net"}, "name of the model")


@test
def lightning_trainer(t):
    parts = snapshot_parts(t, '''
import logging
import lightning.pytorch as pl

logging.disable(logging.WARNING)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.lin, self.kept = net(4, 6), []

    def training_step(self, batch, batch_idx):
        return F.mse_loss(self.lin(batch[0]), batch[1])

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_epoch_end(self):
        self.kept.append(told(copies(self)))


@part
def trained():
    model = Net()
    trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                         num_sanity_val_steps=1)
    trainer.fit(model, rows(3), rows(2))
    return model.kept
''')
    part = parts["trained"]
    compare(t, "trained", part.snapshots, part.own)


@test
def keras_on_tensorflow(t):
    if not HAS_TENSORFLOW:
        raise Skip(f"no tensorflow under {TENSORFLOW_PYTHON}")


@test_each(BACKENDS)
def keras_fit(t, backend):
    if backend == "tensorflow":
        t.python = TENSORFLOW_PYTHON
    parts = snapshot_parts(t, f'''
os.environ.update(KERAS_BACKEND={backend!r}, TF_ENABLE_ONEDNN_OPTS="0")
import keras
keras.utils.set_random_seed(0)
X, Y = np.random.RandomState(0).randn(32, 4).astype("float32"), np.random.RandomState(1).randn(32, 1).astype("float32")


class Keeps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.kept = []

    def on_epoch_end(self, epoch, logs=None):
        kept = {{}}
        for v in self.model.weights:
            kept[v.path] = dict(numbers(keras.ops.convert_to_numpy(v.value)), shape=list(v.shape), dtype=v.dtype)
            grad = getattr(v.value, "grad", None)
            if {backend == "torch"} and grad is not None:
                kept[v.path + ".grad"] = of_tensor(grad)
        self.kept.append(kept)


@part
def fitted():
    inputs = keras.layers.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(optimizer="sgd", loss="mse")
    keeps = Keeps()
    model.fit(X, Y, epochs=3, batch_size=8, verbose=0, validation_split=0.25, callbacks=[keeps])
    return keeps.kept
''', TF_CPP_MIN_LOG_LEVEL=3)
    part = parts["fitted"]
    compare(t, backend, part.snapshots, part.own)
