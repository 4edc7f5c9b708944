#!/usr/bin/env python3
"""Train a small neural network to read 8x8 digits, with nothing but the standard library.

Real gradient descent on generated images: ten drawn digits, shifted, dimmed and
covered with noise. The network has one hidden layer. Every report is one line,

    step=120 epoch=3 loss=0.5123 val_loss=0.4876 val_acc=0.871

and each report is also a checkpoint: $TRAINYARD_CHECKPOINT_DIR/digits.json. A later
run continues from it and gives the very same numbers as a run that was never
stopped. On SIGTERM the program saves once more and leaves with code 143.
"""
import argparse
import json
import math
import os
import random
import signal
import sys

SIDE = 8
PIXELS = SIDE * SIDE
CLASSES = 10

GLYPHS = """
.####.  ..#...  .####.  .####.  #...#.  ######  .####.  ######  .####.  .####.
#....#  .##...  #....#  #....#  #...#.  #.....  #.....  ....#.  #....#  #....#
#....#  ..#...  ....#.  ...##.  ######  #####.  #####.  ...#..  .####.  .#####
#....#  ..#...  ..##..  .....#  ....#.  .....#  #....#  ..#...  #....#  .....#
#....#  ..#...  .#....  #....#  ....#.  #....#  #....#  .#....  #....#  ....#.
.####.  .###..  ######  .####.  ....#.  .####.  .####.  .#....  .####.  .###..
"""


def templates():
    """Return the ten digits as lists of (row, column) in a 6x6 box."""
    rows = [line.split() for line in GLYPHS.strip().splitlines()]
    return [
        [(y, x) for y, row in enumerate(rows) for x, ink in enumerate(row[digit]) if ink == "#"]
        for digit in range(CLASSES)
    ]


def make_images(count, noise, seed):
    """Draw count labelled images. The same seed gives the same images."""
    rng = random.Random(seed)
    shapes = templates()
    images = []
    for n in range(count):
        digit = n % CLASSES
        down, right = rng.randint(0, SIDE - 6), rng.randint(0, SIDE - 6)
        ink = rng.uniform(0.6, 1.0)
        pixels = [rng.gauss(0.0, noise) for _ in range(PIXELS)]
        for y, x in shapes[digit]:
            pixels[(y + down) * SIDE + x + right] += ink
        images.append((pixels, digit))
    return images


class Network:
    """64 inputs, one tanh layer, softmax. Weights are plain lists."""

    def __init__(self, hidden, seed):
        rng = random.Random(seed)
        self.w1 = [[rng.gauss(0, 1 / SIDE) for _ in range(PIXELS)] for _ in range(hidden)]
        self.b1 = [0.0] * hidden
        self.w2 = [[rng.gauss(0, 1 / math.sqrt(hidden)) for _ in range(hidden)] for _ in range(CLASSES)]
        self.b2 = [0.0] * CLASSES

    def forward(self, pixels):
        """Return the hidden values and the probability of each digit."""
        hidden = [math.tanh(b + sum(map(float.__mul__, w, pixels))) for w, b in zip(self.w1, self.b1)]
        scores = [b + sum(map(float.__mul__, w, hidden)) for w, b in zip(self.w2, self.b2)]
        top = max(scores)
        powers = [math.exp(s - top) for s in scores]
        total = sum(powers)
        return hidden, [p / total for p in powers]

    def learn(self, batch, rate):
        """Take one step of stochastic gradient descent; return the batch's mean loss."""
        loss, step = 0.0, rate / len(batch)
        grad1 = [[0.0] * (PIXELS + 1) for _ in self.w1]
        grad2 = [[0.0] * (len(self.w1) + 1) for _ in self.w2]
        for pixels, digit in batch:
            hidden, probs = self.forward(pixels)
            loss -= math.log(max(probs[digit], 1e-12))
            errors = probs[:]
            errors[digit] -= 1.0
            for row, error in zip(grad2, errors):
                row[-1] += error
                for k, h in enumerate(hidden):
                    row[k] += error * h
            for k, h in enumerate(hidden):
                back = sum(e * w[k] for e, w in zip(errors, self.w2)) * (1.0 - h * h)
                row = grad1[k]
                row[-1] += back
                row[:-1] = [g + back * p for g, p in zip(row, pixels)]
        for weights, bias, grads in ((self.w1, self.b1, grad1), (self.w2, self.b2, grad2)):
            for k, row in enumerate(grads):
                bias[k] -= step * row[-1]
                weights[k] = [w - step * g for w, g in zip(weights[k], row)]
        return loss / len(batch)

    def judge(self, images):
        """Return the mean loss and the share of images read correctly."""
        loss, right = 0.0, 0
        for pixels, digit in images:
            probs = self.forward(pixels)[1]
            loss -= math.log(max(probs[digit], 1e-12))
            right += probs.index(max(probs)) == digit
        return loss / len(images), right / len(images)


def save(path, net, step, running):
    """Write a checkpoint beside the old one, then put it in its place: it is whole or absent."""
    with open(path + ".new", "w") as f:
        json.dump({"step": step, "running": running, "weights": vars(net)}, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--epochs", type=int, default=24)
    args.add_argument("--images", type=int, default=2000)
    args.add_argument("--hidden", type=int, default=24)
    args.add_argument("--batch", type=int, default=20)
    args.add_argument("--lr", type=float, default=0.4)
    args.add_argument("--noise", type=float, default=0.15)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--report-every", type=int, default=50, help="steps between two reports")
    opt = args.parse_args()

    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))

    train = make_images(opt.images, opt.noise, opt.seed)
    valid = make_images(300, opt.noise, opt.seed + 1)
    net, step, running = Network(opt.hidden, opt.seed), 0, []

    folder = os.environ.get("TRAINYARD_CHECKPOINT_DIR") or "checkpoint"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "digits.json")
    if os.path.exists(path):
        with open(path) as f:
            saved = json.load(f)
        vars(net).update(saved["weights"])
        step, running = saved["step"], saved["running"]
        print(f"resumed from step={step}", flush=True)

    per_epoch = opt.images // opt.batch
    last = opt.epochs * per_epoch
    order, order_of = [], None
    while step < last:
        if stop:
            save(path, net, step, running)
            print(f"stopped by SIGTERM, saved at step={step}", flush=True)
            return 128 + signal.SIGTERM
        epoch, batch = divmod(step, per_epoch)
        if order_of != epoch:  # shuffled by seed and epoch, so that a resumed run sees the same order
            order, order_of = list(range(opt.images)), epoch
            random.Random(opt.seed * 1000003 + epoch).shuffle(order)
        picked = order[batch * opt.batch:(batch + 1) * opt.batch]
        running.append(net.learn([train[i] for i in picked], opt.lr))
        step += 1
        if step % opt.report_every == 0 or step == last:
            val_loss, val_acc = net.judge(valid)
            loss, running = sum(running) / len(running), []
            save(path, net, step, running)
            print(f"step={step} epoch={epoch + 1} loss={loss:.4f} val_loss={val_loss:.4f} val_acc={val_acc:.3f}", flush=True)

    val_loss, val_acc = net.judge(valid)
    print(f"done step={step} val_loss={val_loss:.4f} val_acc={val_acc:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
