"""Keras 3 on TensorFlow and JAX, and Keras 2, which TensorFlow calls tf.keras: epochs, batches, evaluations and marks are those of its History."""
import os
import subprocess

from harness import Skip, TORCH_PYTHON, test, test_each
from keras_fit import is_its_history
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
    parts = keras_parts(t, way, '''
class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        ci.mark("seen", batch)
        self.logs.append(logs["loss"])


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
def validated():
    callbacks = [Seen()]
    history = fitted(made(), validation_data=(X[:16], Y[:16]), callbacks=callbacks)
    return [history, callbacks[0].logs, [type(x).__name__ for x in callbacks]]


@part
def stopped_early():
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1)
    return fitted(made(optimizer=keras.optimizers.SGD(0.0)), epochs=9, validation_split=0.25, callbacks=[stop])


@part
def goes_on():  # with the third epoch, and every second one validated
    model = made()
    fitted(model)
    with ci.scope("the rest"):
        return fitted(model, initial_epoch=2, epochs=6, validation_data=(X, Y), validation_freq=2)


@part
def from_generator():
    def batches():
        while True:
            yield X[:4], Y[:4]

    return made().fit(batches(), steps_per_epoch=3, epochs=2, verbose=0).history


@part
def evaluated_alone():
    model = made()
    return [model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True), model.predict(X, batch_size=4, verbose=0).shape[0]]


@part
def one_by_one():
    model = made()
    return [model.train_on_batch(X[i:i + 8], Y[i:i + 8], return_dict=True)["loss"] for i in range(0, 32, 8)]


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
    plain = parts["plain"]
    for name in "plain", "shown":
        is_its_history(parts[name], parts[name].own, 2, 4)
    t.equal([plain.st.parent(s)["name"] for s in plain.of("epoch")], ["plain"] * 2, "above the epochs")
    validated = parts["validated"]
    is_its_history(validated, validated.own[0], 2, 4, evals=2)
    t.equal([v for v, _ in validated.marks("loss", "point")], validated.own[1], "loss as the callback saw it")
    t.equal(validated.own[2], ["Seen"], "the list of callbacks")
    t.equal([(v, s["name"]) for v, s in validated.marks("seen")], [(i, "batch") for i in range(4)] * 2, "marks of a callback")
    stopped = parts["stopped_early"]
    is_its_history(stopped, stopped.own, 2, 3, evals=2)
    on = parts["goes_on"]
    rest = on.st.of("the rest")[0]
    t.equal((on.indices("epoch", rest), len(on.st.inside(rest, "batch")), len(on.st.inside(rest, "eval"))), ([2, 3, 4, 5], 16, 2),
            "goes_on")
    t.equal([v for v, _ in on.marks("val_loss", "summary")], on.own["val_loss"], "goes_on: val_loss")
    is_its_history(parts["from_generator"], parts["from_generator"].own, 2, 3)
    alone = parts["evaluated_alone"]
    alone.counts(eval=2)
    t.equal([(v, s["name"]) for v, s in alone.marks("loss")], [(alone.own[0]["loss"], "eval")], "evaluated_alone: loss")
    single = parts["one_by_one"]
    single.counts(batch=4)
    t.equal([(v, s["index"]) for v, s in single.marks("loss")], list(zip(single.own, range(4))), "one_by_one: loss")
    history, ended = parts["uneven"].own
    for part, history, indices in ((parts["several_at_once"], parts["several_at_once"].own, [0, 2] * 2), (parts["uneven"], history, ended)):
        part.counts(epoch=2, batch=len(indices))
        part.equal(part.indices("batch"), indices, "first batches")
        part.equal([v for v, _ in part.marks("loss", "summary")], history["loss"], "loss")
        part.equal(len(part.marks("loss", "point")), len(indices), "losses of batches")
    t.equal(parts["refused"].own, 0, "refused marks")


@test_each(WAYS)
def fits_in_odd_ways_on(t, way):
    parts = keras_parts(t, way, '''
class Fails(keras.callbacks.Callback):
    def __init__(self, where):
        super().__init__()
        self.where = where

    def told(self, where, at=1):
        if self.where == where and at == 1:
            raise ArithmeticError("as told")

    def on_train_batch_begin(self, batch, logs=None):
        self.told("begin", batch)

    def on_train_batch_end(self, batch, logs=None):
        self.told("end", batch)

    def on_epoch_end(self, epoch, logs=None):
        self.told("epoch", epoch)

    def on_test_batch_begin(self, batch, logs=None):
        self.told("test", batch)


@part
def failed():
    caught = 0
    for where in "begin", "end", "epoch", "test":
        try:
            fitted(made(), callbacks=[Fails(where)], validation_data=(X, Y))
        except ArithmeticError:
            caught += 1
    return caught


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


@part
def busy_callback():
    return fitted(made(), callbacks=[Busy()])


@part
def by_hand():
    model, found = made(), []
    for _ in ci.epochs(range(3)):
        found += fitted(model, epochs=1)["loss"]
    return found


@part
def list_alone():  # a loop of the script's own, twice; the first is left by an exception
    found = 0
    for failing in True, False:
        calls, model = keras.callbacks.CallbackList([keras.callbacks.TerminateOnNaN()], model=made()), made()
        try:
            calls.on_train_begin()
            for epoch in range(2):
                calls.on_epoch_begin(epoch)
                for batch in range(3):
                    calls.on_train_batch_begin(batch)
                    logs = model.train_on_batch(X[:8], Y[:8], return_dict=True)
                    if failing and batch == 1:
                        raise ArithmeticError("as told")
                    calls.on_train_batch_end(batch, logs)
                calls.on_epoch_end(epoch, logs)
            calls.on_train_end()
        except ArithmeticError:
            found += 1
        del calls
    return found


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


def in_thread():
    with ci.scope("in the thread"):
        found.append(len(fitted(made())["loss"]))


found = []


@part
def threads():
    one = threading.Thread(target=in_thread)
    one.start()
    one.join()
    return found
''')
    failed = parts["failed"]
    t.equal(failed.own, 4, "exceptions")
    left = [("epoch", "ArithmeticError"), ("batch", "ArithmeticError")]
    t.equal(failed.errors(), left * 2 + [("epoch", "ArithmeticError")] * 2 + [("eval", "ArithmeticError")], "errors")
    failed.counts(epoch=2 + 2 + 1, batch=2 + 2 + 8 + 4, eval=2 + 1)
    parts["no_data"].equal(parts["no_data"].own, "ok", "it failed")
    parts["no_data"].check(not [s for s in parts["no_data"].spans if s["end_ns"] is None], "a span without an end")
    busy = parts["busy_callback"]
    busy.counts(epoch=3, batch=12, eval=2)
    t.equal([v for v, _ in busy.marks("loss", "summary")][1:], busy.own["loss"], "busy_callback: loss")
    t.equal(len(busy.marks("loss", "point")), 12, "busy_callback: losses of batches")
    by_hand = parts["by_hand"]
    by_hand.counts(epoch=3, batch=12)
    t.equal([(v, s["index"]) for v, s in by_hand.marks("loss", "summary")], list(zip(by_hand.own, range(3))), "by_hand: loss")
    alone = parts["list_alone"]
    t.equal((alone.own, alone.indices("epoch"), alone.indices("batch")), (1, [0, 0, 1], [0] + [0, 1, 2] * 2), "list_alone")
    own = parts["own_fit"]
    t.equal(({own.st.parent(s)["name"] for s in own.of("epoch")}, len(own.of("batch"))), ({"own"}, 8), "own_fit")
    is_its_history(parts["eagerly"], parts["eagerly"].own, 2, 4)
    parts["saved"].counts(epoch=3, batch=12, eval=2)
    inside = busy.st.of("in the thread")[0]
    t.equal((len(busy.st.inside(inside, "epoch")), len(busy.st.inside(inside, "batch"))), (2, 8), "spans of the thread")
