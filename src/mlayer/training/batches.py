"""Batches: views into shuffled blocks of tensors in memory, or what a data loader brings.

Gathering rows batch by batch costs several microseconds each; gathering a block of batches at once and
handing out views costs a fraction of one. A block is small enough for the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.training.distributed import World
from mlayer.training.fingerprint import tensors_fingerprint
from mlayer.training.loader_fingerprint import examples_fingerprint, loader_fingerprint
from mlayer.training.loader_generators import LoaderGenerators

_BLOCK_NUMBERS = 2**20  # numbers copied at once into shuffled order
_EVALUATION_ROWS = 1024  # in one batch without gradients

Data = Sequence[Tensor] | Iterable[Sequence[Tensor]]


@dataclass(frozen=True)
class Batch:
    """Rows of this process, and the number of rows of the whole batch over all processes."""

    x: Tensor
    y: Tensor
    weight: Tensor | None
    whole: int


class TensorsInMemory:
    """Inputs, targets and, if given, a weight for each example."""

    def __init__(self, tensors: Sequence[Tensor], batch_size: int, device: torch.device) -> None:
        self.tensors = tuple(tensors)
        self.batch_size = batch_size
        self.device = device
        self.rows = len(self.tensors[0])

    @property
    def batches(self) -> int:
        """The number of batches in one epoch."""
        return -(-self.rows // self.batch_size)

    def shuffled(self, seed: int, skip: int, world: World) -> Iterator[Batch]:
        """One epoch in the order that ``seed`` gives, without its first ``skip`` batches."""
        order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        yield from self._batches(order, self.batch_size, skip, world)

    def in_order(self, world: World) -> Iterator[Batch]:
        """All rows once, in large batches."""
        yield from self._batches(torch.arange(self.rows), _EVALUATION_ROWS, 0, world)

    def _batches(self, order: Tensor, size: int, skip: int, world: World) -> Iterator[Batch]:
        numbers = max(1, self.tensors[0][0].numel())
        block = size * max(1, _BLOCK_NUMBERS // (numbers * size))
        for start in range(skip * size, len(order), block):
            rows = order[start : start + block]
            sizes = [len(part) for part in rows.split(size)]
            if world.alone:
                shares = sizes
            else:
                parts = [world.part(part) for part in rows.split(size)]
                shares, rows = [len(part) for part in parts], torch.cat(parts)
            columns = [
                t.index_select(0, rows.to(t.device)).to(self.device).split(shares) for t in self.tensors
            ]
            for i, whole in enumerate(sizes):
                weight = columns[2][i] if len(columns) > 2 else None
                yield Batch(columns[0][i], columns[1][i], weight, whole)

    def fingerprint(self) -> list[Any]:
        """Shapes and a digest of every byte: a run is not resumed on other data."""
        return tensors_fingerprint(self.tensors)

    def examples(self) -> list[Any]:
        """None: every byte was read."""
        return []


class FromLoader:
    """Batches of a data loader. Under several processes each takes its part of every batch."""

    def __init__(
        self, loader: Iterable[Sequence[Tensor]], device: torch.device, argument: str = "data"
    ) -> None:
        self.loader = loader
        self.generators = LoaderGenerators(loader)
        self.argument = argument
        self.device = device

    @property
    def batches(self) -> int | None:
        """The number of batches in one epoch, if the loader knows."""
        try:
            return len(self.loader)  # type: ignore[arg-type]
        except TypeError:
            return None

    def shuffled(self, seed: int, skip: int, world: World) -> Iterator[Batch]:
        """One epoch; the loader draws its order from torch's generator, which the loop has seeded.

        What is skipped is read before this returns, so that the caller can then put the generator where it
        was: the next batch may draw from it too.
        """
        self.generators.seed_order(seed)  # or a run could be neither repeated nor resumed
        batches = self._all(world)
        for _ in range(skip):
            next(batches, None)
        return batches

    def in_order(self, world: World) -> Iterator[Batch]:
        """One pass."""
        return self._all(world)

    def _all(self, world: World) -> Iterator[Batch]:
        empty = True
        for item in self.loader:
            empty = False
            if (
                not isinstance(item, Sequence)
                or not 2 <= len(item) <= 3
                or not all(isinstance(part, Tensor) and part.dim() for part in item)
            ):
                raise ArgumentTypeError(
                    self.argument,
                    "a loader of batches (x, y) or (x, y, weight)",
                    f"one that yields {type(item).__name__}",
                    "Write a collate function that returns a tuple of tensors.",
                )
            if len({len(part) for part in item}) > 1:  # one example instead of a batch of them, for instance
                raise ArgumentError(
                    self.argument,
                    "a loader of batches of equal length",
                    f"one that yields lengths {[len(part) for part in item]}",
                    "Wrap a data set of examples: torch.utils.data.DataLoader(data, batch_size=32).",
                )
            rows = world.part(torch.arange(len(item[0])))
            part = [_trainable(t if world.alone else t[rows]).to(self.device) for t in item]
            yield Batch(part[0], part[1], part[2] if len(part) > 2 else None, len(item[0]))
        if empty:
            raise ArgumentError(
                self.argument, "a loader of one batch or more", "none", "Check what it reads from."
            )

    def fingerprint(self) -> list[Any]:
        """All that is known without asking for anything."""
        return loader_fingerprint(self.loader)

    def examples(self) -> list[Any]:
        """The fingerprint of some examples; asking for them may change the other one."""
        return examples_fingerprint(self.loader)


def _trainable(tensor: Tensor) -> Tensor:
    """A copy of what was made under torch.inference_mode, as a backward pass cannot use that."""
    return tensor.clone() if tensor.is_inference() else tensor


Source = TensorsInMemory | FromLoader


def as_source(data: Data, batch_size: int, device: torch.device, argument: str = "data") -> Source:
    """Check ``data`` on entry."""
    if isinstance(data, Tensor):
        raise ArgumentTypeError(
            argument, "a pair (x, y) or a data loader", "one tensor", "Give inputs and targets."
        )
    of_batches = isinstance(data, list) and bool(data) and isinstance(data[0], tuple | list)
    if of_batches or not isinstance(data, tuple | list):
        if not isinstance(data, Iterable) or getattr(data, "ndim", 1) == 0:
            raise ArgumentTypeError(
                argument,
                "tensors (x, y), (x, y, weight), or a data loader",
                type(data).__name__,
                "Wrap a data set: torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)."
                if hasattr(data, "__getitem__")
                else "Convert arrays with torch.as_tensor.",
            )
        if isinstance(data, Iterator):
            raise ArgumentTypeError(
                argument,
                "something that can be read once per epoch",
                "an iterator, which can be read only once",
                "Give the data loader itself, or a list.",
            )
        return FromLoader(cast(Iterable[Sequence[Tensor]], data), device, argument)
    if not 2 <= len(data) <= 3 or not all(isinstance(t, Tensor) for t in data):
        kinds = ", ".join(type(t).__name__ for t in data)
        raise ArgumentTypeError(
            argument,
            "tensors (x, y) or (x, y, weight)",
            f"({kinds})",
            "Convert arrays with torch.as_tensor.",
        )
    if any(t.is_nested for t in data):
        raise ArgumentTypeError(
            argument, "tensors of one shape each", "a nested tensor", "Pad the rows to one length."
        )
    rows = [len(t) if t.dim() else 0 for t in data]
    if len(set(rows)) > 1:
        raise ArgumentError(argument, "tensors of equal length", f"lengths {rows}", "One row per example.")
    if rows[0] == 0:
        raise ArgumentError(argument, "at least one example", "none", "Check how the data were read.")
    tensors = [tensor.detach() for tensor in cast(Sequence[Tensor], data)]
    if any(t.is_meta or t.layout != torch.strided for t in tensors):
        raise ArgumentTypeError(
            argument,
            "dense tensors with values",
            "sparse ones or ones on meta",
            "Use .to_dense(), .to('cpu').",
        )
    for name, tensor in zip(("x", "y", "weight"), tensors, strict=False):
        # A finite sum has finite terms; only a sum that is not needs the slower look at each of them.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).reshape(rows[0], -1).any(1).sum())
            raise ArgumentError(
                f"{argument}: {name}", "finite", f"NaN or inf in {bad} rows", "Drop or fill those rows."
            )
    if len(tensors) == 3 and (tensors[2].shape != (rows[0],) or bool((tensors[2] < 0).any())):
        raise ArgumentError(
            f"{argument}: weight",
            f"of shape ({rows[0]},) and not negative",
            f"shape {tuple(tensors[2].shape)}, least {tensors[2].min():g}",
            "One weight per example; 1 is the usual weight.",
        )
    return TensorsInMemory(tensors, batch_size, device)
