"""Checkpoints as files: written beside their place, marked as complete, and renamed.

The marker says what the checkpoint is and how large each of its files must be. A checkpoint without one, or whose
files do not fit it, is not complete: the program or its machine ended while it was written or removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import _trouble

MARKER = ".trainyard-checkpoint.json"  # in the folder of a checkpoint, or after the name of its only file
UNKNOWN = -1  # as a step
_WRITING = ".tmp"  # ends the names of what is being written or removed, which the agent leaves alone
_NAME = re.compile(r"step-(\d{8,})(?:-(\d+))?")  # of a folder that saving() has made


class Checkpoint(NamedTuple):
    """A complete checkpoint. It can be used as a path."""

    path: Path
    step: int  # -1 if unknown
    metric: str = ""
    value: float | None = None
    world: int = 1  # processes that wrote it
    sharded: bool = False  # each of them wrote a part
    framework: str = ""

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def marker(path: Path) -> Path:
    """Return where the marker of a checkpoint is."""
    return path / MARKER if path.is_dir() else path.with_name(path.name + MARKER)


def mark(checkpoint: Checkpoint) -> None:
    """Mark a checkpoint as complete."""
    path = checkpoint.path
    record: dict[str, Any] = {"step": checkpoint.step}
    if checkpoint.metric and checkpoint.value is not None:
        record.update(metric=checkpoint.metric, value=checkpoint.value)
    record.update(world=checkpoint.world, sharded=checkpoint.sharded, framework=checkpoint.framework)
    record["files"] = _sizes(path)

    into = marker(path)
    new = into.with_name(into.name + _WRITING)
    with open(new, "w", encoding="utf-8") as file:
        json.dump(record, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, into)
    _sync(into.parent)

    if not path.is_dir():
        _drop_markers_without_file(path.parent)


def unmark(path: Path) -> None:
    """Make a checkpoint incomplete, before its files change."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(marker(path))


def _sizes(path: Path) -> dict[str, int]:
    if not path.is_dir():
        return {path.name: path.stat().st_size}
    return {
        file.relative_to(path).as_posix(): file.stat().st_size
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.endswith((MARKER, MARKER + _WRITING))
    }


def _drop_markers_without_file(folder: Path) -> None:
    """Remove what frameworks leave behind: they remove old checkpoints, but know nothing of markers."""
    for found in folder.glob("*" + MARKER):
        if found.name != MARKER and not found.with_name(found.name[: -len(MARKER)]).exists():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(found)


def complete(folder: Path) -> list[Checkpoint]:
    """Return the complete checkpoints below a folder, the newest last."""
    found = []
    for path in folder.rglob("*" + MARKER):
        if any(part.startswith(".") for part in path.relative_to(folder).parts[:-1]):
            continue  # being written or removed
        try:
            checkpoint = _read(path)
            if checkpoint is not None:
                found.append((checkpoint.step, path.stat().st_mtime_ns, checkpoint))
        except FileNotFoundError:
            continue  # removed meanwhile
        except (OSError, ValueError, TypeError, KeyError) as error:
            _trouble.once("marker", "cannot read %s: %r; the checkpoint is ignored", path, error)
    for state in folder.rglob("checkpoint-*/trainer_state.json"):
        checkpoint = _of_trainer(state)
        if checkpoint is not None:
            found.append((checkpoint.step, state.stat().st_mtime_ns, checkpoint))
    return [checkpoint for _, _, checkpoint in sorted(found, key=lambda entry: entry[:2])]


def _read(path: Path) -> Checkpoint | None:
    """Read a marker; None if the checkpoint does not have the files that it had when it was marked."""
    record = json.loads(path.read_text(encoding="utf-8"))
    folder = path.parent
    if not _has(folder, record["files"]):
        return None
    value = record.get("value")
    return Checkpoint(
        path=folder if path.name == MARKER else path.with_name(path.name[: -len(MARKER)]),
        step=int(record["step"]),
        metric=str(record.get("metric", "")),
        value=None if value is None else float(value),
        world=int(record.get("world", 1)),
        sharded=bool(record.get("sharded", False)),
        framework=str(record.get("framework", "")),
    )


def _of_trainer(state: Path) -> Checkpoint | None:
    """Read a checkpoint of Hugging Face's Trainer that has no marker: the agent may take one before it is marked.

    The Trainer writes this file last.
    """
    if (state.parent / MARKER).exists():
        return None
    try:
        step = int(json.loads(state.read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not written to its end
    return Checkpoint(state.parent, step, framework="transformers")


def _has(folder: Path, files: Mapping[str, int]) -> bool:
    try:
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (FileNotFoundError, NotADirectoryError):
        return False


class Draft:
    """A checkpoint that is being written, in a folder beside its place."""

    def __init__(self, parent: Path, step: int) -> None:
        self._parent, self._step = parent, step
        self.path = parent / f".step-{step:08d}{_WRITING}"
        self.final = parent / f"step-{step:08d}"

    def begin(self) -> None:
        """Make its folder, and remove what an earlier process left half written."""
        for old in self._parent.glob(".step-*"):
            shutil.rmtree(old)
        self.path.mkdir(parents=True)
        # The same step again, as after a restart: until the new one is complete, the other one counts.
        again = 1
        while self.final.exists():
            again += 1
            self.final = self._parent / f"step-{self._step:08d}-{again}"

    def abandon(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def commit(
        self, keep: int, metric: str, value: float | None, *, world: int = 1, sharded: bool = False, framework: str = ""
    ) -> None:
        """Mark it and put it in its place, then remove all but the newest ones.

        It is marked before: the agent sees the new name at once, and takes what is there.
        """
        sync(self.path)
        mark(Checkpoint(self.path, self._step, metric, value, world, sharded, framework))
        os.replace(self.path, self.final)
        _sync(self._parent)
        self._remove_surplus(keep)

    def _remove_surplus(self, keep: int) -> None:
        """Remove the oldest ones, and those of this step and ahead: the training was set back behind them."""
        steps = {path: int(name[1]) for path in self._parent.iterdir() if (name := _NAME.fullmatch(path.name))}
        before = sorted((path for path, step in steps.items() if step < self._step), key=lambda path: steps[path])
        kept = {self.final, *before[len(before) - max(0, keep - 1) :]}
        for path in steps:
            if path not in kept:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, which is not complete from the first moment on."""
    unmark(path)
    gone = path.with_name(f".{path.name}.old{_WRITING}")
    os.replace(path, gone)
    shutil.rmtree(gone)


def sync(folder: Path) -> None:
    """Make all files of a folder durable."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def draft(parent: Path, step: int, keep: int, metric: str, value: float | None) -> Iterator[Draft]:
    """Give a folder to write a checkpoint into; it counts if the block ends well."""
    new = Draft(parent, step)
    new.begin()
    try:
        yield new
        new.commit(keep, metric, value)
    except BaseException:
        new.abandon()
        raise
