"""TensorFlow under the agent is what it is without: tf.data, graphs that AutoGraph made of the script's functions, saved models, processes."""
from harness import Skip, test
from keras_backends import HAS_TENSORFLOW, KERAS, TENSORFLOW_PYTHON
from parts import run_parts

PARTS = '''
import tensorflow as tf
tf.random.set_seed(0)


@tf.function
def collatz(n):  # AutoGraph reads and changes the source of this
    steps = 0
    while n > 1:
        with tf.name_scope("body"):
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
        steps += 1
    return steps


def halved(x):
    for i in tf.range(3):
        if x > 1.0:
            x = x / 2.0
    return x


@part
def graphs():
    code = tf.autograph.to_code(halved)
    return [int(collatz(tf.constant(27))), float(tf.function(halved)(tf.constant(100.0))), len(code), str(collatz.get_concrete_function(
        tf.TensorSpec((), tf.int32)).graph.as_graph_def())[-500:]]


@part
def scopes_while_traced():  # once, when the graph is made
    @tf.function
    def traced(x):
        with ci.scope("traced"):
            return x * 2

    with ci.scope("outside"):
        return [float(traced(tf.constant(1.0))) for _ in range(3)]


@part
def pipelines():
    def numbers():
        for i in range(12):
            yield i

    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec((), tf.int32))
    data = data.map(lambda x: tf.py_function(lambda v: v * 2, [x], tf.int32), num_parallel_calls=2).batch(4).prefetch(2)
    shuffled = tf.data.Dataset.range(10).shuffle(10, seed=1).interleave(lambda x: tf.data.Dataset.from_tensors(x), num_parallel_calls=2)
    return [[x.numpy().tolist() for x in data], [int(x) for x in shuffled]]


@part
def raw_loop():  # no framework runs it: the script says what its epochs and batches are
    weights, optimizer = tf.Variable(tf.zeros((4, 1))), keras.optimizers.SGD(0.1)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ weights - y) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    found = []
    for epoch in ci.epochs(range(2)):
        for x, y in ci.batches(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)):
            loss = step(x, y)
            ci.mark("loss", loss)
            found.append(float(loss))
    return found


class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"own": loss}


@part
def own_step():
    return fitted(made(Own, metrics=None), x=tf.data.Dataset.from_tensor_slices((X, Y)).batch(8), y=None, batch_size=None)


@part
def saved_model():
    module, at = tf.Module(), os.path.join(tempfile.mkdtemp(), "m")
    module.f = tf.function(halved, input_signature=[tf.TensorSpec((), tf.float32)])
    tf.saved_model.save(module, at)
    return float(tf.saved_model.load(at).f(tf.constant(9.0)))


class Slices(keras.utils.Sequence if WAY == "tf.keras" else keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return X[i * 8:i * 8 + 8], Y[i * 8:i * 8 + 8]


@part
def processes():
    if WAY == "tf.keras":
        return made().fit(Slices(), epochs=1, verbose=0, shuffle=False, workers=2, use_multiprocessing=True).history
    return made().fit(Slices(workers=2, use_multiprocessing=True), epochs=1, verbose=0, shuffle=False).history


@part
def failing():
    @tf.function
    def bad(x):
        tf.debugging.assert_less(x, 1.0, message="too large")
        return x

    try:
        bad(tf.constant(2.0))
    except tf.errors.InvalidArgumentError as e:
        return type(e).__name__
'''


def as_ever(t, way):
    if not HAS_TENSORFLOW:
        raise Skip(f"no tensorflow under {TENSORFLOW_PYTHON}")
    t.python = TENSORFLOW_PYTHON
    parts = run_parts(t, KERAS % way + PARTS, TF_CPP_MIN_LOG_LEVEL=3)
    raw = parts["raw_loop"]
    raw.counts(epoch=2, batch=8)
    raw.equal([(v, s["name"]) for v, s in raw.marks("loss")], [(v, "batch") for v in raw.own], "loss")
    own = parts["own_step"]
    own.counts(epoch=2, batch=8)
    own.equal([v for v, _ in own.marks("own", "summary")], own.own["own"], "own loss")
    parts["processes"].counts(epoch=1, batch=4)
    traced = parts["scopes_while_traced"]
    traced.equal([s["name"] for s in traced.spans], ["outside", "traced"], "spans")
    for name in "graphs", "pipelines", "saved_model", "failing":
        parts[name].equal(parts[name].spans, [], "spans")


if HAS_TENSORFLOW:

    @test
    def tensorflow_with_keras_3(t):
        as_ever(t, "tensorflow")

    @test
    def tensorflow_with_keras_2(t):
        as_ever(t, "tf.keras")
