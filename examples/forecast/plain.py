#!/usr/bin/env python3
"""Train and print a line an epoch, as most programs do. The yard reads the lines as they are:

    epoch 3/40 loss=0.7512 val_loss=0.6120
"""
import argparse

from small import Training


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--epochs", type=int, default=40)
    args.add_argument("--steps", type=int, default=20, help="of an epoch")
    args.add_argument("--pause", type=float, default=0.04, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    training = Training(opt.seed, pause=opt.pause)
    for epoch in range(1, opt.epochs + 1):
        loss = sum(training.step() for _ in range(opt.steps)) / opt.steps
        print(f"epoch {epoch}/{opt.epochs} loss={loss:.4f} val_loss={training.judge():.4f}", flush=True)
    print(f"done val_loss={training.judge():.4f}", flush=True)


if __name__ == "__main__":
    main()
