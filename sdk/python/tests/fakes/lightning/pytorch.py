"""Events in the order in which Trainer sends them, and metrics kept as it keeps them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Callback:
    """The real one has an empty method for each event."""


class Trainer:
    """Trains nothing, four steps an epoch; validates and saves at the end of each."""

    def __init__(self, callback: Any, epochs: int) -> None:
        self.callback, self.epochs = callback, epochs
        self.global_step, self.log_every_n_steps = 0, 2
        self.is_global_zero, self.sanity_checking, self.received_sigterm = True, False, False
        self.world_size, self.num_nodes = 1, 1
        self.strategy = SimpleNamespace(root_device="cpu", barrier=lambda name: None)
        self.estimated_stepping_batches: float = epochs * 4
        self.logged_metrics: dict[str, Any] = {}
        self.callback_metrics: dict[str, Any] = {}
        self.checkpoint_callbacks = [SimpleNamespace(last_model_path="", best_model_path="")]
        self.ckpt_path: str | None = None
        self.saved: list[str] = []

    def _send(self, event: str, *given: Any) -> None:
        getattr(self.callback, event)(self, None, *given)

    def _measure(self, name: str, value: float) -> None:
        # Two objects of the same value, and old ones stay.
        self.logged_metrics[name], self.callback_metrics[name] = _Tensor(value), _Tensor(value)

    def save_checkpoint(self, path: Any) -> None:
        checkpoint = self._state()
        self._send("on_save_checkpoint", checkpoint)
        self.saved.append(str(path))
        Path(path).write_text(json.dumps(checkpoint))

    def _state(self) -> dict[str, Any]:
        """Return what is saved; before the callbacks have seen the end of a batch it is not counted as completed."""
        counts = {"processed": self.global_step, "completed": self.global_step - 1}
        return {"loops": {"fit_loop": {"epoch_loop.batch_progress": {"total": counts, "current": dict(counts)}}}}

    def fit(self, quiet: bool = False) -> None:
        """Send the events; SIGTERM is handled as Lightning does."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "received_sigterm", True))
        try:
            self._fit(quiet)
        except BaseException as error:
            self._send("on_exception", error)
            raise
        finally:
            self._send("teardown", "fit")

    def _fit(self, quiet: bool) -> None:
        self._send("on_train_start")
        for epoch in range(self.epochs):
            self._send("on_train_epoch_start")
            for batch in range(4):
                self.global_step += 1
                if not quiet:
                    self._measure("train_loss", 1 / self.global_step)
                self._send("on_train_batch_end", {"loss": _Tensor(0.5)}, None, batch)
                if self.received_sigterm:
                    raise SystemExit
            if not quiet:
                self._measure("val_loss", epoch)
            self._send("on_validation_end")
            self._send("on_train_epoch_end")
            path = f"epoch={epoch}.ckpt"
            self.save_checkpoint(path)
            self.checkpoint_callbacks[0].best_model_path = path
        self._send("on_train_end")


class _Tensor:
    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value
