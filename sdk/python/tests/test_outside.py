"""Outside the yard nothing happens; calls that make no sense are told everywhere alike."""

from __future__ import annotations

import inspect
import re
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable

import trainyard

from . import SOURCES
from .support import YardTest, end, start

EVERY_CALL = """
import signal, threading, trainyard
before = signal.getsignal(signal.SIGTERM)
trainyard.log(1, loss=float("nan"), odd="text")
trainyard.log(1, {"a": 1})
trainyard.progress(1, 2)
trainyard.checkpoint_saved("x", 1)
trainyard.checkpoint_restored()
trainyard.flush()
trainyard.configure(write=True)
assert trainyard.on_stop(print) is print
assert not trainyard.should_save()
answers = (trainyard.stopping(), trainyard.grace_left(), trainyard.target_reached(), trainyard.target_reached(0.1),
           trainyard.inside(), trainyard.job_id(), trainyard.run(), trainyard.checkpoint_dir())
assert answers == (False, None, False, False, False, None, None, None), answers
assert signal.getsignal(signal.SIGTERM) is before
assert threading.active_count() == 1
"""

WRONG_CALLS: dict[str, Callable[[], Any]] = {
    "step must be a number": lambda: trainyard.log("10", loss=1),
    "step must be a number, not True": lambda: trainyard.log(True, loss=1),
    "step must be a number, not None": lambda: trainyard.log(None, loss=1),
    "metrics must be a mapping": lambda: trainyard.log(1, 0.5),  # type: ignore[arg-type]
    "done must be a number": lambda: trainyard.progress("half"),
    "total must be a number": lambda: trainyard.progress(1, "all"),
    "path must be text": lambda: trainyard.checkpoint_saved(b"x"),  # type: ignore[arg-type]
    "step must be a number, not 'x'": lambda: trainyard.checkpoint_restored(None, "x"),
    "value must be a number": lambda: trainyard.target_reached("low"),
    "callback must be a function": lambda: trainyard.on_stop(1),  # type: ignore[type-var]
}


class Outside(unittest.TestCase):
    def test_every_call_does_nothing_and_prints_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out, code = end(start(f"import os; os.chdir({folder!r})\n{EVERY_CALL}", {"RANK": "0"}))
            self.assertEqual((out, code), ("", 0))
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_the_folder_for_checkpoints_is_the_programs_own(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "deep" / "ckpt"
            self.assertEqual(trainyard.checkpoint_dir(path), path)
            self.assertTrue(path.is_dir())

    def test_a_tensor_is_not_read(self) -> None:
        class OnGPU:
            def item(self) -> float:
                raise AssertionError("nobody may wait for it")

        trainyard.log(OnGPU(), loss=OnGPU())
        trainyard.progress(OnGPU())

    def test_calls_that_make_no_sense_raise(self) -> None:
        for message, call in WRONG_CALLS.items():
            with self.subTest(message), self.assertRaisesRegex(TypeError, message):
                call()

    def test_nothing_is_imported_that_need_not_be(self) -> None:
        program = """
            import sys, trainyard, trainyard.huggingface, trainyard.lightning, trainyard.keras, trainyard.torch
            names = "torch numpy transformers lightning keras tensorflow socket subprocess".split()
            print([name for name in names if name in sys.modules])
            """
        self.assertEqual(end(start(program, {})), ("[]\n", 0))


class Inside(YardTest):
    def test_who_it_is(self) -> None:
        out = self.run_in_yard("import trainyard as t; print(t.inside(), t.job_id(), t.run())")
        self.assertEqual(out.split(), ["True", "j7", "j7.2"])

    def test_calls_that_make_no_sense_raise_here_too(self) -> None:
        for message, call in WRONG_CALLS.items():
            source = inspect.getsource(call).split("lambda: ", 1)[1].split("  # ")[0].rstrip().rstrip(",")
            with self.subTest(message):
                out, code = end(self.start(f"import trainyard\n{source}"))
                self.assertEqual(code, 1, source)
                self.assertRegex(out, "TypeError: " + message)


class Package(unittest.TestCase):
    def test_only_the_standard_library_is_used(self) -> None:
        used = {
            module
            for path in (SOURCES / "trainyard").glob("*.py")
            for module in re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
        }
        ours = """
            __future__ atexit collections contextlib copy importlib json logging math os pathlib random re shutil signal
            sys threading time types
            """
        self.assertLessEqual(used, {"trainyard", "typing", *ours.split()})

    def test_every_call_is_in_the_readme(self) -> None:
        readme = (SOURCES.parent / "README.md").read_text()
        for name in trainyard.__all__:
            with self.subTest(name):
                self.assertIn(f"`{name}" if name.startswith("_") else f"`{name}(", readme)

    def test_every_call_has_a_doc(self) -> None:
        for name in trainyard.__all__:
            if name != "__version__":
                with self.subTest(name):
                    self.assertTrue(getattr(trainyard, name).__doc__)

    def test_it_is_marked_as_typed(self) -> None:
        self.assertTrue((SOURCES / "trainyard" / "py.typed").exists())

    def test_what_is_not_there_is_an_attribute_error(self) -> None:
        with self.assertRaisesRegex(AttributeError, "nonsense"):
            _ = trainyard.nonsense
        with self.assertRaisesRegex(AttributeError, "nonsense"):
            _ = trainyard.keras.nonsense


if __name__ == "__main__":
    unittest.main()
