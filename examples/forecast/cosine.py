#!/usr/bin/env python3
"""Train a small network with PyTorch until its loss is low enough, at a learning rate that falls along a cosine.

Nothing in here knows of a yard but the target: $TRAINYARD_TARGET holds what the job file says.
The yard reads the lines that are printed:

    step=120 loss=0.2310 val_loss=0.2204 lr=0.0471
"""
import argparse
import json
import os
import sys
import time

import torch


class Teacher:
    """Knows the rule that is to be learned, always the same. Its inputs differ much in size, so that some of it is learned slowly."""

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.sizes = torch.arange(1, 33) ** -0.7
        self.inner = torch.randn(32, 12, generator=generator)
        self.outer = torch.randn(12, 1, generator=generator)
        self.outer /= self.answer(torch.randn(4096, 32, generator=generator) * self.sizes).std()

    def answer(self, x):
        return torch.tanh(0.3 * (x @ self.inner)) @ self.outer

    def samples(self, count, generator):
        """Return inputs and noisy answers."""
        x = torch.randn(count, 32, generator=generator) * self.sizes
        return x, self.answer(x) + 0.2 * torch.randn(count, 1, generator=generator)


def target(default):
    """Return the loss that the job file wants to be reached."""
    wanted = json.loads(os.environ.get("TRAINYARD_TARGET") or "{}")
    return wanted.get("at_most", default)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=1000, help="after which the learning rate is 0")
    args.add_argument("--lr", type=float, default=0.03)
    args.add_argument("--pause", type=float, default=0.04, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(opt.seed)
    generator = torch.Generator().manual_seed(opt.seed)
    teacher, mse = Teacher(), torch.nn.functional.mse_loss
    student = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    x_held, y_held = teacher.samples(1024, torch.Generator().manual_seed(8))
    optimizer = torch.optim.SGD(student.parameters(), lr=opt.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opt.steps)
    goal, running = target(0.0), 0.0
    for step in range(1, opt.steps + 1):
        x, y = teacher.samples(16, generator)
        loss = mse(student(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.item() / 10
        time.sleep(opt.pause)
        if step % 10:
            continue
        with torch.no_grad():
            value = mse(student(x_held), y_held).item()
        print(f"step={step} loss={running:.4f} val_loss={value:.4f} lr={schedule.get_last_lr()[0]:.4f}", flush=True)
        running = 0.0
        if value <= goal:
            print(f"val_loss is {value:.4f}: that is enough", flush=True)
            return 0
    return 1 if goal else 0


if __name__ == "__main__":
    sys.exit(main())
