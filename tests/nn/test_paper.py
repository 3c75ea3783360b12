"""The paper's examples, with its own matrices set by hand as weights."""

from __future__ import annotations

import math

import numpy as np
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mlayer import MLayer
from mlayer.nn import evolve

numbers = st.floats(-3, 3, allow_nan=False)


def entry(n: int, *places: tuple[int, int]) -> Tensor:
    """S for one output: the sum of the entries of exp(M) at these places."""
    S = torch.zeros(1, n, n, dtype=torch.float64)
    for j, k in places:
        S[0, j, k] = 1.0
    return S


@given(st.tuples(numbers, numbers, numbers))
def test_feature_crosses(phi: tuple[float, float, float]) -> None:
    """Section 3.3: a nilpotent 7 x 7 matrix with phi_0 phi_1 and phi_1 phi_2^2 in its first row."""
    T = torch.zeros(3, 7, 7, dtype=torch.float64)
    T[0, 0, 1] = T[1, 0, 2] = T[2, 0, 3] = 1
    T[0, 2, 4] = T[2, 2, 5] = 2
    T[2, 5, 6] = 3
    S = torch.cat([entry(7, (0, k)) for k in range(7)])
    layer = MLayer.from_weights(T, S, structure="nilpotent")
    a, b, c = phi
    expected = torch.tensor([1, a, b, c, a * b, b * c, b * c * c], dtype=torch.float64)
    torch.testing.assert_close(
        layer(torch.tensor(phi, dtype=torch.float64)), expected, rtol=1e-14, atol=1e-14
    )


def determinant_layer(sign: float) -> MLayer:
    """The appendix's 8 x 8 matrix for the 3 x 3 determinant; sign +1 gives the permanent."""
    a, b, c, d, e, f, g, h, i = range(9)
    T = torch.zeros(9, 8, 8, dtype=torch.float64)
    T[i, 0, 2] = T[f, 0, 3] = T[h, 1, 2] = T[e, 1, 3] = 1
    T[d, 2, 4], T[f, 2, 5], T[g, 3, 4], T[i, 3, 5] = 2, 2 * sign, 2 * sign, 2
    T[c, 4, 6], T[b, 4, 7], T[a, 5, 6] = 3, 3 * sign, 3
    return MLayer.from_weights(T, entry(8, (0, 7), (1, 6)), structure="nilpotent")


def test_determinant_and_permanent() -> None:
    x = torch.randn(50, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.linalg.det(x.reshape(-1, 3, 3))[:, None]
    torch.testing.assert_close(determinant_layer(-1.0)(x), expected, rtol=1e-12, atol=1e-13)
    a, b, c, d, e, f, g, h, i = x.unbind(1)
    permanent = a * (e * i + f * h) + b * (d * i + f * g) + c * (d * h + e * g)
    torch.testing.assert_close(determinant_layer(1.0)(x)[:, 0], permanent, rtol=1e-12, atol=1e-13)


def test_monomial_of_the_appendix() -> None:
    T = torch.zeros(4, 5, 5, dtype=torch.float64)
    for k in range(4):
        T[k, k, k + 1] = 1
    layer = MLayer.from_weights(T, 24 * entry(5, (0, 4)), structure="nilpotent")
    x = torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=torch.float64)
    torch.testing.assert_close(layer(x), torch.tensor([210.0], dtype=torch.float64), rtol=1e-14, atol=0.0)


def test_periodicity() -> None:
    """Section 3.4: a 2 x 2 rotation is a cosine of any period, and stays one far outside."""
    omega = 2.5
    T = torch.tensor([[[0.0, -omega], [omega, 0.0]]], dtype=torch.float64)
    layer = MLayer.from_weights(T, entry(2, (0, 0)), structure="skew")
    t = torch.linspace(-40, 40, 201, dtype=torch.float64)[:, None]
    torch.testing.assert_close(layer(t), torch.cos(omega * t), rtol=0.0, atol=1e-13)


# ---- Section 3.6: the linear ODE. -----------------------------------------------------------------


def rotation_layer(start: Tensor) -> MLayer:
    T = torch.zeros(3, 3, 3, dtype=torch.float64)
    T[0, 1, 2] = T[1, 2, 0] = T[2, 0, 1] = 1
    T[2, 1, 0] = T[1, 0, 2] = T[0, 2, 1] = -1
    S = torch.zeros(3, 3, 3, dtype=torch.float64)
    for m in range(3):
        S[m, m] = start
    return MLayer.from_weights(T, S, embedding=torch.eye(3, dtype=torch.float64))


def rodrigues(a: Tensor, y: Tensor, t: float) -> Tensor:
    """y turned about the axis a by the angle -t |a|: dY/dt = M Y = -a x Y for the paper's M."""
    axis, angle = a / a.norm(), -t * a.norm()
    cross: Tensor = torch.linalg.cross(axis, y)
    turned: Tensor = y * angle.cos() + cross * angle.sin() + axis * (axis @ y) * (1 - angle.cos())
    return turned


@given(
    st.tuples(numbers, numbers, numbers).filter(lambda a: sum(abs(v) for v in a) > 1e-3),
    st.floats(-2, 2, allow_nan=False),
)
def test_rotation(axis: tuple[float, float, float], t: float) -> None:
    start = torch.tensor([0.6, -0.3, 1.1], dtype=torch.float64)
    a = torch.tensor(axis, dtype=torch.float64)
    layer = rotation_layer(start)
    expected_M = torch.tensor([[0, a[2], -a[1]], [-a[2], 0, a[0]], [a[1], -a[0], 0]], dtype=torch.float64)
    assert torch.equal(layer.matrix(a), expected_M)  # exact: sums of one term and zeros
    torch.testing.assert_close(layer(a), rodrigues(a, start, 1.0), rtol=1e-12, atol=1e-12)
    turned = layer.trajectory(a, t) @ start
    torch.testing.assert_close(turned, rodrigues(a, start, t), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.trajectory(a, t) @ a, a, rtol=1e-12, atol=1e-12)  # the axis stays


def test_trajectory_against_an_ode_solver() -> None:
    generator = torch.Generator().manual_seed(3)
    layer = MLayer(4, 2, matrix_size=6, embedding_size=5, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        layer.free_generators.mul_(20)
    x = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    start = torch.randn(6, dtype=torch.float64, generator=generator)
    t = torch.linspace(0, 3, 13, dtype=torch.float64)
    states = evolve(layer.matrix(x), t, start).detach()
    assert states.shape == (3, 13, 6)
    for row, matrix in zip(states, layer.matrix(x).detach().numpy(), strict=True):

        def rate(_: float, y: np.ndarray, M: np.ndarray = matrix) -> np.ndarray:
            return np.asarray(M @ y)

        solution = scipy.integrate.solve_ivp(
            rate, (0, 3), start.numpy(), method="DOP853", t_eval=t.numpy(), rtol=1e-11, atol=1e-12
        )
        np.testing.assert_allclose(row.numpy(), solution.y.T, rtol=1e-7, atol=1e-8 * abs(solution.y).max())


def test_trajectories_compose() -> None:
    layer = rotation_layer(torch.ones(3, dtype=torch.float64))
    a = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64)
    first, second, both = layer.trajectory(a, torch.tensor([0.4, 1.3, 1.7], dtype=torch.float64))
    torch.testing.assert_close(second @ first, both, rtol=1e-13, atol=1e-13)
    full_turn = layer.trajectory(a, 2 * math.pi / a.norm().item())
    torch.testing.assert_close(full_turn, torch.eye(3, dtype=torch.float64), rtol=0.0, atol=1e-13)
