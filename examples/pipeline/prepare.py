#!/usr/bin/env python3
"""Generate measurements of a noisy line with three inputs and hand them on as CSV."""
import random

import handover

WEIGHTS = (2.0, -1.0, 0.5)
BIAS = 0.25


def main():
    rng = random.Random(7)
    lines = []
    for _ in range(2000):
        x = [rng.uniform(-1, 1) for _ in WEIGHTS]
        y = BIAS + sum(w * v for w, v in zip(WEIGHTS, x)) + rng.gauss(0, 0.1)
        lines.append(",".join(repr(v) for v in x + [y]))
    handover.write("samples.csv", "\n".join(lines) + "\n")
    print(f"samples={len(lines)}", flush=True)


if __name__ == "__main__":
    main()
