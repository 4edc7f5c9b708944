"""Report the exception by which a program ends because it ran out of memory, with the amounts that are known.

No framework is imported: one that raised such an exception is loaded already. How much memory the program had is
asked of the framework where its message does not say it.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Callable, Optional

GPU, HOST = "gpu", "host"
MAX_TEXT = 1024  # characters of a message
MAX_CHAIN = 10  # exceptions that led to each other

# Raised by PyTorch and TensorFlow. JAX raises a general exception with a text.
_GPU_CLASSES = ("OutOfMemoryError", "ResourceExhaustedError")
_GPU_TEXTS = (
    "CUDA out of memory",
    "HIP out of memory",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating tensor",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

_AMOUNT = r"([0-9]+(?:\.[0-9]*)?) ?(bytes|B|[KMGT]iB)\b"
_UNITS = {"bytes": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}
_REQUESTED = (r"(?:[Tt]ried|trying) to allocate " + _AMOUNT, r"(?:Failed|Unable) to allocate " + _AMOUNT)
_USED = (r"this process has " + _AMOUNT + " memory in use", _AMOUNT + " reserved in total by PyTorch")
_TOTAL = (r"total capacity of " + _AMOUNT, _AMOUNT + " total capacity")
_SHAPE = re.compile(r"OOM when allocating tensor with shape ?\[([0-9, ]*)\] and type (\w+)")
_SIZES = {"double": 8, "int64": 8, "complex64": 8, "float": 4, "int32": 4, "half": 2, "bfloat16": 2, "int8": 1}

Hook = Callable[[type[BaseException], BaseException, Optional[TracebackType]], Any]


def hook(before: Hook, tell: Callable[[dict[str, Any]], None]) -> Hook:
    """Return a sys.excepthook that tells of a lack of memory and then does what the one before it did."""

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with contextlib.suppress(Exception):  # the program is ending by another error, which must be shown
            report = describe(error)
            if report is not None:
                tell(report)
        before(kind, error, trace)

    return ended


def describe(error: BaseException) -> dict[str, Any] | None:
    """Return what is known of a lack of memory that an exception was raised for; None if it was another reason."""
    for cause in _chain(error):
        text = str(cause)
        device = _device(cause, text)
        if device is None:
            continue
        report: dict[str, Any] = {"device": device, "text": f"{type(cause).__name__}: {text}"[:MAX_TEXT]}
        known = {
            "requested": _first(_REQUESTED, text) or _tensor(text),
            "used": _first(_USED, text),
            "total": _first(_TOTAL, text),
        }
        if device == GPU:
            for name, value in _asked().items():
                known[name] = known[name] or value
        report.update({name: value for name, value in known.items() if value})
        return report
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if following is None:
            return
        yield following
        following = following.__cause__ or following.__context__


def _device(error: BaseException, text: str) -> str | None:
    names = [kind.__name__ for kind in type(error).__mro__]
    host = isinstance(error, MemoryError) or "DefaultCPUAllocator" in text
    gpu = any(name in names for name in _GPU_CLASSES) or any(mark in text for mark in _GPU_TEXTS)
    if host or gpu:
        return HOST if host or "device:CPU:" in text else GPU
    return None


def _first(patterns: tuple[str, ...], text: str) -> int:
    """Return the amount of the first pattern that a text has, in bytes; 0 if it has none."""
    for pattern in patterns:
        found = re.search(pattern, text)
        if found:
            return int(float(found[1]) * (1 << _UNITS[found[2]]))
    return 0


def _tensor(text: str) -> int:
    """Return the size of the tensor that TensorFlow could not allocate, in bytes; 0 if it is not known."""
    found = _SHAPE.search(text)
    if not found:
        return 0
    sides = [int(side) for side in found[1].split(",") if side.strip()]
    return math.prod(sides) * _SIZES.get(found[2], 0)


def _asked() -> dict[str, int]:
    """Return what frameworks say of the memory of the GPU: what the program has of it, and how much there is."""
    for name, ask in (("torch", _torch), ("jax", _jax)):
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(Exception):  # of another version, or without a GPU
                return {key: int(value) for key, value in ask(module).items()}
    return {}


def _torch(torch: Any) -> dict[str, Any]:
    return {"used": torch.cuda.memory_reserved(), "total": torch.cuda.mem_get_info()[1]}


def _jax(jax: Any) -> dict[str, Any]:
    stats = jax.local_devices()[0].memory_stats()
    return {"used": stats["bytes_in_use"], "total": stats["bytes_limit"]}
