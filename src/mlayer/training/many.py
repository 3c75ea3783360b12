"""`train_many`: the same training with many seeds or settings, in parallel processes or on a cluster.

The work goes through joblib, so the caller chooses where it runs:

    with joblib.parallel_config(backend="ray"):      # after ray.util.joblib.register_ray()
        runs = train_many(build, data, settings)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.checks import brief, file_path, function, several
from mlayer.errors import ArgumentError, ArgumentTypeError, MissingPackageError, MLayerError
from mlayer.numerics.arrays import AnyArray
from mlayer.training.batches import as_source
from mlayer.training.divergence import DivergenceError
from mlayer.training.loop import train
from mlayer.training.result import TrainingResult
from mlayer.training.retry_killed_tasks import Packed, all_done, check_sendable, sendable, stays_here
from mlayer.training.run import Augment
from mlayer.training.settings import Settings

# Numbers as an array of numpy, and their type.
_Array = tuple[AnyArray, torch.dtype]
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Trained:
    """One of many runs: its settings, the trained model, and how it went."""

    settings: Settings
    model: nn.Module
    result: TrainingResult


class RunsLostError(MLayerError, RuntimeError):
    """Processes of some runs were killed each time; the others are in ``finished``.

    Attributes:
        lost: numbers of the runs that are lost.
        finished: the others, in their order.
    """

    def __init__(
        self, lost: list[int], settings: list[Settings], finished: list[Trained], kept: bool
    ) -> None:
        named = ", ".join(f"{i} (seed {s.seed})" for i, s in zip(lost, settings, strict=True))
        hint = (
            "Call it again to resume from their checkpoints."
            if kept
            else "Give `checkpoint` to keep their work."
        )
        super().__init__(
            f"the processes of the runs {named} were killed or ended themselves, also when nothing else ran: "
            "most likely memory is short. "
            f"The other {len(finished)} runs are in the error's `finished`. {hint}"
        )
        self.lost, self.finished = lost, finished


def train_many(
    build: Callable[[Settings], nn.Module],
    data: Sequence[Tensor],
    settings: Settings | Sequence[Settings],
    *,
    seeds: Sequence[int] | None = None,
    validation: Sequence[Tensor] | None = None,
    n_jobs: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    on_done: Callable[[Trained], None] | None = None,
    augment: Augment | None = None,
) -> list[Trained]:
    """Train one model for each of ``settings`` (or for each of ``seeds``), several at once.

    A run that diverges is given back with its best weights and ``result.stopped == "diverged"``; the
    others continue. A run whose process is killed (out of memory, say) is tried again, finally with nothing
    else running; what cannot be saved that way is named by a :class:`RunsLostError`, which holds the others.
    An error inside a run, ``sys.exit`` included, ends the call, as Ctrl-C does; the runs that had ended are
    in the error's ``finished``, and its notes name the run.

    Args:
        build: makes the model of a run; should draw its weights from ``settings.seed``.
        data: tensors (x, y) or (x, y, weight).
        settings: one for each run, or one for all ``seeds``.
        seeds: the seeds of the runs, when there is one settings.
        validation: as in :func:`train`.
        n_jobs: processes; -1 for one per core; None as joblib's context says, which may be a cluster.
        checkpoint: a folder; run i is kept in its subfolder "run-i" and resumed if it was stopped.
        on_done: called with each finished run, in the order of the list.
        augment: as in :func:`train`.

    >>> import torch, mlayer
    >>> from mlayer.training import Settings, train_many
    >>> def build(settings):
    ...     generator = torch.Generator().manual_seed(settings.seed)
    ...     return mlayer.MLayer(2, 1, matrix_size=3, embedding_size=None, generator=generator)
    >>> x = torch.rand(64, 2)
    >>> runs = train_many(build, (x, x.prod(1)), Settings(epochs=2), seeds=[0, 1, 2])
    >>> [run.settings.seed for run in runs]
    [0, 1, 2]
    """
    try:
        import joblib
    except ImportError:
        raise MissingPackageError("train_many", "joblib", "pip install 'mlayer[cluster]'") from None
    runs = _runs(settings, seeds)
    for name, given in (("data", data), ("validation", validation)):
        if not _are_tensors(given) and not (name == "validation" and given is None):
            raise ArgumentTypeError(
                name,
                "tensors (x, y) or (x, y, weight)" + (", or None" if name == "validation" else ""),
                type(given).__name__,
                "Runs in other processes cannot share a data loader.",
            )
    if build is None or isinstance(build, nn.Module):  # a module can be called, but makes no model
        hint = "Give a function that makes a model, such as lambda settings: MLayer(2, 1)."
        raise ArgumentTypeError("build", "a callable (settings) -> model", brief(build), hint)
    function("build", build, "(settings) -> model")
    function("on_done", on_done, "(trained)")
    function("augment", augment, "(x, generator) -> x", 2)
    if n_jobs is not None and (
        isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or not 0 < abs(n_jobs) < 2**15
    ):
        raise ArgumentTypeError(
            "n_jobs", "a number of processes, -1 or None", brief(n_jobs), "-1 is one process per core."
        )
    as_source(data, 1, torch.device("cpu"))
    if validation is not None:
        as_source(validation, 1, torch.device("cpu"), "validation")
    # Other processes may be in another folder.
    place = Path() if checkpoint is None else file_path("checkpoint", checkpoint).absolute()
    arrays = list(map(_as_array, data))
    checked = None if validation is None else list(map(_as_array, validation))
    folders = [None if checkpoint is None else place / f"run-{i}" for i in range(len(runs))]
    several = joblib.Parallel(n_jobs=n_jobs).n_jobs != 1
    here = stays_here(n_jobs)
    tasks = [
        joblib.delayed(_one)(
            i,
            (lambda s=s: (build, augment, s)) if here else Packed(build=build, augment=augment, settings=s),
            arrays,
            checked,
            f,
            several,
            os.getpid(),
        )
        for i, (s, f) in enumerate(zip(runs, folders, strict=True))
    ]
    found: dict[int, Trained] = {}
    try:
        all_done(tasks, n_jobs, found)
    except BaseException as error:  # Ctrl-C too
        _keep(error, [found[i] for i in sorted(found)], len(runs))
        raise
    trained = [found[i] for i in sorted(found)]
    if len(found) < len(runs):
        lost = [i for i in range(len(runs)) if i not in found]
        raise RunsLostError(lost, [runs[i] for i in lost], trained, checkpoint is not None)
    if on_done is not None:
        for one in trained:
            on_done(one)
    return trained


def _keep(error: BaseException, finished: list[Trained], count: int) -> None:
    """Tie the runs that have ended to the error of another one: their work is not lost with it."""
    with suppress(Exception):  # an error that takes no attributes
        error.finished = finished  # type: ignore[attr-defined]
        error.add_note(f"{len(finished)} of the {count} runs had ended; they are in the error's `finished`.")


def _as_array(tensor: Tensor) -> _Array:
    """A tensor as joblib carries it: large arrays go to its processes as one memory map, not as copies."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return plain.numpy(), plain.dtype
    except TypeError:  # of a type that numpy has not
        return plain.contiguous().view(_SAME_SIZE[plain.element_size()]).numpy(), plain.dtype


def _as_tensor(array: _Array) -> Tensor:
    numbers, dtype = array
    return torch.from_numpy(numbers).view(dtype)


def _are_tensors(data: object) -> bool:
    # Arrays of numpy are let through to the check that names what they should be converted with.
    return isinstance(data, tuple | list) and not any(isinstance(part, tuple | list) for part in data)


def _runs(settings: Settings | Sequence[Settings], seeds: Sequence[int] | None) -> list[Settings]:
    if isinstance(settings, Settings):
        if seeds is None:
            raise ArgumentError("seeds", "given with one settings", "None", "For example seeds=range(5).")
        named = several("seeds", seeds, "several integers", "For example seeds=range(5).")
        return [replace(settings, seed=seed) for seed in named]
    if seeds is not None:
        raise ArgumentError(
            "seeds", "None when there are several settings", "both", "Put the seed into each Settings."
        )
    runs = list(settings) if isinstance(settings, Iterable) else [settings]
    if not all(isinstance(s, Settings) for s in runs):
        raise ArgumentTypeError(
            "settings", "a Settings, or several", "something else among them", "Check it."
        )
    return runs


def _one(  # noqa: PLR0917 - a task for another process
    number: int,
    given: Callable[[], Any],
    arrays: Sequence[_Array],
    validation: Sequence[_Array] | None,
    folder: Path | None,
    several: bool,
    caller: int,
) -> tuple[int, Trained]:
    elsewhere = os.getpid() != caller
    run = f"run {number}"
    threads = torch.get_num_threads()
    if several:  # a core for each run: threads of several runs would stand in each other's way
        torch.set_num_threads(1)
    try:
        build, augment, settings = given()
        run = f"run {number} (seed {settings.seed})"
        model = build(settings)
        if elsewhere:  # before the work
            check_sendable("build", model, "a model that")
        try:
            result = train(
                model,
                list(map(_as_tensor, arrays)),
                settings,
                validation=None if validation is None else list(map(_as_tensor, validation)),
                checkpoint=folder,
                augment=augment,
            )
        except DivergenceError as error:
            result = error.result
        trained = Trained(settings, model, result)
        if elsewhere:
            check_sendable("build", trained, "a model that, once trained,")
        return number, trained
    except BaseException as error:
        if elsewhere or (several and isinstance(error, Exception)):
            raise sendable(error, run) from error
        error.add_note(run)
        raise
    finally:
        torch.set_num_threads(threads)
