"""The smallest sensible loop of each framework: loops.py trainer|lightning|keras|keras-jax|accelerate EPOCHS STEPS. Prints the seconds of each epoch.

A network of 32-16-4 with batches of 8, no logger, no progress bar, no checkpoint: what is left of a step is the framework itself.
"""
import logging
import os
import sys
import time
import warnings

kind, epochs, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
os.environ.update(KERAS_BACKEND="jax" if kind == "keras-jax" else "torch", TRANSFORMERS_VERBOSITY="error", TF_CPP_MIN_LOG_LEVEL="3")
ends = []


def numbers():
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch.randn(8 * steps, 32), torch.randint(0, 4, (8 * steps,))


def network():
    from torch import nn

    return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))


def trainer():
    import torch
    import transformers

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels):
            return {"loss": torch.nn.functional.cross_entropy(self.net(x), labels)}

    class Clock(transformers.TrainerCallback):
        def on_epoch_end(self, *args, **kwargs):
            ends.append(time.perf_counter())

    x, y = numbers()
    data = [{"x": a, "labels": b} for a, b in zip(x, y)]
    settings = transformers.TrainingArguments("out", num_train_epochs=epochs + 1, per_device_train_batch_size=8, logging_strategy="no",
                                              save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    made = transformers.Trainer(Net(), settings, train_dataset=data, callbacks=[Clock()])
    made.remove_callback(transformers.PrinterCallback)
    made.train()


def lightning():
    import torch
    import lightning.pytorch as pl

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, number):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def on_train_epoch_end(self):
            ends.append(time.perf_counter())

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*numbers()), batch_size=8)
    pl.Trainer(max_epochs=epochs + 1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
               accelerator="cpu", devices=1).fit(Net(), data)


def keras():
    import keras

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            ends.append(time.perf_counter())

    x, y = (t.numpy() for t in numbers())
    model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=8, epochs=epochs + 1, verbose=0, callbacks=[Clock()])


def accelerate():
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = network()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*numbers()), batch_size=8)
    net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01), data)
    for _ in range(epochs + 1):
        for x, y in data:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(net(x), y))
            optimizer.step()
        ends.append(time.perf_counter())


{"trainer": trainer, "lightning": lightning, "keras": keras, "keras-jax": keras, "accelerate": accelerate}[kind]()
print(*(b - a for a, b in zip(ends, ends[1:])))
