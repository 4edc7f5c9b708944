#!/usr/bin/env python3
"""Show which GPUs a run was given, and train with one worker for each.

CUDA_VISIBLE_DEVICES names exactly the GPUs of this run. Every framework obeys it;
here each worker process gets one of them, as a data-parallel training would do.
The arithmetic itself is plain Python on the CPU, so that the example needs no
framework and runs on fake GPUs as well.
"""
import multiprocessing
import os
import random
import shutil
import subprocess
import sys


def gradient(task):
    """Return one worker's share of the gradient of a linear model with its loss, and its device."""
    device, weights, samples = task
    os.environ["CUDA_VISIBLE_DEVICES"] = device
    grad, loss = [0.0] * len(weights), 0.0
    for x, y in samples:
        error = sum(w * v for w, v in zip(weights, x)) - y
        loss += error * error
        for k, v in enumerate(x):
            grad[k] += 2 * error * v
    return grad, loss


def show_real_devices():
    """Print what the driver knows about the devices, if there is a driver."""
    if not shutil.which("nvidia-smi"):
        print("no nvidia-smi on this node: the GPUs are fake or belong to another vendor", flush=True)
        return
    seen = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, check=False)
    print(seen.stdout.strip(), flush=True)


def main():
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    print(f"CUDA_VISIBLE_DEVICES={given}", flush=True)
    devices = [d for d in given.split(",") if d]
    if not devices:
        print("this run was given no GPU", file=sys.stderr)
        return 1
    show_real_devices()

    rng = random.Random(3)
    truth = [rng.uniform(-2, 2) for _ in range(6)]
    samples = []
    for _ in range(3000):
        x = [rng.gauss(0, 1) for _ in truth]
        samples.append((x, sum(w * v for w, v in zip(truth, x)) + rng.gauss(0, 0.1)))

    weights, loss = [0.0] * len(truth), 0.0
    with multiprocessing.Pool(len(devices)) as workers:
        for step in range(1, 61):
            tasks = [(d, weights, samples[n::len(devices)]) for n, d in enumerate(devices)]
            parts = workers.map(gradient, tasks)
            loss = sum(part[1] for part in parts) / len(samples)
            weights = [w - 0.1 * sum(part[0][k] for part in parts) / len(samples) for k, w in enumerate(weights)]
            if step % 10 == 0:
                print(f"step={step} workers={len(devices)} loss={loss:.4f}", flush=True)
    print("done", flush=True)
    return 0 if loss < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
