"""Two processes of torch.distributed, of which the other one may have been told to stop."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

float64 = "float64"


class _Tensor:
    def __init__(self, values: list[float]) -> None:
        self.values = [float(value) for value in values]

    def tolist(self) -> list[float]:
        return self.values


def tensor(values: list[float], dtype: str, device: Any = None) -> _Tensor:
    return _Tensor(values)


def _all_reduce(given: _Tensor, op: str, group: Any = None) -> None:
    if op != "max":
        raise ValueError(op)
    save, stop = (float(os.environ.get(name, "0")) for name in ("OTHER_SAVES", "OTHER_STOPS"))
    others = [save, stop, 0.0]  # the last one is the seconds of a step
    given.values = [max(pair) for pair in zip(given.values, others)]


def _barrier() -> None:
    """The other process has written its part of a checkpoint when it is here."""
    for folder in Path("out").glob("checkpoint-*"):
        (folder / "rng_state_1.pth").write_text("the other process")


distributed = SimpleNamespace(all_reduce=_all_reduce, barrier=_barrier, ReduceOp=SimpleNamespace(MAX="max"))
