"""Write the reports of a program, at a bounded rate, to the files that the agent reads.

The agent tails one file of JSON lines and reads another that holds the newest progress.
A line is one write to a file opened for appending, so that threads and processes can
write side by side, and a file that cannot be written costs the training nothing.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable

from . import _trouble

LINES_A_SECOND = 20.0  # in the long run
LINES_AT_ONCE = 100  # before that counts: a short training is told whole
LINES_OF_A_RUN = 20_000  # about: lines come less often as a run gets older, so that no run fills a disk
MAX_CHANNELS = 64  # kinds of lines with a rate of their own; the rest share one
PROGRESS_EVERY = 1.0  # seconds between two writes of the progress file

Record = Mapping[str, Any]


class _Channel:
    """Records of one kind, of which the newest counts: one may be kept back for a while."""

    __slots__ = ("at_once", "due", "kept", "paid", "send")

    def __init__(self, send: Callable[[Record], None], at_once: int) -> None:
        self.send, self.at_once = send, at_once
        self.paid = float("-inf")  # until when the rate is used up
        self.due = float("-inf")  # when the next may be sent: a few may be ahead of that
        self.kept: Record | None = None

    def spend(self, now: float, pause: float) -> None:
        """One is sent, and one each pause is the rate."""
        self.paid = max(self.paid, now) + pause
        self.due = self.paid - (self.at_once - 1) * pause


class Writer:
    """Sends records to files. A path that is empty takes nothing."""

    def __init__(
        self,
        lines: str,
        progress: str,
        clock: Callable[[], float] = time.monotonic,
        background: bool = True,
    ) -> None:
        self._lines_path, self._progress_path = lines, progress
        self._clock, self._background = clock, background
        self._began = clock()
        self._channels: dict[object, _Channel] = {}
        self._progress = _Channel(self._replace_progress, at_once=1)
        self._torn = False  # the last line may have been written in part
        self._closed = False
        self._renew()

    def _renew(self) -> None:
        # A signal handler may come in while its own thread holds the lock.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """After a fork, in the child: buffered records are the parent's, and its thread does not exist here."""
        self._renew()
        for channel in self._all():
            channel.kept = None

    def line(self, kind: object, record: Record) -> None:
        """Append a line soon. Of lines of one kind that come too fast the newest is written."""
        if not self._lines_path:
            return
        with self._lock:
            channel = self._channels.get(kind)
            if channel is None:
                if len(self._channels) >= MAX_CHANNELS:
                    kind = None
                channel = self._channels.setdefault(kind, _Channel(self._append, LINES_AT_ONCE))
            self._offer(channel, record)

    def progress(self, record: Record) -> None:
        """Replace the progress file soon."""
        if self._progress_path:
            with self._lock:
                self._offer(self._progress, record)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._lock:
            self._send_due(float("inf"))

    def close(self) -> None:
        """Write what is buffered, and buffer nothing from now on: the program is exiting."""
        self._closed = True
        self.flush()

    def _all(self) -> list[_Channel]:
        return [*self._channels.values(), self._progress]

    def _pause(self, channel: _Channel) -> float:
        if channel is self._progress:
            return PROGRESS_EVERY
        return max(1 / LINES_A_SECOND, (self._clock() - self._began) / LINES_OF_A_RUN)

    def _offer(self, channel: _Channel, record: Record) -> None:
        now = self._clock()
        if now < channel.due and not self._closed:
            channel.kept = record
            self._send_later()
            return
        channel.kept = None
        channel.spend(now, self._pause(channel))
        channel.send(record)

    def _send_due(self, now: float) -> None:
        for channel in self._all():
            record = channel.kept
            if record is not None and channel.due <= now:
                channel.kept = None
                channel.spend(self._clock(), self._pause(channel))
                channel.send(record)

    def _send_later(self) -> None:
        """See to it that what is kept back is written when the program says nothing more.

        The thread lives only while something is kept back.
        """
        if self._thread is not None or not self._background:
            return
        self._thread = threading.Thread(target=self._work, name="trainyard", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no threads any more: the interpreter is shutting down, close writes the rest
            self._thread = None

    def _work(self) -> None:
        while True:
            with self._lock:
                kept = [c.due for c in self._all() if c.kept is not None]
                if not kept:
                    self._thread = None
                    return
                wait = min(kept) - self._clock()
            if wait > 0:
                time.sleep(wait)
            with self._lock:
                self._send_due(self._clock())

    def _append(self, record: Record) -> None:
        data = _encode(record) + b"\n"
        if self._torn:
            data = b"\n" + data
        try:
            # Opened anew for every line: a program may close all its files, and another get the number.
            # Not waiting: the path may be a pipe that nobody reads.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
            file = os.open(self._lines_path, flags, 0o644)
            try:
                written = os.write(file, data)
            finally:
                os.close(file)
        except OSError as error:
            _trouble.once("lines", "cannot report to Trainyard: %s", error)
            return
        self._torn = written < len(data)
        if self._torn:
            _trouble.once("lines", "cannot report to Trainyard: incomplete write to %s", self._lines_path)

    def _replace_progress(self, record: Record) -> None:
        path = self._progress_path
        temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
        try:
            try:
                with open(temporary, "wb") as file:
                    file.write(_encode(record))
                os.replace(temporary, path)
            except OSError:
                if os.path.lexists(temporary):
                    os.unlink(temporary)
                raise
        except OSError as error:
            _trouble.once("progress", "cannot report progress to Trainyard: %s", error)


def _encode(record: Record) -> bytes:
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
