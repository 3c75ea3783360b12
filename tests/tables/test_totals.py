"""Lines of totals at the end of a table that is given to a model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.errors import ArgumentError
from mlayer.tables import Plan, TableModel, fit_table, open_table
from mlayer.tables.predict import predict_table
from mlayer.tables.reader import source

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
