"""Report metrics, progress and checkpoints of a training program to Trainyard, and learn when to stop.

    import trainyard

    for step in range(steps):
        ...
        trainyard.log(step, loss=loss)
        trainyard.progress(step + 1, steps)
        if trainyard.stopping():
            save(trainyard.checkpoint_dir("checkpoints"))
            break

Inside a Trainyard run the calls write small files that the agent reads. Outside they do
nothing, so the same program works in both places. No call ever ends a training:
what cannot be written is reported once through ``logging``. Only an invalid call, such as a
step that is not a number, raises TypeError, inside and outside alike.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, TypeVar, overload

from . import _numbers, _trouble
from ._version import __version__
from ._yard import Yard

__all__ = [
    "__version__",
    "checkpoint_dir",
    "checkpoint_restored",
    "checkpoint_saved",
    "configure",
    "flush",
    "grace_left",
    "inside",
    "job_id",
    "log",
    "on_stop",
    "progress",
    "run",
    "stopping",
    "target_reached",
]

_Callback = TypeVar("_Callback", bound=Callable[[], Any])
_FRAMEWORKS = ("huggingface", "keras", "lightning")

_here: Yard | None = None  # outside the yard
if os.environ.get("TRAINYARD_JOB_ID"):
    _here = Yard(os.environ)
    _here.at_exit_and_fork()


def log(step: Any, metrics: Mapping[str, Any] | None = None, **values: Any) -> None:
    """Report the metrics of a step: ``log(10, loss=0.5)`` or ``log(10, {"val/loss": 0.4})``.

    Values are numbers, or anything of one element that has ``.item()``, such as a tensor; NaN and
    infinities are told as such. Call it as often as you like: at most about 20 times a
    second a line is written for the same set of metrics, and the newest is never lost.
    Reading a value that lies on a GPU waits for the GPU, so log those every few steps.
    """
    if type(step) is not int:
        _numbers.check("step", step)
    if metrics is not None and type(metrics) is not dict and not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping from names to numbers, not {type(metrics).__name__}")
    if _here is not None:
        _here.log(step, {**metrics, **values} if metrics else values)


def progress(done: Any, total: Any = None) -> None:
    """Report the progress: how much is done and the total, always in the same unit (steps, epochs or samples)."""
    if type(done) is not int:
        _numbers.check("done", done)
    if total is not None and type(total) is not int:
        _numbers.check("total", total)
    if _here is not None:
        _here.progress(done, total)


def checkpoint_saved(path: str | os.PathLike[str] | None = None, step: Any = None) -> None:
    """Report that a checkpoint has been saved: its path, and its step if it is not the last logged one."""
    _note("checkpoint_saved", path, step)


def checkpoint_restored(path: str | os.PathLike[str] | None = None, step: Any = None) -> None:
    """Report that the program resumes from a checkpoint, and at which step."""
    _note("checkpoint_restored", path, step)


def _note(what: str, path: str | os.PathLike[str] | None, step: Any) -> None:
    text = "" if path is None else os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be text or a path, not {type(path).__name__}")
    if step is not None and type(step) is not int:
        _numbers.check("step", step)
    if _here is not None:
        _here.note(what, step, text)


@overload
def checkpoint_dir() -> Path | None: ...
@overload
def checkpoint_dir(default: str | os.PathLike[str]) -> Path: ...
def checkpoint_dir(default: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder for the checkpoints of the job; it is created if missing.

    All runs of a job see the same. Outside the yard it is ``default``.
    """
    path = None if _here is None else _here.checkpoint_dir()
    if path is None and default is not None:
        path = Path(default)
    if path is not None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _trouble.once("checkpoint_dir", "cannot create the checkpoint folder: %s", error)
    return path


def stopping() -> bool:
    """Return whether the run must stop because it is moved, paused or cancelled. Save and exit then.

    The notice is SIGTERM. A handler that the program has set itself is called as before. A
    program that asks this is not ended by the signal but trusted to end by itself; after the
    grace period it is killed. Ask in the main thread first.
    """
    return _here is not None and _here.notice.asked()


def on_stop(callback: _Callback, *, end: bool = True) -> _Callback:
    """Register a function that is called when the run must stop, in the main thread, between two Python instructions.

    After it, the signal takes its course: the program's own handler is called, and if there is
    none the program ends. With ``end=False``, or if it asks ``stopping()``, it is trusted to end by itself.
    Can be used as a decorator.
    """
    if not callable(callback):
        raise TypeError(f"callback must be a function, not {type(callback).__name__}")
    if _here is not None:
        _here.notice.call(callback, end)
    return callback


def grace_left() -> float | None:
    """Return the seconds until the program is killed; None if it need not stop or the time is unknown."""
    return None if _here is None else _here.notice.grace_left()


def target_reached(value: Any = None) -> bool:
    """Return whether the target of the job file has been reached, by a logged value or by this one."""
    if _here is None:
        if value is not None:
            _numbers.check("value", value)
        return False
    return _here.target_reached(value)


def inside() -> bool:
    """Return whether the program runs inside a Trainyard job."""
    return _here is not None


def job_id() -> str | None:
    """Return the job id, such as j1041, the same for all its runs; None outside."""
    return None if _here is None else _here.job


def run() -> str | None:
    """Return the run id, such as j1041.2; None outside."""
    return None if _here is None else _here.run


def configure(*, write: bool | None) -> None:
    """Set whether this process reports. By default (None) only rank 0 does."""
    if _here is not None:
        _here.configure(write)


def flush() -> None:
    """Write what is buffered. It happens automatically at exit, but not before ``os._exit``."""
    if _here is not None:
        _here.writer.flush()


def __getattr__(name: str) -> Any:
    # trainyard.lightning and the others are loaded when they are first used.
    if name in _FRAMEWORKS:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
