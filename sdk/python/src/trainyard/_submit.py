"""Submitting jobs from Python, through the command line."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any


def submit(
    file: str | os.PathLike[str],
    params: Mapping[str, Any] | None = None,
    *,
    options: Sequence[str] = (),
    command: str = "trainyard",
) -> list[str]:
    """Submit a job file and return the ids of its jobs; an array has one id, such as a12.

    ``params`` gives values to parameters of the file, as ``--set`` does. ``options`` are further options of
    ``trainyard submit``. It needs the command ``trainyard`` and its login; what that refuses raises RuntimeError
    with its message.
    """
    arguments = [command, "submit", "--quiet", "--yes"]
    for name, value in (params or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        arguments.append(f"--set={name}={text}")

    subprocess = importlib.import_module("subprocess")  # programs that submit nothing need not load it
    done = subprocess.run(
        [*arguments, *options, os.fspath(file)], check=False, capture_output=True, text=True, encoding="utf-8"
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{command} submit ended with exit code {done.returncode}")

    return list(done.stdout.split())
