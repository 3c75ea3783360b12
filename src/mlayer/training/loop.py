"""`train`: the one loop, for tensors in memory and for data loaders, alone or under torchrun.

Everything that a run depends on is either an argument or in :class:`Run`, whose state is what a
checkpoint holds. Orders of examples are drawn again from (seed, epoch), so that a run can be resumed
inside an epoch.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from mlayer.checks import brief, file_path, function, number
from mlayer.errors import ArgumentError, ArgumentTypeError
from mlayer.nn.activity import watch_activity
from mlayer.nn.overflow import OverflowedOutputError
from mlayer.training.batches import Batch, Data, TensorsInMemory
from mlayer.training.best import copy_of
from mlayer.training.checkpoints import Checkpoints
from mlayer.training.distributed import joined_world
from mlayer.training.divergence import DivergenceError, diagnosis
from mlayer.training.evaluation import check_model, measure
from mlayer.training.losses import as_loss, check_classes, check_labels, mean_loss
from mlayer.training.optimizers import needs_closure
from mlayer.training.progress import Progress, as_progress
from mlayer.training.result import Record, TrainingResult
from mlayer.training.run import Augment, Run
from mlayer.training.settings import Settings

_SECONDS_BETWEEN_UPDATES = 0.1


def train(
    model: nn.Module,
    data: Data,
    settings: Settings | None = None,
    *,
    validation: Data | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
    progress: bool | Progress = False,
    on_epoch: Callable[[Record], None] | None = None,
    augment: Augment | None = None,
) -> TrainingResult:
    """Train ``model`` in place.

    Under ``torchrun`` the same call trains one model on all processes: each takes its part of every batch.

    Args:
        model: an MLayer, or any module.
        data: tensors (x, y) or (x, y, weight), where weights multiply the losses of examples; or a data
            loader of such batches.
        settings: how; see :class:`Settings`.
        validation: the same kinds as ``data``; monitored instead of the training loss.
        checkpoint: a folder. A run that was stopped there is resumed and ends with the same weights, to
            the bit on one machine, as if it had never been stopped.
        checkpoint_seconds: time between checkpoints. (Several processes: at ends of epochs only.)
        progress: True for a bar on stderr, if that is a terminal.
        on_epoch: called with the record of each epoch.
        augment: changes the inputs of training batches: ``(x, generator) -> x``.

    Raises:
        DivergenceError: the loss is NaN or infinite; the model has its best weights again.
        CheckpointError: the folder cannot be written; nothing was trained.
        WorkerLostError: another process of a distributed run is gone.

    >>> import torch, mlayer
    >>> from mlayer.training import Settings, train
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.rand(256, 2, generator=generator)
    >>> y = x[:, :1] * x[:, 1:]
    >>> layer = mlayer.MLayer(2, 1, 4, embedding_size=None, init="balanced", generator=generator)
    >>> result = train(layer, (x, y), Settings(epochs=30, learning_rate=3e-2))
    >>> result.history[-1]["loss"] < 1e-3
    True
    """
    settings = Settings() if settings is None else settings
    check_model(model, settings)
    number("checkpoint_seconds", checkpoint_seconds, least=0)
    folder = None if checkpoint is None else file_path("checkpoint", checkpoint)
    shown = as_progress(progress)
    function("on_epoch", on_epoch, "(record)")
    function("augment", augment, "(x, generator) -> x", 2)
    cuda = [d for d in {p.device for p in model.parameters()} if d.type == "cuda"]
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        joined_world(model) as world,
        torch.random.fork_rng(cuda),
    ):
        # A function of the run may change the folder that the process is in.
        checkpoints = None if folder is None else Checkpoints(folder.absolute())
        first = world.rank == 0
        with nullcontext() if checkpoints is None or not first else checkpoints.alone():
            loop = _Loop(Run(model, data, settings, world, validation=validation, augment=augment))
            return loop.go(
                checkpoints,
                checkpoint_seconds,
                shown if first else as_progress(False),
                on_epoch if first else None,
            )


class _DivergedError(Exception):
    def __init__(self, loss: float, x: Tensor | None) -> None:
        super().__init__(loss)
        self.loss = loss
        self.x = x


class _Loop:
    """The state of one run in progress."""

    def __init__(self, run: Run) -> None:
        self.run, self.augment, self.validation = run, run.augment, run.validation
        self.loss, self.mean_loss = as_loss(run.settings.loss), mean_loss(run.settings.loss)
        self.closure = needs_closure(run.optimizer)
        # Whether weights are judged by the training loss alone, see best.py.
        self.by_running_loss = run.validation is None and not run.settings.metrics
        self._check_penalty()
        for source in (run.source, self.validation):
            if run.settings.loss == "cross_entropy" and isinstance(source, TensorsInMemory):
                check_labels(source.tensors[1])
                if run.augment is None or source is self.validation:  # else the model may not take x as it is
                    check_classes(run.model, source.tensors[0], source.tensors[1])

    def go(
        self,
        checkpoints: Checkpoints | None,
        checkpoint_seconds: float,
        progress: Progress,
        on_epoch: Callable[[Record], None] | None,
    ) -> TrainingResult:
        """Resume an older run if there is one, train to the end, return the result."""
        run = self.run
        run.resume(checkpoints)
        if run.world.rank != 0:
            checkpoints = None
        started = time.monotonic() - run.seconds
        updated = saved = time.monotonic()
        progress.start(run.total_steps, run.step)
        try:
            while run.stopped is None and run.epoch < run.settings.epochs:
                with self._penalties() as penalties:
                    for batch in self._rest_of_epoch():
                        self._train_on(batch, penalties)
                        now = time.monotonic()
                        if now - updated > _SECONDS_BETWEEN_UPDATES:
                            updated = now
                            progress.update(run.step, run.epoch + 1, run.loss_sum / run.seen)
                        if checkpoints and run.world.alone and now - saved >= checkpoint_seconds:
                            run.seconds = now - started
                            checkpoints.write(run.state())
                            saved = time.monotonic()
                run.seconds = time.monotonic() - started
                record = self._end_epoch()
                progress.epoch(record)
                if on_epoch is not None:
                    on_epoch(record)
                if checkpoints and (not run.world.alone or time.monotonic() - saved >= checkpoint_seconds):
                    checkpoints.write(run.state())
                    saved = time.monotonic()
            if run.stopped is None:
                run.stopped, run.message = "epochs", f"all {run.settings.epochs} epochs done"
            if checkpoints:
                checkpoints.write(run.state())
            self._judge_the_last_weights()
        except (_DivergedError, OverflowedOutputError) as diverged:
            if isinstance(diverged, OverflowedOutputError) and not run.world.alone:
                raise  # the other processes still wait for this one's gradient
            self._explain_divergence(diverged)
            if checkpoints:
                checkpoints.write(run.state())
        finally:
            progress.stop()
            run.seed_loaders(None)
            if checkpoints:
                run.mark_changes(checkpoints)
        if (run.settings.restore_best or run.stopped == "diverged") and run.best.weights is not None:
            run.model.load_state_dict(run.best.weights)
        if run.stopped == "diverged" and run.settings.on_divergence == "raise":
            raise DivergenceError(run.message, run.result())
        return run.result()

    def _penalties(self) -> AbstractContextManager[list[Tensor]]:
        """A context with the list of a step's activities, which stays empty if they are not wanted."""
        settings = self.run.settings
        if settings.activity_penalty:
            return watch_activity(self.run.model, settings.activity_kind)
        return nullcontext([])

    def _check_penalty(self) -> None:
        """A penalty that no layer can add would be silently left out."""
        settings, model = self.run.settings, self.run.model
        if settings.activity_penalty and not any(hasattr(module, "watcher") for module in model.modules()):
            raise ArgumentError(
                "activity_penalty",
                "0 for a model without an MLayer, as it is a penalty on exp(M)",
                f"{settings.activity_penalty:g} with a {type(model).__name__} that has none",
                "Use weight_decay, or remove it.",
            )

    def _rest_of_epoch(self) -> Iterator[Batch]:
        """The batches of this epoch that are still to come, with generators where they should be."""
        run = self.run
        seed = _mixed(run.settings.seed, run.epoch)
        run.seed_loaders(seed)
        if run.batch == 0:
            if self.by_running_loss:
                run.epoch_start = copy_of(run.model)
            torch.manual_seed(_mixed(seed, 1 + run.world.rank))
            run.generator.manual_seed(_mixed(seed, -1 - run.world.rank))
            yield from run.source.shuffled(seed, 0, run.world)
            return
        # Inside an epoch: the loader draws its order from the seed again, then dropout continues.
        kept = torch.get_rng_state()
        torch.manual_seed(_mixed(seed, 1 + run.world.rank))
        batches = run.source.shuffled(seed, run.batch, run.world)
        torch.set_rng_state(kept)
        yield from batches

    def _augmented(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.augment is None:
            return x
        made: object = self.augment(x, generator)
        if not isinstance(made, Tensor):
            raise ArgumentTypeError(
                "augment", "a function that returns a tensor", f"one that returns {brief(made)}", "Return x."
            )
        return made

    def _train_on(self, batch: Batch, penalties: list[Tensor]) -> None:
        run = self.run
        x = self._augmented(batch.x, run.generator)
        run.rate.before_step(run.step)
        first: float | None = None

        def backward() -> float:
            nonlocal first
            run.optimizer.zero_grad()
            loss = self._objective(batch, x, penalties)
            alone = run.world.alone
            value = loss.item() if alone else math.nan
            if not alone or math.isfinite(value):
                loss.backward()
            if not alone:
                value = run.world.add_gradients(run.parameters, loss)
            if not math.isfinite(value):
                raise _DivergedError(value, x)
            if run.settings.gradient_clip is not None:
                norm = torch.nn.utils.clip_grad_norm_(run.parameters, run.settings.gradient_clip)
                if not torch.isfinite(norm):
                    raise _DivergedError(math.inf, x)
            first = value if first is None else first
            return value

        if self.closure:
            with torch.enable_grad():
                run.optimizer.step(backward)
        else:
            backward()
            with run.a_step():
                run.optimizer.step()
        assert first is not None
        run.step += 1
        run.batch += 1
        run.loss_sum += first * batch.whole
        run.seen += batch.whole

    def _objective(self, batch: Batch, x: Tensor, penalties: list[Tensor]) -> Tensor:
        """This process's share of the loss of the whole batch, penalty included."""
        run = self.run
        penalties.clear()
        if run.world.alone and batch.weight is None:
            loss, share = self.mean_loss(run.model, x, batch.y), 1.0
        else:
            _, losses = self.loss(run.model, x, batch.y)
            losses = losses if batch.weight is None else losses * batch.weight
            loss, share = losses.sum() / batch.whole, len(x) / batch.whole
        return loss + run.settings.activity_penalty * share * sum(penalties) if penalties else loss

    def _end_epoch(self) -> Record:
        run = self.run
        if not all(torch.isfinite(p).all() for p in run.parameters):
            raise _DivergedError(math.nan, None)
        run.epoch += 1
        record: Record = {"epoch": run.epoch, "step": run.step, "loss": run.loss_sum / max(1, run.seen)}
        measured = record
        if not self.by_running_loss:
            judged = run.source if self.validation is None else self.validation
            measured = measure(run.model, judged, run.settings, run.world)
            if not math.isfinite(measured["loss"]):
                raise _DivergedError(measured["loss"], None)
            if self.validation is None:
                record |= measured | {"loss": record["loss"]}
            else:
                record |= {f"validation_{name}": value for name, value in measured.items()}
        record |= {"learning_rate": run.rate.now, "seconds": run.seconds}
        run.history.append(record)
        value = float(measured[run.settings.monitor])
        if self.by_running_loss:
            assert run.epoch_start is not None
            improved = run.best.see(value, run.epoch_start, epoch=run.epoch - 1, seen=run.epoch)
        elif run.best.better(value):
            improved = run.best.see(value, copy_of(run.model), epoch=run.epoch, seen=run.epoch)
        else:
            improved = False
        run.rate.after_epoch(improved)
        run.batch, run.loss_sum, run.seen = 0, 0.0, 0
        patience = run.settings.early_stopping
        if patience is not None and run.epoch - run.best.seen >= patience:
            run.stopped = "early"
            run.message = f"no better {run.settings.monitor} in {patience} epochs after epoch {run.best.seen}"
        return record

    @torch.no_grad()
    def _judge_the_last_weights(self) -> None:
        """One pass over the training data, where no other pass has judged them. Not in the checkpoint: a run
        that is prolonged continues as if it had never stopped.
        """
        run = self.run
        if not self.by_running_loss or not run.epoch or run.stopped == "diverged":
            return
        total, seen = 0.0, 0
        generator = torch.Generator().manual_seed(_mixed(run.settings.seed, run.epoch))
        training = run.model.training
        run.model.eval()
        with self._penalties() as penalties:
            for batch in run.source.in_order(run.world):
                # Augmented like those of the epochs: the inputs themselves need not be what the model takes.
                x = self._augmented(batch.x, generator)
                total += float(self._objective(batch, x, penalties)) * batch.whole
                seen += batch.whole
        run.model.train(training)
        (total,) = run.world.total(total)
        value = total / max(1, seen)
        if not math.isfinite(value):
            raise _DivergedError(value, None)
        run.best.see(value, copy_of(run.model), epoch=run.epoch, seen=run.epoch)

    def _explain_divergence(self, diverged: _DivergedError | OverflowedOutputError) -> None:
        run = self.run
        kept = f"weights of epoch {run.best.epoch}" if run.best.epoch else "weights of the start"
        run.stopped = "diverged"
        if isinstance(diverged, OverflowedOutputError):
            where = f"step {run.step + 1} (epoch {run.epoch + 1})"
            run.message = f"training diverged at {where}: {diverged} The {kept} are kept."
            return
        run.message = diagnosis(
            run.model,
            diverged.x,
            loss=diverged.loss,
            step=run.step + 1,
            epoch=run.epoch + 1,
            rate=run.rate.now,
            kept=f"The {kept} are kept.",
        )


def _mixed(seed: int, number: int) -> int:
    """A separate seed for each pair: splitmix64's finalizer on their combination."""
    z = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return (z ^ (z >> 31)) % 2**63
