"""The identity of a data loader, without reading it through, so that a run resumes on the same data only.

Tensors and arrays in memory count with every byte, wherever they are: in a TensorDataset, a list of batches,
an attribute of a data set, of its sampler or of a user-defined loader. So do the batch size, the sampler and
the code that makes batches. Of a data set that can be indexed some examples count besides, if they are the
same when they are asked for twice; random ones cannot be compared. What is read from files on the way is not
compared otherwise. Counters and caches of a data set count until they are seen to change (see `changes`):
asking for examples changes them too, so these are asked for separately.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, Subset, TensorDataset

from mlayer.training.changes import NOT_COMPARED
from mlayer.training.code_fingerprint import of_a_library
from mlayer.training.fingerprint import plain, tensors_fingerprint
from mlayer.training.object_parts import attributes

_SAMPLES = 8
_LISTS = (list, tuple, range, Tensor, np.ndarray)  # of indices, in the place of a sampler
_CONTAINERS = (list, tuple, dict, set, frozenset, Tensor, np.ndarray)  # in the place of a data set
# Where a sampler finds the data set again; and a generator, which is seeded by the run.
_NOT_OF_A_SAMPLER = ("data_source", "generator")


def loader_fingerprint(loader: Any) -> list[Any]:
    """All that is known of a loader without asking it for anything, as JSON has it."""
    if type(loader) in (list, tuple):  # others may make something else of their items
        batches = [tensors_fingerprint([t for t in batch if isinstance(t, Tensor)]) for batch in loader]
        return ["batches", batches]
    known = [_length(loader), type(loader).__qualname__, getattr(loader, "batch_size", None)]
    if not isinstance(loader, DataLoader):
        # The attributes of a library's loader are details of its implementation, such as queues and workers.
        mark = [f"{NOT_COMPARED} {type(loader).__qualname__}"] if of_a_library(type(loader)) else []
        dataset = _dataset_of(loader)  # of a user's loader the run seeds the generator
        seeded = dataset is loader and isinstance(getattr(loader, "generator", None), torch.Generator)
        return [*known, _dataset_fingerprint(dataset, given="generator" if seeded else ""), *mark]
    if not of_a_library(type(loader)):
        held = {
            key: _held(value) for key, value in attributes(loader).items() if key not in _of_every_loader()
        }
        known += [plain(type(loader)), held]
    makes = [plain(getattr(loader, name)) for name in ("collate_fn", "worker_init_fn", "drop_last")]
    order = [_sampler_fingerprint(getattr(loader, name)) for name in ("sampler", "batch_sampler")]
    return [*known, makes, order, _dataset_fingerprint(loader.dataset)]


def examples_fingerprint(loader: Any) -> list[Any]:
    """Examples of each data set behind a loader that can be indexed, as JSON has them."""
    if type(loader) in (list, tuple):
        return []
    with _generators_left_as_they_are():
        return [
            _examples(dataset)
            for dataset in data_sets_behind(loader)
            if type(dataset) is not TensorDataset and not isinstance(dataset, _CONTAINERS)
        ]


def data_sets_behind(loader: Any) -> list[Any]:
    """The source of a loader's examples, the data sets in it, and those that the loader holds."""
    waiting, found = [_dataset_of(loader)], dict[int, Any]()
    if isinstance(loader, DataLoader):
        waiting += _datasets_in(loader)
    while waiting:
        dataset = waiting.pop(0)
        if id(dataset) not in found:
            found[id(dataset)] = dataset
            waiting += _datasets_in(dataset)
    return list(found.values())


def _dataset_of(loader: Any) -> Any:
    """The source of a loader's examples, or the loader itself: one of a user may be no DataLoader."""
    known = isinstance(loader, DataLoader) or of_a_library(type(loader))
    return getattr(loader, "dataset", loader) if known else loader


def _datasets_in(dataset: Any) -> list[Any]:
    """The data sets that another one is made of."""
    found: list[Any] = []
    for value in attributes(dataset).values():
        inside = value.values() if isinstance(value, dict) else value
        found += inside if isinstance(value, dict | list | tuple) else [value]
    return [one for one in found if isinstance(one, Dataset)]


def _examples(dataset: Any) -> Any:
    count = _length(dataset)
    if not count or not hasattr(dataset, "__getitem__"):
        return None
    places = sorted({round(k * (count - 1) / (_SAMPLES - 1)) for k in range(_SAMPLES)})
    once, again = ([plain(_example(dataset, k)) for k in places] for _ in range(2))
    return once if once == again else "random"


def _sampler_fingerprint(sampler: Any) -> Any:
    if sampler is None or isinstance(sampler, _LISTS):
        return plain(sampler)
    held = {
        name: _sampler_fingerprint(value) if isinstance(value, Sampler | BatchSampler) else plain(value)
        for name, value in attributes(sampler).items()
        if name not in _NOT_OF_A_SAMPLER and not isinstance(value, Dataset)
    }
    return [plain(type(sampler)), held]


def _dataset_fingerprint(dataset: Any, above: tuple[int, ...] = (), given: str = "") -> list[Any]:
    name, count = type(dataset).__qualname__, _length(dataset)
    if id(dataset) in above:
        return [name, count, "above"]
    above = (*above, id(dataset))
    if type(dataset) is TensorDataset:
        return [name, count, tensors_fingerprint(dataset.tensors)]
    if type(dataset) is Subset:
        return [name, count, plain(list(dataset.indices)), _dataset_fingerprint(dataset.dataset, above)]
    held = {key: _held(value, above) for key, value in attributes(dataset).items() if key != given}
    known = [name, count, plain(type(dataset)), held]
    if isinstance(dataset, _CONTAINERS):
        return [*known, plain(dataset)]
    if not isinstance(dataset, Dataset) and of_a_library(type(dataset)):  # such as a table of pandas
        known = [*known, plain(dataset)]
    return known


@cache
def _of_every_loader() -> set[str]:
    """The attributes of every loader of torch: those that matter are asked for by name."""
    return {*vars(DataLoader(TensorDataset(torch.zeros(1)))), "_iterator"}


def _held(value: Any, above: tuple[int, ...] = ()) -> Any:
    """An attribute of a data set, which may be made of others."""
    if isinstance(value, Dataset):
        return _dataset_fingerprint(value, above)
    if isinstance(value, list | tuple) and any(isinstance(one, Dataset) for one in value):
        return [_held(one, above) for one in value]
    if isinstance(value, dict) and any(isinstance(one, Dataset) for one in value.values()):
        return [[plain(key), _held(one, above)] for key, one in value.items()]
    return plain(value)


def _example(dataset: Any, place: int) -> Any:
    try:
        return dataset[place]
    except Exception as error:  # training will meet it and say more
        return type(error).__name__


def _length(of: Any) -> int | None:
    try:
        return len(of)
    except Exception:  # none, or one that cannot be asked for
        return None


@contextmanager
def _generators_left_as_they_are() -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that transforms draw from
    with torch.random.fork_rng([]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
