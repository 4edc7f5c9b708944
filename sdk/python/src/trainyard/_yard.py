"""The state of a process inside a run. It does not exist outside."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _memory, _numbers, _trouble
from ._save import Saves
from ._stop import Notice
from ._target import Target
from ._writer import Writer

MAX_TEXT = 1024  # characters of what is said of a checkpoint
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK")


class Yard:
    """One run of a job, seen from one of its processes."""

    def __init__(self, environ: Mapping[str, str], writer: Writer | None = None) -> None:
        self._environ = environ
        self.job = environ["TRAINYARD_JOB_ID"]
        self.run = environ.get("TRAINYARD_RUN", "")
        self.writer = writer or Writer(environ.get("TRAINYARD_METRICS_FILE", ""), environ.get("TRAINYARD_PROGRESS", ""))
        self.notice = Notice(_seconds("TRAINYARD_GRACE", environ), self.writer.close)
        self.saves = Saves(_request(environ.get("TRAINYARD_RANK_DIR", "")), _every(environ))
        self._target = Target.parse(environ.get("TRAINYARD_TARGET", ""))
        self.step: _numbers.Number | None = None  # the newest
        self._writes: bool | None = None  # None: not looked up yet

    def at_exit_and_fork(self) -> None:
        """Register this object for the end and for forks of the process."""
        sys.excepthook = _memory.hook(sys.excepthook, self.out_of_memory)
        atexit.register(self.writer.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.notice.before_fork,
                after_in_parent=self.notice.after_fork,
                after_in_child=self._after_fork_in_child,
            )

    def _after_fork_in_child(self) -> None:
        self._writes = None
        self.writer.after_fork()
        self.notice.after_fork_in_child()

    def writes(self) -> bool:
        """Return whether this process reports for its run.

        Every process of a run is given the rank of its node as RANK; launchers overwrite
        it, or only add LOCAL_RANK. So who speaks is 0 in all of them. They are looked up at the first
        use: some programs set them themselves after they have started.
        """
        if self._writes is None:
            self._writes = first(self._environ)
        return self._writes

    def configure(self, write: bool | None) -> None:
        """Set whether this process writes; None leaves it to its rank."""
        self._writes = write

    def log(self, step: Any, given: Mapping[Any, Any]) -> None:
        """Report the metrics of a step."""
        number = _numbers.count("step", step)
        metrics = _numbers.metrics(given)
        if number is None or not metrics:
            return
        self.step = number
        self._judge(metrics)
        if self.writes():
            values = {name: _numbers.plain(value) for name, value in metrics.items()}
            self.writer.line(frozenset(metrics), {"step": number, "at": _now(), "metrics": values})

    def progress(self, done: Any, total: Any) -> None:
        """Report the progress."""
        done = _numbers.count("done", done)
        total = None if total is None else _numbers.count("total", total)
        if done is None or not self.writes():
            return
        line, file = {"done": done, "at": _now()}, {"done": done}
        if total is not None:
            line["total"] = file["work"] = total
        self.writer.line("progress", line)
        self.writer.progress(file)

    def note(self, what: str, step: Any, text: str) -> None:
        """Report an event at its own step or else at the newest."""
        number = self.step if step is None else _numbers.count("step", step)
        if not self.writes():
            return
        line: dict[str, Any] = {"note": what, "at": _now()}
        if number is not None:
            line["step"] = number
        if text:
            line["text"] = text[:MAX_TEXT]
        self.writer.line(what, line)

    def out_of_memory(self, report: Mapping[str, Any]) -> None:
        """Report that the program ends for lack of memory, whatever its rank."""
        self.writer.line("out_of_memory", {"note": "out_of_memory", "at": _now(), **report})
        self.writer.flush()

    def target_reached(self, value: Any) -> bool:
        """Return whether the target of the job has been reached, by a value or by what was logged."""
        if value is not None:
            _numbers.check("value", value)
            if self._target is not None:
                self._judge(_numbers.metrics({self._target.metric: value}))
        return self._target is not None and self._target.reached

    def _judge(self, metrics: Mapping[str, float]) -> None:
        if self._target is not None and self._target.judge(metrics):
            name = self._target.metric
            self.note("target_reached", None, f"{name}={metrics[name]:.6g}")

    def checkpoint_dir(self) -> Path | None:
        """Return the checkpoint folder of the job, if it has one."""
        path = self._environ.get("TRAINYARD_CHECKPOINT_DIR", "")
        return Path(path) if path else None


def first(environ: Mapping[str, str]) -> bool:
    """Return whether a process is the first of all, by its environment."""
    return all(environ.get(name, "").strip() in ("", "0") for name in RANKS)


def _now() -> float:
    return round(time.time(), 3)


def _request(folder: str) -> str:
    return os.path.join(folder, "save-request") if folder else ""


def _every(environ: Mapping[str, str]) -> float | None:
    return _seconds("TRAINYARD_CHECKPOINT_EVERY", environ) or None


def _seconds(name: str, environ: Mapping[str, str]) -> float | None:
    text = environ.get(name, "")
    if not text.strip():
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        _trouble.once(name, "%s must be a number of seconds, got %r", name, text)
        return None
    return seconds
