"""Trainings with several seeds: the best rate of a search, accuracies by seed, means, paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlayer.experiments.shared.pictures import Axes, colors


def best_rate(search: Iterable[Mapping[str, Any]], **of: object) -> float:
    """The rate with the highest validation accuracy among the rows with these entries.

    >>> rows = [{"net": "a", "learning_rate": r, "validation_accuracy": r} for r in (0.1, 0.3)]
    >>> best_rate([*rows, {"net": "b", "learning_rate": 1.0, "validation_accuracy": 9.0}], net="a")
    0.3
    """
    tried = [row for row in search if all(row[name] == value for name, value in of.items())]
    return float(max(tried, key=lambda row: row["validation_accuracy"] or 0.0)["learning_rate"])


def accuracies(trainings: Iterable[Mapping[str, Any]], kind: str) -> dict[str, dict[str, dict[int, float]]]:
    """Test accuracies by set, by the entry called ``kind`` and by seed."""
    sets: dict[str, dict[str, dict[int, float]]] = {}
    for row in trainings:
        sets.setdefault(row["set"], {}).setdefault(row[kind], {})[row["seed"]] = row["test_accuracy"]
    return sets


def grouped(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The rows by what they have under these names, in the order of the first of each group."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def mean_figures(start: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, sample deviation and number of seeds, for the summary."""
    spread = {f"{start}.sd": round(statistics.stdev(values), 3)} if len(values) > 1 else {}
    return {
        f"{start}.mean": round(statistics.mean(values), 3),
        **spread,
        f"{start}.seeds": float(len(values)),
    }


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[str, Any] | None:
    """Mean of ours less theirs, by seed, and the p value of a paired t-test; None with fewer than two seeds.

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


def ahead_figures(start: str, found: Mapping[str, Any] | None) -> dict[str, float]:
    """The lead of the M-layer and its p value, for the summary, as `paired` found them."""
    if found is None:
        return {}
    ahead = {f"{start}.m_layer_ahead_by": round(found["difference"], 3)}
    return ahead if found["p"] is None else ahead | {f"{start}.p": found["p"]}


def draw_seeds(axes: Axes, place: int, values: Sequence[float], color: str) -> None:
    """A dot for each seed and a bar at their mean."""
    axes.plot([place] * len(values), values, "o", color=color, alpha=0.6)
    axes.plot([place - 0.2, place + 0.2], [statistics.mean(values)] * 2, color=color, lw=2)


def draw_nets(axes: Axes, nets: Mapping[str, Mapping[int, float]]) -> None:
    """The accuracies by net and seed, a column for each net."""
    for place, (net, by_seed) in enumerate(nets.items()):
        color = colors().m_layer if net == "M-layer" else colors().net
        draw_seeds(axes, place, list(by_seed.values()), color)
    axes.set_xticks(range(len(nets)), [net.replace(", ", ",\n") for net in nets])
    axes.set_xlim(-0.5, len(nets) - 0.5)
