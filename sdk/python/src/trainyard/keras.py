"""A callback for Keras 3 with any backend.

    from trainyard.keras import Callback

    model.fit(..., callbacks=[Callback(save_to=trainyard.checkpoint_dir("checkpoints"))])

It reports metrics and progress. When the run must stop it ends ``fit`` after the batch. With ``save_to`` it saves the
model, with its optimizer, before that, when the yard asks for it, as often as the job file says, and every so many
steps as ``every`` says. Steps are counted on from the optimizer's, so that a loaded model continues where it was.
"""

from __future__ import annotations

import importlib
from typing import Any

import trainyard

from . import _framework

__all__ = ["Callback"]

Callback: Any  # made when it is first asked for

_FRAMEWORK = "keras"


def _make() -> type:
    base: Any = importlib.import_module("keras").callbacks.Callback

    class Callback(base):  # type: ignore[misc]
        """Reports the progress of ``fit``, saves when the yard wants it, and stops when the run must stop."""

        def __init__(self, save_to: Any = None, every: int | None = None) -> None:
            super().__init__()
            self._every = every  # steps between two saves, beside those that the yard wants
            self._place = None if save_to is None else _framework.Place(save_to, "model.keras")
            self._began = 0  # the step at which fit began
            self._before = 0  # the step at which the epoch began
            self._now = 0
            self._first: int | None = None  # the epoch at which fit began
            self._stopped = False

        def on_train_begin(self, logs: Any = None) -> None:
            trainyard.stopping()  # from now on it is heard
            optimizer = getattr(self.model, "optimizer", None)
            iterations = getattr(optimizer, "iterations", 0)
            self._began = self._before = self._now = int(iterations)
            self._first, self._stopped = None, False

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._before = self._now
            if self._first is None:
                self._first = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._now = self._before + batch + 1
            trainyard.log(self._now, _framework.numbers(logs))
            trainyard.progress(self._now, self._total())
            stop = not self._stopped and trainyard.stopping()
            if stop:
                self._stopped = True
                self.model.stop_training = True
            if self._place is not None and (trainyard.should_save(self._now, self._every) or stop):
                self._save()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            trainyard.log(self._now, _framework.numbers(logs))

        def on_train_end(self, logs: Any = None) -> None:
            _framework.rest()

        def _save(self) -> None:
            place = self._place
            if place is None or place.saved == self._now or not _framework.saves_here():
                return
            draft, path = place.new(self._now)
            draft.begin()
            self.model.save(path)
            place.saved = self._now
            place.commit(draft, self._now, _FRAMEWORK)

        def _total(self) -> int | None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            if not steps or not epochs or self._first is None:
                return None
            return int(self._began + steps * (epochs - self._first))

    return Callback


def __getattr__(name: str) -> Any:
    return _framework.lazy(__name__, _make)(name)
