"""The stop request of a run: SIGTERM, then a grace period, then SIGKILL.

The handler is set when somebody asks for the notice, never before, and passes
the signal on to the handler that was there. If there was none, the signal would have
ended the program; it still does, unless the program has said that it ends by itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, Callable

from . import _trouble


class Notice:
    """Whether this process has been asked to stop."""

    def __init__(
        self,
        grace: float | None,
        last: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grace, self._last, self._clock = grace, last, clock
        self._since: float | None = None
        self._callbacks: list[Callable[[], Any]] = []
        self._previous: Any = signal.SIG_DFL
        self._handler = self._handle  # one object, so that it can be recognised
        self._handling = False
        self._ends_itself = False
        self._forking = threading.local()  # the signals that the forking thread had blocked before

    def asked(self) -> bool:
        """Say whether the program shall stop; who asks this ends by itself."""
        self._ends_itself = True
        self._watch()
        return self._since is not None

    def rest(self) -> None:
        """Nobody asks any more: the signal ends the program again, if nothing else handles it."""
        self._ends_itself = False

    def call(self, callback: Callable[[], Any], end: bool) -> None:
        """Call back when the signal comes, at once if it has come."""
        if not end:
            self._ends_itself = True
        self._watch()
        if self._since is None:
            self._callbacks.append(callback)
        else:
            callback()

    def grace_left(self) -> float | None:
        """Return the seconds until the program is killed; None if that is not known or not due."""
        if self._since is None or self._grace is None:
            return None
        return max(0.0, self._grace - (self._clock() - self._since))

    def before_fork(self) -> None:
        """Hold the signal back until the child has its own handler: with ours it would be lost there."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        """In the parent: let the signal through again."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def after_fork_in_child(self) -> None:
        """In a child: nobody has asked here, so the signal does what it did before.

        A pool of processes ends its workers with this very signal.
        """
        self._since, self._callbacks, self._handling, self._ends_itself = None, [], False, False
        if signal.getsignal(signal.SIGTERM) is self._handler:
            signal.signal(signal.SIGTERM, self._previous)
        self.after_fork()

    def _watch(self) -> None:
        """Set the handler, also if another has been set since; that one is passed the signal then."""
        if self._since is not None:
            return
        current = signal.getsignal(signal.SIGTERM)
        if current is self._handler:
            return
        if threading.current_thread() is not threading.main_thread():
            _trouble.once(
                "thread",
                "the main thread must ask for the notice to stop first: call trainyard.stopping() there",
            )
            return
        if current is None:
            _trouble.once("handler", "SIGTERM is handled outside of Python, so stopping() cannot detect it")
            return
        self._previous = current
        signal.signal(signal.SIGTERM, self._handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._handling:  # the handler that was passed the signal has passed it back
            return
        self._handling = True
        try:
            if self._since is None:
                self._since = self._clock()
                self._call_all()
            self._pass_on(number, frame)
        finally:
            self._handling = False

    def _call_all(self) -> None:
        while self._callbacks:
            callback = self._callbacks.pop(0)
            try:
                callback()
            except Exception:
                _trouble.exception("%r failed while the run was stopping", callback)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL and not self._ends_itself:
            self._last()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
