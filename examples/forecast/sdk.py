#!/usr/bin/env python3
"""Train and report metrics with the Python package trainyard; on a stop, save a checkpoint and resume from it later.

The same program runs without a yard: nothing is reported then.
"""
import argparse
import json
import os
import sys

import trainyard
from small import Training


def save(path, training):
    """Write a checkpoint beside the old one, then put it in its place: it is whole or absent."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(training.state()))
    os.replace(new, path)
    trainyard.checkpoint_saved(path, training.steps)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=600)
    args.add_argument("--pause", type=float, default=0.04, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    training = Training(opt.seed, pause=opt.pause)
    path = trainyard.checkpoint_dir("checkpoint") / "training.json"
    if path.exists():
        training.restore(json.loads(path.read_text()))
        trainyard.checkpoint_restored(path, training.steps)
    trainyard.stopping()  # from now on a stop is a request that this program handles, not a kill
    print("starts" if not training.steps else f"resumes from step {training.steps}", flush=True)
    while training.steps < opt.steps:
        if trainyard.stopping():
            save(path, training)
            print(f"stops at step {training.steps}", flush=True)
            return 143
        loss = training.step()
        trainyard.progress(training.steps, opt.steps)
        if training.steps % 10 == 0:
            trainyard.log(training.steps, loss=loss, val_loss=training.judge())
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
