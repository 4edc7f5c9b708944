"""A callback for the Trainer of PyTorch Lightning.

    from trainyard.lightning import Callback

    latest = trainyard.latest_checkpoint()
    saver = Callback(save_to=trainyard.checkpoint_dir("checkpoints"))
    trainer = Trainer(..., callbacks=[saver], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=latest.path / "lightning.ckpt" if latest else None)

It reports metrics, progress and checkpoints. With ``save_to`` it also saves: when the yard asks for it, as often as the
job file says, every so many steps as ``every`` says, and before Lightning leaves ``fit`` after the batch in which
SIGTERM came.
"""

from __future__ import annotations

import math
from typing import Any

import trainyard

from . import _framework, _trouble
from . import torch as _torch

__all__ = ["Callback"]

Callback: Any  # made when it is first asked for

_FRAMEWORK = "lightning"


def _make() -> type:
    base: Any = _framework.first_of("lightning.pytorch", "pytorch_lightning").Callback

    class Callback(base):  # type: ignore[misc]
        """Reports the progress of a Trainer, and saves when the yard wants it and when the run must stop."""

        def __init__(self, save_to: Any = None, every: int | None = None) -> None:
            super().__init__()
            self._every = every  # steps between two saves, beside those that the yard wants
            self._place = None if save_to is None else _framework.Place(save_to, "lightning.ckpt")
            self._agreement = _framework.Agreement()
            self._random: Any = None  # the random numbers of a checkpoint, until its next batch
            self._seen: dict[str, dict[str, Any]] = {}  # values as they were told, by where they are kept
            self._total: float | None = None  # steps of the whole training
            self._saved_step: int | None = None  # of a checkpoint that was being written

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._total = _total(trainer)
            self._progress(trainer)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._new(trainer, "")  # what the epoch before has left was told at its end

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if self._random is not None:
                _torch.set_random_state(self._random)
                self._random = None

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self._tell_saved(trainer)
            self._progress(trainer)
            if trainer.global_step % max(1, trainer.log_every_n_steps) == 0:
                metrics = self._new(trainer, "logged_metrics")
                if not metrics:
                    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
                    metrics = {} if loss is None else {"loss": loss}
                self._log(trainer, metrics)
            if self._place is not None:
                due = self._agreement.save(trainer.world_size, trainer.strategy.root_device)
                if due or (self._every is not None and trainer.global_step % self._every == 0):
                    self._save(trainer)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                self._log(trainer, self._new(trainer, "callback_metrics"))

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._tell_saved(trainer)
            self._log(trainer, self._new(trainer, "callback_metrics"))

        def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            self._saved_step = trainer.global_step  # it is not written yet: told at the next event
            _complete_batch(checkpoint)

        def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
            trainyard.checkpoint_restored(trainer.ckpt_path, checkpoint.get("global_step"))

        def state_dict(self) -> dict[str, Any]:
            """Return what Lightning does not save itself."""
            return {"random": _torch.random_state()}

        def load_state_dict(self, state_dict: Any) -> None:
            """Continue with these random numbers at the next batch: until then others draw some."""
            self._random = state_dict.get("random")

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._tell_saved(trainer)
            if self._place is not None and getattr(trainer, "received_sigterm", False):
                self._save(trainer)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._progress(trainer)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self._tell_saved(trainer)

        def _save(self, trainer: Any) -> None:
            """Save a checkpoint with all processes: the first one makes its folder, and marks it when it is written."""
            place, step = self._place, trainer.global_step
            if place is None or place.saved == step:
                return
            draft, path = place.new(step)
            if trainer.is_global_zero:
                draft.begin()
            trainer.strategy.barrier("trainyard.save")
            trainer.save_checkpoint(path)
            self._saved_step, place.saved = None, step
            if not trainer.is_global_zero:
                return
            if path.is_dir() and trainer.num_nodes > 1:  # shards, of which this node has not all
                draft.abandon()
                _trouble.once("shards", "the callback cannot save shards of several nodes: use ModelCheckpoint")
                return
            place.commit(draft, step, _FRAMEWORK)

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
                trainyard.checkpoint_saved(_newest(trainer), step, framework=_FRAMEWORK)

    return Callback


def _complete_batch(checkpoint: Any) -> None:
    """Count the batch after which a checkpoint is saved: some versions of Lightning do so only after the callbacks.

    A training that continues there would take the batch twice.
    """
    if "loops" not in checkpoint:  # weights only
        return
    try:
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for count in (progress["total"], progress["current"]):
            count["completed"] = max(count["completed"], count["processed"])
    except (KeyError, TypeError) as error:
        _trouble.once("batch", "cannot find the batch in a checkpoint of Lightning: %r", error)


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
