"""What the callbacks for frameworks have in common.

The class of a callback has to inherit from one of the framework's. It is made when it is
first asked for, so that importing these modules imports no framework.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

import trainyard

from . import _checkpoint, _yard

KEEP = 2  # checkpoints that a callback leaves on the node
AGREE_EVERY = 1.0  # seconds between two times that processes compare notes, about
MAX_WAIT = 100  # steps between them at most: a step may suddenly take longer


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


class Agreement:
    """Lets all processes of a training save and stop at the same step.

    One that stopped alone would leave the others waiting for it. Comparing notes makes all of them wait for each
    other, so they do it about once a second: together with their answers they exchange how long a step
    takes, and from the largest each finds the same number of steps until the next time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()  # the last time
        self._steps = 0  # since then
        self._wait = 1  # steps from then to the next time

    def decide(self, processes: int, device: Any = None, group: Any = None) -> tuple[bool, bool]:
        """Return after a step whether to save and whether to stop; all processes get the same answers."""
        return self._decide(processes, device, group, trainyard.stopping)

    def save(self, processes: int, device: Any = None) -> bool:
        """Return after a step whether to save; the framework itself handles the signal to stop."""
        return self._decide(processes, device, None, lambda: False)[0]

    def _decide(self, processes: int, device: Any, group: Any, stopping: Callable[[], bool]) -> tuple[bool, bool]:
        if processes <= 1:
            return trainyard.should_save(), stopping()
        self._steps += 1
        if self._steps < self._wait:
            return False, False
        seconds = (self._clock() - self._since) / self._steps
        save, stop, seconds = self._most([trainyard.should_save(), stopping(), seconds], device, group)
        self._wait = max(1, min(MAX_WAIT, int(AGREE_EVERY / max(seconds, 1e-6))))
        self._since, self._steps = self._clock(), 0
        if save:
            restart_timer()
        return bool(save), bool(stop)

    def _most(self, values: list[float], device: Any, group: Any) -> list[float]:
        """Return the largest of all processes for each value."""
        torch = importlib.import_module("torch")
        shared = torch.tensor(values, dtype=torch.float64, device=device)
        torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX, group=group)
        return [float(value) for value in shared.tolist()]


def barrier(processes: int) -> None:
    """Wait until all processes of a training with torch.distributed are here."""
    if processes > 1:
        importlib.import_module("torch").distributed.barrier()


def saves_here() -> bool:
    """Return whether this is the process that saves, by its environment."""
    return trainyard._here.writes() if trainyard._here is not None else _yard.first(os.environ)


class Place:
    """Where a callback saves: a folder for checkpoints, or else a file, which each save replaces.

    In the folder every checkpoint is complete until a newer one is; a file without its marker is not, for the moment
    between the two.
    """

    def __init__(self, save_to: Any, name: str) -> None:
        """``name`` is that of the file in the folder of a checkpoint."""
        path = Path(save_to)
        self._file = path if path.suffix else None
        self._parent = path.parent if path.suffix else path
        self._name = path.name if path.suffix else name
        self.saved: int | None = None  # the step of the last save

    def new(self, step: int) -> tuple[_checkpoint.Draft, Path]:
        """Return the checkpoint of a step and where to write it: the same place for all processes of a node."""
        draft = _checkpoint.Draft(self._parent, step)
        return draft, draft.path / self._name

    def commit(self, draft: _checkpoint.Draft, step: int, framework: str) -> None:
        """The checkpoint is written: put it in its place, mark and report it."""
        if self._file is None:
            draft.commit(KEEP, "", None, world=trainyard._world(), framework=framework)
            trainyard._saved(draft.final, step)
            return
        _checkpoint.sync(draft.path)
        _checkpoint.unmark(self._file)
        os.replace(draft.path / self._name, self._file)
        draft.abandon()
        trainyard.checkpoint_saved(self._file, step, framework=framework)


def restart_timer() -> None:
    """A save has begun, perhaps for another process: the time until the next one begins anew here too."""
    if trainyard._here is not None:
        trainyard._here.saves.saved()


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
