"""The Checkpointer and the DataLoader with the real PyTorch: several processes, workers, and saves that fail.

Run by ``go test ./sdk/python``; skipped where PyTorch is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import unittest

import trainyard
from trainyard._checkpoint import MARKER

from .support import YardTest, end

# Two processes train one model together; each prints the loss of its part of every step.
TOGETHER = """
import os, signal, time
if os.environ["RANK"] == "1" and "ASKED" in os.environ:
    os.environ["TRAINYARD_RANK_DIR"] = os.environ["ASKED"]
import torch, trainyard
from trainyard.torch import Checkpointer, DataLoader

torch.distributed.init_process_group("gloo", init_method="file://" + os.environ["MEETING"],
                                     rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
rank = torch.distributed.get_rank()
torch.set_num_threads(1)
torch.manual_seed(rank)

class Shard:
    "A part of the state that only this process has."
    def __init__(self):
        self.drawn = torch.zeros(1)
    def state_dict(self):
        return {"drawn": self.drawn, "rank": rank}
    def load_state_dict(self, state):
        assert state["rank"] == rank, state
        self.drawn = state["drawn"]

def meet():
    "Wait for the others: whoever ends sooner breaks the connections that they still use, and PyTorch aborts them."
    done = [os.environ["MEETING"] + f"-{r}" for r in range(torch.distributed.get_world_size())]
    open(done[rank], "w").close()
    while not all(map(os.path.exists, done)):
        time.sleep(0.01)

sharded = os.environ.get("SHARDED") == "1"
x = torch.linspace(-1, 1, 64).unsqueeze(1)
data = DataLoader(torch.utils.data.TensorDataset(x, x * x), batch_size=4, seed=3)
plain = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
model = torch.nn.parallel.DistributedDataParallel(plain)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
shard = Shard()
states = {"model": model, "optimizer": optimizer, "data": data}
if sharded:
    states["shard"] = shard
checkpoints = Checkpointer(states, every=int(os.environ.get("EVERY", "1000")), sharded=sharded)
step, steps = checkpoints.resume(), 30
print("starts at", step, flush=True)
while step < steps and checkpoints.proceed(step):
    inputs, wanted = data.next()
    loss = ((model(inputs) - wanted) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shard.drawn = shard.drawn + torch.rand(1)
    step += 1
    print("step", step, loss.item(), shard.drawn.item() if sharded else "", flush=True)
    if os.environ.get("STOPPED_AT") == f"{rank}:{step}":
        os.kill(os.getpid(), signal.SIGTERM)
    if os.environ.get("KILLED_AT") == str(step):
        checkpoints.wait()
        meet()
        os.kill(os.getpid(), signal.SIGKILL)
checkpoints.save(step, wait=True)
print("ended at", step, flush=True)
trainyard.flush()
meet()
os._exit(0)  # PyTorch 1.13 sometimes aborts when it ends its process groups
"""


class TorchTest(YardTest):
    def setUp(self) -> None:
        if importlib.util.find_spec("torch") is None:
            raise unittest.SkipTest("PyTorch is not installed")
        super().setUp()
        self.meetings = 0

    def latest(self) -> trainyard.Checkpoint:
        found = trainyard.latest_checkpoint(self.folder / "ckpt")
        assert found is not None
        return found


class Together(TorchTest):
    def train(self, world: int = 2, code: int = 0, folder: str = "ckpt", **extra: str) -> list[str]:
        """Run all processes of a training; return what each has printed."""
        self.meetings += 1
        extra["TRAINYARD_CHECKPOINT_DIR"] = str(self.folder / folder)
        extra.update(MEETING=str(self.folder / f"meeting-{self.meetings}"), WORLD_SIZE=str(world))
        started: list[subprocess.Popen[str]] = []
        for rank in range(world):
            started.append(self.start(TOGETHER, **{**extra, "RANK": str(rank)}))
            self.addCleanup(started[-1].kill)  # if another one fails
        ended = [end(process) for process in started]
        self.assertEqual([ended[rank][1] for rank in range(world)], [code] * world, ended)
        return [out for out, _ in ended]

    def assert_continues(self, parts: list[str], whole: list[str]) -> None:
        """Each step of a part has computed what the undisturbed training has, in every process."""
        for rank, part in enumerate(parts):
            steps = re.findall("step .*", part)
            self.assertTrue(steps, part)
            self.assertLessEqual(set(steps), set(re.findall("step .*", whole[rank])))

    def test_a_killed_training_continues_with_the_same_numbers(self) -> None:
        for sharded in ("0", "1"):
            with self.subTest(sharded=sharded):
                whole = self.train(folder=f"whole-{sharded}", SHARDED=sharded)
                folder = f"ckpt-{sharded}"
                self.train(code=-signal.SIGKILL, folder=folder, EVERY="7", KILLED_AT="17", SHARDED=sharded)
                rest = self.train(folder=folder, EVERY="7", SHARDED=sharded)
                for out in rest:
                    self.assertIn("starts at 14\n", out)
                    self.assertIn("ended at 30", out)
                self.assert_continues(rest, whole)

    def test_each_process_has_its_file_in_the_checkpoint(self) -> None:
        self.train(SHARDED="1")
        marker = json.loads((self.latest().path / MARKER).read_text())
        self.assertEqual((marker["step"], marker["world"], marker["sharded"]), (30, 2, True))
        self.assertEqual(sorted(marker["files"]), ["rank-0.pt", "rank-1.pt"])

    def test_all_stop_at_the_same_step_if_one_must(self) -> None:
        for rank in (0, 1):
            with self.subTest(rank=rank):
                first, second = self.train(folder=f"ckpt-{rank}", STOPPED_AT=f"{rank}:2")
                ends = [re.findall("ended at (.*)", out) for out in (first, second)]
                self.assertEqual(ends[0], ends[1])
                self.assertEqual(len(ends[0]), 1)
                found = trainyard.latest_checkpoint(self.folder / f"ckpt-{rank}")
                assert found is not None
                self.assertEqual(str(found.step), ends[0][0])

    def test_a_request_to_one_saves_in_all(self) -> None:
        # Only the agent of the second process asks; the checkpoint has the files of both.
        (self.folder / "save-request").write_text("1")
        self.train(ASKED=str(self.folder), code=-signal.SIGKILL, KILLED_AT="3")
        self.assertLess(self.latest().step, 3)
        self.assertEqual(sorted(p.name for p in self.latest().path.glob("rank-*")), ["rank-0.pt", "rank-1.pt"])

    def test_shards_of_another_number_of_processes_are_refused(self) -> None:
        self.train(SHARDED="1")
        (out,) = self.train(world=1, code=1, SHARDED="1")
        self.assertIn("has the shards of 2 processes, not of 1", out)

    def test_states_of_another_number_of_processes_are_resumed(self) -> None:
        self.train(EVERY="7", code=-signal.SIGKILL, KILLED_AT="17")
        (out,) = self.train(world=1)
        self.assertIn("starts at 14\n", out)
        self.assertIn("ended at 30", out)


class Loading(TorchTest):
    # Every sample comes with a random number, as from an augmentation.
    PROGRAM = """
import random, sys, torch
from trainyard.torch import DataLoader

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return index, random.random(), torch.rand(1).item()

def loader():
    return DataLoader(Samples(), batch_size=3, seed=5, num_workers=WORKERS)

def take(data, count):
    return [[part.tolist() for part in data.next()] for _ in range(count)]

if __name__ == "__main__":
    whole = take(loader(), 16)
    for cut in (1, 6, 7, 8):
        first = loader()
        assert take(first, cut) == whole[:cut]
        second = loader()
        second.load_state_dict(first.state_dict())
        assert take(second, 16 - cut) == whole[cut:], cut
    one = loader()
    epochs = [[batch[0].tolist() for batch in one] for _ in range(2)]
    assert [len(epoch) for epoch in epochs] == [7, 7] and one.epoch == 2
    assert sorted(sum(epochs[0], [])) == list(range(20)) and epochs[0] != epochs[1]
    short = loader()
    for _, batch in zip(range(len(short)), short):  # asks for no more after the last one
        pass
    assert (short.epoch, len(list(short))) == (1, 7)
    print("fine")
"""

    def test_workers_continue_at_the_very_batch(self) -> None:
        # Some versions of torch complain when worker processes end.
        self.assertRegex(self.run_in_yard(self.PROGRAM.replace("WORKERS", "2")), "(?m)^fine$")

    def test_without_workers_the_order_continues(self) -> None:
        program = self.PROGRAM.replace("WORKERS", "0").replace("random.random(), torch.rand(1).item()", "0, 0")
        self.assertEqual(self.run_in_yard(program), "fine\n")


class Failing(TorchTest):
    def test_an_error_of_a_save_is_raised_by_the_next_call(self) -> None:
        out = self.run_in_yard(
            """
            import torch, trainyard
            from trainyard.torch import Checkpointer
            model = torch.nn.Linear(1, 1)
            checkpoints = Checkpointer({"model": model})
            checkpoints.save(1, wait=True)
            real, torch.save = torch.save, lambda *_: (_ for _ in ()).throw(OSError("disk full"))
            for call in (checkpoints.wait, lambda: checkpoints.save(3)):
                checkpoints.save(2)
                try:
                    call()
                except OSError as error:
                    print(error, trainyard.latest_checkpoint().step)
            torch.save = real
            checkpoints.save(2, wait=True)
            print(trainyard.latest_checkpoint().step)
            """
        )
        self.assertEqual(out, "disk full 1\ndisk full 1\n2\n")
        self.assertEqual(sorted(p.name for p in (self.folder / "ckpt").iterdir()), ["step-00000001", "step-00000002"])

    def test_a_save_copies_the_state_before_it_returns(self) -> None:
        out = self.run_in_yard(
            """
            import torch, trainyard
            from trainyard.torch import Checkpointer
            model = torch.nn.Linear(1, 1)
            checkpoints = Checkpointer({"model": model})
            torch.nn.init.constant_(model.weight, 7)
            checkpoints.save(1)
            torch.nn.init.constant_(model.weight, 8)
            checkpoints.wait()
            checkpoints.resume()
            print(model.weight.item())
            """
        )
        self.assertEqual(out, "7.0\n")

    def test_a_training_waits_for_its_saves_if_it_says_so(self) -> None:
        out = self.run_in_yard(
            """
            import threading, time, torch, trainyard
            from trainyard.torch import Checkpointer
            real, go = torch.save, threading.Event()
            torch.save = lambda *args: (go.wait(), time.sleep(0.2), real(*args))
            for step, background in ((20, True), (40, False)):
                checkpoints = Checkpointer({"model": torch.nn.Linear(1, 1)}, every=20, background=background)
                checkpoints.proceed(step)
                found = trainyard.latest_checkpoint()
                print(found is not None and found.step == step)
                go.set()
                checkpoints.wait()
            """
        )
        self.assertEqual(out, "False\nTrue\n")


if __name__ == "__main__":
    unittest.main()
