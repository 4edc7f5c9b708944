"""How often something is written, under a clock of the test's own."""

from __future__ import annotations

import json
import random
import unittest

from trainyard import _writer

from .support import YardTest


class Pace(YardTest):
    def setUp(self) -> None:
        super().setUp()
        self.now = 1000.0
        self.writer = _writer.Writer(str(self.metrics), str(self.progress), lambda: self.now, background=False)

    def steps(self) -> list[int]:
        return [line["step"] for line in self.lines()]

    def spend(self, kind: str) -> int:
        """Use up what may be written at once, and return how many lines that were."""
        for step in range(_writer.LINES_AT_ONCE):
            self.writer.line(kind, {"step": step})
        return len(self.lines())

    def test_the_first_are_written_all(self) -> None:
        self.assertEqual(self.spend("a"), _writer.LINES_AT_ONCE)

    def test_then_twenty_a_second(self) -> None:
        before = self.spend("a")
        for step in range(10_000):
            self.writer.line("a", {"step": step})
            self.now += 0.001
        self.assertIn(len(self.lines()) - before, range(198, 203))

    def test_fewer_in_a_run_that_is_old(self) -> None:
        self.now += 86_400
        before = self.spend("a")
        for step in range(600):
            self.writer.line("a", {"step": step})
            self.now += 0.1
        self.assertIn(len(self.lines()) - before, range(12, 16))  # every 4.3 s of a minute

    def test_the_newest_is_kept(self) -> None:
        before = self.spend("a")
        for step in range(200, 205):
            self.writer.line("a", {"step": step})
        self.assertEqual(self.steps()[before:], [])
        self.writer.flush()
        self.writer.flush()
        self.assertEqual(self.steps()[before:], [204])

    def test_kinds_do_not_keep_each_other_back(self) -> None:
        before = self.spend("a")
        for step, kind in enumerate("abc"):
            self.writer.line(kind, {"step": step})
        self.assertEqual(self.steps()[before:], [1, 2])

    def test_endless_kinds_share_a_rate(self) -> None:
        for step in range(1000):
            self.writer.line(step, {"step": step})
        self.writer.flush()
        self.assertEqual(self.steps()[-1], 999)
        self.assertEqual(len(self.lines()), _writer.MAX_CHANNELS + _writer.LINES_AT_ONCE + 1)

    def test_progress_once_a_second(self) -> None:
        told = []
        for tenth in range(30):
            self.writer.progress({"done": tenth})
            told.append(json.loads(self.progress.read_text())["done"])
            self.now += 0.1
        self.assertIn(len(set(told)), (3, 4))
        self.writer.close()
        self.assertEqual(self.told_progress(), {"done": 29})

    def test_after_the_end_nothing_is_kept_back(self) -> None:
        before = self.spend("a")
        self.writer.close()
        for step in range(5):
            self.writer.line("a", {"step": step})
        self.assertEqual(self.steps()[before:], list(range(5)))

    def test_any_history_is_told_in_order_and_to_its_end(self) -> None:
        for seed in range(20):
            with self.subTest(seed=seed):
                self.metrics.unlink(missing_ok=True)
                chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
                writer = _writer.Writer(str(self.metrics), "", lambda: self.now, background=False)
                last: dict[str, int] = {}
                for step in range(600):
                    kind = chance.choice("ab")
                    writer.line(kind, {"step": step, "kind": kind})
                    last[kind] = step
                    self.now += chance.choice((0, 0, 0, 0.01, 0.2))
                writer.close()
                for kind, newest in last.items():
                    steps = [line["step"] for line in self.lines() if line["kind"] == kind]
                    self.assertEqual(steps, sorted(set(steps)))
                    self.assertEqual(steps[-1], newest)


if __name__ == "__main__":
    unittest.main()
