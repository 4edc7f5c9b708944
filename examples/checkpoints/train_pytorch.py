#!/usr/bin/env python3
"""Train with PyTorch and checkpoints: killed at any step, it continues with the same numbers.

It prints the loss of each step and at the end a digest of its weights, so that two trainings can be compared. Works in
one process, and in several when it is started with torchrun.
"""
import argparse
import hashlib
import os
import time

import torch
import trainyard
from trainyard.torch import Checkpointer, DataLoader


def digest(model):
    weights = b"".join(value.detach().cpu().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(weights).hexdigest()


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--wait", action="store_true", help="wait until each checkpoint is written")
    opt = args.parse_args()

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)  # sums in the same order on every machine
    torch.manual_seed(opt.seed)

    x = torch.linspace(-3, 3, 500).unsqueeze(1)
    data = DataLoader(torch.utils.data.TensorDataset(x, torch.sin(x)), batch_size=16, seed=opt.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opt.steps)

    states = {"model": model, "optimizer": optimizer, "schedule": schedule, "data": data}
    checkpoints = Checkpointer(states, every=opt.every, background=not opt.wait)
    step = checkpoints.resume()
    print(f"starts at step={step}", flush=True)

    while step < opt.steps and checkpoints.proceed(step):
        inputs, wanted = data.next()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        print(f"step={step} loss={loss.item()!r}", flush=True)
        trainyard.log(step, loss=loss)
        trainyard.progress(step, opt.steps)
        time.sleep(opt.pause)

    checkpoints.save(step, wait=True)  # the run must stop, or this is the result
    if step == opt.steps:
        print(f"weights={digest(model)}", flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
