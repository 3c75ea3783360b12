"""A layer, its prover and rows with their claims: what the tests of proofs start from."""

from __future__ import annotations

from typing import Any

from certificate_layers import random_layer
from mlayer.certificates import Certifier, attack, checker
from mlayer.certificates.checker import Checker
from mlayer.certificates.problem.expansion import Row
from mlayer.certificates.proofs import Prover


class Case:
    """A layer with its prover and rows."""

    def __init__(self, kind: str, seed: int, norm: Any = "linf", box: Any = None) -> None:
        self.layer, self.x, self.labels = random_layer(kind, seed)
        self.certifier = Certifier(self.layer, norm=norm, box=box, fit_steps=0)
        self.prover = Prover(self.certifier._model)
        self.attacked = attack(self.layer, self.x, self.labels, norm=norm, box=box, starts=2).radius
        self.radius = self.certifier(self.x, self.labels, method="second_order").radius

    def row(self, k: int) -> Row:
        return Row(self.certifier._model, self.x[k].numpy(), int(self.labels[k]))

    def check(self, k: int, claims: dict[str, Any], frame: dict[str, Any] | None = None) -> checker.Verdict:
        proof = self.prover.proof((claims,)).as_lists()
        if frame is not None:
            proof["frame"] = frame
        return Checker(self.prover.layer, self.prover.region, proof).check(
            self.x[k].tolist(), int(self.labels[k]), proof["rows"][0]
        )


def proved_case(norm: str) -> tuple[Case, float, dict[str, Any]]:
    """A case, and the radius and the claims of its first row: half the radius, proved without splits."""
    case = Case("full", 7, norm)
    radius, claims = case.prover.confirmed(case.row(0), float(case.radius[0]) / 2, True)
    assert claims is not None
    assert all("levels" in rival for rival in claims["rivals"].values())
    return case, radius, claims
