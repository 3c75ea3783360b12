"""The state of one run: all that the rest of it depends on, and how it gets into a checkpoint and back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from mlayer.errors import ArgumentError, FileFormatError, in_one_line
from mlayer.tensorfile import digest_of
from mlayer.training.batches import Data, FromLoader, Source, as_source
from mlayer.training.best import Best, Weights, copy_of
from mlayer.training.changes import agree, difference, differing, merged, not_compared, same
from mlayer.training.checkpoints import Checkpoints, CheckpointWarning
from mlayer.training.distributed import World
from mlayer.training.evaluation import check_state_dict
from mlayer.training.fingerprint import model_fingerprint, plain
from mlayer.training.learning_rate import LearningRate
from mlayer.training.optimizers import alike, build_optimizer, check_state, same_kernels
from mlayer.training.result import Record, Stopped, TrainingResult
from mlayer.training.settings import Settings
from mlayer.training.surroundings import surroundings

# (x, generator) -> x, for training batches only.
Augment = Callable[[Tensor, torch.Generator], Tensor]

_COUNTERS: dict[str, Any] = {
    **dict.fromkeys(("epoch", "batch", "step"), int),
    **dict.fromkeys(("loss_sum", "seconds", "seen"), int | float),
    **{"stopped": str | None, "message": str},
}
# What may differ between a run and its continuation.
_FREE = ("on_divergence", "restore_best")


_SAME_VALUES = (
    " What is held must have the same value before every call, also a time, a count of calls or a generator "
    "of random numbers: set or seed it there, or keep it elsewhere."
)


class Run:
    """Model, optimizer, best weights, generators and counters of one run."""

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        settings: Settings,
        world: World,
        *,
        validation: Data | None = None,
        augment: Augment | None = None,
    ) -> None:
        self.model, self.settings, self.world, self.augment = model, settings, world, augment
        self.optimizer = build_optimizer(model, settings)
        self.parameters: list[nn.Parameter] = [
            p for group in self.optimizer.param_groups for p in group["params"]
        ]
        self.device = self.parameters[0].device
        check_state_dict(model)
        self.source = as_source(data, settings.batch_size, self.device)
        self.validation = (
            None
            if validation is None
            else as_source(validation, settings.batch_size, self.device, "validation")
        )
        batches = self.source.batches
        self.total_steps = None if batches is None else batches * settings.epochs
        if settings.schedule is not None and self.total_steps is None:
            raise ArgumentError(
                "schedule",
                "None for a data loader of unknown length",
                repr(settings.schedule),
                "Use plateau, or a loader that has a length.",
            )
        self.rate = LearningRate(self.optimizer, settings, self.total_steps)
        self.best = Best(settings.monitor)
        self.epoch_start: Weights | None = None  # weights, where the training loss is to judge them
        self.generator = torch.Generator()  # of augmentation
        self.epoch = 0  # complete ones
        self.batch = 0  # done in this epoch
        self.step = 0  # done in all
        self.loss_sum, self.seen = 0.0, 0  # of this epoch
        self.seconds = 0.0
        self.stopped: Stopped | None = None
        self.message = ""
        self.history: list[Record] = []
        self.resumed_at: int | None = None
        self._resumed_from: Checkpoints | None = None  # until the first step
        self._about: dict[str, Any] = {}  # what makes this run, for checkpoints

    def result(self) -> TrainingResult:
        """The result of a run that has stopped."""
        assert self.stopped is not None
        return TrainingResult(
            history=self.history,
            best_epoch=self.best.epoch,
            best_value=self.best.value,
            stopped=self.stopped,
            message=self.message,
            steps=self.step,
            seconds=self.seconds,
            resumed_at=self.resumed_at,
        )

    def resume(self, checkpoints: Checkpoints | None) -> None:
        """Resume from the checkpoint if there is one, else write the first; the same on all processes."""
        state = None
        if self.world.rank == 0:
            if checkpoints is not None:
                self._about = self._fingerprint()
                checkpoints.tidy()
                state = checkpoints.read()
            if state is not None:
                assert checkpoints is not None
                self._check_same_run(state, checkpoints)
                # What was seen to change before may change again.
                before = state["about"]
                self._about |= self._held(before) | {k: before[k] for k in ("start", "data", "validation")}
            else:
                self.best.weights = copy_of(self.model)  # in case not even one epoch ends well
                if checkpoints is not None:
                    checkpoints.write_first(self.state())
        if not self.world.alone:
            state = self.world.same_everywhere(self.state() if state is None else state)
        if state is not None:
            self._load_or_refuse(state, checkpoints)
        self.world.where = (
            "Nothing was kept: give train a checkpoint folder."
            if checkpoints is None
            else f"The checkpoint in {checkpoints.folder} holds the last complete epochs: "
            "run the same command again to resume from there."
        )

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        if self._about:
            self._about |= self._held(self._about)
        return {
            "about": self._about,
            "model": dict(self.model.state_dict()),
            "others": self._others(),
            "optimizer": self.optimizer.state_dict(),
            "rate": self.rate.state(),
            "best": self.best.state(),
            "epoch_start": self.epoch_start,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "augment": self.generator.get_state(),
            "history": self.history,
            **{name: getattr(self, name) for name in _COUNTERS},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` gave."""
        for name, kinds in _COUNTERS.items():
            if not isinstance(state[name], kinds) or (isinstance(state[name], int) and state[name] < 0):
                raise ValueError(f"{name} = {state[name]!r:.60}")
        if not isinstance(state["history"], list) or not all(isinstance(e, dict) for e in state["history"]):
            raise TypeError("a history that is not a list of records")
        json.dumps(state["history"])  # a TypeError where a line of it could not be written
        groups = self.optimizer.state_dict()["param_groups"], state["optimizer"]["param_groups"]
        if not (alike(*groups) and all(map(same_kernels, *groups))):
            raise ValueError("an optimizer with other options")
        shapes = _shapes(self.model.state_dict())
        if not all(
            w is None or _shapes(w) == shapes for w in (state["best"]["weights"], state["epoch_start"])
        ):
            raise ValueError("best weights of another shape")
        self.model.load_state_dict(state["model"])
        self._load_others(state.get("others", {}))
        self.optimizer.load_state_dict(state["optimizer"])
        check_state(self.optimizer)
        self.rate.load_state(state["rate"])
        self.best.load_state(state["best"])
        self.epoch_start = state["epoch_start"]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        self.generator.set_state(state["augment"])
        self.history = list(state["history"])
        for name in _COUNTERS:
            setattr(self, name, state[name])
        self.resumed_at = self.step if self.step else None
        if self.stopped == "epochs" and self.epoch < self.settings.epochs:  # asked to continue
            self.stopped, self.message = None, ""

    def _fingerprint(self) -> dict[str, Any]:
        """Every byte of data and weights, the code of callables, and the settings."""
        held, sources = self._held(), self._sources()
        known = {name: source.fingerprint() for name, source in sources.items()}
        examples = {name: source.examples() for name, source in sources.items()}
        return {
            **held,
            "optimizer": self._optimizer_fingerprint(),
            "validation": None,
            **{name: [known[name], examples[name]] for name in sources},
            "start": digest_of(self.model.state_dict() | self._others()),
            "around": surroundings(self.device.type),
        }

    def _others(self) -> dict[str, Tensor]:
        """Tensors outside the model's state that may change: buffers, and parameters that train with it."""
        saved = self.model.state_dict(keep_vars=True)
        own = {id(tensor) for tensor in saved.values()}
        parts = {"model": self.model, "loss": self.settings.loss, "augment": self.augment}
        modules = {name: part for name, part in parts.items() if isinstance(part, nn.Module)}
        found: dict[str, Tensor] = {
            f"{name}.{inner}": buffer
            for name, module in modules.items()
            for inner, buffer in module.named_buffers()
            if id(buffer) not in own
        }
        trained = [p for p in self.parameters if id(p) not in own]
        return found | {f"optimizer.{place}": parameter for place, parameter in enumerate(trained)}

    @torch.no_grad()
    def _load_others(self, others: dict[str, Tensor]) -> None:
        found = self._others()
        if _shapes(found) != _shapes(others):
            raise ValueError("other parameters or buffers outside the model")
        for name, tensor in found.items():
            tensor.copy_(others[name])

    def _held(self, before: dict[str, Any] | None = None) -> dict[str, Any]:
        """The fingerprint of what may hold counters and caches: callables and the model.

        ``before`` is the same at an earlier moment of the run; what has changed since then is marked.
        """
        settings = self.settings.fingerprint()
        augment, structure = plain(self.augment), model_fingerprint(self.model)
        if before is not None:
            old = before["settings"]
            callables = [name for name, value in settings.items() if isinstance(value, list | dict)]
            settings |= {name: merged(old.get(name), settings[name]) for name in callables}
            augment = merged(before["augment"], augment)
            structure = merged(before["structure"], structure)
        return {"settings": settings, "augment": augment, "structure": structure}

    def _sources(self) -> dict[str, Source]:
        sources = {"data": self.source, "validation": self.validation}
        return {name: source for name, source in sources.items() if source is not None}

    def _data_now(self) -> dict[str, Any]:
        """The fingerprint of loaders, which may hold counters and caches: what has changed is marked.

        Examples are asked for first here and last at the start of a run, so that nothing is asked for between
        the end of a run and the start of its continuation: a counter stands where it stood.
        """
        loaders = {name: one for name, one in self._sources().items() if isinstance(one, FromLoader)}
        examples = {name: loader.examples() for name, loader in loaders.items()}
        return {
            name: merged(self._about[name], [loader.fingerprint(), examples[name]])
            for name, loader in loaders.items()
        }

    def seed_loaders(self, seed: int | None) -> None:
        """Seed the generators that data sets hold for an epoch; None: as they were given."""
        for source in self._sources().values():
            if isinstance(source, FromLoader):
                if seed is None:
                    source.generators.restore()
                else:
                    source.generators.seed_others(seed)

    def mark_changes(self, checkpoints: Checkpoints) -> None:
        """Mark in the last checkpoint what a run has changed in its arguments until its end or interruption.

        Or the same process could not resume it: its loader, say, has counted what was done since then.
        """
        with suppress(Exception):  # of the arguments' code: what ended the run is what counts
            now = self._about and self._about | self._data_now() | self._held(self._about)
            if now != self._about and (state := checkpoints.read()) is not None:
                checkpoints.write(state | {"about": now})

    def _optimizer_fingerprint(self) -> list[Any]:
        """An optimizer that a function made says more than the function's code: what it trains, and how."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        groups = [
            [
                [names.get(id(p)) for p in group["params"]],
                plain({k: v for k, v in group.items() if k != "params"}),
            ]
            for group in self.optimizer.param_groups
        ]
        return [type(self.optimizer).__name__, plain(self.optimizer.defaults), groups]

    def _check_same_run(self, state: dict[str, Any], checkpoints: Checkpoints) -> None:
        try:
            changed = self._changes(state)
        except _MISFITS as error:
            raise self._unusable(checkpoints, error) from None
        if changed:
            held = any("in the attribute" in words or "holds other values" in words for words in changed)
            raise ArgumentError(
                "checkpoint",
                "the folder of this run, or empty",
                f"{checkpoints.folder}, where {'; '.join(changed)}",
                "Give another folder, or delete this one to start over." + (_SAME_VALUES if held else ""),
            )
        if unknown := not_compared(self._about):
            warnings.warn(
                f"resumed from {checkpoints.folder} without comparing what is in {in_one_line(unknown)}: it "
                "cannot be read whole. Make sure that it is the same, or delete the folder to start over.",
                CheckpointWarning,
                stacklevel=4,
            )

    def _changes(self, state: dict[str, Any]) -> list[str]:
        """A description of how this run differs from that of a state."""
        about = state["about"]
        old, new = dict(about["settings"]), dict(self._about["settings"])
        # A finished run may be prolonged, unless its schedule was made for its length.
        longer = new["epochs"] >= state["epoch"] and self.settings.schedule is None
        for name in (*_FREE, *(["epochs"] if longer else [])):
            old.pop(name, None), new.pop(name)
        changed = [difference(k, old.get(k), v) for k, v in new.items() if not agree(old.get(k), v)]
        if not changed and not same(about["optimizer"], self._about["optimizer"]):
            changed.append("the optimizer trains other parameters, or with other options")
        if about["around"] != self._about["around"]:
            changed.append(f"torch computed with {about['around']} and does with {self._about['around']}")
        for name in ("data", "validation"):
            if not same(about[name], self._about[name]):
                what = "data differ" if name == "data" else "validation data differ, or are new, or are gone"
                names = ", ".join(islice(differing(about[name], self._about[name]), 3))
                changed.append(f"the {what}" + (f", in the attribute {names}" if names else ""))
        if not same(about["augment"], self._about["augment"]):
            changed.append(difference("augment", about["augment"], self._about["augment"]))
        if _shapes(self.model.state_dict()) != _shapes(state["model"]):
            changed.append("the model has other parameters")
        elif not same(about["structure"], self._about["structure"]):
            changed.append(
                "the model computes something else (other code, attributes, frozen parameters or mode)"
            )
        elif self._about["start"] != about["start"] and digest_of(self.model.state_dict()) not in (
            # A model that this run has trained: it is prolonged.
            digest_of(state["model"]),
            digest_of(state["best"]["weights"] or {}),
        ):
            changed.append("the model starts from other weights (draw them from a fixed seed)")
        return changed

    def _load_or_refuse(self, state: dict[str, Any], checkpoints: Checkpoints | None) -> None:
        """Load a state; one that does not fit leaves the model as it was."""
        before, others = copy_of(self.model), {name: one.clone() for name, one in self._others().items()}
        try:
            self.load_state(state)
        except _MISFITS as error:
            self.model.load_state_dict(before)
            self._load_others(others)
            if checkpoints is None:
                raise
            raise self._unusable(checkpoints, error) from None
        self._resumed_from = checkpoints

    @contextmanager
    def a_step(self) -> Iterator[None]:
        """One step of the optimizer; the first shows whether what was loaded for it fits."""
        checkpoints, self._resumed_from = self._resumed_from, None
        try:
            yield
        except _MISFITS as error:
            if checkpoints is None:
                raise
            raise self._unusable(checkpoints, error) from None

    def _unusable(self, checkpoints: Checkpoints, error: Exception) -> FileFormatError:
        return FileFormatError(
            checkpoints.file,
            "a checkpoint of this run",
            f"one that does not fit it ({type(error).__name__}: {in_one_line(error)})",
            "Delete it to start over.",
        )


# What a state of another shape raises where it is compared or loaded.
_MISFITS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)


def _shapes(weights: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(tensor.shape)) for name, tensor in weights.items()]
