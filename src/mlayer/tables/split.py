"""Rows that are held out: drawn at random, class by class."""

from __future__ import annotations

import numpy as np

from mlayer.errors import ArgumentError
from mlayer.tables.task import Array

FEWEST = 10


def held_out(truth: Array, share: float, seed: int, *, classes: bool) -> tuple[Array, Array]:
    """Row numbers (train, test), each sorted; ``share`` of the rows, or of each class, is for the test.

    A class keeps at least one row for training, so one with a single row is not tested.
    """
    if not 0 < share < 1:
        raise ArgumentError("test_share", "between 0 and 1", f"{share:g}", "For example 0.2.")
    if len(truth) < FEWEST:
        raise ArgumentError(
            "the table", f"of at least {FEWEST} rows with a target", f"{len(truth)}", "Use more rows."
        )
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(truth))
    if not classes:
        count = min(max(1, round(share * len(truth))), len(truth) - 2)
        test = order[:count]
    else:
        parts = []
        for label in np.unique(truth):
            rows = order[truth[order] == label]
            parts.append(rows[: min(round(share * len(rows)), len(rows) - 1)])
        test = np.concatenate(parts)
        if not len(test):
            test = order[[np.flatnonzero(np.bincount(truth)[truth[order]] > 1)[0]]]
    train = np.setdiff1d(np.arange(len(truth)), test)
    return train, np.sort(test)
