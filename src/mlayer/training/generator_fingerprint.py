"""The identity of a random generator that a callable or a data set brings: what it was seeded with.

Those of torch and NumPy know their seed, and may stand anywhere. `random.Random` and NumPy's `RandomState` do
not: they count by where they stand, which is a digest, so that the first or the last state of a run must be
there (see `changes`). The generators of the whole process belong to no run.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import numpy as np
import torch

_LEAST_RANDOM = 2**64  # numpy draws seeds of 128 bits from the system; shorter ones were given by somebody


def generator_parts(value: Any) -> list[Any] | None:
    """The identity of a generator, as JSON has it; None for other objects.

    >>> generator_parts(random.Random(1)) == generator_parts(random.Random(2))
    False
    """
    kind = type(value)  # not what the object says of itself
    if issubclass(kind, torch.Generator):
        return [value.initial_seed()]
    if issubclass(kind, np.random.Generator):
        return _seed(value.bit_generator)
    if issubclass(kind, np.random.BitGenerator):
        return _seed(value)
    if issubclass(kind, np.random.RandomState):
        of_the_process = value is np.random.mtrand._rand
        return ["RandomState", None if of_the_process else _digest(value.get_state(legacy=False))]
    if issubclass(kind, random.SystemRandom) or value is random._inst:
        return ["Random"]
    if issubclass(kind, random.Random):
        return ["Random", _digest(value.getstate())]
    return None


def _seed(bits: np.random.BitGenerator) -> list[Any]:
    """The seed of a generator; None if it was random, for then no two processes have the same."""
    seeds: Any = getattr(bits, "seed_seq", None)
    if not isinstance(seeds, np.random.SeedSequence):  # made of a key, or by a jump of another generator
        return [_digest(bits.state)]
    words = seeds.entropy if isinstance(seeds.entropy, int) else np.asarray(seeds.entropy).tolist()
    drawn = isinstance(words, int) and words >= _LEAST_RANDOM
    return [None if drawn else _digest(words), list(seeds.spawn_key)]


def _digest(state: Any) -> str:
    text = json.dumps(state, default=lambda array: array.tolist())
    return hashlib.sha256(text.encode()).hexdigest()
