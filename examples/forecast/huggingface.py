#!/usr/bin/env python3
"""Train as transformers' Trainer does, with its own arguments, state and callbacks, without any code for the yard.

Trainer tells whoever runs it how it goes if the environment says where to (KUBEFLOW_TRAINER_SERVER_URL), and in a yard
it does. Its newest releases want a newer PyTorch than Debian's, so here the loop around the callbacks is
written out; what is sent, when and how is transformers' own. With a PyTorch that is new enough a program that
uses Trainer needs nothing of this.
"""
import argparse
import time

import torch
from transformers import TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback, TrainerControl, TrainerState


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--pause", type=float, default=0.04, help="seconds to wait at each step, as if the model were larger")
    parser.add_argument("--seed", type=int, default=1)
    opt = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(opt.seed)
    teacher, student = torch.nn.Linear(32, 4), torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(1 - step / opt.steps, 0))  # Trainer's own: a line to 0

    args = TrainingArguments("out", max_steps=opt.steps, logging_steps=5, use_cpu=True, report_to="none", disable_tqdm=True)
    state, control = TrainerState(max_steps=opt.steps), TrainerControl()
    state.compute_steps(args, opt.steps)
    callbacks = [DefaultFlowCallback, *get_reporting_integration_callbacks(args.report_to)]
    handler = CallbackHandler(callbacks, student, None, optimizer, schedule)
    control = handler.on_train_begin(args, state, control)
    total = 0.0
    for _ in range(opt.steps):
        control = handler.on_step_begin(args, state, control)
        x = torch.randn(16, 32)
        with torch.no_grad():
            labels = teacher(x).argmax(1)
        loss = torch.nn.functional.cross_entropy(student(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        time.sleep(opt.pause)
        total += loss.item()
        state.global_step += 1
        state.epoch = state.global_step / 100
        control = handler.on_step_end(args, state, control)
        if control.should_log:
            logs = {"loss": total / state.logging_steps, "learning_rate": schedule.get_last_lr()[0], "epoch": state.epoch}
            control = handler.on_log(args, state, control, logs)
            total = 0.0
    handler.on_train_end(args, state, control)


if __name__ == "__main__":
    main()
