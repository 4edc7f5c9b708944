"""As much of Keras as the callback touches: events in the order in which fit sends them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any


class _Callback:
    model: Any
    params: dict[str, Any]


callbacks = SimpleNamespace(Callback=_Callback)


class Model:
    """Trains nothing, three steps an epoch."""

    def __init__(self, iterations: int = 0) -> None:
        self.optimizer = SimpleNamespace(iterations=iterations)
        self.stop_training = False
        self.saved: list[str] = []

    def save(self, path: Any) -> None:
        self.saved.append(str(path))
        Path(path).write_text(f"model at {self.optimizer.iterations}")

    def fit(self, callback: Any, epochs: int, initial_epoch: int = 0) -> None:
        """Send the events."""
        callback.model, callback.params = self, {"epochs": epochs, "steps": 3}
        callback.on_train_begin()
        for epoch in range(initial_epoch, epochs):
            callback.on_epoch_begin(epoch)
            for batch in range(3):
                self.optimizer.iterations += 1
                callback.on_train_batch_end(batch, {"loss": 1.0})
                if self.stop_training:
                    break
            callback.on_epoch_end(epoch, {"loss": 1.0, "val_loss": 2.0})
            if self.stop_training:
                break
        callback.on_train_end()
