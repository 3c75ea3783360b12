"""The Lie view on algebras whose dimension and kind are known."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mlayer import MLayer
from mlayer.errors import ArgumentError
from mlayer.nn import BlockDiagonal, gauge, lie


def unit(n: int, i: int, j: int) -> Tensor:
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[i, j] = 1
    return matrix


def layer_of(*matrices: Tensor) -> MLayer:
    T = torch.stack(matrices)
    return MLayer.from_weights(T, torch.zeros(1, *T.shape[1:], dtype=T.dtype))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rotation(n: int, i: int, j: int) -> Tensor:
    return unit(n, i, j) - unit(n, j, i)


HEISENBERG = (unit(3, 0, 1), unit(3, 1, 2))
BOREL = (unit(3, 0, 0), unit(3, 1, 1), unit(3, 2, 2), unit(3, 0, 1), unit(3, 1, 2))
SL2 = (unit(2, 0, 1), unit(2, 1, 0))

# name, generators, dimension, derived series, lower central series, flags: abelian, nilpotent,
# solvable, orthogonal, nilpotent matrices
KNOWN = [
    ("zero", (torch.zeros(3, 3, dtype=torch.float64),), 0, (0,), (0,), "ANSON"),
    ("one rotation", (rotation(3, 0, 1),), 1, (1, 0), (1, 0), "ANSO-"),
    ("so(3) from two", (rotation(3, 0, 1), rotation(3, 1, 2)), 3, (3,), (3,), "---O-"),
    ("so(4) from three", tuple(rotation(4, i, i + 1) for i in range(3)), 6, (6,), (6,), "---O-"),
    ("heisenberg", HEISENBERG, 3, (3, 1, 0), (3, 1, 0), "-NS-N"),
    ("upper triangular", BOREL, 6, (6, 3, 1, 0), (6, 3), "--S--"),
    ("sl(2)", SL2, 3, (3,), (3,), "-----"),
    ("gl(2)", (*SL2, torch.eye(2, dtype=torch.float64)), 4, (4, 3), (4, 3), "-----"),
    ("diagonal", (unit(3, 0, 0), unit(3, 1, 1)), 2, (2, 0), (2, 0), "ANS--"),
    ("commuting nilpotents", (unit(3, 0, 1), unit(3, 0, 2)), 2, (2, 0), (2, 0), "ANS-N"),
]


@pytest.mark.parametrize("k", range(len(KNOWN)), ids=[k[0] for k in KNOWN])
@pytest.mark.parametrize(("scale", "block"), [(1.0, 1024), (1e-5, 1024), (1e5, 1024), (1.0, 1)])
def test_known_algebras(k: int, scale: float, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lie, "_BLOCK", block)  # one bracket at a time: stopping early must not stop too early
    _, generators, dimension, derived, central, flags = KNOWN[k]
    found = lie.summary(layer_of(*(scale * g for g in generators)))
    assert found.dimension == dimension
    assert found.derived_series == derived
    assert found.lower_central_series == central
    holds = (found.abelian, found.nilpotent, found.solvable, found.orthogonal, found.nilpotent_matrices)
    assert "".join(c if h else "-" for c, h in zip("ANSON", holds, strict=True)) == flags


@pytest.mark.parametrize("k", range(len(KNOWN)), ids=[k[0] for k in KNOWN])
def test_invariant_under_similarity(k: int) -> None:
    """All but orthogonality, which belongs to the basis."""
    _, generators, dimension, derived, central, _ = KNOWN[k]
    n = generators[0].shape[0]
    P = random(n, n, seed=k) + 3 * torch.eye(n, dtype=torch.float64)
    mixed = torch.einsum(
        "ab,bjk->ajk", random(len(generators), len(generators), seed=9), torch.stack(generators)
    )
    found = lie.summary(layer_of(*(P @ mixed @ torch.linalg.inv(P))))
    assert (found.dimension, found.derived_series, found.lower_central_series) == (
        dimension,
        derived,
        central,
    )
    assert found.nilpotent_matrices == lie.summary(layer_of(*generators)).nilpotent_matrices


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_two_random_matrices_generate_everything(n: int) -> None:
    assert len(lie.lie_algebra(random(2, n, n))) == n * n
    traceless = random(2, n, n)
    traceless -= traceless.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(
        n, dtype=torch.float64
    )
    assert len(lie.lie_algebra(traceless)) == n * n - 1
    assert len(lie.lie_algebra(traceless - traceless.mT)) == (1 if n == 2 else n * (n - 1) // 2)


@given(st.integers(0, 1000), st.integers(2, 4), st.integers(1, 3))
def test_closed_and_orthonormal(seed: int, n: int, count: int) -> None:
    generators = random(count, n, n, seed=seed).round()  # small integers: special cases are common
    basis = lie.lie_algebra(generators)
    flat = basis.flatten(1)
    torch.testing.assert_close(
        flat @ flat.mT, torch.eye(len(basis), dtype=torch.float64), rtol=0.0, atol=1e-10
    )
    for matrices in (lie.bracket(basis[:, None], basis[None, :]).flatten(0, 1), generators):
        outside = matrices.flatten(1) - matrices.flatten(1) @ flat.mT @ flat
        assert outside.abs().max() < 1e-7 if len(basis) else not matrices.any()


def test_jacobi_and_antisymmetry() -> None:
    layer = MLayer(3, 1, matrix_size=4, embedding_size=3, dtype=torch.float64)
    T = layer.generators
    table = lie.brackets(layer)
    assert table.shape == (3, 3, 4, 4)
    assert torch.equal(table, -table.transpose(0, 1))
    torch.testing.assert_close(table[0, 2], T[0] @ T[2] - T[2] @ T[0])
    cyclic = sum(lie.bracket(T[a], table[b, c]) for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    assert isinstance(cyclic, Tensor)
    assert cyclic.abs().max() < 1e-15


def test_layers_of_each_structure() -> None:
    generator = torch.Generator().manual_seed(0)

    def described(structure: object) -> lie.LieSummary:
        return lie.summary(MLayer(9, 1, matrix_size=5, structure=structure, generator=generator))  # type: ignore[arg-type]

    assert described("full").dimension == 25
    assert described("nilpotent").nilpotent_matrices
    assert described("skew").orthogonal
    assert described(BlockDiagonal([2, 3])).dimension == 4 + 9


def test_the_matrix_bias_counts() -> None:
    T = torch.stack([unit(2, 0, 1)])
    layer = MLayer.from_weights(T, torch.zeros(1, 2, 2, dtype=torch.float64), matrix_bias=unit(2, 1, 0))
    assert lie.summary(layer).dimension == 3


def test_summary_reads_well() -> None:
    assert str(lie.summary(layer_of(*HEISENBERG))) == (
        "Lie algebra of dimension 3 in gl(3), generated by a 2-dimensional space; "
        "nilpotent, solvable, made of nilpotent matrices"
    )
    assert str(lie.summary(layer_of(*SL2))).endswith("; not solvable")


def test_invalid_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"matrices must be of shape \(k, n, n\); got shape \(3, 3\)"):
        lie.lie_algebra(torch.eye(3))
    with pytest.raises(ArgumentError, match=r"matrices must be finite; got infinity or NaN"):
        lie.lie_algebra(torch.full((1, 2, 2), torch.nan))
    with pytest.raises(ArgumentError, match=r"tolerance must be between 0 and 1; got 0"):
        lie.lie_algebra(torch.ones(1, 2, 2), tolerance=0.0)


def test_single_precision_weights_do_not_hide_a_nilpotent_algebra() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = MLayer(3, 1, matrix_size=3, embedding_size=None, structure="nilpotent", generator=generator)
    disguise = torch.randn(3, 3, generator=generator)
    seen = gauge.transform(layer.with_structure("full"), matrix=disguise)
    assert seen.readout.dtype == torch.float32
    kind = lie.summary(seen)
    assert kind.nilpotent
    assert kind.dimension <= 3
