"""Telling of trouble without making any.

A training must not end because of what is said about it. So what goes wrong in here is
told once through ``logging`` and then put up with. ``warnings`` is not used: a program
that turns warnings into errors would be ended by them.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("trainyard")
_told: set[str] = set()


def once(kind: str, text: str, *values: object) -> None:
    """Tell of trouble of a kind, the first time that it comes up in this process."""
    if kind not in _told:
        _told.add(kind)
        _log.warning(text + " (further ones of this kind are not told)", *values)


def exception(text: str, *values: object) -> None:
    """Tell of the exception that is being handled, with its traceback."""
    _log.exception(text, *values)
