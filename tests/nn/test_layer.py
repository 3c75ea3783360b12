"""The layer against the paper's formula, written out by hand with scipy's exponential."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import mlayer
from mlayer import MLayer
from mlayer.exponential.arguments import HALVES
from mlayer.nn import BlockDiagonal, activity_of
from structure_cases import CASES


def reference(layer: MLayer, x: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """M and p of equations 2 and 3 for x (b, in), in double precision, one example after the other."""

    def double(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor.detach().double().numpy()

    T, S, U, u = (double(w) for w in (layer.generators, layer.readout, layer.embedding, layer.embedding_bias))
    B, V = double(layer.matrix_bias), double(layer.output_bias)
    matrices, outputs = [], []
    for row in double(x):
        phi = row if U is None else np.einsum("ai,i->a", U, row)
        phi = phi if u is None else phi + u
        M = np.einsum("ajk,a->jk", T, phi)
        M = M if B is None else M + B
        p = np.einsum("mjk,jk->m", S, scipy.linalg.expm(M))
        matrices.append(M)
        outputs.append(p if V is None else p + V)
    return np.stack(matrices), np.stack(outputs)


def make(**arguments: Any) -> MLayer:
    defaults: dict[str, Any] = {
        "in_features": 6,
        "out_features": 3,
        "matrix_size": 5,
        "embedding_size": 4,
        "generator": torch.Generator().manual_seed(0),
        "dtype": torch.float64,
    }
    layer = MLayer(**{**defaults, **arguments})
    with torch.no_grad():  # large enough that the exponential matters
        for parameter in layer.parameters():
            parameter.mul_(6.0)
    return layer


def inputs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"embedding_size": None},
    {"matrix_bias": False},
    {"output_bias": False},
    {"embedding_bias": False},
    {"embedding_size": None, "matrix_bias": False, "output_bias": False},
    {"matrix_size": 1},
    {"embedding_size": 9},
    *({"structure": case.structure} for name, case in CASES.items() if name != "full"),
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_equations_2_and_3(variant: dict[str, Any], dtype: torch.dtype) -> None:
    layer = make(**variant).to(dtype)
    x = inputs(7, 6, dtype=dtype)
    M, p = reference(layer, x)
    tolerance = 4000 * torch.finfo(dtype).eps  # scipy is off by 1000 eps on one of these
    np.testing.assert_allclose(
        layer.matrix(x).detach().numpy(), M, rtol=tolerance, atol=tolerance * abs(M).max()
    )
    np.testing.assert_allclose(layer(x).detach().numpy(), p, rtol=tolerance, atol=tolerance * abs(p).max())
    assert layer(x).dtype == layer.matrix(x).dtype == dtype


POLYNOMIAL: dict[str, Any] = {"out_features": 1, "embedding_size": None, "matrix_bias": False}


@pytest.mark.parametrize(
    ("count", "arguments"),
    [
        (68_885, {"in_features": 784, "out_features": 10}),
        (148_965, {"in_features": 3072, "out_features": 10}),
        (811, {"in_features": 9, "matrix_size": 9, **POLYNOMIAL}),
        (14_977, {"in_features": 25, "matrix_size": 24, **POLYNOMIAL}),
        (111, {"in_features": 1, "out_features": 1, "matrix_size": 6, "embedding_size": 1}),
        (115, {**POLYNOMIAL, "in_features": 2, "matrix_size": 6, "embedding_size": 2}),
    ],
)
def test_parameter_counts_of_the_paper(count: int, arguments: dict[str, Any]) -> None:
    assert sum(p.numel() for p in MLayer(**arguments).parameters()) == count


@given(lead=st.lists(st.integers(0, 3), max_size=3), embedding=st.sampled_from([None, 2]))
def test_any_leading_shape(lead: list[int], embedding: int | None) -> None:
    layer = make(in_features=3, matrix_size=3, embedding_size=embedding)
    x = inputs(*lead, 3)
    p = layer(x)
    assert p.shape == (*lead, 3)
    assert layer.matrix(x).shape == layer.exponential(x).shape == (*lead, 3, 3)
    if p.numel():
        torch.testing.assert_close(p.reshape(-1, 3), layer(x.reshape(-1, 3)))


def test_images_through_flatten() -> None:
    model = nn.Sequential(nn.Flatten(), MLayer(3 * 4 * 5, 2, matrix_size=3))
    assert model(torch.zeros(6, 3, 4, 5)).shape == (6, 2)


def test_inputs_of_any_strides() -> None:
    layer, x = make(), inputs(6, 7)
    torch.testing.assert_close(layer(x.mT), layer(x.mT.contiguous()))
    torch.testing.assert_close(layer(x[:, :1].mT.expand(4, 6)), layer(x[:, 0]).expand(4, 3))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_gradients(variant: dict[str, Any]) -> None:
    """Against finite differences, for the input and every parameter, of output and penalty."""
    layer = make(**variant)
    names = [name for name, _ in layer.named_parameters()]

    def function(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        state = dict(zip(names, weights, strict=True))
        result: tuple[Tensor, ...] = torch.func.functional_call(layer, state, (x,), tie_weights=False)
        return result

    class Both(MLayer):
        def forward(self, x: Tensor) -> Tensor:
            output, activity = self.forward_with_activity(x)
            return torch.cat([output.flatten(), activity[None]])

    layer.__class__ = Both
    weights = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    assert torch.autograd.gradcheck(function, (inputs(2, 6).requires_grad_(), *weights))


def test_second_derivatives() -> None:
    layer = make(in_features=2, matrix_size=3, embedding_size=2)
    assert torch.autograd.gradgradcheck(layer, (inputs(2, 2).requires_grad_(),))


# torch.func imports a module of torch that warns about its own deprecation.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jacobian_by_vmap_equals_the_loop() -> None:
    layer, x = make(), inputs(4, 6)
    by_vmap = torch.func.vmap(torch.func.jacrev(layer))(x)
    jacobian: Callable[..., Tensor] = torch.autograd.functional.jacobian
    by_loop = torch.stack([jacobian(layer, row) for row in x])
    torch.testing.assert_close(by_vmap, by_loop)
    torch.testing.assert_close(torch.func.vmap(torch.func.jacfwd(layer))(x), by_loop)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_activity(variant: dict[str, Any]) -> None:
    layer, x = make(**variant), inputs(5, 6)
    E = np.stack([scipy.linalg.expm(M) for M in reference(layer, x)[0]])
    for kind, expected in (
        ("frobenius", np.mean(np.sum(E**2, (1, 2)))),
        ("l1", np.mean(np.sum(np.abs(E), (1, 2)))),
    ):
        output, penalty = layer.forward_with_activity(x, kind)  # type: ignore[arg-type]
        np.testing.assert_allclose(penalty.item(), expected, rtol=1e-12)
        np.testing.assert_allclose(layer.activity(x, kind).item(), expected, rtol=1e-12)  # type: ignore[arg-type]
        assert torch.equal(output, layer(x))
    torch.testing.assert_close(layer.activity(x.reshape(1, 5, 6)), layer.activity(x))
    assert layer.activity(x).item() == layer.activity(x, "frobenius").item()


def test_output_and_penalty_take_one_exponential(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(A: Tensor) -> Tensor:
        calls.append(A.shape)
        return mlayer.expm(A)

    monkeypatch.setattr("mlayer.nn.structures.structure.expm", counted)
    make().forward_with_activity(inputs(5, 6))
    assert calls == [(5, 5, 5)]


def test_activity_of_an_empty_batch_is_zero() -> None:
    assert make().activity(inputs(0, 6)).item() == 0.0


def test_bad_rows_stay_alone() -> None:
    layer, x = make(), inputs(4, 6)
    expected = layer(x)
    x[2, 3] = torch.nan
    p = layer(x)
    assert p[2].isnan().all()
    # Float64: equal to rounding. Only the kernel promises the same bits beside another neighbor.
    torch.testing.assert_close(p[[0, 1, 3]], expected[[0, 1, 3]], rtol=1e-12, atol=1e-12)


def test_state_dict_deepcopy_and_pickle() -> None:
    for variant in VARIANTS:
        layer, x = make(**variant), inputs(3, 6)
        expected = layer(x)
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(twin(x), expected)
            with torch.no_grad():
                twin.readout.zero_()
            assert torch.equal(layer(x), expected)
        other = make(**variant, generator=torch.Generator().manual_seed(5))
        assert not torch.equal(other(x), expected)
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), expected)


def test_device_and_dtype() -> None:
    layer = MLayer(3, 2, matrix_size=4, structure="nilpotent", device="meta", dtype=torch.float64)
    assert all(p.is_meta and p.dtype == torch.float64 for p in layer.parameters())
    assert layer(torch.zeros(5, 3, device="meta", dtype=torch.float64)).shape == (5, 2)
    assert MLayer(3, 2).readout.dtype == torch.get_default_dtype()
    skip_init: Callable[..., MLayer] = nn.utils.skip_init
    assert skip_init(MLayer, 3, 2, matrix_size=4).readout.device.type == "cpu"


@pytest.mark.parametrize("half", HALVES)
def test_half_precision_layers_compute_in_single(half: torch.dtype) -> None:
    layer = make(dtype=torch.float32)
    x = inputs(4, 6, dtype=torch.float32)
    expected = layer(x)
    p = copy.deepcopy(layer).to(half)(x.to(half))
    assert p.dtype == half
    torch.testing.assert_close(p.float(), expected, rtol=0.1, atol=0.1 * expected.abs().max().item())
    assert copy.deepcopy(layer).to(half).exponential(x.to(half)).dtype == torch.float32


def test_half_precision_survives_exponentials_beyond_its_range() -> None:
    T = torch.tensor([[[14.0, 0.0], [0.0, 0.0]]], dtype=torch.float16)  # exp(14) = 1.2e6 > 65504
    S = torch.tensor([[[1e-3, 0.0], [0.0, 0.0]]], dtype=torch.float16)
    layer = MLayer.from_weights(T, S)
    torch.testing.assert_close(
        layer(torch.ones(1, dtype=torch.float16)).float(), torch.tensor([1202.6]), rtol=2e-3, atol=0.0
    )


def test_autocast_keeps_the_exponential_in_single() -> None:
    layer = make(dtype=torch.float32, in_features=200, embedding_size=10)
    x = inputs(8, 200, dtype=torch.float32) * 0.1
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer.matrix(x).dtype == layer.exponential(x).dtype == layer(x).dtype == torch.float32
        output, penalty = layer.forward_with_activity(x)
        # The embedding is what runs in half precision: rounding it is all that differs.
        assert layer.embedding is not None
        features = nn.functional.linear(x, layer.embedding, layer.embedding_bias)
        assert layer(x.bfloat16()).dtype == torch.float32
    assert features.dtype == torch.bfloat16
    core = MLayer.from_weights(
        layer.generators, layer.readout, matrix_bias=layer.matrix_bias, output_bias=layer.output_bias
    )
    torch.testing.assert_close(output, core(features.float()))
    torch.testing.assert_close(output, expected, rtol=0.2, atol=0.2 * expected.abs().max().item())
    gradients = torch.autograd.grad(output.sum() + penalty, list(layer.parameters()))
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("embedding_size", [None, 4])
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
def test_autocast_takes_inputs_of_half_precision(dtype: torch.dtype, embedding_size: int | None) -> None:
    layer = make(dtype=torch.float32, embedding_size=embedding_size)
    x = inputs(3, 6, dtype=torch.float32).bfloat16()
    expected = layer(x.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = layer(x.to(dtype))
    assert p.dtype == torch.float32
    torch.testing.assert_close(p, expected, rtol=0.2, atol=0.2 * expected.abs().max().item())


def test_diverged_weights_can_be_copied() -> None:
    layer = make()
    with torch.no_grad():
        layer.free_generators[0, 0, 0] = torch.nan
    assert layer.with_structure("full").generators.isnan().sum() == 1


def test_repr() -> None:
    text = repr(
        MLayer(3, 2, matrix_size=4, embedding_size=None, output_bias=False, structure=BlockDiagonal([1, 3]))
    )
    assert "3, 2, matrix_size=4, embedding_size=None, output_bias=False" in text
    assert "BlockDiagonal([1, 3])" in text
    assert "embedding_bias=False" in repr(MLayer(3, 2, embedding_bias=False))


def test_trajectory_shapes_and_unit_time() -> None:
    layer, x = make(), inputs(2, 3, 6)
    assert layer.trajectory(x, torch.ones(4, 1)).shape == (2, 3, 4, 1, 5, 5)
    torch.testing.assert_close(layer.trajectory(x, 1), layer.exponential(x))
    assert layer.trajectory(x[0, 0], 0.0).shape == (5, 5)


def test_from_weights_copies() -> None:
    layer = make()
    T = layer.generators.detach().clone()
    twin = MLayer.from_weights(T, layer.readout)
    T.zero_()
    assert torch.equal(twin.generators, layer.generators)
    with torch.no_grad():
        twin.readout.zero_()
    assert layer.readout.abs().sum() > 0


@pytest.mark.parametrize("kind", ["frobenius", "l1"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.complex64])
def test_activity_of_a_large_batch_keeps_its_digits(dtype: torch.dtype, kind: Any) -> None:
    E = torch.randn(10_000, 30, 30, generator=torch.Generator().manual_seed(0)).to(dtype)
    E = E * (3 + 4j) / 5 if dtype.is_complex else E
    sizes = E.to(torch.complex128).abs()
    exact = (sizes.square() if kind == "frobenius" else sizes).sum().item() / len(E)
    # A plain sum in float32 would lose three digits here.
    assert activity_of(E, kind).item() == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("kind", ["frobenius", "l1"])
def test_activity_of_has_two_derivatives(kind: Any) -> None:
    E = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    E.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda e: activity_of(e, kind), E)
    assert torch.autograd.gradgradcheck(lambda e: activity_of(e, kind), E)


def test_activity_of_is_differentiable_at_zero() -> None:
    E = torch.zeros(2, 3, 3, requires_grad=True)
    assert torch.equal(torch.autograd.grad(activity_of(E), E)[0], torch.zeros(2, 3, 3))
