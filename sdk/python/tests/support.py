"""Programs that run inside a yard of files, and what they have told it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any

from . import SOURCES

PATIENCE = 300  # seconds after which a program hangs; a busy machine takes a minute to import a framework


class YardTest(unittest.TestCase):
    """A test with a run folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.metrics = self.folder / "metrics.jsonl"
        self.progress = self.folder / "progress.json"
        self.environ = {
            "TRAINYARD_JOB_ID": "j7",
            "TRAINYARD_RUN": "j7.2",
            "TRAINYARD_METRICS_FILE": str(self.metrics),
            "TRAINYARD_PROGRESS": str(self.progress),
            "TRAINYARD_CHECKPOINT_DIR": str(self.folder / "ckpt"),
            "TRAINYARD_GRACE": "30",
            "RANK": "0",
            "NODE_RANK": "0",
        }

    def start(self, program: str, **extra: str) -> subprocess.Popen[str]:
        """Start a Python program inside the yard."""
        return start(program, {**self.environ, **extra})

    def run_in_yard(self, program: str, **extra: str) -> str:
        """Run a program inside the yard to its end, which must be a good one; return what it printed."""
        out, code = end(self.start(program, **extra))
        self.assertEqual(code, 0, out)
        return out

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines that were told."""
        if not self.metrics.exists():
            return []
        text = self.metrics.read_text()
        self.assertTrue(text.endswith("\n"), "a line is not complete")
        return [json.loads(line) for line in text.splitlines()]

    def points(self, name: str) -> list[tuple[float, Any]]:
        """Return the values of a metric by step."""
        return [(line["step"], line["metrics"][name]) for line in self.lines() if name in line.get("metrics", {})]

    def notes(self) -> list[dict[str, Any]]:
        """Return the notes, without their time."""
        found = [line for line in self.lines() if "note" in line]
        for note in found:
            self.assertIsInstance(note.pop("at"), float)
        return found

    def told_progress(self) -> Any:
        """Return what is in the progress file."""
        return json.loads(self.progress.read_text())


def start(program: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a Python program in an environment that has nothing of ours but what is given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_") and not k.endswith("RANK")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**kept, "PYTHONPATH": str(SOURCES), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[str, int]:
    """Wait for a program's end; return what it printed and its exit code."""
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            out, _ = process.communicate(timeout=1)
        except subprocess.TimeoutExpired as left:  # by another process that has its output open
            out = str(left.output)
        raise AssertionError(f"the program does not end: {out}") from None
    return out, process.returncode
