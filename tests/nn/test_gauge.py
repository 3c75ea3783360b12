"""Gauge transformations: the function stays, and the canonical form forgets which one was applied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError
from mlayer.nn import gauge
from structure_cases import CASES, SIZE


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make(seed: int = 0, **arguments: Any) -> MLayer:
    defaults: dict[str, Any] = {"in_features": 7, "out_features": 3, "matrix_size": 4, "embedding_size": 5}
    layer = MLayer(
        **{**defaults, **arguments}, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(5)
    return layer


VARIANTS: list[dict[str, Any]] = [
    {},
    {"embedding_size": None},
    {"matrix_bias": False},
    {"embedding_bias": False, "output_bias": False},
    {"in_features": 3},  # fewer inputs than features
    {"matrix_bias": False, "in_features": 3},
]


def same_function(one: MLayer, other: MLayer, tolerance: float = 1e-11) -> None:
    x = random(20, one.in_features, seed=77).to(one.readout.dtype)
    p = one(x)
    assert (other(x) - p).abs().max() <= tolerance * p.abs().max()


@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS))
def test_transform_keeps_the_function(seed: int, variant: dict[str, Any]) -> None:
    layer = make(seed, **variant)
    P = random(4, 4, seed=seed) + 3 * torch.eye(4, dtype=torch.float64)
    Q = random(5, 5, seed=seed + 1) + 3 * torch.eye(5, dtype=torch.float64)
    tolerance = 1e-13 * torch.linalg.cond(P).item() * torch.linalg.cond(Q).item() + 1e-12
    same_function(layer, gauge.transform(layer, matrix=P), tolerance)
    moved = gauge.transform(layer, matrix=P, embedding=None if layer.embedding is None else Q)
    same_function(layer, moved, tolerance)
    x = random(7, seed=5)[: layer.in_features]
    torch.testing.assert_close(
        moved.matrix(x), P @ layer.matrix(x) @ torch.linalg.inv(P), rtol=1e-6, atol=1e-6
    )


def test_transform_of_features_keeps_the_matrix() -> None:
    layer, x = make(), random(7)
    moved = gauge.transform(layer, embedding=random(5, 5))
    torch.testing.assert_close(moved.matrix(x), layer.matrix(x))
    assert not torch.allclose(moved.generators, layer.generators)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), variant=st.sampled_from(VARIANTS))
def test_canonical_form_is_canonical(seed: int, variant: dict[str, Any]) -> None:
    """Layers that differ by a gauge transformation get equal weights."""
    layer = make(seed, **variant)
    P = random(4, 4, seed=seed) + 3 * torch.eye(4, dtype=torch.float64)
    Q = (
        None
        if layer.embedding is None
        else random(5, 5, seed=seed + 1) + 3 * torch.eye(5, dtype=torch.float64)
    )
    one, other = gauge.canonical(layer), gauge.canonical(gauge.transform(layer, matrix=P, embedding=Q))
    same_function(layer, one)
    same_function(layer, other, 1e-9)
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_canonical_form_balances(variant: dict[str, Any]) -> None:
    P = torch.diag(torch.tensor([1.0, 10.0, 100.0, 0.1], dtype=torch.float64))
    layer = gauge.transform(make(**variant), matrix=P)
    found = gauge.canonical(layer)
    if found.embedding is not None:
        inputs: Tensor = found.embedding
        if found.embedding_bias is not None and found.free_matrix_bias is None:
            inputs = torch.cat([inputs, found.embedding_bias[:, None]], 1)
        torch.testing.assert_close(inputs.norm(), found.generators.norm())
        gram = inputs @ inputs.mT
        assert (gram - gram.diag().diag()).abs().max() < 1e-10 * gram.max()
        T = found.generators.flatten(1)
        torch.testing.assert_close(T @ T.mT, gram, rtol=1e-9, atol=1e-10)
    if found.embedding_bias is not None and found.free_matrix_bias is not None:
        assert not found.embedding_bias.any()
    # No similarity nearby makes the sum of squares smaller.
    least = _squares(found)
    assert least < _squares(layer)
    for seed in range(20):
        step = torch.linalg.matrix_exp(0.01 * random(4, 4, seed=seed))
        assert _squares(gauge.transform(found, matrix=step)) > least * (1 - 1e-12)


def _squares(layer: MLayer) -> float:
    """The sum that the similarity of the canonical form minimizes, written as a formula."""
    T, U = layer.generators, layer.embedding
    A = T if U is None else torch.einsum("ai,ajk->ijk", U, T)
    constant = torch.zeros_like(T[0])
    if layer.matrix_bias is not None:
        constant = constant + layer.matrix_bias
    if layer.embedding_bias is not None:
        constant = constant + torch.einsum("a,ajk->jk", layer.embedding_bias, T)
    return (A.square().sum() + constant.square().sum() + layer.readout.square().sum()).item()


@pytest.mark.parametrize("name", [name for name in CASES if name != "full"])
def test_structures(name: str) -> None:
    layer = make(structure=CASES[name].structure, matrix_size=SIZE)
    allowed, Q = CASES[name].similarity, random(5, 5)
    for moved in (gauge.transform(layer, matrix=allowed, embedding=Q), gauge.canonical(layer)):
        assert type(moved.structure) is type(layer.structure)
        same_function(layer, moved)
    with pytest.raises(ArgumentError, match=r"of structure '.*similarity that is (an|a) "):
        gauge.transform(layer, matrix=random(SIZE, SIZE))
    same_function(layer, gauge.transform(layer.with_structure("full"), matrix=random(SIZE, SIZE)), 1e-9)


def test_canonical_form_of_a_nilpotent_layer_balances_its_scales() -> None:
    layer = make(structure="nilpotent")
    scales = torch.diag(torch.tensor([1.0, 30.0, 0.02, 5.0], dtype=torch.float64))
    one, other = gauge.canonical(layer), gauge.canonical(gauge.transform(layer, matrix=scales))
    torch.testing.assert_close(one.generators, other.generators, rtol=1e-6, atol=1e-6)


def test_single_precision() -> None:
    layer = make().float()
    same_function(layer, gauge.canonical(layer), 1e-5)
    assert gauge.canonical(layer).readout.dtype == torch.float32


def test_the_layer_is_left_alone() -> None:
    layer = make()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    gauge.canonical(layer)
    gauge.transform(layer, matrix=2 * torch.eye(4), embedding=2 * torch.eye(5))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


def test_degenerate_weights() -> None:
    """No readout, no generators, a minimum at infinity: still the same function, still finite."""
    for name in ("readout", "free_generators", "embedding"):
        layer = make()
        with torch.no_grad():
            getattr(layer, name).zero_()
        found = gauge.canonical(layer)
        assert all(p.isfinite().all() for p in found.parameters())
        same_function(layer, found)
    T = torch.zeros(1, 3, 3, dtype=torch.float64)
    T[0, 0, 1] = T[0, 1, 2] = 1
    infinite = MLayer.from_weights(T, torch.eye(3, dtype=torch.float64)[None], structure="nilpotent")
    same_function(infinite, gauge.canonical(infinite))


def test_invalid_arguments() -> None:
    layer = make()
    with pytest.raises(ArgumentError, match=r"matrix must be of shape \(4, 4\); got shape \(3, 3\)"):
        gauge.transform(layer, matrix=torch.eye(3))
    with pytest.raises(ArgumentError, match=r"embedding must be invertible; got a matrix that is singular"):
        gauge.transform(layer, embedding=torch.ones(5, 5))
    with pytest.raises(ArgumentError, match=r"embedding must be None for a layer without an embedding"):
        gauge.transform(make(embedding_size=None), embedding=torch.eye(7))
    with pytest.raises(ArgumentError, match=r"without an embedding; got list"):
        gauge.transform(make(embedding_size=None), embedding=[[1.0]])  # type: ignore[arg-type]
    with torch.no_grad():
        layer.readout[0, 0, 0] = torch.inf
    with pytest.raises(ArgumentError, match=r"layer must be of finite weights; got infinity or NaN"):
        gauge.canonical(layer)
