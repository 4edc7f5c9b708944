"""What a job file says about a program: its parameters, and its place in an array."""

from __future__ import annotations

import os
from types import SimpleNamespace


class Element(SimpleNamespace):
    """The place of a job in the array that its job file made."""

    array: str  # id of the array, such as a12
    index: int  # from 0
    size: int
    value: str

    def __init__(self, array: str, index: int, size: int, value: str) -> None:
        super().__init__(array=array, index=index, size=size, value=value)


def element() -> Element | None:
    """Return which element of an array the program is; None outside of one."""
    array = os.environ.get("TRAINYARD_ARRAY_ID")
    if not array:
        return None

    return Element(
        array,
        int(os.environ["TRAINYARD_ARRAY_INDEX"]),
        int(os.environ["TRAINYARD_ARRAY_SIZE"]),
        os.environ["TRAINYARD_ARRAY_VALUE"],
    )


def param(name: str, default: str | None = None) -> str | None:
    """Return a parameter of the job file as text, or the default if it has none of this name."""
    return os.environ.get("TRAINYARD_PARAM_" + name, default)
