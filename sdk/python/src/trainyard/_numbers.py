"""Numbers as training programs have them: Python's, NumPy's, tensors of one element.

No framework is imported: what has ``.item()`` is asked for its number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Union

from . import _trouble

Number = Union[int, float]

MAX_NAME = 128  # bytes of a metric's name; the yard takes no longer ones
MAX_METRICS = 64  # metrics of a job


def check(what: str, value: Any) -> None:
    """Raise TypeError if a value cannot be a number. It is not read: it may lie on a GPU."""
    if isinstance(value, (bool, str, bytes)) or not (
        isinstance(value, (int, float)) or hasattr(value, "item") or hasattr(value, "__float__")
    ):
        raise TypeError(f"{what} must be a number, not {value!r} of type {type(value).__name__}")


def read(value: Any) -> Number:
    """Return the number that a value is. Raises whatever the value raises if it is none."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is a string, not a number")
    if not isinstance(value, (int, float)) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return int(value)
    return float(value)


def count(what: str, value: Any) -> Number | None:
    """Return a step or an amount of work; None if it is no finite number from 0 on.

    What can be no number at all is a mistake in the call and raises TypeError.
    """
    check(what, value)
    try:
        number = read(value)
    except Exception as error:
        raise TypeError(f"{what} must be a number: {error}") from error
    if number < 0 or not math.isfinite(number):
        _trouble.once("bad " + what, "%s must be a finite number >= 0, got %r; ignored", what, number)
        return None
    return number


def metrics(given: Mapping[Any, Any]) -> dict[str, float]:
    """Return what can be used of the metrics of one call; of what cannot, tell once."""
    out: dict[str, float] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= MAX_NAME:
            _trouble.once("name", "metric name %r must be a string of 1 to %d bytes; ignored", name, MAX_NAME)
            continue
        if len(out) == MAX_METRICS:
            _trouble.once("many", "more than %d metrics in one call; %r and others are ignored", MAX_METRICS, name)
            break
        try:
            out[name] = float(read(value))
        except Exception as error:  # the value is of a type that others wrote
            _trouble.once("value", "metric %r is not a number: %s; ignored", name, error)
    return out


def plain(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and the infinities become text."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
