"""Log problems without causing any.

A training must not end because its reports fail. So a problem in this package is
logged once through ``logging`` and then ignored. ``warnings`` is not used: a program
that turns warnings into errors would be ended by them.
"""

from __future__ import annotations

import logging

_log = logging.getLogger("trainyard")
_logged: set[str] = set()


def once(kind: str, text: str, *values: object) -> None:
    """Log a problem of a kind, the first time that it occurs in this process."""
    if kind not in _logged:
        _logged.add(kind)
        _log.warning(text + " (further warnings of this kind are suppressed)", *values)


def exception(text: str, *values: object) -> None:
    """Log the exception that is being handled, with its traceback."""
    _log.exception(text, *values)
