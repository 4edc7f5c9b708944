"""The target of a job file, such as ``{metric: val_loss, at_most: 0.35}``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from . import _trouble


class Target:
    """A value that a metric shall come to. Once reached it stays so."""

    def __init__(self, metric: str, at_most: float | None, at_least: float | None) -> None:
        self.metric, self._at_most, self._at_least = metric, at_most, at_least
        self.reached = False

    @classmethod
    def parse(cls, text: str) -> Target | None:
        """Read a target from its JSON; None if there is none or it makes no sense."""
        if not text.strip():
            return None
        try:
            given = json.loads(text)
            metric = str(given["metric"])
            bounds = [None if given.get(key) is None else float(given[key]) for key in ("at_most", "at_least")]
        except (ValueError, TypeError, KeyError) as error:
            _trouble.once("target", "invalid TRAINYARD_TARGET: %r", error)
            return None
        if bounds == [None, None]:
            _trouble.once("target", "invalid TRAINYARD_TARGET: neither at_most nor at_least")
            return None
        return cls(metric, *bounds)

    def judge(self, metrics: Mapping[str, float]) -> bool:
        """Say whether these values have reached the target just now, for the first time."""
        value = metrics.get(self.metric)
        if self.reached or value is None or not self._met(value):
            return False
        self.reached = True
        return True

    def _met(self, value: float) -> bool:
        below = self._at_most is None or value <= self._at_most  # NaN is neither
        return below and (self._at_least is None or value >= self._at_least)
