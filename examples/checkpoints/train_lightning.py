#!/usr/bin/env python3
"""Train with Lightning and checkpoints: killed at any step, it continues with the same numbers.

It prints the loss of each step and at the end a digest of its weights, so that two trainings can be compared. Lightning
2.2 or later saves the position in the data.
"""
import argparse
import hashlib
import time

import lightning.pytorch as pl
import torch
import trainyard
from trainyard.lightning import Callback
from trainyard.torch import DataLoader


class Model(pl.LightningModule):
    def __init__(self, pause):
        super().__init__()
        self.pause = pause
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))

    def on_train_start(self):
        print(f"starts at step={self.global_step}", flush=True)

    def training_step(self, batch, index):
        inputs, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs), wanted)
        print(f"step={self.global_step + 1} loss={loss.item()!r}", flush=True)
        time.sleep(self.pause)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    torch.set_num_threads(1)  # sums in the same order on every machine
    pl.seed_everything(opt.seed)
    x = torch.linspace(-3, 3, 500).unsqueeze(1)
    data = DataLoader(torch.utils.data.TensorDataset(x, torch.sin(x)), batch_size=16, seed=opt.seed)
    model = Model(opt.pause)

    saver = Callback(save_to=trainyard.checkpoint_dir("checkpoints"), every=opt.every)
    trainer = pl.Trainer(
        max_steps=opt.steps, callbacks=[saver], enable_checkpointing=False, logger=False, enable_progress_bar=False)
    latest = trainyard.latest_checkpoint()
    trainer.fit(model, data, ckpt_path=latest.path / "lightning.ckpt" if latest else None)

    if trainer.global_step == opt.steps:
        weights = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
        print(f"weights={hashlib.sha256(weights).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
