"""Keras 3 on torch: epochs, batches, evaluations and marks are those of its History."""
from harness import test
from keras_common import FITS, ODD, fits_well, is_its_history, well_in_odd_ways
from parts import run_parts

KERAS = '''
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch

torch.set_num_threads(1)
X, Y = np.random.RandomState(0).randn(32, 4).astype("float32"), np.random.RandomState(1).randn(32, 1).astype("float32")


def made(**more):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(**{**dict(optimizer="sgd", loss="mse", metrics=["mae"]), **more})
    return model


def fitted(model, x=X, y=Y, **more):
    return model.fit(x, y, **{**dict(epochs=2, batch_size=8, verbose=0), **more}).history

'''


@test
def fits(t):
    parts = run_parts(t, KERAS + FITS + '''
@part
def plain():
    model = made()
    history = fitted(model)
    is_watched(model)
    return history


@part
def from_loader():
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return made().fit(torch.utils.data.DataLoader(data, batch_size=16), epochs=2, verbose=0).history


@part
def one_by_one_from_loader():
    model, data = made(), torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    for x, y in torch.utils.data.DataLoader(data, batch_size=8):
        model.train_on_batch(x, y)
    return "ok"


@part
def accumulated():  # an update in every second batch
    return fitted(made(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)))


@part
def hooks():
    return ci.health().get("installed_hooks") in (None, ["keras", "torch"])
''')
    fits_well(t, parts)
    plain = parts["plain"]
    is_its_history(plain, plain.own, 2, 4)
    t.equal([len(plain.st.inside(s, x)) for s in plain.of("batch") for x in ("data_load", "backward", "optimizer_step")],
            [1] * 24, "what a batch holds")
    validated = parts["validated"]
    t.equal([(v, s["name"], s["index"]) for v, s in validated.marks("seen")], [(i, "batch", i) for i in range(4)] * 2,
            "marks of a callback")
    t.equal([len(validated.st.inside(s, "data_load")) for s in validated.of("eval")], [2, 2], "data_loads of evaluations")
    for name, batches in ("from_loader", 2), ("accumulated", 4):
        is_its_history(parts[name], parts[name].own, 2, batches)
    t.equal(len(parts["accumulated"].of("optimizer_step")), 4, "updates")
    parts["one_by_one_from_loader"].counts(epoch=1, step=4)
    t.equal(parts["hooks"].own, True, "installed_hooks")


@test
def in_odd_ways(t):
    parts = run_parts(t, KERAS + ODD + '''
class Busy(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        fitted(made(), epochs=1)

    def on_epoch_end(self, epoch, logs=None):
        fitted(made())
        self.model.evaluate(X, Y, verbose=0)


@part
def then_torch():
    net, data = torch.nn.Linear(4, 1), torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in torch.utils.data.DataLoader(data, batch_size=8):
        (net(x) - y).square().mean().backward()
        opt.step()
    return "ok"
''')
    well_in_odd_ways(t, parts)
    parts["then_torch"].counts(epoch=1, step=4)
