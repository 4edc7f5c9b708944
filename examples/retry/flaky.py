#!/usr/bin/env python3
"""A training that breaks down once, to show what a retry does.

The first run stops with an error at step 30. The yard starts it again with the
same $TRAINYARD_CHECKPOINT_DIR, and the second run goes on from the last checkpoint.
"""
import json
import os
import sys

STEPS, BREAKDOWN, SAVE_EVERY = 60, 30, 5


def main():
    folder = os.environ.get("TRAINYARD_CHECKPOINT_DIR") or "checkpoint"
    os.makedirs(folder, exist_ok=True)
    state_file = os.path.join(folder, "state.json")
    marker = os.path.join(folder, "broke-down-once")

    # Gradient descent on (x-3)^2 + 10(y+1)^2.
    state = {"step": 0, "x": 0.0, "y": 0.0}
    if os.path.exists(state_file):
        with open(state_file) as f:
            state = json.load(f)
    print(f"run={os.environ.get('TRAINYARD_RUN', 'by hand')} starts at step={state['step']}", flush=True)

    while state["step"] < STEPS:
        if state["step"] == BREAKDOWN and not os.path.exists(marker):
            open(marker, "w").close()
            print("breaking down, once: the next run will not", file=sys.stderr, flush=True)
            return 1
        state["x"] -= 0.04 * 2 * (state["x"] - 3)
        state["y"] -= 0.04 * 20 * (state["y"] + 1)
        state["step"] += 1
        if state["step"] % SAVE_EVERY == 0:
            with open(state_file + ".new", "w") as f:
                json.dump(state, f)
            os.replace(state_file + ".new", state_file)
            loss = (state["x"] - 3) ** 2 + 10 * (state["y"] + 1) ** 2
            print(f"step={state['step']} loss={loss:.6f}", flush=True)
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
