"""A training on a GPU that needs more memory after some steps than a small GPU has.

It continues from its last checkpoint and prints one loss a step. On a node that sets GPU_CAP_GB, PyTorch gets only that
much of the GPU, as if the GPU were a small one.
"""

from __future__ import annotations

import argparse
import os
import time

import torch

from trainyard.torch import Checkpointer

WIDTH, LAYERS = 2048, 6
SMALL_BATCH, LARGE_BATCH = 1 << 12, 1 << 18  # the large one needs about 30 GiB


def main() -> None:
    given = argparse.ArgumentParser()
    given.add_argument("--seed", type=int, required=True)
    given.add_argument("--steps", type=int, default=60)
    given.add_argument("--small-steps", type=int, default=30)
    given.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
    args = given.parse_args()

    cap = os.environ.get("GPU_CAP_GB")
    total = torch.cuda.get_device_properties(0).total_memory
    if cap:
        torch.cuda.set_per_process_memory_fraction(float(cap) * (1 << 30) / total)
    print(f"{torch.cuda.get_device_name(0)}, {total >> 20} MiB, {cap + ' GiB allowed' if cap else 'not limited'}", flush=True)

    torch.manual_seed(args.seed)
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    checkpoints = Checkpointer({"model": model, "optimizer": optimizer}, every=10)

    step = checkpoints.resume()
    print("begins at", step, flush=True)
    while step < args.steps and checkpoints.proceed(step):
        batch = SMALL_BATCH if step < args.small_steps else LARGE_BATCH
        data = torch.Generator(device="cuda").manual_seed(args.seed * 1000 + step)
        x = torch.randn(batch, WIDTH, device="cuda", generator=data)
        loss = torch.nn.functional.mse_loss(model(x), x.roll(1, 1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        print(f"step {step} loss {loss.item():.9g}", flush=True)
        time.sleep(args.pause)

    checkpoints.save(step, wait=True)
    print(f"finished with {torch.cuda.max_memory_reserved() >> 20} MiB", flush=True)


main()
