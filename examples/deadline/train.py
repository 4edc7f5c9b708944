#!/usr/bin/env python3
"""Fit a curve and report progress to the yard.

At every report it saves itself to $TRAINYARD_CHECKPOINT_DIR and then writes how
many steps are done to the file that $TRAINYARD_PROGRESS names. On SIGTERM it
does both once more, so that the yard knows what the next run need not do again.
"""
import argparse
import json
import math
import os
import random
import signal
import sys

DEGREE, BATCH, REPORT_EVERY = 5, 32, 500
stopping = False


def stop(*_):
    global stopping
    stopping = True


def replace(path, value):
    """Write JSON atomically: a reader sees the old text or the new one."""
    with open(path + ".new", "w") as f:
        json.dump(value, f)
    os.replace(path + ".new", path)


def tell(done):
    """Report the progress of the job, over all its runs, in the units of speed.work."""
    path = os.environ.get("TRAINYARD_PROGRESS")
    if path:
        replace(path, {"done": done})


def train_step(weights, chance):
    """One step of gradient descent on a batch of points of a sine; returns the loss."""
    gradient, loss = [0.0] * len(weights), 0.0
    for _ in range(BATCH):
        x = chance.uniform(-1, 1)
        powers = [x**n for n in range(len(weights))]
        error = sum(w * p for w, p in zip(weights, powers)) - math.sin(3 * x)
        loss += error * error / BATCH
        for n, p in enumerate(powers):
            gradient[n] += 2 * error * p / BATCH
    for n, g in enumerate(gradient):
        weights[n] -= 0.2 * g
    return loss


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=20000)
    steps = args.parse_args().steps
    signal.signal(signal.SIGTERM, stop)
    folder = os.environ.get("TRAINYARD_CHECKPOINT_DIR") or "ckpt"
    os.makedirs(folder, exist_ok=True)
    checkpoint = os.path.join(folder, "state.json")

    state = {"step": 0, "weights": [0.0] * (DEGREE + 1)}
    if os.path.exists(checkpoint):
        with open(checkpoint) as f:
            state = json.load(f)
        print(f"resumed from step={state['step']}", flush=True)
    while state["step"] < steps and not stopping:
        loss = train_step(state["weights"], random.Random(state["step"]))
        state["step"] += 1
        if state["step"] % REPORT_EVERY == 0:
            replace(checkpoint, state)
            tell(state["step"])
            print(f"step={state['step']} loss={loss:.6f}", flush=True)
    replace(checkpoint, state)
    tell(state["step"])
    if stopping:
        print(f"stopped by SIGTERM, saved at step={state['step']}", flush=True)
        return 128 + signal.SIGTERM
    print(f"done={state['step']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
