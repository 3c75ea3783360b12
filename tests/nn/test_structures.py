"""Structures: what the matrices are, how many parameters, and that everything works with each."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import structure_cases
from mlayer import MLayer
from mlayer.certificates.modules import with_plain_structure
from mlayer.errors import ArgumentError
from mlayer.nn import BlockDiagonal, BlockTriangular, Full, Nilpotent, Parametrized, Skew, Structure
from mlayer.nn.structures import STRUCTURES, as_structure


class Symmetric(nn.Module):
    """A user's parametrization as torch writes them."""

    def forward(self, X: Tensor) -> Tensor:
        return X.triu() + X.triu(1).mT

    def right_inverse(self, A: Tensor) -> Tensor:
        return A.triu()


class UsersToeplitz(Structure):
    """A user's structure with parameters of its own shape."""

    name = "toeplitz"

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return (2 * self.size - 1,)

    def dense(self, free: Tensor) -> Tensor:
        i = torch.arange(self.size)
        return free[..., i[:, None] - i[None, :] + self.size - 1]


class Traceless(Structure):
    """Trace 0: the last diagonal entry is minus the sum of the others, which rounds."""

    name = "traceless"

    @property
    def parameter_shape(self) -> tuple[int, ...]:
        return (self.size**2 - 1,)

    def dense(self, free: Tensor) -> Tensor:
        n = self.size
        last = -free[..., :: n + 1].sum(-1, keepdim=True)
        return torch.cat([free, last], -1).unflatten(-1, (n, n))


class Scaled(nn.Module):
    """A structure with a weight of its own, and no inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, X: Tensor) -> Tensor:
        return self.scale.to(X.dtype) * X


def is_symmetric(A: Tensor) -> bool:
    return torch.equal(A, A.mT)


def is_toeplitz(A: Tensor) -> bool:
    return torch.equal(A[:, 1:, 1:], A[:, :-1, :-1])  # exact: copies of one number


CASES = [
    *((case.structure, case.count, case.holds) for case in structure_cases.CASES.values()),
    (Symmetric(), 25, is_symmetric),
    (UsersToeplitz(5), 9, is_toeplitz),
]


@pytest.mark.parametrize(
    ("structure", "count", "holds"), CASES, ids=lambda case: getattr(case, "__name__", str(case))
)
def test_matrices_parameters_and_training(structure: str | nn.Module, count: int, holds: object) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = MLayer(4, 2, matrix_size=5, embedding_size=3, structure=structure, generator=generator)
    assert layer.free_generators.numel() == 3 * count
    assert layer.free_matrix_bias is not None
    assert layer.free_matrix_bias.numel() == count
    x = torch.randn(8, 4, generator=generator)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.generators.detach().clone()
    for _ in range(3):
        output, penalty = layer.forward_with_activity(x)
        optimizer.zero_grad()
        loss: Tensor = output.sum() + penalty
        loss.backward()
        optimizer.step()
    assert not torch.equal(before, layer.generators)
    assert layer.matrix_bias is not None
    assert callable(holds)
    assert holds(layer.generators.detach())
    assert holds(layer.matrix_bias.detach()[None])
    assert holds(layer.matrix(x).detach()) or not isinstance(structure, str | BlockDiagonal)


@given(st.integers(1, 12))
def test_half_the_parameters(n: int) -> None:
    assert Nilpotent(n).parameter_shape == Skew(n).parameter_shape == (n * (n - 1) // 2,)
    assert Full(n).parameter_shape == (n, n)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_blocks(blocks: list[int]) -> None:
    structure = BlockDiagonal(blocks)
    assert structure.size == sum(blocks)
    assert structure.parameter_shape == (sum(b * b for b in blocks),)
    free = torch.arange(1.0, 1 + structure.parameter_shape[0])
    matrix = structure.dense(free)
    assert torch.equal(structure.free(matrix), free)
    assert (matrix != 0).sum() == len(free)


BUILT_IN = [as_structure(case.structure, structure_cases.SIZE) for case in structure_cases.CASES.values()]


@pytest.mark.parametrize("structure", [*BUILT_IN, Parametrized(Symmetric(), 4)])
def test_free_inverts_dense(structure: Structure) -> None:
    free = torch.randn(3, *structure.parameter_shape, generator=torch.Generator().manual_seed(0))
    matrices = structure(free)
    assert torch.equal(structure.dense(structure.free(matrices)), matrices)


@pytest.mark.parametrize("structure", [*BUILT_IN, Traceless(5)])
def test_what_is_called_exact_gives_the_same_matrices_in_every_precision(structure: Structure) -> None:
    free = torch.randn(50, *structure.parameter_shape, generator=torch.Generator().manual_seed(0))
    same = torch.equal(structure(free.double()), structure(free).double())
    assert same == structure.exact


def test_certificates_read_a_structure_that_rounds_as_the_layer_computes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new structure with arithmetic: its float32 matrices are certified, not those of a float64 copy."""
    monkeypatch.setitem(STRUCTURES, Traceless.name, Traceless)
    layer = MLayer(3, 2, matrix_size=5, embedding_size=4, structure="traceless")
    matrices = layer.generators.double()
    assert torch.equal(with_plain_structure("layer", layer).double().generators, matrices)


def test_skew_gives_rotations() -> None:
    layer = MLayer(3, 1, matrix_size=6, structure="skew", dtype=torch.float64)
    E = layer.exponential(
        10 * torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )
    eye = torch.eye(6, dtype=torch.float64).expand(5, 6, 6)
    torch.testing.assert_close(E @ E.mT, eye, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(E), torch.ones(5, dtype=torch.float64))


def test_nilpotent_outputs_are_polynomials_of_degree_less_than_n() -> None:
    """Differences of order n along a line vanish."""
    layer = MLayer(3, 2, matrix_size=5, structure="nilpotent", dtype=torch.float64)
    with torch.no_grad():
        layer.free_generators.mul_(20)
    generator = torch.Generator().manual_seed(0)
    start, step = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    values = layer(start + torch.arange(9, dtype=torch.float64)[:, None] * step).detach()
    differences = torch.diff(values, n=5, dim=0)
    assert differences.abs().max() < 1e-10 * values.abs().max()
    assert torch.diff(values, n=4, dim=0).abs().max() > 1e-7 * values.abs().max()


def test_blocks_do_not_mix() -> None:
    layer = MLayer(2, 1, matrix_size=5, structure=BlockDiagonal([2, 3]))
    E = layer.exponential(torch.ones(2))
    assert torch.equal(E[:2, 2:], torch.zeros(2, 3))
    assert torch.equal(E[2:, :2], torch.zeros(3, 2))


def test_weights_of_a_users_module_are_trained_and_moved() -> None:
    layer = MLayer(2, 1, matrix_size=3, structure=Scaled())
    assert "structure.module.scale" in dict(layer.named_parameters())
    (gradient,) = torch.autograd.grad(layer(torch.ones(2)).sum(), layer.structure.module.scale)  # type: ignore[union-attr, arg-type]
    assert gradient != 0
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(torch.ones(2)), layer(torch.ones(2)))


def test_with_structure_keeps_the_function() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(3, 4)
    for structure in ("nilpotent", "skew", BlockDiagonal([2, 3]), Symmetric(), UsersToeplitz(5), Scaled()):
        layer = MLayer(4, 2, matrix_size=5, structure=structure, generator=generator)
        full = layer.with_structure("full")
        assert isinstance(full.structure, Full)
        torch.testing.assert_close(full(x), layer(x))
    back = MLayer(4, 2, matrix_size=5, structure="skew").with_structure("full").with_structure("skew")
    assert isinstance(back.structure, Skew)


# ---- Complaints. ----------------------------------------------------------------------------------


def test_unknown_name() -> None:
    with pytest.raises(ArgumentError, match=r"structure must be one of 'full', 'nilpotent'.* got 'diagonal'"):
        MLayer(2, 1, structure="diagonal")


def test_block_diagonal_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"given with its block sizes.*BlockDiagonal\(\[4, 4, 2\]\)"):
        MLayer(2, 1, structure="block_diagonal")


def test_block_triangular_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"given with its block sizes.*BlockTriangular\(\[4, 4, 2\]\)"):
        MLayer(2, 1, structure="block_triangular")


def test_block_triangular_of_single_rows_is_nilpotent() -> None:
    ones, nilpotent = BlockTriangular([1, 1, 1, 1]), Nilpotent(4)
    assert ones.parameter_shape == nilpotent.parameter_shape
    free = torch.arange(1.0, 7.0)
    assert torch.equal(ones(free), nilpotent(free))


def test_another_size() -> None:
    with pytest.raises(ArgumentError, match=r"for matrices of matrix_size = 4; got one for size 5"):
        MLayer(2, 1, matrix_size=4, structure=BlockDiagonal([2, 3]))


@pytest.mark.parametrize("blocks", [[], [0, 2], [2.0], [True]])
def test_bad_blocks(blocks: list[int]) -> None:
    with pytest.raises(ArgumentError, match=r"blocks must be positive integers"):
        BlockDiagonal(blocks)


def test_no_structure_at_all() -> None:
    with pytest.raises(
        TypeError, match=r"structure must be a name, a Structure or a torch.nn.Module; got int"
    ):
        MLayer(2, 1, structure=3)  # type: ignore[arg-type]


def test_matrices_outside_the_structure() -> None:
    T, S = torch.ones(1, 3, 3), torch.ones(1, 3, 3)
    with pytest.raises(ArgumentError, match=r"of structure 'skew'; got matrices that differ from it by 2"):
        MLayer.from_weights(T, S, structure="skew")


@pytest.mark.parametrize("structure", [UsersToeplitz(3), Scaled()])
def test_structures_without_an_inverse(structure: nn.Module) -> None:
    with pytest.raises(ArgumentError, match=r"one that can be inverted.*with_structure\('full'\)"):
        MLayer.from_weights(torch.ones(1, 3, 3), torch.ones(1, 3, 3), structure=structure)


def test_a_module_of_the_wrong_shape() -> None:
    with pytest.raises(ArgumentError, match=r"maps \(..., n, n\) to \(..., n, n\); got shape \(35, 9\)"):
        MLayer(2, 1, matrix_size=3, structure=nn.Flatten())(torch.ones(2))


def test_the_callers_structure_is_neither_converted_nor_shared() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, X: Tensor) -> Tensor:
            return self.scale * X

    mine = Scaled()
    one = MLayer(2, 1, matrix_size=3, structure=mine, dtype=torch.float64)
    two = MLayer(2, 1, matrix_size=3, structure=mine)
    assert mine.scale.dtype == torch.float32
    assert next(one.structure.parameters()).dtype == torch.float64
    with torch.no_grad():
        next(two.structure.parameters()).fill_(7.0)
    assert mine.scale == 2.0


def test_blocks_are_exponentiated_one_by_one() -> None:
    """Against scipy's exponential of the whole matrix, in value and gradient."""
    from scipy.linalg import expm as reference

    structure = BlockDiagonal([3, 4, 1, 4, 8])
    layer = MLayer(2, 3, matrix_size=20, embedding_size=None, structure=structure, dtype=torch.float64)
    with torch.no_grad():
        layer.free_generators.copy_(torch.randn(layer.free_generators.shape, dtype=torch.float64))
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    wanted = torch.from_numpy(reference(layer.matrix(x).detach().numpy()))
    torch.testing.assert_close(layer.exponential(x).detach(), wanted, rtol=1e-11, atol=1e-11)
    whole = layer.with_structure("full")
    ours, theirs = (torch.autograd.grad(each(x).square().sum(), x)[0] for each in (layer, whole))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    assert layer(x.reshape(2, 3, 2)).shape == (2, 3, 3)
