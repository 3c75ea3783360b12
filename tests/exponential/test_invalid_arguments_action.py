"""expm_action: what is no argument of it is refused, with what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import scipy.sparse
import torch

import mlayer
from invalid_arguments import Cases, names_of, says_what_is_wrong

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CS[CR] tensor support is in beta:UserWarning")

EYE = torch.eye(3)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says that nested tensors are a prototype
    NESTED = torch.nested.nested_tensor([torch.eye(3), torch.eye(2)])


WRONG: Cases = [
    (
        lambda: mlayer.expm_action([[1.0]], EYE),  # type: ignore[arg-type]
        "A must be a tensor (..., n, n), a sparse tensor (n, n) or a l",
    ),
    (
        lambda: mlayer.expm_action(scipy.sparse.eye(3), EYE),
        "C = A.tocoo(), then torch.sparse_coo_tensor(numpy.stack([C.row, C.col]), C.data, C.shape)",
    ),
    (lambda: mlayer.expm_action(EYE, [1.0]), "V must be a torch.Tensor; got of type list"),  # type: ignore[arg-type]
    (
        lambda: mlayer.expm_action(EYE, torch.ones(3, dtype=torch.int64)),
        "V must be of floating point or compl",
    ),
    (lambda: mlayer.expm_action(EYE, EYE.to_sparse()), "V must be a dense tensor; got torch.sparse_coo"),
    (lambda: mlayer.expm_action(EYE, torch.tensor(1.0)), "V must be (..., n, k) or one vector (n,)"),
    (lambda: mlayer.expm_action(EYE, torch.ones(4)), "V must be of shape (..., 3, k) or (3,), as A is 3 x 3"),
    (lambda: mlayer.expm_action(torch.ones(2, 3), torch.ones(3)), "A must be a square matrix"),
    (
        lambda: mlayer.expm_action(EYE.to_sparse_csc(), EYE),
        "A must be dense, COO or CSR; got torch.sparse_csc",
    ),
    (
        lambda: mlayer.expm_action(torch.ones(2, 3, 3).to_sparse(), EYE),
        "A must be a square matrix if it is sparse; got shape (2, 3, 3)",
    ),
    (
        lambda: mlayer.expm_action(EYE.to(torch.int64).to_sparse(), EYE),
        "A must be of floating point or complex",
    ),
    (
        lambda: mlayer.expm_action(
            torch.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 1.0], (2, 2), check_invariants=False),
            torch.ones(2),
        ),
        "A must be a matrix with columns from 0 to 1; got others. Make it with check_invariants=True",
    ),
    *(
        (
            lambda places=places: mlayer.expm_action(
                torch.sparse_coo_tensor(torch.tensor(places), torch.ones(2), (2, 2), check_invariants=False),
                torch.ones(2),
            ),
            "A must be a matrix with rows and columns from 0 to 1; got others. Make it with",
        )
        for places in ([[0, 5], [0, 1]], [[0, -1], [0, 1]], [[0, 1], [0, 2]])
    ),
    *(
        (
            lambda starts=starts: mlayer.expm_action(
                torch.sparse_csr_tensor(starts, [0, 1], torch.ones(2), (2, 2), check_invariants=False),
                torch.ones(2),
            ),
            "A must be a matrix whose crow_indices rise from 0 to its 2 entries; got others. Make it with",
        )
        for starts in ([0, 5, 2], [0, 1, 9], [1, 1, 2], [0, 1, 1])
    ),
    (
        lambda: mlayer.expm_action(
            torch.sparse_coo_tensor(torch.tensor([[0, 1]]), EYE[:2, :2], (2, 2), check_invariants=True),
            torch.ones(2),
        ),
        "A must be sparse in both dimensions; got 1 of them dense. Convert it with A.to_dense().to_sparse()",
    ),
    (
        lambda: mlayer.expm_action(NESTED, EYE),
        "A must be one tensor of one shape; got a nested tensor. Call it",
    ),
    (
        lambda: mlayer.expm_action(EYE, NESTED),
        "V must be one tensor of one shape; got a nested tensor. Call it",
    ),
    *(
        (
            lambda function=function: function(NESTED),
            "A must be one tensor of one shape; got a nested tensor.",
        )
        for function in (mlayer.expm, mlayer.logm, mlayer.sqrtm, lambda a: mlayer.expm(a, path="matmul"))
    ),
    (
        lambda: mlayer.expm_action(torch.ones(2, 3, 3), torch.ones(5, 3, 1)),
        "A and V must be of batches that broadcast; got batches (2,) and (5,)",
    ),
    (lambda: mlayer.expm_action(EYE, EYE.to("meta")), "V must be on the device of A, cpu; got meta"),
    (
        lambda: mlayer.expm_action(EYE, EYE, torch.ones(2).to_sparse()),
        "t must be a dense tensor of times; got torch.sparse_coo. Use t.to_dense()",
    ),
    (
        lambda: mlayer.expm_action(EYE, EYE, torch.ones(2, device="meta")),
        "t must be times with values; got a",
    ),
    (
        lambda: mlayer.expm_action(EYE, EYE.to(torch.float8_e5m2)),
        "V must be of floating point or complex dtype; got torch.float8_e5m2. Convert it with V.float()",
    ),
    (
        lambda: mlayer.expm_action(EYE, EYE, 1j),  # type: ignore[arg-type]
        "t must be a number or a tensor of real times; got 1j. Put a complex factor into A",
    ),
    (
        lambda: mlayer.expm_action(EYE, EYE, torch.tensor(1j)),
        "t must be real times; got torch.complex64. Put",
    ),
    (
        lambda: mlayer.expm_action(EYE, EYE, torch.nan),
        "t must be finite; got NaN or infinity among the times",
    ),
    (lambda: mlayer.expm_action(EYE, EYE, norm=3.0), "norm must be None for a matrix A; got 3.0"),
    (lambda: mlayer.expm_action(EYE, EYE, max_products=0), "max_products must be a positive integer; got 0"),
    (
        lambda: mlayer.expm_action(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), torch.ones(2), 1e12),
        "t A must be so small that max_products, 1000000, are enough; got a norm of 1e+12, which needs",
    ),
    (
        lambda: mlayer.expm_action(torch.sin, EYE.half()),
        "V must be float32, float64 or complex for a functio",
    ),
    (
        lambda: mlayer.expm_action(lambda x: x[0], EYE),
        "A must be a linear function that maps torch.float32 of s",
    ),
    (lambda: mlayer.expm_action(lambda x: 1, EYE), "got int. Give V the shape"),  # type: ignore[arg-type, return-value]
    (
        lambda: mlayer.expm_action(lambda x: x, EYE, norm=-1.0),
        "norm must be a finite number at least 0; got -1.0",
    ),
    (lambda: mlayer.expm_action(lambda x: x, EYE, adjoint=3), "adjoint must be a callable x -> A^H x"),  # type: ignore[arg-type]
    (lambda: mlayer.expm_action(lambda x: x / 0, EYE), "A must be finite on finite vectors"),
    (lambda: mlayer.expm_action(lambda x: x + 1, EYE), "A must be a linear function; got one with A(0) = b"),
    *(
        (lambda f=f, v=v: mlayer.expm_action(f, v), "A must be a linear function; got one with A(x + c y)")
        for f, v in (
            (lambda x: x * x.norm(), EYE),
            (lambda x: x + x**3 / 9, EYE),
            (torch.relu, EYE),
            (torch.abs, torch.ones(1)),
            (lambda x: x.conj(), EYE * 1j),
            (torch.nn.Dropout(), EYE),
        )
    ),
    (
        lambda: mlayer.expm_action(lambda x: 2j * x, EYE * 1j, adjoint=lambda x: 2j * x),
        "adjoint must be the function x -> A^H x; got one with <y, A x> other than",
    ),
    (
        lambda: mlayer.expm_action(lambda x: 5 * x, EYE, norm=4.9),
        "norm must be a bound of the 1-norm of A, here at least 5; got 4.9",
    ),
    (
        lambda: mlayer.expm_action(torch.nn.Linear(3, 3), EYE, norm=1.0),
        "A must be a linear function; got one",
    ),
    *(
        (
            lambda norm=norm: mlayer.expm_action(lambda x: x.mul_(2), EYE, norm=norm),
            "A must be a function that leaves its argument as it is; got one that changes it. Copy it",
        )
        for norm in (None, 2.0)
    ),
    (
        lambda: mlayer.expm_action(lambda x: 2 * x, EYE, adjoint=lambda x: x.mul_(2)),
        "adjoint must be a function that leaves its argument as it is; got one that changes it. Copy it",
    ),
    (
        lambda: mlayer.expm_action(lambda x: x.detach() * 2, torch.eye(20)),
        "A must be made of torch's differentiable operations if neither adjoint nor norm is given",
    ),
    (
        lambda: mlayer.expm_action(lambda x: x.detach(), EYE.clone().requires_grad_(), norm=1.0),
        "adjoint must be given where A computes outside of torch's autograd and a gradient is wanted",
    ),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=names_of(WRONG))
def test_invalid_arguments(call: Callable[[], object], words: str) -> None:
    says_what_is_wrong(call, words)
