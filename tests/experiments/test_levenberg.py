"""Levenberg-Marquardt against torch's own least squares, and its linearizations against autograd."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from mlayer import MLayer
from mlayer.datasets import determinants
from mlayer.errors import ArgumentError, FileFormatError
from mlayer.experiments.shared import levenberg
from mlayer.experiments.shared.levenberg import DenseJacobian, Levenberg, mean_square
from mlayer.training import CheckpointWarning, Settings, train


def problem(rows: int = 300) -> tuple[MLayer, Tensor, Tensor]:
    """2 x 2 determinants, and a layer of size 4: the products need a path of two steps and its two ways."""
    generator = torch.Generator().manual_seed(1)
    layer = MLayer(4, 1, 4, None, matrix_bias=False, init="balanced", generator=generator).double()
    table = determinants(rows, 2, seed=2)
    return layer, table.x.double(), table.y.double()


def full_jacobian(model: nn.Module, x: Tensor) -> Tensor:
    weights = dict(model.named_parameters())
    rows = jacrev(lambda w: functional_call(model, w, (x,))[:, 0])(weights)
    return torch.cat([rows[name].detach().flatten(1) for name in weights], 1)


def expected_step(model: nn.Module, x: Tensor, y: Tensor, damping: float) -> Tensor:
    """The damped step as an ordinary least-squares problem, solved by torch."""
    J = full_jacobian(model, x)
    scale = len(x) ** 0.5
    A = torch.cat([J / scale, damping**0.5 * torch.eye(J.shape[1], dtype=J.dtype)])
    b = torch.cat([(y - model(x)).detach() / scale, torch.zeros(J.shape[1], 1, dtype=J.dtype)])
    solution: Tensor = torch.linalg.lstsq(A, b).solution[:, 0]
    return solution


@pytest.mark.parametrize("damping", [1e-1, 1e-3])
def test_steps_solve_the_damped_problem(damping: float) -> None:
    layer, x, y = problem()
    solution = DenseJacobian(layer, x, y).step(damping)
    assert solution is not None
    step, promised = solution
    torch.testing.assert_close(step, expected_step(layer, x, y, damping), rtol=1e-6, atol=1e-8)
    J = full_jacobian(layer, x)
    r = (y - layer(x)).detach()[:, 0]
    decrease = float(r.square().mean() - (r - J @ step).square().mean())
    assert promised == pytest.approx(decrease, rel=1e-6)


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, y = problem()
    whole = DenseJacobian(layer, x, y).step(1e-2)
    monkeypatch.setattr(levenberg, "_ROWS", 7)
    parts = DenseJacobian(layer, x, y).step(1e-2)
    assert whole is not None
    assert parts is not None
    torch.testing.assert_close(parts[0], whole[0])


def test_a_line_takes_one_step() -> None:
    """A linear model without damping is solved at once."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [3.0]], dtype=torch.float64) + 4
    model = nn.utils.skip_init(nn.Linear, 3, 1, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    history = Levenberg(steps=1, damping=1e-12)(model, x, y)
    assert history[0]["after"] < 1e-20
    torch.testing.assert_close(
        model.weight.detach(), torch.tensor([[1.0, -2.0, 3.0]], dtype=torch.float64), rtol=1e-8, atol=1e-8
    )


def test_learns_a_determinant() -> None:
    """The error is small on new matrices too. Guessing 0 has the error 2/9."""
    layer, x, y = problem()
    y = torch.linalg.det(x.view(-1, 2, 2))[:, None]
    history = Levenberg(steps=60)(layer, x, y)
    new = determinants(300, 2, seed=9).x.double()
    assert mean_square(layer, new, torch.linalg.det(new.view(-1, 2, 2))[:, None]) < 1e-6
    assert all(a["after"] < a["before"] for a in history)


def test_draws_are_seeded() -> None:
    layer, x, y = problem()
    history = Levenberg(steps=5, rows=100, seed=3)(layer, x, y)
    drawn, other = (Levenberg(rows=100)._draw(number, 300) for number in (0, 1))
    assert isinstance(drawn, Tensor)
    assert isinstance(other, Tensor)
    assert len(set(drawn.tolist())) == 100
    assert drawn.tolist() != other.tolist()
    assert len(history) == 5
    again, x, y = problem()
    assert [h["after"] for h in Levenberg(steps=5, rows=100, seed=3)(again, x, y)] == [
        h["after"] for h in history
    ]


class Stubborn:
    """A linearization whose first steps lead nowhere."""

    def __init__(self, model: nn.Module, x: Tensor, y: Tensor, bad: int, made: list[int]) -> None:
        made.append(len(x))
        self.inner = DenseJacobian(model, x, y) if len(made) > bad else None
        self.size = sum(p.numel() for p in model.parameters())

    def step(self, damping: float) -> tuple[Tensor, float] | None:
        if self.inner is None:
            return torch.full((self.size,), 100.0, dtype=torch.float64), 1.0
        return self.inner.step(damping)


@pytest.mark.parametrize(("bad", "rows", "draws"), [(4, 100, 7), (5, 100, 5), (1, None, 1)])
def test_a_draw_that_helps_nothing_is_followed_by_the_next(
    bad: int, rows: int | None, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x, y = problem()
    made: list[int] = []
    monkeypatch.setattr(levenberg, "DenseJacobian", partial(Stubborn, bad=bad, made=made))
    history = Levenberg(steps=7, rows=rows)(layer, x, y)
    assert len(made) == draws  # five in a row end it; with all rows there is no other draw
    assert [record["step"] for record in history] == [*range(bad + 1, draws + 1)]


def test_takes_up_where_it_stopped(tmp_path: Path) -> None:
    straight, x, y = problem()
    Levenberg(steps=6, rows=100)(straight, x, y)
    parts, x, y = problem()
    Levenberg(steps=3, rows=100)(parts, x, y, checkpoint=tmp_path / "here")
    fresh, x, y = problem()
    history = Levenberg(steps=6, rows=100)(fresh, x, y, checkpoint=tmp_path / "here")
    assert [record["step"] for record in history] == [1, 2, 3, 4, 5, 6]
    for a, b in zip(straight.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    layer, x, y = problem()
    Levenberg(steps=2, rows=100)(layer, x, y, checkpoint=tmp_path)
    Levenberg(steps=3, rows=100)(layer, x, y, checkpoint=tmp_path)  # the trained model is trained further
    changed = x.clone()
    changed[57, 1] += 1e-6
    for other, words in (
        (lambda model: Levenberg(steps=3, rows=99)(model, x, y, checkpoint=tmp_path), "other settings"),
        (lambda model: Levenberg(steps=3, rows=100)(model, changed, y, checkpoint=tmp_path), "other data"),
    ):
        with pytest.raises(ArgumentError, match=words):
            other(problem()[0])
    fresh, x, y = problem()
    with torch.no_grad():
        fresh.readout[0, 0, 0] += 1e-6
    with pytest.raises(ArgumentError, match="other initial weights"):
        Levenberg(steps=3, rows=100)(fresh, x, y, checkpoint=tmp_path)
    train(problem()[0], (x, y), Settings(epochs=1), checkpoint=tmp_path / "other")
    with pytest.raises(FileFormatError, match="another kind"):
        Levenberg(steps=3)(problem()[0], x, y, checkpoint=tmp_path / "other")


def test_a_damaged_checkpoint_falls_back_or_is_refused(tmp_path: Path) -> None:
    straight, x, y = problem()
    Levenberg(steps=4, rows=100)(straight, x, y)
    for steps in (1, 2):
        Levenberg(steps=steps, rows=100)(problem()[0], x, y, checkpoint=tmp_path)
    state = tmp_path / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-3] ^= 1
    state.write_bytes(data)
    fresh = problem()[0]
    with pytest.warns(CheckpointWarning, match="damaged"):
        Levenberg(steps=4, rows=100)(fresh, x, y, checkpoint=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), fresh.parameters(), strict=True))


def test_stops_at_a_minimum_and_at_its_limits() -> None:
    layer, x, y = problem()
    # Nothing to gain but what differs between two calls in the last digit.
    assert all(step["before"] < 1e-28 for step in Levenberg(steps=50)(layer, x, layer(x).detach()))
    history = Levenberg(steps=50, target=1e-2)(layer, x, y)
    assert history[-1]["after"] <= 1e-2 < history[-1]["before"]


def test_overflow_is_a_failed_step_not_a_nan() -> None:
    layer, x, y = problem()
    with torch.no_grad():
        layer.free_generators.mul_(1e4)
    assert mean_square(layer, x, y) == float("inf")
