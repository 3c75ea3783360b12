"""Lines of totals at the end of a table that is given to a model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.errors import ArgumentError
from mlayer.tables import Plan, TableModel, fit_table, open_table
from mlayer.tables.fit.labeled import read_with_target
from mlayer.tables.predict import predict_table
from mlayer.tables.reader import source
from mlayer.tables.totals import without_totals

ROWS = [f"{name},{k},{2 * k}" for k, name in enumerate(["nut", "bolt", "screw", "nail"] * 6)]
HEAD = "item,count,price"


@pytest.fixture(scope="module")
def model() -> TableModel:
    frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEAD.split(","))
    frame = frame.astype({"count": float, "price": float})
    return fit_table(frame, Plan("price"), estimator=LeastSquares()).model


def written(folder: Path, *lines: str) -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    "case",
    [("Total", 2, 50_000), ("Grand total:", 20, 50_000), ("SUMME", 20, 7), ("Total", 21, 7), ("Sum", 19, 7)],
)
def test_totals_have_no_prediction(
    model: TableModel, tmp_path: Path, case: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    word, rows, size = case
    pieces = source.Source.pieces
    monkeypatch.setattr(source.Source, "pieces", lambda self, text: pieces(self, text, size))
    table = open_table(written(tmp_path, *ROWS[:rows], f"{word},99999,99999", "Mean,4,8"))
    done = predict_table(model, table, tmp_path / "p.csv", interval=0.5, keep=True)
    result = pd.read_csv(tmp_path / "p.csv")
    assert len(result) == rows + 2
    assert result["prediction"][:rows].tolist() == pytest.approx([2.0 * k for k in range(rows)])
    assert result[["prediction", "low", "high"]][rows:].isna().all(axis=None)
    assert done.rows == done.measured_rows == rows
    assert done.metrics["RMSE"] < 1e-6
    (remark,) = [each for each in done.remarks if each.kind == "totals"]
    assert (
        str(remark) == f"2 lines of totals at the end of the table have no prediction, for example '{word}'"
    )
    assert not [each for each in done.remarks if each.kind in ("outside", "unseen")]
    with pytest.raises(ArgumentError, match="lines of totals at the end"):
        predict_table(model, table, tmp_path / "p.csv", strict=True)


def test_a_category_of_that_name_is_predicted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"kind": ["part", "total"] * 15, "count": range(30)})
    frame["price"] = frame["count"] + 10.0 * (frame["kind"] == "total")
    model = fit_table(frame, Plan("price"), estimator=LeastSquares()).model
    frame.iloc[[0, 2, 4, 1]].to_csv(tmp_path / "t.csv", index=False)
    done = predict_table(model, open_table(tmp_path / "t.csv"), tmp_path / "p.csv")
    assert done.rows == 4
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].notna().all()


@pytest.mark.parametrize("command", [["explain"], ["certify", "--eps", "0.01"]])
def test_other_commands_leave_them_out(
    model: TableModel, tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "m.safetensors")
    path = written(tmp_path, *ROWS, "Total,99999,99999")
    assert main([command[0], str(tmp_path / "m.safetensors"), str(path), *command[1:]]) == 0
    assert "1 line of totals at the end of the table was left out" in capsys.readouterr().err


@pytest.mark.parametrize("first", ["numbers", "names"])
def test_notes_below_the_totals(first: str, tmp_path: Path) -> None:
    """The line of totals above a note was a row, whose target of the sum of all others decided the fit."""
    names = [str(k) if first == "numbers" else f"n{k % 7}" for k in range(40)]
    lines = [f"{name},{k % 5},{3 * k}" for k, name in enumerate(names)]
    notes = ["Source: lab 3"] if first == "names" else ["measured in the lab", "Source: lab 3"]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines, "Total,,2340", *notes]) + "\n")
    rows = read_with_target(open_table(tmp_path / "t.csv"), "y")
    assert len(rows.frame) == 40
    said = [str(remark) for remark in rows.remarks]
    assert any(f"{1 + len(notes)} lines of totals and notes" in each for each in said), said
    # Rows that lack all but a name are rows.
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *[f"n{k % 7},{k},{k}" for k in range(40)], "n3,,"]))
    assert not any("notes" in str(r) for r in read_with_target(open_table(tmp_path / "t.csv"), "y").remarks)


def test_a_totals_line_below_cells_that_are_lists() -> None:
    """Parquet files have such cells, which cannot be hashed or compared with a text."""
    shops = [f"shop {k}" for k in range(30)]
    frame = pd.DataFrame({"shop": [*shops, "Total"], "tags": [[1, 2]] * 31, "y": [*range(30), 435]})
    kept, remarks = without_totals(frame)
    assert len(kept) == 30
    assert [remark.count for remark in remarks] == [1]


@pytest.mark.parametrize(
    ("line", "left_out"), [(",276,552", True), (",276,551", False), ("nut,276,552", False), (",,552", False)]
)
def test_a_last_line_of_sums_needs_no_word(line: str, left_out: bool, tmp_path: Path) -> None:
    """It was predicted, and made the errors of all rows look fifty times as large."""
    frame = pd.read_csv(written(tmp_path, *ROWS, line))
    rows, remarks = without_totals(frame, fewest=1, predicts=True)
    assert len(rows) == len(ROWS) + (not left_out)
    assert [remark.example for remark in remarks] == (["276"] if left_out else [])
    assert len(without_totals(frame.iloc[[0, 1, -1]], fewest=1)[0]) == 3  # sums of few rows are chance
