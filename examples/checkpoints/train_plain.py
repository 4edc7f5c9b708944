#!/usr/bin/env python3
"""Train a small network with checkpoints, in plain Python: killed at any step, it continues with the same numbers.

It prints the loss of each step and at the end a digest of its weights, so that two trainings can be compared.
"""
import argparse
import hashlib
import json
import math
import random
import time

import trainyard

HIDDEN = 16


class Training:
    """Learns sin(x) by stochastic gradient descent, with noise on its gradients. All its state is in state()."""

    def __init__(self, seed):
        self.step = 0
        self.rng = random.Random(seed)
        self.inner = [self.rng.gauss(0, 1) for _ in range(2 * HIDDEN)]
        self.outer = [self.rng.gauss(0, 0.3) for _ in range(HIDDEN)]

    def advance(self, rate=0.05, batch=8):
        """Take one step; return its loss."""
        loss = 0.0
        for _ in range(batch):
            x = self.rng.uniform(-3, 3)
            units = [math.tanh(self.inner[2 * k] * x + self.inner[2 * k + 1]) for k in range(HIDDEN)]
            error = sum(map(float.__mul__, self.outer, units)) - math.sin(x)
            loss += error * error / batch
            for k, unit in enumerate(units):
                back = error * self.outer[k] * (1 - unit * unit)
                self.outer[k] -= rate / batch * (error * unit + self.rng.gauss(0, 0.01))
                self.inner[2 * k] -= rate / batch * back * x
                self.inner[2 * k + 1] -= rate / batch * back
        self.step += 1
        return loss

    def state(self):
        """Return everything that the next step depends on, the random numbers too."""
        return {"step": self.step, "inner": self.inner, "outer": self.outer, "rng": self.rng.getstate()}

    def restore(self, state):
        self.step, self.inner, self.outer = state["step"], state["inner"], state["outer"]
        version, numbers, next_gauss = state["rng"]
        self.rng.setstate((version, tuple(numbers), next_gauss))

    def digest(self):
        return hashlib.sha256(json.dumps([self.inner, self.outer]).encode()).hexdigest()


def save(training):
    with trainyard.saving(training.step) as folder:
        (folder / "state.json").write_text(json.dumps(training.state()))


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=300)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    training = Training(opt.seed)
    latest = trainyard.latest_checkpoint()
    if latest:
        training.restore(json.loads((latest.path / "state.json").read_text()))
        trainyard.checkpoint_restored(latest, training.step)
    print(f"starts at step={training.step}", flush=True)

    while training.step < opt.steps and not trainyard.stopping():
        loss = training.advance()
        print(f"step={training.step} loss={loss!r}", flush=True)
        trainyard.log(training.step, loss=loss)
        trainyard.progress(training.step, opt.steps)
        if trainyard.should_save(training.step, every=opt.every):
            save(training)
        time.sleep(opt.pause)

    save(training)  # the run must stop, or this is the result
    if training.step == opt.steps:
        print(f"weights={training.digest()}", flush=True)


if __name__ == "__main__":
    main()
