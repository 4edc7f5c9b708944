"""Measures what the calls cost, outside the yard and inside: ``python tests/overhead.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
CALLS = {
    "log": "trainyard.log(7, loss=0.5, acc=0.9)",
    "log, mapping": "trainyard.log(7, {'val/loss': 0.5})",
    "progress": "trainyard.progress(7, 100)",
    "stopping": "trainyard.stopping()",
    "target_reached": "trainyard.target_reached()",
    "checkpoint_saved": "trainyard.checkpoint_saved('x', 7)",
    "checkpoint_dir": "trainyard.checkpoint_dir()",
    "job_id": "trainyard.job_id()",
}


def measure(where: str) -> None:
    """Print microseconds a call, the best of five rounds."""
    count = 20_000
    for name, call in CALLS.items():
        best = min(timeit.repeat(call, "import trainyard", number=count, repeat=5)) / count
        print(f"{where:8} {name:18} {best * 1e6:7.3f} us")


def main() -> None:
    """Measure in processes of their own: where a process is is decided when the package is imported."""
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        names = {"METRICS_FILE": "metrics.jsonl", "PROGRESS": "progress.json", "CHECKPOINT_DIR": "ckpt"}
        inside = {f"TRAINYARD_{key}": str(Path(folder) / name) for key, name in names.items()}
        inside.update(TRAINYARD_JOB_ID="j1", TRAINYARD_RUN="j1.1", TRAINYARD_TARGET='{"metric":"loss","at_most":0}')
        outside = {key: value for key, value in os.environ.items() if not key.startswith("TRAINYARD_")}
        for where, environ in (("outside", outside), ("inside", {**outside, **inside})):
            with_sources = {**environ, "PYTHONPATH": str(SOURCES)}
            subprocess.run([sys.executable, __file__, where], env=with_sources, check=True)


if __name__ == "__main__":
    main()
