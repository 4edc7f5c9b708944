#!/usr/bin/env python3
"""Fit a linear model to the prepared samples by gradient descent and hand it on as JSON."""
import json

import handover


def loss_of(weights, samples):
    """Return the mean squared error."""
    return sum((sum(map(float.__mul__, weights, x)) - y) ** 2 for x, y in samples) / len(samples)


def main():
    samples = []
    for line in handover.read("samples.csv").split():
        values = [float(v) for v in line.split(",")]
        samples.append((values[:-1] + [1.0], values[-1]))
    train, valid = samples[:1600], samples[1600:]
    weights = [0.0] * len(train[0][0])
    for step in range(1, 101):
        grad = [0.0] * len(weights)
        for x, y in train:
            error = sum(map(float.__mul__, weights, x)) - y
            for k, v in enumerate(x):
                grad[k] += 2 * error * v
        weights = [w - 0.3 * g / len(train) for w, g in zip(weights, grad)]
        if step % 10 == 0:
            print(f"step={step} loss={loss_of(weights, train):.4f} val_loss={loss_of(weights, valid):.4f}", flush=True)
    handover.write("model.json", json.dumps({"weights": weights, "val_loss": loss_of(weights, valid)}))


if __name__ == "__main__":
    main()
