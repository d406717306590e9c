"""A training loop of JAX that no framework runs: the same numbers, and what the script says of it itself."""
from harness import test
from parts import run_parts

LOOP = '''
import jax
import jax.numpy as jnp
import numpy as np

X, Y = np.random.RandomState(0).randn(32, 4).astype("float32"), np.random.RandomState(1).randn(32, 1).astype("float32")


def loss_of(w, x, y):
    return jnp.mean((x @ w["w"] + w["b"] - y) ** 2)


@jax.jit
def step(w, x, y):
    loss, grad = jax.value_and_grad(loss_of)(w, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, w, grad), loss


def started():
    return {"w": jax.random.normal(jax.random.PRNGKey(0), (4, 1)), "b": jnp.zeros(())}


def batches():
    for i in range(0, 32, 8):
        yield X[i:i + 8], Y[i:i + 8]


@part
def loop():
    w, found = started(), []
    for epoch in ci.epochs(range(2)):
        for x, y in ci.batches(batches()):
            w, loss = step(w, x, y)
            ci.mark("loss", loss)
            found.append(float(loss))
        with ci.scope("evaluate"):
            ci.mark("val", loss_of(w, X, Y))
    return [found, np.asarray(w["w"]).ravel().tolist()]


@part
def kinds():
    with ci.scope("of kinds"):
        ci.mark("f32", jnp.float32(1.5))
        ci.mark("bf16", jnp.bfloat16(0.5))
        ci.mark("i32", jnp.int32(7))
        ci.mark("one", jnp.ones((1,)))
        ci.mark("nan", jnp.float32("nan"))
        ci.mark("bool", jnp.bool_(True))
        ci.mark("many", jnp.ones((2,)))  # no number
    return ci.health().get("mark_refused_count", 1)


@part
def traced():  # inside of jit a value is none yet; the scope is there once, when it is traced
    @jax.jit
    def inner(x):
        with ci.scope("traced"):
            ci.mark("no value", x)
            return x * 2

    return [float(inner(jnp.float32(x))) for x in range(3)]


@part
def transformed():
    doubled = jax.vmap(lambda x: x * 2)(jnp.arange(3.0))
    scanned = jax.lax.scan(lambda c, x: (c + x, c), 0.0, jnp.arange(4.0))[0]
    called = jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((), jnp.float32), jnp.float32(1))
    return [doubled.tolist(), float(scanned), float(called), str(jax.make_jaxpr(loss_of)(started(), X[:1], Y[:1]))]


@part
def fails():
    try:
        with ci.scope("failing"):
            jax.jit(lambda x: x.reshape(3))(jnp.ones(2))
    except TypeError as e:
        return type(e).__name__


@part
def forked():  # JAX warns of this itself
    import os
    if not os.fork():
        with ci.scope("child"):
            pass
        os._exit(0)
    return os.wait()[1]
'''


@test
def jax_without_a_framework(t):
    parts = run_parts(t, LOOP, JAX_PLATFORMS="cpu")
    loop = parts["loop"]
    loop.counts(epoch=2, batch=8)
    losses, _ = loop.own
    loop.equal([(v, s["name"], s["index"]) for v, s in loop.marks("loss")], [(v, "batch", i % 4) for i, v in enumerate(losses)], "loss")
    loop.equal([s["name"] for _, s in loop.marks("val")], ["evaluate"] * 2, "val")
    kinds = parts["kinds"]
    values = {n: [v for v, _ in kinds.marks(n)] for n in ("f32", "bf16", "i32", "one", "nan", "bool", "many")}
    t.equal(values, {"f32": [1.5], "bf16": [0.5], "i32": [7], "one": [1.0], "nan": ["NaN"], "bool": [True], "many": []}, "kinds")
    parts["fails"].equal(parts["fails"].errors(), [("failing", "TypeError")], "errors")
    parts["traced"].equal([s["name"] for s in parts["traced"].spans], ["traced"], "traced")
    t.equal(parts["forked"].own, 0, "the child")
