#!/usr/bin/env python3
"""Train with JAX and checkpoints: killed at any step, it continues with the same numbers.

It prints the loss of each step and at the end a digest of its weights, so that two trainings can be compared. The state
of a training is a tree of arrays; its leaves are saved with NumPy. The random numbers of a step follow from the seed and
the step, so there is nothing of them to save.
"""
import argparse
import hashlib
import time

import jax
import jax.numpy as jnp
import numpy
import trainyard


def start(key):
    """Return weights and the momentum of the optimizer."""
    first, second = jax.random.split(key)
    weights = {
        "inner": jax.random.normal(first, (1, 32)), "bias": jnp.zeros(32), "outer": jax.random.normal(second, (32, 1)) * 0.2}
    return {"weights": weights, "momentum": jax.tree_util.tree_map(jnp.zeros_like, weights)}


def loss_of(weights, x):
    return jnp.mean((jnp.tanh(x @ weights["inner"] + weights["bias"]) @ weights["outer"] - jnp.sin(x)) ** 2)


@jax.jit
def advance(state, key):
    x = jax.random.uniform(key, (16, 1), minval=-3, maxval=3)
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"], x)
    momentum = jax.tree_util.tree_map(lambda m, g: 0.9 * m + g, state["momentum"], gradient)
    weights = jax.tree_util.tree_map(lambda w, m: w - 0.01 * m, state["weights"], momentum)
    return {"weights": weights, "momentum": momentum}, loss


def save(state, step):
    with trainyard.saving(step) as folder:
        numpy.savez(folder / "state.npz", *map(numpy.asarray, jax.tree_util.tree_leaves(state)))


def load(path, like):
    with numpy.load(path / "state.npz") as saved:
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), [saved[name] for name in saved.files])


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--steps", type=int, default=200)
    args.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    args.add_argument("--pause", type=float, default=0.0, help="seconds to wait at each step, as if the model were larger")
    args.add_argument("--seed", type=int, default=1)
    opt = args.parse_args()

    key = jax.random.PRNGKey(opt.seed)
    state, step = start(key), 0
    latest = trainyard.latest_checkpoint()
    if latest:
        state, step = load(latest.path, like=state), latest.step
        trainyard.checkpoint_restored(latest, step)
    print(f"starts at step={step}", flush=True)

    while step < opt.steps and not trainyard.stopping():
        step += 1
        state, loss = advance(state, jax.random.fold_in(key, step))
        print(f"step={step} loss={float(loss)!r}", flush=True)
        trainyard.log(step, loss=loss)
        trainyard.progress(step, opt.steps)
        if trainyard.should_save(step, every=opt.every):
            save(state, step)
        time.sleep(opt.pause)

    save(state, step)  # the run must stop, or this is the result
    if step == opt.steps:
        weights = b"".join(numpy.asarray(leaf).tobytes() for leaf in jax.tree_util.tree_leaves(state["weights"]))
        print(f"weights={hashlib.sha256(weights).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
