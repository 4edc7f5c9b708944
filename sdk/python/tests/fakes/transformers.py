"""As much of transformers as the callback touches: events in the order in which Trainer sends them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any


class TrainerCallback:
    """The real one has an empty method for each event."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class Trainer:
    """Logs and evaluates every second step, and saves when a callback wants it."""

    def __init__(self, callbacks: list[Any], steps: int, world_size: int = 1) -> None:
        self.callbacks = callbacks
        self.args = SimpleNamespace(world_size=world_size, device="cpu", output_dir="out", resume_from_checkpoint=None)
        self.state = SimpleNamespace(global_step=0, max_steps=steps, is_world_process_zero=True)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)

    def _send(self, event: str, **given: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self.args, self.state, self.control, model=None, **given)

    def train(self, step: int = 0) -> None:
        """Train from a step on."""
        self.state.global_step = step
        self._send("on_train_begin")
        while self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
            self.state.global_step += 1
            self._send("on_step_end")
            if self.state.global_step % 2 == 0:
                logs = {
                    "loss": 1 / self.state.global_step,
                    "epoch": 0.5,
                    "total_flos": 1e9,
                    "eval_runtime": 3.0,
                    "note": "text",
                }
                self._send("on_log", logs=logs)
            if self.control.should_save:
                self.control.should_save = False
                folder = Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")
                folder.mkdir(parents=True)
                (folder / "rng_state_0.pth").write_text("this process")
                self._send("on_save")
        self._send("on_train_end")
