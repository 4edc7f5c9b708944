"""A callback for Keras 3 with any backend.

    from trainyard.keras import Callback

    folder = trainyard.checkpoint_dir("checkpoints")
    model.fit(..., callbacks=[Callback(save_to=folder / "stopped.keras")])

It reports metrics and progress. When the run must stop it ends ``fit`` after the batch; with
``save_to`` it saves the model there first. Steps are counted on from the optimizer's, so
that a model that was loaded goes on where it was.
"""

from __future__ import annotations

import importlib
from typing import Any

import trainyard

from . import _framework

__all__ = ["Callback"]

Callback: Any  # made when it is first asked for


def _make() -> type:
    base: Any = importlib.import_module("keras").callbacks.Callback

    class Callback(base):  # type: ignore[misc]
        """Reports the progress of ``fit`` and stops it when the run must stop."""

        def __init__(self, save_to: Any = None) -> None:
            super().__init__()
            self._save_to = save_to
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
            if not self._stopped and trainyard.stopping():
                self._stopped = True
                self.model.stop_training = True
                if self._save_to is not None:
                    self.model.save(self._save_to)
                    trainyard.checkpoint_saved(self._save_to, self._now)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            trainyard.log(self._now, _framework.numbers(logs))

        def on_train_end(self, logs: Any = None) -> None:
            _framework.rest()

        def _total(self) -> int | None:
            steps, epochs = self.params.get("steps"), self.params.get("epochs")
            if not steps or not epochs or self._first is None:
                return None
            return int(self._began + steps * (epochs - self._first))

    return Callback


def __getattr__(name: str) -> Any:
    return _framework.lazy(__name__, _make)(name)
