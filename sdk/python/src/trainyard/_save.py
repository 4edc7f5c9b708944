"""When to save: at a request of the yard, and as often as the job file says."""

from __future__ import annotations

import os
import time
from typing import Callable

from . import _trouble

LOOK_EVERY = 0.1  # seconds between two looks for a request


class Saves:
    """Requests to save, and the time since the last save. An empty path has no requests."""

    def __init__(self, request: str, every: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._request, self._every, self._clock = request, every, clock
        self._since = clock()  # the start of the program or the last save
        self._looked = float("-inf")
        self._seen: tuple[int, int, int] | None = None  # the file as it was at the last look
        self._answered = 0  # the newest request that was passed on

    def due(self) -> bool:
        """Return whether to save now. Whoever gets a yes saves, and is not asked again for the same reason."""
        now = self._clock()
        due = self._every is not None and now - self._since >= self._every
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            number = self._requested()
            if number > self._answered:
                self._answered, due = number, True
        if due:
            self._since = now
        return due

    def saved(self) -> None:
        """The program has saved: the time until the next save begins anew."""
        self._since = self._clock()

    def _requested(self) -> int:
        """Return the number of the newest request, 0 if it is not newer than at the last look."""
        if not self._request:
            return 0
        try:
            status = os.stat(self._request)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return 0
            with open(self._request, encoding="ascii") as file:
                number = int(file.read())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            _trouble.once("request", "cannot read the request to save: %s", error)
            return 0
        self._seen = seen
        return number
