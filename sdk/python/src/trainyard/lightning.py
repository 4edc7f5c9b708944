"""A callback for the Trainer of PyTorch Lightning.

    from trainyard.lightning import Callback

    folder = trainyard.checkpoint_dir("checkpoints")
    trainer = Trainer(..., callbacks=[Callback(save_to=folder / "stopped.ckpt")])
    trainer.fit(model, ckpt_path=folder / "stopped.ckpt" if (folder / "stopped.ckpt").exists() else None)

It tells metrics, progress and checkpoints. Lightning itself leaves ``fit`` after the batch in
which SIGTERM came; with ``save_to`` the callback saves a checkpoint there before it does.
"""

from __future__ import annotations

import math
from typing import Any

import trainyard

from . import _framework, _trouble

__all__ = ["Callback"]

Callback: Any  # made when it is first asked for


def _make() -> type:
    base: Any = _framework.first_of("lightning.pytorch", "pytorch_lightning").Callback

    class Callback(base):  # type: ignore[misc]
        """Reports the progress of a Trainer and saves when the run must stop."""

        def __init__(self, save_to: Any = None) -> None:
            super().__init__()
            self._save_to = save_to
            self._seen: dict[str, dict[str, Any]] = {}  # values as they were told, by where they are kept
            self._total: float | None = None  # steps of the whole training
            self._saved_step: int | None = None  # of a checkpoint that was being written

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._total = _total(trainer)
            self._progress(trainer)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._new(trainer, "")  # what the epoch before has left was told at its end

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self._tell_saved(trainer)
            self._progress(trainer)
            if trainer.global_step % max(1, trainer.log_every_n_steps) == 0:
                metrics = self._new(trainer, "logged_metrics")
                if not metrics:
                    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
                    metrics = {} if loss is None else {"loss": loss}
                self._log(trainer, metrics)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                self._log(trainer, self._new(trainer, "callback_metrics"))

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._tell_saved(trainer)
            self._log(trainer, self._new(trainer, "callback_metrics"))

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            self._saved_step = trainer.global_step  # it is not written yet: told at the next event

        def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            trainyard.checkpoint_restored(trainer.ckpt_path, checkpoint.get("global_step"))

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._tell_saved(trainer)
            if self._save_to is not None and getattr(trainer, "received_sigterm", False):
                trainer.save_checkpoint(self._save_to)
                self._saved_step = None
                trainyard.checkpoint_saved(self._save_to, trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._progress(trainer)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self._tell_saved(trainer)

        def _new(self, trainer: Any, which: str) -> dict[str, Any]:
            """Return the metrics that are new since the last call: Lightning keeps old values too."""
            new: dict[str, Any] = {}
            for source in ("logged_metrics", "callback_metrics"):
                values, seen = getattr(trainer, source), self._seen.setdefault(source, {})
                if source == which:
                    new = {name: value for name, value in values.items() if seen.get(name) is not value}
                seen.update(values)
            return _framework.numbers(new, ("epoch", "step"))

        def _log(self, trainer: Any, metrics: dict[str, Any]) -> None:
            if trainer.is_global_zero and metrics:
                trainyard.log(trainer.global_step, metrics)

        def _progress(self, trainer: Any) -> None:
            if trainer.is_global_zero:
                trainyard.progress(trainer.global_step, self._total)

        def _tell_saved(self, trainer: Any) -> None:
            if self._saved_step is None:
                return
            step, self._saved_step = self._saved_step, None
            if trainer.is_global_zero:
                trainyard.checkpoint_saved(_newest(trainer), step)

    return Callback


def _total(trainer: Any) -> float | None:
    """Return how many steps the training has, None if Lightning does not know."""
    try:
        total = trainer.estimated_stepping_batches
    except Exception as error:  # as when gradients are accumulated differently in each epoch
        _trouble.once("total", "cannot get the number of steps from Lightning: %s", error)
        return None
    return total if 0 < total < math.inf else None


def _newest(trainer: Any) -> str | None:
    """Return the checkpoint that Lightning has written last, None if unknown."""
    for callback in reversed(trainer.checkpoint_callbacks):
        for name in ("_last_checkpoint_saved", "last_model_path", "best_model_path"):
            path = getattr(callback, name, "")
            if path:
                return str(path)
    return None


def __getattr__(name: str) -> Any:
    return _framework.lazy(__name__, _make)(name)
