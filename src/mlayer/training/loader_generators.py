"""The generators of torch that a loader brings: the run seeds them in every epoch, to be repeatable.

Those that give the order of examples, of the loader and its samplers, get the seed of the epoch. Those of
data sets, and other ones of a user's loader, get one that depends on their own seed besides, which is part of
the identity of a run; at its end they have their own seed again.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.utils.data import Sampler

from mlayer.training.loader_fingerprint import data_sets_behind
from mlayer.training.object_parts import attributes


class LoaderGenerators:
    """The generators of one loader, and the seeds that they came with."""

    def __init__(self, loader: Any) -> None:
        self.order = {id(one): one for owner in _owners(loader) if (one := _generator_of(owner)) is not None}
        held = [one for owner in (loader, *data_sets_behind(loader)) for one in attributes(owner).values()]
        self.others = {
            id(one): (one, one.initial_seed())
            for one in held
            if isinstance(one, torch.Generator) and id(one) not in self.order
        }

    def seed_order(self, seed: int) -> None:
        """Seed those that give the order of examples."""
        for generator in self.order.values():
            generator.manual_seed(seed)

    def seed_others(self, seed: int) -> None:
        """Seed the others for an epoch."""
        for generator, own in self.others.values():
            generator.manual_seed(_of_both(own, seed))

    def restore(self) -> None:
        """Give the others the seeds that they came with."""
        for generator, own in self.others.values():
            generator.manual_seed(own)


def _owners(loader: Any) -> list[Any]:
    """The loader and its samplers, each of which may be around another one."""
    found, waiting = [loader], [loader]
    while waiting:
        owner = waiting.pop()
        for name in ("sampler", "batch_sampler"):
            inner = getattr(owner, name, None)
            if inner is not None and not any(inner is one for one in found):
                found.append(inner)
                waiting += [inner] if isinstance(inner, Sampler) else []
    return found


def _generator_of(owner: Any) -> torch.Generator | None:
    generator = getattr(owner, "generator", None)
    return generator if isinstance(generator, torch.Generator) else None


def _of_both(own: int, seed: int) -> int:
    """A seed made of two."""
    return int.from_bytes(hashlib.sha256(f"{own} {seed}".encode()).digest()[:8], "big") >> 1
