"""Checkpoints as files: complete or not there, whenever the program is killed; and when to save."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable
from unittest import mock

import trainyard
from trainyard._checkpoint import MARKER
from trainyard._save import LOOK_EVERY, Saves

from .support import YardTest, end, start


def save_until_call(folder: Path, calls: int) -> bool:
    """Save three checkpoints in a process that is killed at a call that changes a file; return whether it came through.

    Every such call is a moment at which a machine can fail.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0

    left = iter(range(calls))

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return count

    for name in ("replace", "unlink", "mkdir", "rmdir", "fsync"):
        setattr(os, name, counted(getattr(os, name)))
    for step in (2, 3, 3):
        with trainyard.saving(step, folder, keep=1) as new:
            for name in "ab":
                (new / name).write_text(str(step) * 1000)
    os._exit(0)


def write(folder: Path, step: int, **said: object) -> None:
    """Save a checkpoint whose content tells its step."""
    with trainyard.saving(step, folder, **said) as new:  # type: ignore[arg-type]
        (new / "deep").mkdir()
        (new / "deep" / "state").write_text(f"state of {step}")


class Saving(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "ckpt"

    def latest(self) -> trainyard.Checkpoint:
        found = trainyard.latest_checkpoint(self.folder)
        assert found is not None
        return found

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def test_what_was_saved_is_found(self) -> None:
        self.assertIsNone(trainyard.latest_checkpoint(self.folder))
        write(self.folder, 7, metric="val_loss", value=0.25)
        found = self.latest()
        self.assertEqual((found.step, found.metric, found.value), (7, "val_loss", 0.25))
        self.assertEqual((Path(found) / "deep" / "state").read_text(), "state of 7")

    def test_the_marker_is_as_the_agent_reads_it(self) -> None:
        write(self.folder, 7, metric="val_loss", value=0.25)
        record = json.loads((self.folder / "step-00000007" / MARKER).read_text())
        want = {"step": 7, "metric": "val_loss", "value": 0.25, "world": 1, "sharded": False, "framework": ""}
        self.assertEqual(record, {**want, "files": {"deep/state": len("state of 7")}})

    def test_the_newest_ones_are_kept(self) -> None:
        for step in (1, 9, 10, 11):
            write(self.folder, step)
        self.assertEqual(self.names(), ["step-00000010", "step-00000011"])
        write(self.folder, 12, keep=1)
        self.assertEqual(self.names(), ["step-00000012"])

    def test_a_training_that_was_set_back_leaves_its_future(self) -> None:
        for step in (5, 10):
            write(self.folder, step)
        write(self.folder, 7)
        self.assertEqual(self.names(), ["step-00000005", "step-00000007"])
        self.assertEqual(self.latest().step, 7)

    def test_a_block_that_fails_saves_nothing(self) -> None:
        write(self.folder, 1)
        with self.assertRaises(ZeroDivisionError), trainyard.saving(2, self.folder) as new:
            (new / "half").write_text("half")
            _ = 1 / 0
        self.assertEqual(self.names(), ["step-00000001"])

    def test_one_has_its_marker_when_it_gets_its_name(self) -> None:
        # The agent may take it at that very moment. Until then its name is one that the agent leaves alone.
        moved = []
        replace = os.replace

        def watched(old: Path, new: Path) -> None:
            moved.append((old.name, new.name, (old / MARKER).exists()))
            replace(old, new)

        with mock.patch("os.replace", watched):
            write(self.folder, 7)
        temporary = [name for name, _, _ in moved if not name.endswith(".tmp")]
        self.assertEqual((temporary, moved[-1]), ([], (".step-00000007.tmp", "step-00000007", True)))

    def test_one_without_its_files_is_not_complete(self) -> None:
        for name, spoil in {
            "shorter": lambda path: path.write_text("stat"),
            "missing": os.unlink,
            "unmarked": lambda path: os.unlink(path.parent.parent / MARKER),
            "torn marker": lambda path: (path.parent.parent / MARKER).write_text('{"step": '),
        }.items():
            with self.subTest(name):
                write(self.folder, 1)
                write(self.folder, 2)
                spoil(self.folder / "step-00000002" / "deep" / "state")  # type: ignore[no-untyped-call]
                self.assertEqual(self.latest().step, 1)

    def test_steps_that_make_no_sense_raise(self) -> None:
        for step in ("x", True):
            with self.subTest(step), self.assertRaisesRegex(TypeError, "step must be a number"):
                trainyard.saving(step, self.folder)
        with self.assertRaisesRegex(ValueError, "step"):
            trainyard.saving(None, self.folder)
        with self.assertRaisesRegex(TypeError, "metric"):
            trainyard.saving(1, self.folder, metric=3)  # type: ignore[arg-type]

    def test_the_programs_own_file_is_marked(self) -> None:
        self.folder.mkdir()
        for step, name in ((3, "a.pt"), (4, "b.pt")):
            (self.folder / name).write_text("weights")
            trainyard.checkpoint_saved(self.folder / name, step, framework="pytorch")
        self.assertEqual(self.latest(), trainyard.Checkpoint(self.folder / "b.pt", 4, framework="pytorch"))
        # The program removes an old one; with the next its marker goes too.
        (self.folder / "a.pt").unlink()
        (self.folder / "b.pt").write_text("longer weights")
        trainyard.checkpoint_saved(self.folder / "b.pt", 5)
        self.assertEqual(self.names(), ["b.pt", "b.pt" + MARKER])
        self.assertEqual(self.latest().step, 5)

    def test_one_of_a_trainer_needs_no_marker(self) -> None:
        for step, text in ((5, '{"global_step": 5}'), (10, '{"global_step": 10}'), (15, '{"global_st')):
            (self.folder / f"checkpoint-{step}").mkdir(parents=True)
            (self.folder / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
        self.assertEqual(
            self.latest(), trainyard.Checkpoint(self.folder / "checkpoint-10", 10, framework="transformers")
        )
        # A marker says more: of this one a file is missing.
        trainyard.checkpoint_saved(self.folder / "checkpoint-10", 10)
        (self.folder / "checkpoint-10" / "trainer_state.json").write_text('{"global_step": 10, "epoch": 1}')
        self.assertEqual(self.latest().step, 5)

    def test_only_the_first_process_marks(self) -> None:
        program = f"import trainyard; trainyard.checkpoint_saved({str(self.folder)!r}, 1)"
        for rank, want in (("1", None), ("0", 1)):
            self.folder.mkdir(exist_ok=True)
            self.assertEqual(end(start(program, {"LOCAL_RANK": rank, "WORLD_SIZE": "2"})), ("", 0))
            found = trainyard.latest_checkpoint(self.folder)
            self.assertEqual(found and found.step, want)
        self.assertEqual(self.latest().world, 2)


class Killed(YardTest):
    def test_at_every_moment_one_complete_checkpoint_is_there(self) -> None:
        folder = self.folder / "ckpt"
        seen = set()
        for calls in range(1000):
            write(folder, 1)
            whole = save_until_call(folder, calls)
            found = trainyard.latest_checkpoint(folder)
            assert found is not None, f"killed at call {calls}: none is left"
            seen.add(found.step)
            if found.step > 1:
                self.assertEqual([(found.path / name).read_text() for name in "ab"], [str(found.step) * 1000] * 2)
            if whole:
                break
        self.assertEqual(seen, {1, 2, 3})
        self.assertEqual(len(list(folder.iterdir())), 1)


class When(YardTest):
    def setUp(self) -> None:
        super().setUp()
        self.now = 1000.0
        self.request = self.folder / "save-request"

    def saves(self, every: float | None = None) -> Saves:
        return Saves(str(self.request), every, clock=lambda: self.now)

    def ask(self, number: int) -> None:
        new = self.folder / "new"
        new.write_text(str(number))
        os.replace(new, self.request)

    def test_a_request_is_answered_once(self) -> None:
        saves = self.saves()
        self.assertFalse(saves.due())
        self.ask(1)
        self.assertFalse(saves.due())  # looked just now
        for number in (1, 2):
            self.ask(number)
            self.now += LOOK_EVERY
            self.assertTrue(saves.due())
            self.now += LOOK_EVERY
            self.assertFalse(saves.due())

    def test_the_file_is_looked_at_ten_times_a_second_at_most(self) -> None:
        saves = self.saves()
        looks = []
        saves._requested = lambda: looks.append(1) or 0  # type: ignore[method-assign,func-returns-value]
        for _ in range(1000):
            self.now += 0.001
            saves.due()
        self.assertLessEqual(len(looks), 11)

    def test_a_request_that_is_not_a_number_is_ignored(self) -> None:
        saves = self.saves()
        self.request.write_text("soon")
        with self.assertLogs("trainyard"):
            self.assertFalse(saves.due())

    def test_as_often_as_the_job_file_says(self) -> None:
        saves = self.saves(every=60)
        self.now += 59
        self.assertFalse(saves.due())
        self.now += 1
        self.assertTrue(saves.due())
        self.assertFalse(saves.due())
        self.now += 59
        saves.saved()  # for another reason
        self.now += 59
        self.assertFalse(saves.due())
        self.now += 1
        self.assertTrue(saves.due())

    def test_steps_count_outside_too(self) -> None:
        self.assertEqual([step for step in range(1, 10) if trainyard.should_save(step, every=3)], [3, 6, 9])
        self.assertFalse(trainyard.should_save())
        with self.assertRaises(TypeError):
            trainyard.should_save(every=3)
        with self.assertRaises(ValueError):
            trainyard.should_save(3, every=0)

    def test_the_environment_names_both(self) -> None:
        ask = "import trainyard, time; time.sleep(0.01); print(trainyard.should_save())"
        self.assertEqual(self.run_in_yard(ask), "False\n")
        self.assertEqual(self.run_in_yard(ask, TRAINYARD_CHECKPOINT_EVERY="0.001"), "True\n")
        self.assertEqual(self.run_in_yard(ask, TRAINYARD_CHECKPOINT_EVERY="0"), "False\n")
        self.ask(3)
        self.assertEqual(self.run_in_yard(ask, TRAINYARD_RANK_DIR=str(self.folder)), "True\n")

    def test_a_save_is_reported(self) -> None:
        self.run_in_yard("import trainyard\nwith trainyard.saving(4) as f: (f / 'x').write_text('x')")
        path = str(self.folder / "ckpt" / "step-00000004")
        self.assertEqual(self.notes(), [{"note": "checkpoint_saved", "step": 4, "text": path}])


if __name__ == "__main__":
    unittest.main()
