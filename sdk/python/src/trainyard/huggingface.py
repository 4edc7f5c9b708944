"""A callback for the Trainer of Hugging Face's transformers.

    from trainyard.huggingface import Callback

    trainer = Trainer(..., callbacks=[Callback()])

It reports metrics, progress and checkpoints. The trainer saves when the yard asks for it, too. When the run must stop,
it saves and leaves; ``trainer.train()`` then returns, and ``trainyard.stopping()`` says why.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import trainyard

from . import _framework

__all__ = ["Callback"]

Callback: Any  # made when it is first asked for

_FRAMEWORK = "transformers"

# What a Trainer logs beside what the training measures; it would look like curves.
_NOT_METRICS = ("epoch", "total_flos", "step")
_NOT_METRICS_ENDING = ("_runtime", "_per_second")


def _make() -> type:
    base: Any = importlib.import_module("transformers").TrainerCallback

    class Callback(base):  # type: ignore[misc]
        """Reports the progress of a Trainer, and has it save and stop when the yard wants it."""

        def __init__(self) -> None:
            super().__init__()
            self._agreement = _framework.Agreement()

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            trainyard.stopping()  # from now on it is heard
            if state.global_step > 0:
                resumed = getattr(args, "resume_from_checkpoint", None)
                trainyard.checkpoint_restored(resumed if isinstance(resumed, str) else None, state.global_step)
            self._progress(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress(state)
            save, stop = self._agreement.decide(args.world_size, args.device)
            if save or stop:
                control.should_save = True
            if stop:
                control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if state.is_world_process_zero:
                values = _framework.numbers(logs, _NOT_METRICS)
                measured = {name: value for name, value in values.items() if not name.endswith(_NOT_METRICS_ENDING)}
                trainyard.log(state.global_step, measured)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            _framework.barrier(args.world_size)  # each process has files of its own in the checkpoint
            if state.is_world_process_zero:
                path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
                trainyard.checkpoint_saved(path, state.global_step, framework=_FRAMEWORK)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._progress(state)
            _framework.rest()

        def _progress(self, state: Any) -> None:
            if state.is_world_process_zero:
                trainyard.progress(state.global_step, state.max_steps if state.max_steps > 0 else None)

    return Callback


def __getattr__(name: str) -> Any:
    return _framework.lazy(__name__, _make)(name)
