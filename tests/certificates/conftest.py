"""A proof to check, lower, damage."""

from __future__ import annotations

from typing import Any

import pytest

from proof_cases import Case


@pytest.fixture(scope="module", params=["linf", "l2"])
def proved(request: pytest.FixtureRequest) -> tuple[Case, float, dict[str, Any]]:
    case = Case("full", 7, request.param)
    # Half the radius: proved without splits.
    radius, claims = case.prover.confirmed(case.row(0), float(case.radius[0]) / 2, True)
    assert claims is not None
    assert all("levels" in rival for rival in claims["rivals"].values())
    return case, radius, claims
