"""The callbacks with stand-ins for the frameworks; tests.real_frameworks has the real ones."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from trainyard import _checkpoint

from . import SOURCES
from .support import YardTest, end

FAKES = Path(__file__).resolve().parent / "fakes"
PATH = os.pathsep.join((str(SOURCES), str(FAKES)))
STOP = "import os, signal; stop = lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)\n"


class FrameworkTest(YardTest):
    def train(self, program: str, **extra: str) -> str:
        here = f"import os; os.chdir({str(self.folder)!r})\n"
        return self.run_in_yard(here + STOP + program, PYTHONPATH=PATH, **extra)

    def request_to_save(self) -> dict[str, str]:
        """Ask for a save; return what a program needs to see the request."""
        (self.folder / "save-request").write_text("1")
        return {"TRAINYARD_RANK_DIR": str(self.folder)}

    def complete(self, folder: str = "ckpt") -> list[tuple[str, int, str]]:
        """Return the names, steps and frameworks of the complete checkpoints."""
        found = _checkpoint.complete(self.folder / folder)
        return [(one.path.name, one.step, one.framework) for one in found]

    def steps(self, name: str) -> list[float]:
        return [step for step, _ in self.points(name)]

    def told_notes(self) -> list[tuple[Any, ...]]:
        return [(note["note"], note.get("step"), note.get("text")) for note in self.notes()]


class HuggingFace(FrameworkTest):
    START = "import transformers, trainyard; from trainyard.huggingface import Callback\n"

    def test_metrics_progress_and_end(self) -> None:
        out = self.train(self.START + "transformers.Trainer([Callback()], 6).train(); print(trainyard.stopping())")
        self.assertEqual(out, "False\n")
        self.assertEqual(self.points("loss"), [(2, 1 / 2), (4, 1 / 4), (6, 1 / 6)])
        self.assertEqual({name for line in self.lines() for name in line.get("metrics", ())}, {"loss"})
        self.assertEqual(self.told_progress(), {"done": 6, "work": 6})
        self.assertEqual(self.notes(), [])

    def test_a_stop_saves_and_leaves(self) -> None:
        self.train(
            self.START
            + """
class Killer(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3: stop()
trainer = transformers.Trainer([Killer(), Callback()], 9)
trainer.train()
assert trainer.state.global_step == 3
"""
        )
        self.assertEqual(self.told_notes(), [("checkpoint_saved", 3, os.path.join("out", "checkpoint-3"))])

    def test_a_request_saves_and_goes_on(self) -> None:
        self.train(self.START + "transformers.Trainer([Callback()], 6).train()", **self.request_to_save())
        self.assertEqual(self.told_notes(), [("checkpoint_saved", 1, os.path.join("out", "checkpoint-1"))])
        self.assertEqual(self.complete("out"), [("checkpoint-1", 1, "transformers")])

    def test_the_marker_comes_when_all_processes_have_written(self) -> None:
        program = self.START + "transformers.Trainer([Callback()], 1, world_size=2).train()"
        self.train(program, OTHER_SAVES="1", WORLD_SIZE="2")
        marker = json.loads((self.folder / "out" / "checkpoint-1" / _checkpoint.MARKER).read_text())
        self.assertEqual(sorted(marker["files"]), ["rng_state_0.pth", "rng_state_1.pth"])
        self.assertEqual(marker["world"], 2)

    def test_going_on_is_told(self) -> None:
        self.train(self.START + "transformers.Trainer([Callback()], 6).train(step=4)")
        self.assertEqual(self.told_notes(), [("checkpoint_restored", 4, None)])

    def test_processes_stop_at_the_same_step(self) -> None:
        program = (
            self.START
            + "t = transformers.Trainer([Callback()], 20, world_size=2); t.train(); print(t.state.global_step)"
        )
        self.assertEqual(self.train(program, OTHER_STOPS="1"), "1\n")
        self.assertEqual(self.train(program, OTHER_STOPS="0"), "20\n")

    def test_after_the_training_the_signal_ends_the_program_again(self) -> None:
        program = self.START + "transformers.Trainer([Callback()], 2).train(); stop(); print('still here')"
        self.assertEqual(end(self.start(STOP + program, PYTHONPATH=PATH)), ("", -signal.SIGTERM))


class Lightning(FrameworkTest):
    START = "import trainyard; from lightning.pytorch import Trainer; from trainyard.lightning import Callback\n"

    def test_metrics_progress_and_checkpoints(self) -> None:
        self.train(self.START + "Trainer(Callback(), 2).fit()")
        self.assertEqual(self.steps("train_loss"), [2, 4, 6, 8])
        self.assertEqual(self.points("val_loss"), [(4, 0.0), (8, 1.0)])
        self.assertEqual(self.told_progress(), {"done": 8, "work": 8})
        want = [("checkpoint_saved", 4, "epoch=0.ckpt"), ("checkpoint_saved", 8, "epoch=1.ckpt")]
        self.assertEqual(self.told_notes(), want)

    def test_the_loss_is_told_if_the_program_logs_nothing(self) -> None:
        self.train(self.START + "Trainer(Callback(), 1).fit(quiet=True)")
        self.assertEqual(self.points("loss"), [(2, 0.5), (4, 0.5)])

    def test_a_stop_saves_before_leaving(self) -> None:
        self.train(
            self.START
            + """
class Stopping(Callback):
    def on_train_batch_end(self, trainer, *rest):
        super().on_train_batch_end(trainer, *rest)
        if trainer.global_step == 3: stop()
Trainer(Stopping(save_to="ckpt"), 9).fit()
"""
        )
        self.assertEqual(self.told_notes(), [("checkpoint_saved", 3, os.path.join("ckpt", "step-00000003"))])
        self.assertEqual(self.complete(), [("step-00000003", 3, "lightning")])

    def test_a_request_saves_and_goes_on(self) -> None:
        self.train(self.START + "Trainer(Callback(save_to='ckpt'), 1).fit()", **self.request_to_save())
        self.assertEqual(self.told_notes()[0], ("checkpoint_saved", 1, os.path.join("ckpt", "step-00000001")))
        self.assertEqual(self.told_progress(), {"done": 4, "work": 4})

    def test_it_saves_every_so_many_steps(self) -> None:
        self.train(self.START + "Trainer(Callback(save_to='ckpt', every=3), 2).fit()")
        self.assertEqual([step for _, step, _ in self.complete()], [3, 6])

    def test_processes_save_at_the_same_step(self) -> None:
        program = "t = Trainer(Callback(save_to='ckpt'), 1); t.world_size = 2; t.fit()"
        self.train(self.START + program, OTHER_SAVES="1", WORLD_SIZE="2")
        self.assertEqual(self.complete()[0], ("step-00000001", 1, "lightning"))

    def test_the_batch_of_a_checkpoint_is_completed(self) -> None:
        self.train(self.START + "Trainer(Callback(save_to='ckpt'), 1).fit()", **self.request_to_save())
        saved = json.loads((self.folder / "ckpt" / "step-00000001" / "lightning.ckpt").read_text())
        progress = saved["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        self.assertEqual([progress[key]["completed"] for key in ("total", "current")], [1, 1])

    def test_a_file_is_replaced_at_once(self) -> None:
        # A save that fails halfway leaves the checkpoint before as it was.
        self.train(
            self.START
            + """
t = Trainer(Callback(save_to="ckpt/last.ckpt"), 1)
t.global_step = 5
t.callback._save(t)
def half(path):
    open(path, "w").write("half")
    raise OSError("disk full")
t.global_step, t.save_checkpoint = 6, half
try:
    t.callback._save(t)
except OSError:
    pass
"""
        )
        self.assertEqual(self.complete(), [("last.ckpt", 5, "lightning")])
        self.assertNotEqual((self.folder / "ckpt" / "last.ckpt").read_text(), "half")

    def test_shards_of_several_nodes_are_not_marked(self) -> None:
        self.train(
            self.START
            + """
import os
t = Trainer(Callback(save_to="ckpt"), 1)
t.num_nodes, t.save_checkpoint = 2, os.mkdir
t.callback._save(t)
"""
        )
        self.assertEqual((self.complete(), self.notes()), ([], []))

    def test_another_failure_saves_nothing(self) -> None:
        self.train(
            self.START
            + """
class Failing(Callback):
    def on_train_batch_end(self, trainer, *rest): raise ValueError
try:
    Trainer(Failing(save_to="ckpt"), 9).fit()
except ValueError:
    pass
"""
        )
        self.assertEqual(self.notes(), [])

    def test_going_on_is_told(self) -> None:
        self.train(
            self.START
            + "t = Trainer(Callback(), 1); t.ckpt_path = 'a.ckpt'\n"
            + "t.callback.on_load_checkpoint(t, None, {'global_step': 5})"
        )
        self.assertEqual(self.told_notes(), [("checkpoint_restored", 5, "a.ckpt")])

    def test_an_endless_training_has_no_total(self) -> None:
        self.train(self.START + "t = Trainer(Callback(), 1); t.estimated_stepping_batches = float('inf'); t.fit()")
        self.assertEqual(self.told_progress(), {"done": 4})

    def test_a_callback_can_be_copied_to_other_processes(self) -> None:
        self.train(self.START + "import pickle; assert type(pickle.loads(pickle.dumps(Callback()))) is Callback")


class Keras(FrameworkTest):
    START = "import keras, trainyard; from trainyard.keras import Callback\n"

    def test_metrics_and_progress(self) -> None:
        self.train(self.START + "keras.Model().fit(Callback(), 2)")
        self.assertEqual(sorted(set(self.steps("loss"))), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.points("val_loss"), [(3, 2.0), (6, 2.0)])
        self.assertEqual(self.told_progress(), {"done": 6, "work": 6})

    def test_a_loaded_model_goes_on_counting(self) -> None:
        self.train(self.START + "keras.Model(iterations=6).fit(Callback(), 3, initial_epoch=2)")
        self.assertEqual(self.steps("val_loss"), [9])
        self.assertEqual(self.told_progress(), {"done": 9, "work": 9})

    def test_a_stop_saves_once_and_leaves(self) -> None:
        self.train(
            self.START
            + """
class Stopping(Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == 4: stop()
        super().on_train_batch_end(batch, logs)
model = keras.Model()
model.fit(Stopping(save_to="ckpt"), 9)
assert model.optimizer.iterations == 4
assert len(model.saved) == 1
"""
        )
        self.assertEqual(self.told_notes(), [("checkpoint_saved", 4, os.path.join("ckpt", "step-00000004"))])
        self.assertEqual(self.complete(), [("step-00000004", 4, "keras")])

    def test_a_request_saves_and_goes_on(self) -> None:
        self.train(self.START + "keras.Model().fit(Callback(save_to='ckpt'), 2)", **self.request_to_save())
        self.assertEqual(self.complete(), [("step-00000001", 1, "keras")])
        self.assertEqual((self.folder / "ckpt" / "step-00000001" / "model.keras").read_text(), "model at 1")
        self.assertEqual(self.told_progress(), {"done": 6, "work": 6})

    def test_a_file_is_replaced_at_once(self) -> None:
        self.train(
            self.START
            + """
model = keras.Model()
model.fit(Callback(save_to="ckpt/model.keras"), 1)
""",
            **self.request_to_save(),
        )
        self.assertEqual(self.complete(), [("model.keras", 1, "keras")])
        self.assertEqual(sorted(os.listdir(self.folder / "ckpt")), ["model.keras", "model.keras" + _checkpoint.MARKER])

    def test_it_saves_every_so_many_steps(self) -> None:
        self.train(self.START + "keras.Model().fit(Callback(save_to='ckpt', every=2), 2)")
        self.assertEqual([step for _, step, _ in self.complete()], [4, 6])

    def test_only_the_first_process_saves(self) -> None:
        program = self.START + "keras.Model().fit(Callback(save_to='ckpt'), 1)"
        self.train(program, RANK="1", **self.request_to_save())
        self.assertEqual(self.complete(), [])


class Missing(FrameworkTest):
    def test_a_framework_that_is_not_there_is_an_import_error(self) -> None:
        for module, wanted in (
            ("huggingface", "transformers"),
            ("lightning", "pytorch_lightning"),
            ("keras", "keras"),
        ):
            with self.subTest(module):
                out = self.run_in_yard(
                    f"""
                    import sys, trainyard
                    sys.path = [p for p in sys.path if "site-packages" not in p]
                    try:
                        trainyard.{module}.Callback
                    except ImportError as error:
                        print(error.name)
                    """
                )
                self.assertEqual(out, wanted + "\n")

    def test_a_framework_that_is_broken_says_so_itself(self) -> None:
        (self.folder / "keras.py").write_text("import what_is_not_there")
        out = self.run_in_yard(
            """
            import trainyard.keras
            try:
                trainyard.keras.Callback
            except ModuleNotFoundError as error:
                print(error.name)
            """,
            PYTHONPATH=os.pathsep.join((str(SOURCES), str(self.folder))),
        )
        self.assertEqual(out, "what_is_not_there\n")
