"""Arrays and parameters, and submitting jobs from Python."""

from __future__ import annotations

import os
import stat
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import trainyard


class ArrayTest(unittest.TestCase):
    def test_outside_of_an_array_there_is_no_element(self) -> None:
        with mock.patch.dict(os.environ, clear=True):
            self.assertIsNone(trainyard.element())
            self.assertEqual(trainyard.param("lr", "0.1"), "0.1")

    def test_an_element_knows_its_place(self) -> None:
        place = {
            "TRAINYARD_ARRAY_ID": "a12",
            "TRAINYARD_ARRAY_INDEX": "3",
            "TRAINYARD_ARRAY_SIZE": "5",
            "TRAINYARD_ARRAY_VALUE": "a b",
            "TRAINYARD_PARAM_lr": "0.3",
        }
        with mock.patch.dict(os.environ, place, clear=True):
            self.assertEqual(trainyard.element(), trainyard.Element("a12", 3, 5, "a b"))
            self.assertEqual(trainyard.param("lr"), "0.3")


class SubmitTest(unittest.TestCase):
    def command(self, text: str) -> str:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "trainyard"
        path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

        return str(path)

    def test_the_command_line_submits(self) -> None:
        command = self.command('for a in "$@"; do echo "$a" >&2; done; echo a12; echo j7')
        self.assertEqual(trainyard.submit("job.yaml", {"lr": 0.1, "on": True}, command=command), ["a12", "j7"])

    def test_values_are_passed_as_they_are(self) -> None:
        command = self.command('printf "%s" "$4" | tr " " "_"')
        self.assertEqual(trainyard.submit("job.yaml", {"v": "a $(b) 'c"}, command=command), ["--set=v=a_$(b)_'c"])

    def test_what_is_refused_raises(self) -> None:
        command = self.command("echo 'the job file has no parameter x' >&2; exit 2")
        with self.assertRaisesRegex(RuntimeError, "no parameter x"):
            trainyard.submit("job.yaml", {"x": 1}, command=command)


if __name__ == "__main__":
    unittest.main()
