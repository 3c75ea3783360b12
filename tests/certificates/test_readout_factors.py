"""The factors of a readout difference in the gauge: what they lose of it is charged, order by order."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from test_fuzz import certifier_of

from certificate_drafts import Case, draft
from mlayer.certificates.bounds import remainder
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.problem.model import Model


def model_of(seed: int) -> tuple[Model, np.ndarray]:
    """A far gauge, and a readout of which only the last digits reach one direction."""
    random = np.random.default_rng(seed)
    weights = draft(random, n=3, m=2)
    P = np.diag(10.0 ** random.uniform(-2, 2, 3)) @ np.linalg.qr(random.standard_normal((3, 3)))[0]
    case = Case(weights.layer(), np.zeros((1, 2)), gauge=P)
    return certifier_of(case)._model, case.x


def nuclear(A: mpmath.matrix) -> mpmath.mpf:
    return mpmath.fsum(mpmath.svd_r(A, compute_uv=False))


@pytest.mark.parametrize("seed", range(8))
def test_what_the_factors_lose(seed: int) -> None:
    model, _ = model_of(seed)
    left, right, error = model.readout_factors(0, 1)
    with mpmath.workdps(60):
        P = mpmath.matrix(model.constants.P.tolist())
        W = mpmath.matrix(model.differences(0)[1].tolist())
        exact = (P.T**-1 * W * P.T).T
        lost = nuclear(exact - mpmath.matrix(left.tolist()) * mpmath.matrix(right.tolist()))
        assert 0 < lost <= error
        assert error <= 1e-9 * nuclear(exact) * model.constants.condition


def test_it_is_charged_to_each_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = model_of(3)
    pair = Row(model, x[0], 0).pair(1)
    row, without = pair.row, remainder.ReadoutRemainder(pair)
    compute = model.readout_factors
    monkeypatch.setattr(model, "readout_factors", lambda *pair: (*compute(*pair)[:2], 2.0))
    charged = remainder.ReadoutRemainder(pair)
    norm = math.exp(max(row.mu, 0.0)) * model.constants.delta_2**2
    for m in range(1, 15):
        # |P_k| <= ||W||_nuc e^mu q^k / k!, in the form of theorem 4.
        least = 2.0 * norm * math.factorial(m) / math.factorial(m + 2)
        assert charged.coefficients[m] - without.coefficients[m] == pytest.approx(least, rel=1e-6)
    monkeypatch.setitem(vars(model), "T_size", 1e9)
    assert (remainder.ReadoutRemainder(pair).coefficients[1:] > 1.05 * charged.coefficients[1:]).all()
