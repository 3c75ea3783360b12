"""Which real data sets an experiment reads."""

from __future__ import annotations

from collections.abc import Iterable

from mlayer.experiments.protocol import Scale
from mlayer.experiments.registry import EXPERIMENTS, experiment


def needed_sets(name: str, scale: Scale = "default") -> tuple[str, ...]:
    """What ``mlayer.datasets.fetch_sets`` has to fetch for an experiment, or for "all".

    >>> needed_sets("temperatures"), needed_sets("spiral"), needed_sets("images", "smoke")
    (('temperatures',), (), ())
    >>> needed_sets("all", "full")
    ('temperatures', 'mnist', 'cifar10', 'svhn', 'authors_model')
    """
    if name == "all":
        every = [of for each in EXPERIMENTS for of in needed_sets(each, scale)]
        return tuple(dict.fromkeys(every))
    config = experiment(name).SCALES[scale]
    if name == "temperatures":
        return () if config.made_up else ("temperatures",)
    if name == "images":
        return _from_files(config.seeds)
    if name == "baselines":
        return _from_files(of for of, _ in config.rows)
    if name == "certified":
        return _from_files(task.set for task in config.tasks)
    if name == "robustness":
        return ("cifar10", "authors_model") if config.released else ()
    return ()


def _from_files(names: Iterable[str]) -> tuple[str, ...]:
    """Each once; the digits come with scikit-learn."""
    return tuple(name for name in dict.fromkeys(names) if name != "digits")
