#!/usr/bin/env python3
"""Train with Keras and checkpoints: killed at any step, it continues with the same numbers.

Keras can begin with any epoch, but not within one. So this training is one epoch, from the step at which it continues to
its end, and the data of a step follow from its number. It prints the mean loss since its start, and at the end a digest
of its weights, so that two trainings can be compared.
"""
import argparse
import hashlib
import time

import keras
import numpy
import trainyard
from trainyard.keras import Callback


class Data(keras.utils.PyDataset):
    """Gives the batches from a step on, the same ones whenever it is asked for them."""

    def __init__(self, seed, first, steps):
        super().__init__()
        self.seed, self.first, self.steps = seed, first, steps

    def __len__(self):
        return self.steps - self.first

    def __getitem__(self, index):
        x = numpy.random.default_rng((self.seed, self.first + index)).uniform(-3, 3, (16, 1)).astype("float32")
        return x, numpy.sin(x)


class Printer(keras.callbacks.Callback):
    def __init__(self, pause):
        super().__init__()
        self.pause = pause

    def on_train_batch_end(self, batch, logs=None):
        print(f"step={int(self.model.optimizer.iterations)} mean_loss={float(logs['loss'])!r}", flush=True)
        time.sleep(self.pause)


def build():
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    keras.utils.set_random_seed(opt.seed)
    latest = trainyard.latest_checkpoint()
    if latest:
        model = keras.models.load_model(latest.path / "model.keras")
        trainyard.checkpoint_restored(latest, latest.step)
    else:
        model = build()
    step = int(model.optimizer.iterations)
    print(f"starts at step={step}", flush=True)

    if step < opt.steps:
        saver = Callback(save_to=trainyard.checkpoint_dir("checkpoints"), every=opt.every)
        model.fit(Data(opt.seed, step, opt.steps), shuffle=False, verbose=0, callbacks=[saver, Printer(opt.pause)])

    if int(model.optimizer.iterations) == opt.steps:
        weights = b"".join(value.tobytes() for value in model.get_weights())
        print(f"weights={hashlib.sha256(weights).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
