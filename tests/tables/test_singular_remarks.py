"""A remark about one cell, row or class has its sentence in the singular."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd
import pytest

import mlayer.tables
from mlayer.tables import Plan, fit_table
from mlayer.tables.columns import infer_column
from mlayer.tables.remarks import Remark, merged


def test_every_counted_remark_has_a_sentence_for_one() -> None:
    """Read in the source: a call of Remark with a count that is not 0 gives ``one``."""
    without = []
    for file in sorted(Path(mlayer.tables.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remark"):
                continue
            count = node.args[2]
            if isinstance(count, ast.Constant) and count.value == 0:
                continue
            if len(node.args) < 7 and not any(word.arg == "one" for word in node.keywords):
                without.append(f"{file.name}:{node.lineno}")
    assert not without


def test_one_and_many() -> None:
    one = Remark("target", "y", 1, "rows were left out", one="row was left out")
    assert str(one) == "column 'y': 1 row was left out"
    (both,) = merged([one, one])
    assert str(both) == "column 'y': 2 rows were left out"
    assert "one" not in one.as_json()


@pytest.mark.parametrize("bad", [["?"], ["?", "?"]])
def test_cells_that_are_no_numbers(bad: list[str]) -> None:
    cells = [*(f"{k / 7:.3f}" for k in range(40)), *bad]
    said = [str(remark) for remark in infer_column(pd.Series(cells, name="a"), 20).remarks]
    words = "1 cell that is not a number was" if len(bad) == 1 else "2 cells that are not numbers were"
    assert f"column 'a': {words} taken as missing, for example '?'" in said


def test_one_copy() -> None:
    frame = pd.DataFrame({"a": [k / 7 for k in range(30)], "y": [k % 3 + k / 9 for k in range(30)]})
    frame = pd.concat([frame, frame.iloc[[4]]], ignore_index=True)
    remarks = [str(remark) for remark in fit_table(frame, Plan("y")).remarks]
    assert "1 row is an exact copy of an earlier one; copies were held out together" in remarks
