"""A model file of somebody who can compute the digest: every entry replaced by what does not belong there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import save

from least_squares import LeastSquares
from mlayer.cli import main
from mlayer.errors import MLayerError
from mlayer.files.store import _config_of, _digest
from mlayer.tables import Plan, TableModel, fit_table, load_table_model, open_table, predict_table
from mlayer.tables.explain import explain_table
from mlayer.tables.fit import fit_table as fitting
from mlayer.tables.horizon import remarks_of_shifts

ROWS = 60
GONE = object()
DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
VALUES: list[Any] = [
    *(GONE, None, True, -1, 2**70, 10**300, 1e308, float("nan"), float("inf"), "", "x", [], {}, [None]),
    *(["x", "x"], {"a": 1}, DEEP, "</script>\x1b[31m]]>\u202e", "%Y" * 300, "A" * 100_000),
]


def table(kind: str) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(ROWS), unit="D")
    frame = pd.DataFrame(
        {
            "num": draw.normal(size=ROWS),
            "money": [f"$ {value:.2f}" for value in draw.uniform(1, 99, ROWS)],
            "when": days.strftime("%d.%m.%Y"),
            "flag": draw.choice(["yes", "no"], ROWS),
            "cat": draw.choice(np.array(["u", "v", "w", None], dtype=object), ROWS),
        }
    )
    truth = 2 * frame["num"] + 1 + 0.1 * draw.normal(size=ROWS)
    return frame.assign(y=truth if kind == "regression" else np.where(truth > 0, "p", "q"))


def places(entry: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(entry, dict | list):
        keys = list(entry) if isinstance(entry, dict) else range(min(len(entry), 6))
        for key in keys:
            yield from places(entry[key], (*at, key))


def forged(entry: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return {} if value is GONE else value
    new = copy.deepcopy(entry)
    inner = new
    for key in at[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return new


def write(file: Path, model: TableModel, entry: Any) -> None:
    """Write a file as `mlayer.save` does, but without its checks."""
    config, tensors = _config_of(model.layer), dict(model.layer.state_dict())
    notes = {"table": entry}
    header = {"format": 2, "config": config, "notes": notes, "digest": _digest(config, tensors, notes)}
    file.write_bytes(save(tensors, {"mlayer": json.dumps(header)}))


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_no_entry_of_a_model_file_makes_a_raw_error(
    kind: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
    csv, file = tmp_path / "t.csv", tmp_path / "m.safetensors"
    table(kind).to_csv(csv, index=False)
    model: TableModel = fit_table(open_table(csv).read(), Plan("y")).model
    entry = json.loads(json.dumps(model.as_json()))
    assert {"num", "money", "when", "flag", "cat"} <= {column["name"] for column in entry["columns"]}
    refused = read = 0
    for number, at in enumerate(places(entry)):
        for value in VALUES[number % step :: step]:
            write(file, model, forged(entry, at, value))
            capsys.readouterr()
            try:
                code = main(["info", str(file)])
            except Exception as error:
                pytest.fail(f"{at} = {value!r:.60}: {error!r}")
            shown = capsys.readouterr()
            said = shown.out + shown.err
            assert code in (0, 2), (at, f"{value!r:.60}", said)
            assert not {"\x1b", "\u202e"} & set(said), (at, f"{value!r:.60}")
            assert len(said) < 30_000, (at, f"{value!r:.60}")
            if code == 2:
                refused += 1
                continue
            read += 1
            assert main(["info", str(file), "--json"]) == 0, (at, f"{value!r:.60}")
            json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
            try:
                predict_table(load_table_model(file), open_table(csv), tmp_path / "p.csv")
            except MLayerError:
                continue
    write(file, model, entry)
    assert main(["info", str(file)]) == 0
    assert refused > 300 // step < read


def test_no_entry_about_the_horizon_makes_a_raw_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forged entries for the intervals of forecasts are refused, or give widths that are numbers."""
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
    file, frame = tmp_path / "m.safetensors", table("regression").astype(str)
    model: TableModel = fit_table(frame, Plan("y", task="regression")).model
    entry = json.loads(json.dumps(model.as_json()))
    whole = {"column": "when", "last": "2020-02-29T00:00:00", "growth": [1.0, 0.1, 0.0], "span": 30.0}
    whole["slows"] = {"rate": 0.01, "after": 20.0}
    entry["facts"]["horizon"] = whole | {"scores": [0.1 * k for k in range(40)], "relative": False}
    refused = 0
    for at in places(entry["facts"]["horizon"]):
        for value in (*VALUES, "NaT", "0000-00-00", "999999999-01-01", [[1.0]], ["1", "2", "3"], "123"):
            write(file, model, forged(entry, ("facts", "horizon", *at), value))
            try:
                loaded = load_table_model(file)
            except MLayerError:
                refused += 1
                continue
            assert (at, value) != (("last",), "NaT")
            half = loaded.half_widths(frame, 0.9)
            assert not np.isnan(half).any(), (at, f"{value!r:.60}")
            assert (half >= 0).all(), (at, f"{value!r:.60}")
            assert len(loaded.predict(frame.head(2)).outputs) == 2
    write(file, model, entry)
    assert np.isfinite(load_table_model(file).half_widths(frame, 0.9)).all()
    assert refused > 200


def test_no_shift_of_the_level_makes_a_raw_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forged shifts are refused, or explained."""
    monkeypatch.setattr(fitting, "default_estimator", lambda *_: LeastSquares())
    file, frame = tmp_path / "m.safetensors", table("regression").astype(str)
    model: TableModel = fit_table(frame, Plan("y", task="regression")).model
    entry = json.loads(json.dumps(model.as_json()))
    horizon = {"column": "when", "last": "2020-02-29T00:00:00", "growth": [1.0, 0.1, 0.0], "span": 30.0}
    horizon |= {"scores": [0.1 * k for k in range(40)], "relative": False}
    entry["facts"] |= {"horizon": horizon, "shifts": [[3.0, 2.0]]}
    write(file, model, entry)
    assert [remark.kind for remark in remarks_of_shifts(entry["facts"], model.schema)] == ["shift"]
    explain_table(load_table_model(file), frame)
    shifts = [[["a", 1.0]], [[1e300, 1.0]], [[3.0, 1e999]], [[float("nan"), 1.0]], [3.0], "ab", [[3.0]], 7]
    for at, value in [(("shifts",), each) for each in shifts] + [(("horizon",), GONE)]:
        write(file, model, forged(entry, ("facts", *at), value))
        with pytest.raises(MLayerError, match="damaged"):
            load_table_model(file)
