"""`check_proof`: the checker's word on a proof, for layers and tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mlayer.certificates.arguments import as_inputs, as_labels, as_layer
from mlayer.certificates.checker import Checker, Layer, ProofRegion, Verdict
from mlayer.certificates.problem.region import Norm, make_region
from mlayer.certificates.problem.weights import float64_copy, weights_of
from mlayer.certificates.proofs.frame import plain_layer
from mlayer.certificates.torch_state import own_conditions
from mlayer.checks import function


@own_conditions()
def check_proof(
    layer: Any,
    x: Tensor,
    labels: Tensor,
    proof: dict[str, Any],
    norm: Norm = "linf",
    *,
    scale: Tensor | float | None = None,
    box: tuple[Tensor | float, Tensor | float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """Check a proof, row by row. Whatever it does not prove about these rows and this region is refused.

    Args:
        layer: an MLayer, or an estimator with ``to_mlayer()``.
        x: (rows, in_features).
        labels: (rows,).
        proof: as :func:`mlayer.certificates.checker.read_proof` gives it.
        norm: "linf" or "l2".
        scale: unit of each feature, as in `certify`.
        box: (low, high), as in `certify`.
        progress: called with the number of checked rows and of all rows.
    """
    if progress is not None:
        function("progress", progress, "(done, total)", 2)
    layer = float64_copy(as_layer(layer))
    region = make_region(layer.in_features, norm, scale, box)
    x = as_inputs(layer, x)
    labels = as_labels(layer, labels, len(x))
    ends = [None if end is None else end.tolist() for end in (region.low, region.high)]
    rows = [(row.tolist(), int(label)) for row, label in zip(x, labels, strict=True)]
    plain = plain_layer(weights_of(layer, region))
    return check_rows(plain, ProofRegion(region.norm, region.scale.tolist(), *ends), proof, rows, progress)


def check_rows(
    layer: Layer,
    region: ProofRegion,
    proof: dict[str, Any],
    rows: list[tuple[list[float], int]],
    progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """The checker's word on every row of a table, in order."""
    checker = Checker(layer, region, proof)
    entries = proof.get("rows")
    if not isinstance(entries, list) or len(entries) != len(rows):
        count = len(entries) if isinstance(entries, list) else "no"
        return [Verdict(False, 0.0, f"the proof has {count} rows, the table {len(rows)}")] * len(rows)
    verdicts = []
    for (x, label), entry in zip(rows, entries, strict=True):
        claimed = entry is not None
        verdicts.append(
            checker.check(x, label, entry) if claimed else Verdict(False, 0.0, "nothing is claimed")
        )
        if progress is not None:
            progress(len(verdicts), len(rows))
    return verdicts
