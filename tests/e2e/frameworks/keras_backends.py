"""Keras 3 on TensorFlow and JAX, and Keras 2, which TensorFlow calls tf.keras: epochs, batches, evaluations and marks are those of its History."""
import os
import subprocess

from harness import Skip, TORCH_PYTHON, test, test_each
from keras_common import FITS, ODD, fits_well, is_its_history, well_in_odd_ways
from parts import run_parts

TENSORFLOW_PYTHON = os.environ.get("TENSORFLOW_PYTHON") or TORCH_PYTHON
HAS_TENSORFLOW = not subprocess.run([TENSORFLOW_PYTHON, "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('tensorflow'))"],
                                    capture_output=True).returncode
WAYS = ["jax"] + ["tensorflow", "tf.keras"] * HAS_TENSORFLOW

KERAS = '''
import importlib.util
WAY = "%s"
os.environ.update(KERAS_BACKEND=WAY, TF_ENABLE_ONEDNN_OPTS="0")
if importlib.util.find_spec("tf_keras"):  # tf.keras is of TensorFlow's own up to 2.15
    os.environ["TF_USE_LEGACY_KERAS"] = str(int(WAY == "tf.keras"))
if WAY == "tf.keras":
    import tensorflow
    keras = tensorflow.keras
else:
    import keras
import numpy as np

X, Y = np.random.RandomState(0).randn(32, 4).astype("float32"), np.random.RandomState(1).randn(32, 1).astype("float32")


def made(model_class=keras.Model, **more):
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input((4,))
    x = keras.layers.Dense(8, activation="relu")(inputs)
    model = model_class(inputs, keras.layers.Dense(1)(x))
    model.compile(**{**dict(optimizer="sgd", loss="mse", metrics=["mae"]), **more})
    return model


def fitted(model, x=X, y=Y, **more):
    return model.fit(x, y, **{**dict(epochs=2, batch_size=8, verbose=0), **more}).history

'''


def keras_parts(t, way, body):
    t.python = TORCH_PYTHON if way == "jax" else TENSORFLOW_PYTHON
    return run_parts(t, KERAS % way + body, TF_CPP_MIN_LOG_LEVEL=3)


@test
def on_tensorflow(t):
    if not HAS_TENSORFLOW:
        raise Skip(f"no tensorflow under {TENSORFLOW_PYTHON}: Keras on TensorFlow and tf.keras were not run")


@test_each(WAYS)
def fits_on(t, way):
    parts = keras_parts(t, way, FITS + '''
@part
def plain():
    return fitted(made())


@part
def shown():  # the progress bar makes numbers of its own
    sys.stdout, kept = open(os.devnull, "w"), sys.stdout
    try:
        return fitted(made(), verbose=1)
    finally:
        sys.stdout = kept


@part
def several_at_once():
    return fitted(made(steps_per_execution=2))


class Ends(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.ended = []

    def on_train_batch_begin(self, batch, logs=None):
        self.began = batch

    def on_train_batch_end(self, batch, logs=None):
        self.ended.append(self.began)


@part
def uneven():  # the last execution has one step left, which Keras 3.0 on TensorFlow does not tell of
    ends = Ends()
    return [fitted(made(steps_per_execution=3), callbacks=[ends]), ends.ended]


@part
def refused():
    return ci.health().get("mark_refused_count", 0)
''')
    fits_well(t, parts)
    plain = parts["plain"]
    for name in "plain", "shown":
        is_its_history(parts[name], parts[name].own, 2, 4)
    t.equal([plain.st.parent(s)["name"] for s in plain.of("epoch")], ["plain"] * 2, "above the epochs")
    history, ended = parts["uneven"].own
    for part, history, indices in ((parts["several_at_once"], parts["several_at_once"].own, [0, 2] * 2), (parts["uneven"], history, ended)):
        part.counts(epoch=2, batch=len(indices))
        part.equal(part.indices("batch"), indices, "first batches")
        part.equal([v for v, _ in part.marks("loss", "summary")], history["loss"], "loss")
        part.equal(len(part.marks("loss", "point")), len(indices), "losses of batches")
    t.equal(parts["refused"].own, 0, "refused marks")


@test_each(WAYS)
def fits_in_odd_ways_on(t, way):
    parts = keras_parts(t, way, ODD + '''
@part
def no_data():
    try:
        fitted(made(), x=X[:, :3])
    except Exception as e:
        return "ok"


class Busy(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        fitted(made(), epochs=1)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.model.evaluate(X, Y, verbose=0)

    def on_epoch_end(self, epoch, logs=None):
        fitted(made())


class Own(keras.Model):
    def fit(self, *args, **kwargs):
        with ci.scope("own"):
            return super().fit(*args, **kwargs)


@part
def own_fit():
    return fitted(made(Own))


@part
def eagerly():
    return fitted(made(run_eagerly=True))


@part
def saved():
    model = made()
    fitted(model)
    path = os.path.join(tempfile.mkdtemp(), "model.keras")
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(model.predict(X, verbose=0), again.predict(X, verbose=0))
    return fitted(again, epochs=1)
''')
    well_in_odd_ways(t, parts)
    parts["no_data"].equal(parts["no_data"].own, "ok", "it failed")
    parts["no_data"].check(not [s for s in parts["no_data"].spans if s["end_ns"] is None], "a span without an end")
    own = parts["own_fit"]
    t.equal(({own.st.parent(s)["name"] for s in own.of("epoch")}, len(own.of("batch"))), ({"own"}, 8), "own_fit")
    is_its_history(parts["eagerly"], parts["eagerly"].own, 2, 4)
    parts["saved"].counts(epoch=3, batch=12, eval=2)
