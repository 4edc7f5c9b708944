"""What the callbacks for frameworks have in common.

The class of a callback has to inherit from one of the framework's. It is made when it is
first asked for, so that importing these modules imports no framework.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

import trainyard

AGREE_EVERY = 8  # steps between two questions whether any process was told to stop


def lazy(module: str, make: Callable[[], type]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose class ``Callback`` is made when it is asked for."""

    def attribute(name: str) -> Any:
        if name != "Callback":
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        made = make()
        made.__module__, made.__qualname__ = module, "Callback"  # so that it can be pickled
        vars(sys.modules[module])[name] = made
        return made

    return attribute


def first_of(*names: str) -> Any:
    """Import the first of these modules that the program itself has imported, else that is installed."""
    for name in names:
        if name in sys.modules:
            return sys.modules[name]
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name + ".").startswith(error.name + "."):
                raise  # it is installed, but something that it needs is not
    return importlib.import_module(names[-1])


def stop_agreed(step: int, processes: int, device: Any) -> bool:
    """Return whether any process was asked to stop; all of them get the same answer.

    One that stopped alone would leave the others waiting for it. They compare notes every few
    steps only, since that makes all of them wait for each other.
    """
    told = trainyard.stopping()
    if processes <= 1:
        return told
    if step % AGREE_EVERY:
        return False
    torch = importlib.import_module("torch")
    flag = torch.tensor(int(told), device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def rest() -> None:
    """The training is over: nobody asks for the notice to stop any more."""
    if trainyard._here is not None and not trainyard._here.notice.asked():
        trainyard._here.notice.rest()


def numbers(values: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Pick what looks like a number: frameworks put other things beside."""
    return {
        name: value
        for name, value in dict(values or {}).items()
        if name not in without
        and (isinstance(value, (int, float)) or hasattr(value, "item") or hasattr(value, "__float__"))
    }
