"""The training of examples/checkpoints with what the fault matrix needs: saves that take a while, and a lock.

It says in files when it begins and ends a save, and fails if another run of its job is alive.
"""
import fcntl
import json
import os
import sys
import time
from pathlib import Path

import trainyard

examples, shared, steps, every, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
sys.path.insert(0, examples)
from train_plain import Training  # noqa: E402

lock = open(shared / "lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (shared / "two-runs-at-once").write_text(os.environ["TRAINYARD_RUN"])
    raise


def save(training):
    (shared / f"saving-{training.step}").touch()
    with trainyard.saving(training.step) as folder:
        (folder / "state.json").write_text(json.dumps(training.state()))
        (folder / "ballast").write_bytes(os.urandom(4 << 20))
        time.sleep(0.3)
    (shared / f"saved-{training.step}").touch()


training = Training(seed)
latest = trainyard.latest_checkpoint()
if latest:
    training.restore(json.loads((latest.path / "state.json").read_text()))
print(f"starts at step={training.step}", flush=True)

while training.step < steps and not trainyard.stopping():
    loss = training.advance()
    print(f"step={training.step} loss={loss!r}", flush=True)
    trainyard.progress(training.step, steps)
    if trainyard.should_save(training.step, every=every):
        save(training)
    time.sleep(0.02)

if trainyard.stopping():
    (shared / f"stopping-{training.step}").touch()
save(training)
if training.step == steps:
    print(f"weights={training.digest()}", flush=True)
