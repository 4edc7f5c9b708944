#!/usr/bin/env python3
"""Fits a small network to a spiral by gradient descent, at a steady pace.

It saves itself to $TRAINYARD_CHECKPOINT_DIR and tells how many steps are done in the
file that $TRAINYARD_PROGRESS names. On SIGTERM it does both once more. The GPUs
of the demo are declared and not real: so that a run takes as long on every machine as
its job file says, the program makes --rate steps a second and rests in between.
"""
import argparse
import json
import math
import os
import random
import signal
import sys
import time

HIDDEN, BATCH = 8, 16
stopping = False


def stop(*_):
    global stopping
    stopping = True


def replace(path, value):
    """Write JSON atomically: a reader sees the old text or the new one."""
    with open(path + ".new", "w") as f:
        json.dump(value, f)
    os.replace(path + ".new", path)


def save(path, state):
    """Save the state and report the work that the next run can skip."""
    replace(path, state)
    progress = os.environ.get("TRAINYARD_PROGRESS")
    if progress:
        replace(progress, {"done": state["step"]})


def fresh(chance):
    """The state before the first step."""
    row = lambda n: [chance.uniform(-1, 1) for _ in range(n)]
    return {"step": 0, "loss": 0.0, "inner": [row(3) for _ in range(HIDDEN)], "outer": row(HIDDEN + 1)}


def point(chance):
    """A point of one of two spiral arms, and which of them."""
    arm, turn = chance.choice((0, 1)), chance.uniform(0.3, 3.5)
    angle = turn + arm * math.pi
    return turn * math.cos(angle) / 3, turn * math.sin(angle) / 3, float(arm)


def train_step(state, lr):
    """One step of gradient descent on a batch; returns the loss."""
    chance, inner, outer = random.Random(state["step"]), state["inner"], state["outer"]
    inner_gradient, outer_gradient, loss = [[0.0] * 3 for _ in inner], [0.0] * len(outer), 0.0
    for _ in range(BATCH):
        x, y, arm = point(chance)
        hidden = [math.tanh(a * x + b * y + c) for a, b, c in inner]
        guess = 1 / (1 + math.exp(-sum(w * h for w, h in zip(outer, hidden)) - outer[HIDDEN]))
        loss -= math.log(max(guess if arm else 1 - guess, 1e-9)) / BATCH
        error = (guess - arm) / BATCH
        outer_gradient[HIDDEN] += error
        for n, h in enumerate(hidden):
            outer_gradient[n] += error * h
            back = error * outer[n] * (1 - h * h)
            for k, value in enumerate((x, y, 1.0)):
                inner_gradient[n][k] += back * value
    for n, g in enumerate(outer_gradient):
        outer[n] -= lr * g
    for weights, gradient in zip(inner, inner_gradient):
        for k, g in enumerate(gradient):
            weights[k] -= lr * g
    return loss


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=600)
    args.add_argument("--rate", type=float, default=60, help="steps a second")
    args.add_argument("--lr", type=float, default=1.0)
    opt = args.parse_args()
    signal.signal(signal.SIGTERM, stop)
    folder = os.environ.get("TRAINYARD_CHECKPOINT_DIR") or "ckpt"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "state.json")

    state = fresh(random.Random(1))
    if os.path.exists(path):
        with open(path) as f:
            state = json.load(f)
        print(f"resumed from step={state['step']}", flush=True)
    begun, first, report = time.monotonic(), state["step"], max(1, opt.steps // 10)
    while state["step"] < opt.steps and not stopping:
        loss = train_step(state, opt.lr)
        state["step"] += 1
        state["loss"] = loss if state["step"] == 1 else 0.95 * state["loss"] + 0.05 * loss
        if state["step"] % report == 0:
            save(path, state)
            print(f"step={state['step']} loss={state['loss']:.4f}", flush=True)
        time.sleep(max(0.0, begun + (state["step"] - first) / opt.rate - time.monotonic()))
    save(path, state)
    if stopping:
        print(f"stopped by SIGTERM, saved at step={state['step']}", flush=True)
        return 128 + signal.SIGTERM
    print(f"done={state['step']} loss={state['loss']:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
