"""Two processes of torch.distributed, of which the other one may have been told to stop."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any


class _Tensor:
    def __init__(self, value: int) -> None:
        self.value = value

    def item(self) -> int:
        return self.value


def tensor(value: int, device: Any = None) -> _Tensor:
    return _Tensor(value)


def _all_reduce(flag: _Tensor, op: str) -> None:
    if op != "max":
        raise ValueError(op)
    flag.value = max(flag.value, int(os.environ.get("OTHER_STOPS", "0")))


distributed = SimpleNamespace(all_reduce=_all_reduce, ReduceOp=SimpleNamespace(MAX="max"))
