"""Report metrics and progress of a training program to Trainyard, save checkpoints, and learn when to save and stop.

    import trainyard

    latest = trainyard.latest_checkpoint()
    step = load(latest.path) if latest else 0

    while step < steps and not trainyard.stopping():
        ...
        step += 1
        trainyard.log(step, loss=loss)
        trainyard.progress(step, steps)
        if trainyard.should_save(step, every=100):
            with trainyard.saving(step) as folder:
                save(folder)

Inside a Trainyard run the calls write small files that the agent reads. Outside nothing is
reported, but checkpoints are saved and found all the same, so the same program works in both places.
No report ever ends a training: what cannot be written is logged once through ``logging``. Only an
invalid call, such as a step that is not a number, raises TypeError, inside and outside alike, and a
checkpoint that cannot be saved raises what the operating system says.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, TypeVar, overload

from . import _checkpoint, _numbers, _trouble
from ._array import Element, element, param
from ._checkpoint import Checkpoint
from ._submit import submit
from ._version import __version__
from ._yard import Yard, first

__all__ = [
    "Checkpoint",
    "Element",
    "__version__",
    "checkpoint_dir",
    "checkpoint_restored",
    "checkpoint_saved",
    "configure",
    "element",
    "flush",
    "grace_left",
    "inside",
    "job_id",
    "latest_checkpoint",
    "log",
    "on_stop",
    "param",
    "progress",
    "run",
    "saving",
    "should_save",
    "stopping",
    "submit",
    "target_reached",
]

_Callback = TypeVar("_Callback", bound=Callable[[], Any])
_FRAMEWORKS = ("huggingface", "keras", "lightning", "torch")

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


def checkpoint_saved(
    path: str | os.PathLike[str] | None = None,
    step: Any = None,
    *,
    metric: str = "",
    value: Any = None,
    framework: str = "",
) -> None:
    """Report that a checkpoint is complete: its file or folder, and its step if it is not the last logged one.

    A file or folder that exists is marked as complete, so that the yard stores it and ``latest_checkpoint``
    finds it; the first process of the run does that. ``metric`` and ``value`` say how good it is.
    ``saving`` calls this for you.
    """
    text, number, quality = _text(path, step), _step(step), _quality(metric, value)
    if text and (first(os.environ) if _here is None else _here.writes()):
        _mark(Path(text), number, metric, quality, framework)
    if _here is not None:
        _here.saves.saved()
        _here.note("checkpoint_saved", step, text)


def _mark(path: Path, step: int, metric: str, value: float | None, framework: str) -> None:
    try:
        if path.exists():
            _checkpoint.mark(Checkpoint(path, step, metric, value, _world(), False, framework))
    except OSError as error:
        _trouble.once("mark", "cannot mark the checkpoint %s as complete: %s", path, error)


def checkpoint_restored(path: str | os.PathLike[str] | None = None, step: Any = None) -> None:
    """Report that the program resumes from a checkpoint, and at which step."""
    text = _text(path, step)
    if _here is not None:
        _here.note("checkpoint_restored", step, text)


def _text(path: str | os.PathLike[str] | None, step: Any) -> str:
    """Check what is said of a checkpoint; return its path as text."""
    text = "" if path is None else os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path must be text or a path, not {type(path).__name__}")
    if step is not None and type(step) is not int:
        _numbers.check("step", step)
    return text


def _step(step: Any) -> int:
    """Return the step of a checkpoint, the last logged one if it is not given."""
    number = _here.step if step is None and _here is not None else step
    number = None if number is None else _numbers.count("step", number)
    return _checkpoint.UNKNOWN if number is None else int(number)


def _quality(metric: str, value: Any) -> float | None:
    """Return the value of a metric of a checkpoint, None if it is not given or not a finite number."""
    if not isinstance(metric, str):
        raise TypeError(f"metric must be the name of a metric, not {metric!r}")
    if value is None:
        return None
    _numbers.check("value", value)
    number = float(_numbers.read(value))
    return number if metric and math.isfinite(number) else None


def _world() -> int:
    """Return how many processes the training has, as far as its environment says."""
    size = os.environ.get("WORLD_SIZE", "")
    return int(size) if size.isdigit() and int(size) > 0 else 1


def saving(
    step: Any,
    folder: str | os.PathLike[str] | None = None,
    *,
    keep: int = 2,
    metric: str = "",
    value: Any = None,
) -> contextlib.AbstractContextManager[Path]:
    """Save a checkpoint: ``with saving(step) as folder:`` gives a folder to write its files into.

    When the block ends, the files are made durable, the folder gets its name in the checkpoint folder
    (``checkpoint_dir("checkpoints")``, or the given one) and is marked as complete: a program that is killed at any
    moment leaves the checkpoint before. If the block raises, nothing is saved. The newest ``keep`` ones stay on
    the node. Of several processes one calls it.
    """
    number, quality = _step(step), _quality(metric, value)
    if number < 0:
        raise ValueError(f"step must be a number from 0 on, not {step!r}")
    return _save(number, _folder(folder), keep, metric, quality)


@contextlib.contextmanager
def _save(step: int, folder: Path, keep: int, metric: str, value: float | None) -> Iterator[Path]:
    with _checkpoint.draft(folder, step, keep, metric, value) as draft:
        yield draft.path
    _saved(draft.final, step)


def _saved(path: Path, step: Any) -> None:
    """Report a checkpoint that is complete and marked."""
    if _here is not None:
        _here.saves.saved()
        _here.note("checkpoint_saved", step, str(path))


def latest_checkpoint(folder: str | os.PathLike[str] | None = None) -> Checkpoint | None:
    """Return the newest complete checkpoint in the checkpoint folder, or in the given one; None if there is none.

    In a run of Trainyard that is the one from which the job continues, also on a node that did not write it.
    """
    found = _checkpoint.complete(_folder(folder))
    return found[-1] if found else None


def should_save(step: Any = None, every: int | None = None) -> bool:
    """Return whether to save a checkpoint now.

    It is true once for each request of the yard, whenever ``checkpoint.every`` of the job file has passed since
    the last save, and at each step that ``every`` divides. It is cheap: ask after each step.
    """
    at_step = False
    if every is not None:
        if step is None:
            raise TypeError("every counts steps: should_save needs the step too")
        if every < 1:
            raise ValueError(f"every must be at least 1 step, not {every!r}")
        at_step = _step(step) % every == 0
    requested = _here is not None and _here.saves.due()
    return at_step or requested


def _folder(folder: str | os.PathLike[str] | None) -> Path:
    return checkpoint_dir("checkpoints") if folder is None else Path(folder)


@overload
def checkpoint_dir() -> Path | None: ...
@overload
def checkpoint_dir(default: str | os.PathLike[str]) -> Path: ...
def checkpoint_dir(default: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder for the checkpoints of the job; it is created if missing.

    All runs of a job find there what the last one saved. Outside the yard it is ``default``.
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
