#!/usr/bin/env python3
"""Train without printing anything: its metrics are in TensorBoard files only, in the folder runs.

Stops when the loss on held-out samples is what the job file wants ($TRAINYARD_TARGET).
"""
import argparse
import json
import os
import sys
import time

from small import Training
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--most", type=int, default=3000, help="steps after which it gives up")
    args.add_argument("--pause", type=float, default=0.04, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    goal = json.loads(os.environ.get("TRAINYARD_TARGET") or "{}").get("at_most", 0.25)
    training = Training(opt.seed, pause=opt.pause)
    writer = EventFileWriter("runs", flush_secs=1)
    loss = 0.0
    try:
        while training.steps < opt.most:
            loss += training.step() / 10
            if training.steps % 10:
                continue
            value = training.judge()
            for tag, number in (("loss", loss), ("val_loss", value)):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=number)])
                writer.add_event(Event(wall_time=time.time(), step=training.steps, summary=summary))
            loss = 0.0
            if value <= goal:
                return 0
    finally:
        writer.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
