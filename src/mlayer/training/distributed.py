"""One run on several processes: every process takes its part of each batch, gradients are added.

The sum over all processes of (gradient of the losses of the part) / (size of the whole batch) is the
gradient that one process would have computed, whatever the sizes of the parts, also when some are
empty. (torch's DistributedDataParallel averages the parts as if they were equal.) All decisions are
taken on reduced numbers, so that all processes take the same ones.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mlayer.checks import brief
from mlayer.errors import ArgumentError, MLayerError, in_one_line

_SIZE = "WORLD_SIZE"  # the environment variable


class WorkerLostError(MLayerError, RuntimeError):
    """Another process of a distributed run is gone, or the launcher stops this one."""


class World:
    """The processes that train together. Alone: rank 0 of 1, and all operations do nothing."""

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.where = ""  # said in errors: the last checkpoint

    @property
    def alone(self) -> bool:
        """Whether there is only one process."""
        return self.size == 1

    def part(self, indices: Tensor) -> Tensor:
        """This process's part of a batch of row numbers; parts may be empty."""
        return indices if self.alone else indices.tensor_split(self.size)[self.rank]

    def total(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes, in float64."""
        if self.alone:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        self._reduce(tensor)
        return [float(value) for value in tensor.tolist()]

    def add_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> float:
        """Replace each gradient by the sum over the processes; returns the sum of the losses."""
        flat = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).double() for p in parameters]
            + [loss.detach().reshape(1).double()]
        )
        self._reduce(flat)
        start = 0
        for p in parameters:
            p.grad = flat[start : start + p.numel()].view_as(p).to(p.dtype)
            start += p.numel()
        return float(flat[-1])

    def same_everywhere(self, value: Any) -> Any:
        """The value of rank 0, for all."""
        if self.alone:
            return value
        box = [value]
        with self._guard():
            dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def _reduce(self, tensor: Tensor) -> None:
        with self._guard():
            dist.all_reduce(tensor)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise WorkerLostError(
                f"a process of the distributed run is gone (this is rank {self.rank} of {self.size}). "
                f"{self.where} ({in_one_line(error)})"
            ) from None


@contextmanager
def joined_world(model: nn.Module) -> Iterator[World]:
    """The world of this process: torchrun's if it was started by it, the caller's group, or alone."""
    started_here = not dist.is_initialized() and _processes() > 1
    if not (dist.is_available() and (dist.is_initialized() or started_here)):
        yield World()
        return
    device = next(iter(model.parameters())).device
    if started_here:
        try:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        except ValueError as error:  # RANK or MASTER_ADDR is missing, or no number
            raise _not_of_torchrun(f"{os.environ[_SIZE]} ({in_one_line(error)})") from None
    try:
        world = World(dist.get_rank(), dist.get_world_size(), device)
        with _stop_signal_says_so(world):
            yield world
    finally:
        if started_here:
            dist.destroy_process_group()


def _processes() -> int:
    """The number of processes that torchrun has started; 1 without it."""
    size = os.environ.get(_SIZE, "1")
    if not size.isascii() or not size.isdecimal() or len(size) > 9:
        raise _not_of_torchrun(brief(size))
    return int(size)


def _not_of_torchrun(came: str) -> ArgumentError:
    return ArgumentError(
        f"the environment variable {_SIZE}",
        "the number of processes, set by torchrun together with RANK, MASTER_ADDR and MASTER_PORT",
        came,
        "Start the script by torchrun, or unset the variable to train in one process.",
    )


@contextmanager
def _stop_signal_says_so(world: World) -> Iterator[None]:
    """Torchrun ends the processes that are left with SIGTERM: leave with an error that says what to do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        # The launcher may ask twice: the second time must not end us before the message is out.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise WorkerLostError(
            f"the launcher stopped this process (rank {world.rank} of {world.size}), most likely because "
            f"another one is gone. {world.where}"
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, before)
