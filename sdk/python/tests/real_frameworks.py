"""The callbacks with the real frameworks: each trains a small model, and is stopped and goes on.

Run by ``make test-sdk-frameworks``; a framework that is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import unittest

from trainyard._checkpoint import MARKER

from .support import YardTest, end

STOP_AT = 12  # the step at which a program that shall be stopped sends itself the signal


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise unittest.SkipTest(f"{module} is not installed")


class Trained(YardTest):
    """What all frameworks have to show."""

    def request_to_save(self) -> dict[str, str]:
        """Ask for a save; return what a program needs to see the request."""
        (self.folder / "save-request").write_text("1")
        return {"TRAINYARD_RANK_DIR": str(self.folder)}

    def trained(self, program: str, **extra: str) -> str:
        process = self.start(program, **extra)
        out, code = end(process)
        self.assertIn(code, (0, -signal.SIGTERM, 128 + signal.SIGTERM), out)
        return out

    def last_step(self, name: str) -> float:
        return self.points(name)[-1][0]


class HuggingFace(Trained):
    PROGRAM = """
import os, signal, sys, torch, transformers, trainyard
from trainyard.huggingface import Callback

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}

class Killer(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGTERM)

torch.manual_seed(0)
rows = [{"x": torch.randn(4), "labels": torch.tensor(1.0)} for _ in range(80)]
folder = str(trainyard.checkpoint_dir("ckpt"))
args = transformers.TrainingArguments(
    output_dir=folder, per_device_train_batch_size=4, num_train_epochs=2, logging_steps=5, use_cpu=True,
    save_steps=1000, eval_strategy="epoch", report_to=[], disable_tqdm=True)
callbacks = [Killer(), Callback()]
trainer = transformers.Trainer(Line(), args, train_dataset=rows, eval_dataset=rows[:8], callbacks=callbacks)
latest = trainyard.latest_checkpoint()
trainer.train(resume_from_checkpoint=str(latest.path) if latest else None)
print("ended at", trainer.state.global_step, trainyard.stopping())
"""

    def setUp(self) -> None:
        needs("transformers")
        needs("torch")
        super().setUp()

    def test_a_training_is_told_to_its_end(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40 False", out)
        self.assertEqual([step for step, _ in self.points("loss")][:2], [5, 10])
        self.assertEqual([step for step, _ in self.points("eval_loss")], [20, 40])
        self.assertEqual(self.points("epoch"), [])
        self.assertEqual(self.told_progress(), {"done": 40, "work": 40})
        self.assertEqual([note["note"] for note in self.notes()], ["checkpoint_saved"])

    def test_one_that_is_stopped_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT=str(STOP_AT))
        self.assertIn(f"ended at {STOP_AT} True", out)
        saved = {
            "note": "checkpoint_saved",
            "step": STOP_AT,
            "text": str(self.folder / "ckpt" / f"checkpoint-{STOP_AT}"),
        }
        self.assertEqual(self.notes(), [saved])
        self.assertTrue((self.folder / "ckpt" / f"checkpoint-{STOP_AT}").is_dir())
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40 False", out)
        self.assertEqual(
            [(n["note"], n["step"]) for n in self.notes()[1:]],
            [("checkpoint_restored", STOP_AT), ("checkpoint_saved", 40)],
        )

    def test_processes_stop_at_the_same_step(self) -> None:
        # Only the second is told, after the fifth step; at a later one they compare notes.
        told = 'state.global_step == 5 and os.environ["RANK"] == "1"'
        program = self.PROGRAM.replace('state.global_step == int(os.environ["STOP_AT"])', told)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
        ranks = [self.start(program, **address, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]
        outs = [end(process)[0] for process in ranks]
        ends = [re.findall(r"ended at (\d+) (\w+)", out) for out in outs]
        self.assertEqual([len(found) for found in ends], [1, 1], outs)
        step = int(ends[0][0][0])
        self.assertEqual([found[0] for found in ends], [(str(step), "False"), (str(step), "True")])
        self.assertEqual([(n["note"], n["step"]) for n in self.notes()], [("checkpoint_saved", step)])
        marker = json.loads((self.folder / "ckpt" / f"checkpoint-{step}" / MARKER).read_text())
        self.assertEqual(marker["world"], 2)
        self.assertLessEqual({"rng_state_0.pth", "rng_state_1.pth"}, set(marker["files"]))

    def test_a_request_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1", **self.request_to_save())
        self.assertIn("ended at 40 False", out)
        self.assertEqual([n["step"] for n in self.notes() if n["note"] == "checkpoint_saved"], [1, 40])


class Lightning(Trained):
    PROGRAM = """
import os, signal, torch, trainyard
import lightning.pytorch as pl
from trainyard.lightning import Callback

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def loss(self, batch):
        return ((self.layer(batch[0]).squeeze(-1) - batch[1]) ** 2).mean()
    def training_step(self, batch, index):
        if self.global_step == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGTERM)
        loss = self.loss(batch)
        if os.environ.get("QUIET") != "1":
            self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(80, 4), torch.ones(80))
folder = trainyard.checkpoint_dir("ckpt")
latest = trainyard.latest_checkpoint()
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=1, log_every_n_steps=5, logger=False, default_root_dir=folder,
    enable_checkpointing="OWN" in os.environ, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[Callback(save_to=folder)])
trainer.fit(
    Line(), torch.utils.data.DataLoader(data, batch_size=4), torch.utils.data.DataLoader(data, batch_size=40),
    ckpt_path=latest.path / "lightning.ckpt" if latest else None)
print("ended at", trainer.global_step)
"""

    def setUp(self) -> None:
        needs("lightning")
        super().setUp()

    def test_a_training_is_told_to_its_end(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1", OWN="1")
        self.assertIn("ended at 40", out)
        self.assertEqual([step for step, _ in self.points("val_loss")], [20, 40])
        self.assertEqual([step for step, _ in self.points("train_loss_epoch")], [20, 40])
        self.assertEqual(self.last_step("train_loss_step"), 40)
        self.assertEqual(self.told_progress(), {"done": 40, "work": 40})
        saved = self.notes()[-1]
        self.assertEqual((saved["note"], saved["step"]), ("checkpoint_saved", 40))
        self.assertTrue(saved["text"].endswith("step=40.ckpt"), saved)

    def test_the_loss_is_told_if_the_program_logs_nothing(self) -> None:
        self.trained(self.PROGRAM, STOP_AT="-1", QUIET="1")
        self.assertEqual(self.last_step("loss"), 40)

    def test_one_that_is_stopped_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT=str(STOP_AT))
        self.assertNotIn("ended at", out)
        stopped = self.folder / "ckpt" / f"step-{STOP_AT + 1:08d}"
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": STOP_AT + 1, "text": str(stopped)}])
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40", out)
        restored = {"note": "checkpoint_restored", "step": STOP_AT + 1, "text": str(stopped / "lightning.ckpt")}
        self.assertEqual(self.notes()[1], restored)

    def test_one_that_is_killed_after_a_request_takes_no_batch_twice(self) -> None:
        program = self.PROGRAM.replace("loss = self.loss(batch)", "print('batch', index); loss = self.loss(batch)")
        killed = program.replace("signal.SIGTERM", "signal.SIGKILL")
        _, code = end(self.start(killed, STOP_AT=str(STOP_AT), **self.request_to_save()))
        self.assertEqual(code, -signal.SIGKILL)
        out = self.trained(program, STOP_AT="-1")
        self.assertIn("ended at 40", out)
        batches = [int(batch) for batch in re.findall(r"(?m)^batch (\d+)$", out)]
        self.assertEqual(batches, [*range(1, 20), *range(20)])


class Keras(Trained):
    PROGRAM = """
import os, signal, numpy, keras, trainyard
from trainyard.keras import Callback

class Killer(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) + 1 == int(os.environ["STOP_AT"]):
            os.kill(os.getpid(), signal.SIGTERM)

keras.utils.set_random_seed(0)
folder = trainyard.checkpoint_dir("ckpt")
latest = trainyard.latest_checkpoint()
if latest:
    model = keras.models.load_model(latest.path / "model.keras")
    trainyard.checkpoint_restored(latest.path, latest.step)
else:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
x, y = numpy.random.randn(80, 4).astype("float32"), numpy.ones((80, 1), "float32")
model.fit(x, y, validation_data=(x, y), batch_size=4, epochs=2, verbose=0,
          initial_epoch=int(model.optimizer.iterations) // 20, callbacks=[Killer(), Callback(save_to=folder)])
print("ended at", int(model.optimizer.iterations), trainyard.stopping())
"""

    def setUp(self) -> None:
        needs("keras")
        super().setUp()
        self.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND", "jax")

    def test_a_training_is_told_to_its_end(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40 False", out)
        self.assertEqual([step for step, _ in self.points("val_loss")], [20, 40])
        self.assertEqual(self.last_step("loss"), 40)
        self.assertEqual(self.told_progress(), {"done": 40, "work": 40})

    def test_one_that_is_stopped_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT=str(STOP_AT))
        self.assertIn(f"ended at {STOP_AT} True", out)
        stopped = str(self.folder / "ckpt" / f"step-{STOP_AT:08d}")
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": STOP_AT, "text": stopped}])
        self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertEqual(self.notes()[1], {"note": "checkpoint_restored", "step": STOP_AT, "text": stopped})
        self.assertGreater(self.last_step("val_loss"), STOP_AT)

    def test_a_request_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1", **self.request_to_save())
        self.assertIn("ended at 40 False", out)
        self.assertEqual([(n["note"], n["step"]) for n in self.notes()], [("checkpoint_saved", 1)])


if __name__ == "__main__":
    unittest.main()
