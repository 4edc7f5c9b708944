"""A training that is small but real: what the examples in this folder have in common.

A linear model learns from noisy samples of a hidden rule by stochastic gradient descent.
The inputs differ much in size, so that some weights are found at once and others slowly: the
loss falls steeply first and ever more slowly later, as it does for large models.
"""
import random
import time

INPUTS = 40
NOISE = 0.3  # of the samples: no model comes below its square


class Training:
    """One training. The same seed gives the same numbers, also when it is taken up again."""

    def __init__(self, seed, rate=0.05, batch=8, pause=0.0):
        rng = random.Random(seed)
        self.seed, self.rate, self.batch, self.pause = seed, rate, batch, pause
        self.sizes = [(k + 1) ** -0.8 for k in range(INPUTS)]
        self.rule = [rng.choice((-1.0, 1.0)) for _ in range(INPUTS)]
        self.weights = [0.0] * INPUTS
        self.steps = 0
        self.held_out = [self.sample(rng) for _ in range(400)]

    def sample(self, rng):
        """Return inputs and what the hidden rule makes of them, with noise."""
        x = [rng.gauss(0.0, size) for size in self.sizes]
        return x, sum(map(float.__mul__, self.rule, x)) + rng.gauss(0.0, NOISE)

    def error(self, x, y):
        return sum(map(float.__mul__, self.weights, x)) - y

    def step(self):
        """Learn from one batch; return its mean squared error."""
        rng = random.Random(self.seed * 1000003 + self.steps)
        loss, grads = 0.0, [0.0] * INPUTS
        for _ in range(self.batch):
            x, y = self.sample(rng)
            wrong = self.error(x, y)
            loss += wrong * wrong
            grads = [g + wrong * v for g, v in zip(grads, x)]
        self.weights = [w - self.rate * g / self.batch for w, g in zip(self.weights, grads)]
        self.steps += 1
        time.sleep(self.pause)  # stands for the work of a larger model
        return loss / self.batch

    def judge(self):
        """Return the mean squared error on samples that it does not learn from."""
        return sum(self.error(x, y) ** 2 for x, y in self.held_out) / len(self.held_out)

    def state(self):
        return {"steps": self.steps, "weights": self.weights}

    def restore(self, state):
        self.steps, self.weights = state["steps"], state["weights"]
