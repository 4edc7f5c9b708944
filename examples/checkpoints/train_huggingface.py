#!/usr/bin/env python3
"""Train with the Trainer of Hugging Face and checkpoints: killed at any step, it continues with the same numbers.

It prints the loss of each step and at the end a digest of its weights, so that two trainings can be compared.
"""
import argparse
import hashlib
import time

import torch
import trainyard
import transformers
from trainyard.huggingface import Callback


class Model(torch.nn.Module):
    """Stands for a model of transformers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.layers(x), labels)}


class Printer(transformers.TrainerCallback):
    def __init__(self, pause):
        self.pause = pause

    def on_train_begin(self, args, state, control, **_):
        print(f"starts at step={state.global_step}", flush=True)

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            print(f"step={state.global_step} loss={logs['loss']!r}", flush=True)
        time.sleep(self.pause)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    torch.set_num_threads(1)  # sums in the same order on every machine
    transformers.set_seed(opt.seed)
    x = torch.linspace(-3, 3, 500)
    rows = [{"x": value.reshape(1), "labels": torch.sin(value).reshape(1)} for value in x]
    arguments = transformers.TrainingArguments(
        output_dir=str(trainyard.checkpoint_dir("checkpoints")), max_steps=opt.steps, save_steps=opt.every,
        save_total_limit=2, per_device_train_batch_size=16, learning_rate=0.01, logging_steps=1, seed=opt.seed,
        report_to=[], disable_tqdm=True)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[Callback(), Printer(opt.pause)])

    latest = trainyard.latest_checkpoint()
    trainer.train(resume_from_checkpoint=str(latest.path) if latest else None)  # also returns when the run must stop

    if trainer.state.global_step == opt.steps:
        weights = b"".join(value.cpu().numpy().tobytes() for value in trainer.model.state_dict().values())
        print(f"weights={hashlib.sha256(weights).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
