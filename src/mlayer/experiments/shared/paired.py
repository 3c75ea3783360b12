"""Differences of two models over the seeds that both have."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[str, Any] | None:
    """Mean of ours less theirs and the p value of a paired t-test; None with fewer than two seeds.

    Args:
        ours: a figure for each seed.
        theirs: the same.

    >>> found = paired({0: 2.0, 1: 3.0, 2: 4.5}, {0: 1.0, 1: 2.0, 5: 9.0})
    >>> found["seeds"], found["difference"]
    (2, 1.0)
    """
    from scipy.stats import ttest_rel

    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return None
    first, second = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    # Differences that are all the same have no spread to test against.
    p = float(ttest_rel(first, second).pvalue) if len(set(differences)) > 1 else None
    return {"seeds": len(seeds), "difference": statistics.mean(differences), "p": p}
