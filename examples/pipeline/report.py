#!/usr/bin/env python3
"""Compare the trained model with the truth the samples were drawn from."""
import json
import sys

import handover
from prepare import BIAS, WEIGHTS


def main():
    model = json.loads(handover.read("model.json"))
    lines = ["| weight | truth | learned |", "| --- | --- | --- |"]
    worst = 0.0
    for name, truth, learned in zip(("w0", "w1", "w2", "bias"), WEIGHTS + (BIAS,), model["weights"]):
        lines.append(f"| {name} | {truth:.3f} | {learned:.3f} |")
        worst = max(worst, abs(truth - learned))
    print("\n".join(lines))
    handover.write("report.md", "\n".join(lines) + "\n")
    print(f"val_loss={model['val_loss']:.4f} worst_error={worst:.4f}", flush=True)
    return 0 if worst < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
