"""Levenberg-Marquardt for regressions with one output: far fewer steps than gradient descent needs.

Each step linearizes the model, p(w + v) = p(w) + J v, and minimizes mean (y - p - J v)^2 + damping ||v||^2.
The damping falls when the model agrees with the linearization, and grows when it does not. Without it the
step would be undetermined: an M-layer computes the same function in every basis of its matrix.
Source: D. Marquardt, SIAM J. Appl. Math. 11 (1963); the damping's rule: J. Nocedal, S. Wright, "Numerical
Optimization", 2nd ed., section 10.3.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from mlayer.errors import ArgumentError, FileFormatError
from mlayer.experiments.running.protocol import RunContext
from mlayer.tensorfile import digest_of
from mlayer.training.checkpoints import Checkpoints
from mlayer.training.fingerprint import tensors_fingerprint

_ROWS = 4096
_TRIES = 12
_DRAWS = 5
_SECONDS_BETWEEN_CHECKPOINTS = 60


@dataclass(frozen=True)
class Levenberg:
    """Settings of a run."""

    steps: int = 100  # at most
    damping: float = 1e-2  # at the start
    # examples per step, drawn again each time; all if None. If no damping helps with the rows that were
    # drawn, the next draw is tried; five such draws in a row end the training
    rows: int | None = None
    target: float = 0.0  # stop when the mean square on the examples of a step is below
    seed: int = 0  # of the draws

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        checkpoint: Path | None = None,
        context: RunContext | None = None,
        what: str = "least squares",
    ) -> list[dict[str, Any]]:
        """Train ``model``, (N, k) -> (N, 1), in place; from the folder ``checkpoint`` if it was stopped.

        One record per step: mean square before and after, damping, seconds.
        """
        kept = None if checkpoint is None else Checkpoints(checkpoint)
        damping, history, about = self.damping, [], dict[str, Any]()
        with ExitStack() as stack:
            if kept is not None:
                stack.enter_context(kept.alone())
                about = {
                    "settings": [self.damping, self.rows, self.seed],  # the length of the run may change
                    "data": tensors_fingerprint([x, y]),
                    "start": digest_of(model.state_dict()),
                }
                kept.tidy()
                state = kept.read()
                if state is not None:
                    _check_same_run(state, about, kept)
                    model.load_state_dict(state["model"])
                    damping, history = state["damping"], list(state["history"])
                    about = state["about"]

            before = history[-1]["seconds"] if history else 0.0
            started = saved = time.monotonic()

            def save() -> None:
                nonlocal saved
                assert kept is not None
                weights = dict(model.state_dict())
                kept.write({"about": about, "model": weights, "damping": damping, "history": history})
                saved = time.monotonic()

            # A step's number seeds its draw; draws that helped nothing leave no record.
            number, failures = history[-1]["step"] if history else 0, 0
            while number < self.steps and not (history and history[-1]["after"] <= self.target):
                drawn = self._draw(number, len(x))
                record = _one_step(model, x[drawn], y[drawn], damping)
                number += 1
                if record is None:  # no damping helps: a minimum, to rounding, or an unlucky draw
                    failures += 1
                    if self.rows is None or failures == _DRAWS:
                        break
                    continue
                damping, failures = record["damping"], 0
                history.append({"step": number, **record, "seconds": before + time.monotonic() - started})
                if context is not None:
                    context.say(f"{what}, mean square {record['after']:.2e}", number / self.steps)
                if kept is not None and time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                    save()
            if kept is not None:
                save()
        return history

    def _draw(self, number: int, count: int) -> Tensor | slice:
        """The examples that are fitted in a step."""
        if self.rows is None or self.rows > count:
            return slice(None)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        return torch.randperm(count, generator=generator)[: self.rows]


def _check_same_run(state: dict[str, Any], about: dict[str, Any], kept: Checkpoints) -> None:
    """Raise unless the state is of the run that ``about`` describes, or of the one before it."""
    found = state.get("about")
    if not isinstance(found, dict) or "damping" not in state:
        raise FileFormatError(
            kept.file, "a checkpoint of this run", "one of another kind", "Delete it to start over."
        )
    changed = [name for name in ("settings", "data") if found.get(name) != about[name]]
    if about["start"] not in (found.get("start"), digest_of(state["model"])):
        changed.append("initial weights")
    if changed:
        raise ArgumentError(
            "checkpoint",
            "the folder of this run, or empty",
            f"{kept.folder}, where the run had other {' and '.join(changed)}",
            "Give another folder, or delete this one to start over.",
        )


def _one_step(model: nn.Module, x: Tensor, y: Tensor, damping: float) -> dict[str, float] | None:
    linear = DenseJacobian(model, x, y)
    parameters = [p for p in model.parameters() if p.requires_grad]
    here = parameters_to_vector(parameters).detach().clone()
    loss = mean_square(model, x, y)
    for tries in range(_TRIES):
        solution = linear.step(damping)
        if solution is None:
            damping *= 4
            continue
        step, promised = solution
        vector_to_parameters(here + step, parameters)
        after = mean_square(model, x, y)
        if after < loss:
            kept = (loss - after) / promised
            # After a failure the damping stays: trying less at once would fail again every other step.
            factor = 2.0 if kept < 0.2 else 1 / 3 if kept > 0.5 and tries == 0 else 1.0
            return {"before": loss, "after": after, "damping": damping * factor}
        damping *= 4
    vector_to_parameters(here, parameters)
    return None


@torch.no_grad()
def mean_square(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The mean square of the error, in float64 sums; infinite if an output is not finite."""
    total = 0.0
    for k in range(0, len(x), _ROWS):
        total += (model(x[k : k + _ROWS]) - y[k : k + _ROWS]).double().square().sum().item()
    mean = total / y.numel()
    return mean if math.isfinite(mean) else math.inf


class DenseJacobian:
    """The linearization with the whole Jacobian: for some thousand parameters at most."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        named = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

        def output(weights: dict[str, Tensor], row: Tensor) -> Tensor:
            result: Tensor = functional_call(model, weights, (row[None],))[0, 0]
            return result

        rows = vmap(grad(output), in_dims=(None, 0))
        size = sum(p.numel() for p in named.values())
        self.H = torch.zeros(size, size, dtype=torch.float64)
        self.b = torch.zeros(size, dtype=torch.float64)
        for k in range(0, len(x), _ROWS):
            part_x, part_y = x[k : k + _ROWS], y[k : k + _ROWS]
            gradients = rows(named, part_x)
            J = torch.cat([gradients[name].flatten(1) for name in named], 1)  # (rows, parameters)
            with torch.no_grad():
                r = part_y - model(part_x)
            self.H += J.mT @ J
            self.b += (J.mT @ r)[:, 0]
        self.H /= len(x)
        self.b /= len(x)

    def step(self, damping: float) -> tuple[Tensor, float] | None:
        """Solve (H + damping) v = b: the step, and the decrease of the mean square that it predicts.

        None if the damping is too small for the equations to be solved.
        """
        H = self.H.clone()
        H.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(H)
        if failed:
            return None
        v = torch.cholesky_solve(self.b[:, None], factor)[:, 0]
        return v, float(2 * v @ self.b - v @ (self.H @ v))
