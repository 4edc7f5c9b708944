"""Tests of the package, with nothing but the standard library: ``python -m unittest`` in sdk/python.

Those against the real frameworks are in files named real_*.py, which are not found by default.
"""

import os
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
sys.path.insert(0, str(SOURCES))

# The tests are outside of any yard, even if they run in one.
for name in [name for name in os.environ if name.startswith("TRAINYARD_")]:
    del os.environ[name]
