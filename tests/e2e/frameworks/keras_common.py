"""What holds for every Keras, whichever version and backend: parts of scripts, and what their spans have to be."""

FITS = '''
class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_end(self, batch, logs=None):
        ci.mark("seen", batch)
        self.logs.append(logs["loss"])


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


'''

ODD = '''
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


'''


def is_its_history(part, history, epochs, batches, evals=0, first_epoch=0, steps_per_batch=1):
    part.counts(epoch=epochs, batch=epochs * batches, eval=evals)
    part.equal(part.indices("epoch"), list(range(first_epoch, first_epoch + epochs)), "indices of epochs")
    part.equal(part.indices("batch"), [*range(batches)] * epochs, "indices of batches")
    part.check(all(part.st.parent(s)["name"] == "epoch" for s in part.of("batch")), "a batch outside the epochs")
    for name, values in history.items():
        part.equal([(v, s["name"], s["index"] - first_epoch) for v, s in part.marks(name, "summary")],
                   [(v, "epoch", i) for i, v in enumerate(values)], f"{name} of the epochs")
        if not name.startswith("val_"):
            part.equal([(s["name"], s["index"]) for _, s in sorted(part.marks(name, "point"), key=lambda x: x[1]["id"])],
                       [("batch", i) for i in range(batches)] * epochs, f"{name} on the batches")
    part.equal(part.errors(), [], "errors")


def fits_well(t, parts):
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


def well_in_odd_ways(t, parts):
    failed = parts["failed"]
    t.equal(failed.own, 4, "exceptions")
    left = [("epoch", "ArithmeticError"), ("batch", "ArithmeticError")]
    t.equal(failed.errors(), left * 2 + [("epoch", "ArithmeticError")] * 2 + [("eval", "ArithmeticError")], "errors")
    failed.counts(epoch=2 + 2 + 1, batch=2 + 2 + 8 + 4, eval=2 + 1)
    busy = parts["busy_callback"]
    busy.counts(epoch=3, batch=12, eval=2)
    t.equal([v for v, _ in busy.marks("loss", "summary")][1:], busy.own["loss"], "busy_callback: loss")
    t.equal(len(busy.marks("loss", "point")), 12, "busy_callback: losses of batches")
    by_hand = parts["by_hand"]
    by_hand.counts(epoch=3, batch=12)
    t.equal([(v, s["index"]) for v, s in by_hand.marks("loss", "summary")], list(zip(by_hand.own, range(3))), "by_hand: loss")
    alone = parts["list_alone"]
    t.equal((alone.own, alone.indices("epoch"), alone.indices("batch")), (1, [0, 0, 1], [0] + [0, 1, 2] * 2), "list_alone")
    inside = busy.st.of("in the thread")[0]
    t.equal((len(busy.st.inside(inside, "epoch")), len(busy.st.inside(inside, "batch"))), (2, 8), "spans of the thread")
