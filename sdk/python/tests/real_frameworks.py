"""The callbacks with the real frameworks: each trains a small model, and is stopped and goes on.

Run by ``make test-sdk-frameworks``; a framework that is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import signal
import unittest

from .support import YardTest, end

STOP_AT = 12  # the step at which a program that shall be stopped sends itself the signal


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise unittest.SkipTest(f"{module} is not installed")


class Trained(YardTest):
    """What all frameworks have to show."""

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
trainer.train(resume_from_checkpoint=any(name.startswith("checkpoint-") for name in os.listdir(folder)))
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

    def test_processes_of_torchrun_stop_at_the_same_step(self) -> None:
        program = self.folder / "train.py"
        # Only the second is told, after the fifth step; at the eighth they compare notes.
        told = 'state.global_step == 5 and os.environ["RANK"] == "1"'
        program.write_text(self.PROGRAM.replace('state.global_step == int(os.environ["STOP_AT"])', told))
        arguments = ["torchrun", "--nproc-per-node=2", "--standalone", str(program)]
        out = self.trained(f"import sys; sys.argv = {arguments}; from torch.distributed.run import main; main()")
        self.assertIn("ended at 8 True", out)
        self.assertIn("ended at 8 False", out)
        self.assertEqual([(n["note"], n["step"]) for n in self.notes()], [("checkpoint_saved", 8)])


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
stopped = folder / "stopped.ckpt"
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", devices=1, default_root_dir=folder, log_every_n_steps=5, logger=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[Callback(save_to=stopped)])
trainer.fit(
    Line(), torch.utils.data.DataLoader(data, batch_size=4), torch.utils.data.DataLoader(data, batch_size=40),
    ckpt_path=stopped if stopped.exists() else None)
print("ended at", trainer.global_step)
"""

    def setUp(self) -> None:
        needs("lightning")
        super().setUp()

    def test_a_training_is_told_to_its_end(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1")
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
        stopped = str(self.folder / "ckpt" / "stopped.ckpt")
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": STOP_AT + 1, "text": stopped}])
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40", out)
        self.assertEqual(self.notes()[1], {"note": "checkpoint_restored", "step": STOP_AT + 1, "text": stopped})


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
stopped = folder / "stopped.keras"
if stopped.exists():
    model = keras.models.load_model(stopped)
    trainyard.checkpoint_restored(stopped, int(model.optimizer.iterations))
else:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
x, y = numpy.random.randn(80, 4).astype("float32"), numpy.ones((80, 1), "float32")
model.fit(x, y, validation_data=(x, y), batch_size=4, epochs=2, verbose=0,
          initial_epoch=int(model.optimizer.iterations) // 20, callbacks=[Killer(), Callback(save_to=stopped)])
print("ended at", int(model.optimizer.iterations), trainyard.stopping())
"""

    def setUp(self) -> None:
        needs("keras")
        super().setUp()
        self.environ["KERAS_BACKEND"] = "torch"

    def test_a_training_is_told_to_its_end(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertIn("ended at 40 False", out)
        self.assertEqual([step for step, _ in self.points("val_loss")], [20, 40])
        self.assertEqual(self.last_step("loss"), 40)
        self.assertEqual(self.told_progress(), {"done": 40, "work": 40})

    def test_one_that_is_stopped_saves_and_goes_on(self) -> None:
        out = self.trained(self.PROGRAM, STOP_AT=str(STOP_AT))
        self.assertIn(f"ended at {STOP_AT} True", out)
        stopped = str(self.folder / "ckpt" / "stopped.keras")
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": STOP_AT, "text": stopped}])
        self.trained(self.PROGRAM, STOP_AT="-1")
        self.assertEqual(self.notes()[1], {"note": "checkpoint_restored", "step": STOP_AT, "text": stopped})
        self.assertGreater(self.last_step("val_loss"), STOP_AT)


if __name__ == "__main__":
    unittest.main()
