"""Checkpoints of PyTorch programs that write their own training loop.

    from trainyard.torch import Checkpointer, DataLoader

    data = DataLoader(dataset, batch_size=32, seed=1)
    checkpoints = Checkpointer({"model": model, "optimizer": optimizer, "data": data}, every=500)
    step = checkpoints.resume()
    while step < steps and checkpoints.proceed(step):
        train(model, data.next())
        step += 1
    checkpoints.save(step, wait=True)

The state is copied between two steps and written in the background. With it go the states of the random
number generators, so that a training that was killed and resumed computes what an undisturbed one does.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import trainyard

from . import _checkpoint, _framework, _trouble

__all__ = ["Checkpointer", "DataLoader"]

_FRAMEWORK = "pytorch"


class Checkpointer:
    """Saves and resumes the state of a training: of all objects that have ``state_dict`` and ``load_state_dict``.

    If torch.distributed is initialized, every process makes one. All of them save at the same step, each its own
    random numbers; with ``sharded=True`` each also its own states, otherwise the first process those for all.

    A training that is killed continues from its last complete save. With ``background=False`` it waits for each save,
    so that a kill costs at most one interval; otherwise also the steps since an unfinished save began.
    """

    def __init__(
        self,
        states: Mapping[str, Any],
        *,
        every: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        keep: int = 2,
        sharded: bool = False,
        background: bool = True,
    ) -> None:
        for name, value in states.items():
            if not hasattr(value, "state_dict") or not hasattr(value, "load_state_dict"):
                raise TypeError(f"state {name!r} must have state_dict and load_state_dict, not be {value!r}")
        self._states, self._every, self._keep, self._sharded = dict(states), every, keep, sharded
        self._background = background
        self._folder = trainyard.checkpoint_dir("checkpoints") if folder is None else Path(folder)
        self._ranks = _Ranks(self._folder)
        self._agreement = _framework.Agreement()
        self._host: Any = None  # the last copy of the state, whose memory the next one uses again
        self._saved: int | None = None  # the step of the last save that was begun
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def resume(self) -> int:
        """Load the newest complete checkpoint; return its step, 0 if there is none."""
        found = self._ranks.newest(_checkpoint.complete(self._folder))
        if found is None:
            return 0
        torch = _torch()
        own = found.path / _name(self._ranks.rank)
        if self._sharded and found.world != self._ranks.world:
            raise ValueError(
                f"the checkpoint {found.path} has the shards of {found.world} processes, not of {self._ranks.world}"
            )
        source = own if self._sharded else found.path / _name(0)
        # Not only weights: the checkpoint is the program's own, and so is what it has put there.
        saved = torch.load(source, map_location="cpu", weights_only=False)
        for name, value in self._states.items():
            value.load_state_dict(saved["states"][name])
        if found.world == self._ranks.world:
            set_random_state(saved["random"] if own == source else torch.load(own, weights_only=False)["random"])
        else:
            _trouble.once("world", "%s was saved by another number of processes: random numbers begin anew", found.path)
        self._saved = found.step
        if self._ranks.rank == 0:
            trainyard.checkpoint_restored(found.path, found.step)
        return found.step

    def proceed(self, step: int) -> bool:
        """Return whether the training goes on after a step; save first if that is due.

        A save is due at every so many steps as the constructor was given, at requests of the yard and as often as
        the job file says. Several processes get the same answer.
        """
        save, stop = self._agreement.decide(self._ranks.world, group=self._ranks.deciding)
        if save or (self._every is not None and step > 0 and step % self._every == 0):
            self.save(step)
        return not stop

    def save(self, step: int, *, wait: bool = False, metric: str = "", value: Any = None) -> None:
        """Save the state after a step: it is copied now and written in the background.

        One save at a time: a second one waits for the first. If that failed, its error is raised here or by
        ``wait``. A step that is already saved is not saved again. With ``background=False`` of the constructor every
        save is complete when this returns.
        """
        self.wait()
        if step != self._saved:
            draft = _checkpoint.Draft(self._folder, step)
            quality = trainyard._quality(metric, value)
            self._host, ready = _copy(self._state(step), self._host)
            self._saved = step
            _framework.restart_timer()
            # Not a daemon: a program that ends by itself waits for it.
            self._thread = threading.Thread(
                target=self._write, args=(draft, ready, metric, quality), name="trainyard-save", daemon=False
            )
            self._thread.start()
        if wait or not self._background:
            self.wait()

    def wait(self) -> None:
        """Wait for the save that is under way, and raise its error if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error, self._saved = self._error, None, None
            raise error

    def _state(self, step: int) -> dict[str, Any]:
        with_states = self._sharded or self._ranks.rank == 0
        return {
            "step": step,
            "states": {name: value.state_dict() for name, value in self._states.items()} if with_states else {},
            "random": random_state(),
        }

    def _write(self, draft: _checkpoint.Draft, ready: list[Any], metric: str, value: float | None) -> None:
        try:
            for event in ready:
                event.synchronize()
            self._write_all(draft, metric, value)
        except BaseException as error:  # raised by the next call
            draft.abandon()
            self._error = error

    def _write_all(self, draft: _checkpoint.Draft, metric: str, value: float | None) -> None:
        """Write the files of all processes; the first one on each node makes the folder and marks it."""
        ranks = self._ranks
        with ranks.together():
            if ranks.leads:
                draft.begin()
        with ranks.together():
            _torch().save(self._host, draft.path / _name(ranks.rank))
        with ranks.together():
            if ranks.leads:
                draft.commit(
                    self._keep, metric, value, world=ranks.world, sharded=ranks.world > 1, framework=_FRAMEWORK
                )
        if ranks.rank == 0:
            trainyard._saved(draft.final, self._host["step"])


class _Ranks:
    """The processes of a training; one, if torch.distributed is not used."""

    def __init__(self, folder: Path) -> None:
        self.rank, self.world, self.leads = _rank(), _world(), True
        self.deciding: Any = None
        self._saving: Any = None
        if self.world > 1:
            # Two groups of their own, on the CPU: the main thread decides while another one saves, and neither waits
            # for a GPU.
            new_group = _torch().distributed.new_group
            self.deciding, self._saving = new_group(backend="gloo"), new_group(backend="gloo")
            self.leads = self._first_at(folder) == self.rank

    def _first_at(self, folder: Path) -> int:
        """Return the first process that sees the same folder: those of its node, or all if the nodes share it."""
        nonce = self._gather(os.urandom(8).hex())[0]
        mine = folder / f".rank-{nonce}-{self.rank}.tmp"
        with self.together():
            mine.touch()
        try:
            with self.together():
                return next(r for r in range(self.world) if (folder / f".rank-{nonce}-{r}.tmp").exists())
        finally:
            mine.unlink()

    def _gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.world
        _torch().distributed.all_gather_object(values, value, group=self._saving)
        return values

    def newest(self, found: list[trainyard.Checkpoint]) -> trainyard.Checkpoint | None:
        """Return the newest of these checkpoints that all processes have."""
        by_step = {checkpoint.step: checkpoint for checkpoint in found}
        common = set(by_step)
        if self.world > 1:
            common.intersection_update(*self._gather(sorted(by_step)))
        return by_step[max(common)] if common else None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Wait at the end of the block until all processes are there; raise if it failed in any of them."""
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
        if self.world > 1:
            torch = _torch()
            failed = torch.tensor(int(error is not None))
            torch.distributed.all_reduce(failed, op=torch.distributed.ReduceOp.MAX, group=self._saving)
            if error is None and failed.item():
                error = RuntimeError("another process of the training could not save the checkpoint")
        if error is not None:
            raise error


class DataLoader:
    """A torch DataLoader that continues at the very batch at which a checkpoint was saved.

    The order of an epoch follows from the seed and the epoch, over all processes: each gets its part of a batch.
    ``for batch in loader`` gives the batches that are left of the epoch; ``next()`` gives one after the other,
    from epoch to epoch. Other arguments are those of torch's DataLoader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise TypeError("dataset must have a length and be indexed: a stream has no order that can be repeated")
        self.epoch = 0  # of the next batch
        self._position = 0  # samples of the epoch that all processes have been given
        self._dataset, self._options = dataset, options
        self._size, self._seed, self._shuffle, self._drop_last = batch_size, seed, shuffle, drop_last
        self._iterator: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Return how many batches an epoch has."""
        size = self._size * _world()
        return len(self._dataset) // size if self._drop_last else -(-len(self._dataset) // size)

    def __iter__(self) -> Iterator[Any]:
        size = self._size * _world()
        for batch in self._batches():
            # Before it is used: what is saved then includes it. Nor do all who iterate ask for more after the last one.
            self._position += size
            if self._position >= len(self) * size:
                self.epoch, self._position = self.epoch + 1, 0
            yield batch

    def next(self) -> Any:
        """Return the next batch, of the next epoch if this one has no more."""
        while True:
            if self._iterator is None:
                self._iterator = iter(self)
            for batch in self._iterator:
                return batch
            self._iterator = None
            if not len(self):
                raise ValueError("the dataset has not enough samples for a batch")

    def state_dict(self) -> dict[str, int]:
        """Return where the loader is."""
        return {"epoch": self.epoch, "position": self._position, "seed": self._seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from there."""
        self.epoch, self._position, self._seed = state["epoch"], state["position"], state["seed"]
        self._iterator = None

    def _batches(self) -> Any:
        """Return a torch DataLoader for what is left of the epoch."""
        torch = _torch()
        seed = self._seed * 1_000_003 + self.epoch
        dataset = _Seeded(self._dataset, seed) if self._options.get("num_workers") else self._dataset
        # A generator of its own: the number that a DataLoader draws at its start must not be missing elsewhere.
        generator = torch.Generator().manual_seed(seed)
        batches = list(self._left(generator))
        return torch.utils.data.DataLoader(dataset, batch_sampler=batches, generator=generator, **self._options)

    def _left(self, generator: Any) -> Iterator[list[int]]:
        """Give the batches of this process from the position on, as lists of indices."""
        rank, world = _rank(), _world()
        count, size = len(self._dataset), self._size * world
        order = _torch().randperm(count, generator=generator).tolist() if self._shuffle else list(range(count))
        for start in range(self._position, len(self) * size, size):
            batch = order[start : start + size]
            missing = -len(batch) % world
            yield (batch + (order * world)[:missing])[rank::world]  # every process gets a part, and as large a one


class _Seeded:
    """A dataset in worker processes whose random numbers for a sample do not depend on the samples before it."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        seed = (self._seed * 1_000_003 + index) % 2**32
        random.seed(seed)
        _torch().manual_seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed)
        return self._dataset[index]


def _copy(state: Any, kept: Any) -> tuple[Any, list[Any]]:
    """Copy a state to the host, into the memory of an earlier copy where it fits.

    The copy is complete when the events have happened. A GPU does it before the work that is queued after it, so
    that the training can go on meanwhile.
    """
    copier = _Copier()
    host = copier.copy(state, kept)
    return host, copier.events()


class _Copier:
    def __init__(self) -> None:
        self._torch = _torch()
        self._copies: dict[Any, Any] = {}  # of a tensor that occurs twice there is one copy
        self._used: set[int] = set()  # memory of the earlier copy, by its id
        self._devices: set[Any] = set()

    def copy(self, value: Any, kept: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            return self._tensor(value.detach(), kept)
        if isinstance(value, dict):
            before = kept if isinstance(kept, dict) else {}
            copied = copy.copy(value)  # with what a module has noted on its state
            for name, part in value.items():
                copied[name] = self.copy(part, before.get(name))
            return copied
        if type(value) in (list, tuple):
            same = isinstance(kept, (list, tuple)) and len(kept) == len(value)
            return type(value)(map(self.copy, value, kept if same else [None] * len(value)))
        return copy.deepcopy(value)

    def _tensor(self, source: Any, kept: Any) -> Any:
        if type(source) is not self._torch.Tensor or source.layout is not self._torch.strided or source.is_quantized:
            return copy.deepcopy(source).cpu()
        key = (source.data_ptr(), source.shape, source.stride(), source.dtype, source.device)
        if key not in self._copies or not source.numel():
            host = kept if self._fits(source, kept) else self._new(source)
            self._used.add(id(host))
            self._copies[key] = host.copy_(source, non_blocking=source.is_cuda)
            if source.is_cuda:
                self._devices.add(source.device)
        return self._copies[key]

    def _fits(self, source: Any, kept: Any) -> bool:
        return (
            type(kept) is self._torch.Tensor
            and id(kept) not in self._used
            and kept.shape == source.shape
            and kept.dtype == source.dtype
            and (not source.is_cuda or kept.is_pinned())
        )

    def _new(self, source: Any) -> Any:
        return self._torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=source.is_cuda)

    def events(self) -> list[Any]:
        """Return what happens on each GPU when its part has been copied."""
        events = []
        for device in self._devices:
            event = self._torch.cuda.Event()
            event.record(self._torch.cuda.current_stream(device))
            events.append(event)
        return events


def random_state() -> dict[str, Any]:
    """Return the states of all random number generators of this process."""
    torch = _torch()
    state = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, numbers, *rest = numpy.random.get_state()
        state["numpy"] = (name, numbers.tolist(), *rest)  # of which every way of loading approves
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Continue with the random numbers of such a state."""
    torch = _torch()
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        importlib.import_module("numpy").random.set_state(state["numpy"])
    if len(state.get("cuda", ())) <= torch.cuda.device_count():
        for device, numbers in enumerate(state.get("cuda", ())):
            torch.cuda.set_rng_state(numbers, device)
    else:
        _trouble.once("cuda", "the checkpoint was saved with more GPUs: their random numbers begin anew")


def _name(rank: int) -> str:
    return f"rank-{rank}.pt"


def _rank() -> int:
    return int(_torch().distributed.get_rank()) if _distributed() else 0


def _world() -> int:
    return int(_torch().distributed.get_world_size()) if _distributed() else 1


def _distributed() -> bool:
    distributed = getattr(_torch(), "distributed", None)
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _torch() -> Any:
    return importlib.import_module("torch")
