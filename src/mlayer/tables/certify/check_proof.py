"""Checks of a proof file against a model and the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from mlayer.disk import absent
from mlayer.errors import FileFormatError, MissingPackageError, in_one_line
from mlayer.memory import check_size
from mlayer.tables.certify.certify_table import question
from mlayer.tables.model import TableModel
from mlayer.tables.remarks import Remark

if TYPE_CHECKING:
    from pandas import DataFrame

_COPIES = 6  # of a proof in memory: its bytes, and its numbers as Python's
Answer = Literal["accepted", "refused", "no claim"]


@dataclass(frozen=True)
class CheckedRow:
    """The checker's verdict on one row.

    Attributes:
        answer: "no claim" where the proof says nothing about the row (its radius is 0).
        radius: the proved radius; 0 unless accepted.
        reason: why it was refused.
        rival: the class whose margin was not proved, if it was one.
    """

    answer: Answer
    radius: float
    reason: str
    rival: str | None


@dataclass(frozen=True)
class CheckedTable:
    """A proof checked row by row.

    Attributes:
        rows: in the order of the table.
        units: what a radius of 1 means, by column.
        remarks: notes for the user.
    """

    rows: list[CheckedRow]
    units: Mapping[str, float]
    remarks: list[Remark]

    def count(self, answer: Answer) -> int:
        """Rows with this answer."""
        return sum(row.answer == answer for row in self.rows)


def read_proof_file(path: Path) -> dict[str, Any]:
    """The proof in a file; a `FileFormatError` if it is damaged or something else."""
    _require_flint()
    from mlayer.certificates.checker import ProofError, read_proof

    hint = "Write it again: mlayer certify MODEL TABLE --proof FILE"
    if not path.is_file():
        raise absent(path, (".safetensors",), hint)
    check_size(path, _COPIES)
    try:
        return read_proof(path)
    except ProofError as error:
        raise FileFormatError(
            path, "a complete proof of certificates", f"this: {in_one_line(error)}", hint
        ) from None


def check_table(
    model: TableModel,
    frame: DataFrame,
    proof: dict[str, Any],
    *,
    norm: Any = "linf",
    units: Mapping[str, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckedTable:
    """Check a proof about the rows of a table. What it does not prove about them is refused.

    Args:
        model: a classifier.
        frame: the raw table: the rows, in the same order, that were certified.
        proof: as :func:`read_proof_file` gives it.
        norm: "linf" or "l2", as when the proof was made.
        units: of columns, as when the proof was made.
        progress: called with the number of checked rows and of all rows.
    """
    _require_flint()
    from mlayer.certificates.proofs import check_proof

    asked = question(model, frame, units, norm)
    verdicts = check_proof(
        asked.layer, asked.x, asked.labels, proof, norm, scale=asked.scale, progress=progress
    )
    entries = proof.get("rows")
    # Where the numbers of rows differ, it is unknown which entry belongs to which row: all are refused.
    claimed = [True] * len(verdicts)
    if isinstance(entries, list) and len(entries) == len(verdicts):
        claimed = [entry is not None for entry in entries]
    rows = []
    # What is proved of the layer's inputs, as changes of cells, which are rounded to inputs.
    radii = asked.of_cells(torch.tensor([verdict.radius for verdict in verdicts], dtype=torch.float64))
    for verdict, has_claim, radius in zip(verdicts, claimed, radii.tolist(), strict=True):
        answer: Answer = "accepted" if verdict.accepted else "refused" if has_claim else "no claim"
        rival = None if verdict.rival is None else str(model.target.classes[verdict.rival])
        rows.append(CheckedRow(answer, radius, verdict.reason if has_claim else "", rival))
    return CheckedTable(rows, asked.units, asked.remarks)


def _require_flint() -> None:
    try:
        import flint  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "checking a proof", "python-flint", "pip install 'mlayer[rigorous]'"
        ) from None
