"""certify, explain, reproduce and demo from end to end."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import mlayer
from mlayer.cli import main
from mlayer.cli.commands.demo import _is_page
from mlayer.cli.commands.fit import command as fit_command
from mlayer.errors import ArgumentError
from mlayer.experiments import demo, spiral
from mlayer.experiments.running import runner
from mlayer.experiments.running.protocol import RunContext
from mlayer.symbolic import explain, from_polynomial
from mlayer.tables import Plan, TableModel, Target, Training, learn_schema
from mlayer.tables.certify.certify_table import certify_table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flowers(rows: int = 30) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "length": draw.uniform(1, 7, rows).round(3),
            "width": draw.uniform(0, 2, rows).round(3),
            "color": draw.choice(["red", "blue"], rows),
        }
    )
    frame["kind"] = np.where(frame["length"] > 4, "long", "short")
    return frame


def classifier() -> TableModel:
    """Logits (0, length - 4 + 0.1 width): what is certified can be told by hand."""
    schema, _ = learn_schema(flowers().drop(columns="kind"))
    names = " ".join(f"x{k}" for k in range(len(schema.features)))
    logits = ["x0 - 4 + x1/10", "0"]
    layer = from_polynomial(logits, names).double()
    return TableModel(layer, schema, Target("kind", "classification", ("long", "short")))


def test_certificates_of_a_table_are_those_that_can_be_told_by_hand(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, frame = classifier(), flowers()
    model.save("m.safetensors")
    frame.to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", "-o", "c.csv", "--json", "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    found = pd.read_csv("c.csv")
    value = frame["length"] - 4 + frame["width"] / 10
    spans = {name: float(frame[name].max() - frame[name].min()) for name in ("length", "width")}
    assert facts["units"] == pytest.approx(spans)
    # The worst case moves both columns against the answer: the exact radius of a linear function.
    right = (value > 0) == (frame["kind"] == "long")
    exact = np.where(right, value.abs() / (spans["length"] + spans["width"] / 10), 0.0)
    np.testing.assert_allclose(found["radius"], exact, rtol=1e-3, atol=1e-9)
    assert (found["radius"] <= exact * (1 + 1e-9)).all()
    assert facts["correct"] == int(right.sum())


def test_units_and_eps(capsys: pytest.CaptureFixture[str]) -> None:
    classifier().save("m.safetensors")
    flowers().drop(columns="kind").to_csv("t.csv", index=False)  # without the target: the predicted class
    command = ["certify", "m.safetensors", "t.csv", "--unit", "length=1", "--unit", "width=0", "-q", "--json"]
    assert main([*command, "--eps", "0.5"]) == 0
    facts = json.loads(capsys.readouterr().out)
    frame = flowers()
    value = (frame["length"] - 4 + frame["width"] / 10).abs()
    assert facts["certified"] == int((value > 0.5).sum())
    assert facts["rows"] == facts["correct"] == 30


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--unit", "lenght=1"], "Did you mean 'length'"),
        (["--unit", "color=1"], "cannot move"),
        (["--unit", "length"], "must be COLUMN=NUMBER"),
        (["--unit", "length=-1"], "at least 0"),
        (["--unit", "length=0", "--unit", "width=0"], "a column that can move"),
        (["-o", "c.txt"], "ending in .csv"),
        (["--eps", "-1"], "--eps must be a finite number of at least 0; got -1.0"),
        (["--eps", "nan"], "--eps must be a finite number of at least 0; got nan"),
        (["--eps", "inf"], "--eps must be a finite number of at least 0; got inf"),
    ],
)
def test_mistakes_of_certify(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    classifier().save("m.safetensors")
    flowers().to_csv("t.csv", index=False)
    assert main(["certify", "m.safetensors", "t.csv", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("eps", [math.nan, math.inf, -1.0])
def test_a_radius_is_checked_before_any_work(eps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableModel, "encode", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ArgumentError, match="eps must be finite and not negative"):
        certify_table(classifier(), flowers(), eps=eps)


@pytest.mark.parametrize("command", ["certify", "explain", "predict"])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_tables_without_rows(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    classifier().save("m.safetensors")
    none = flowers().head(0)
    none.to_parquet(name) if name.endswith("parquet") else none.to_csv(name, index=False)
    assert main([command, "m.safetensors", name]) == 2
    assert "must be of one row or more; got none" in capsys.readouterr().err


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("plain", [True, False])
def test_a_formula_needs_two_different_rows(
    copies: int, plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = flowers()[["length", "width"]]
    layer = mlayer.MLayer(2, 2).double()
    if plain:
        mlayer.save(layer, "m.safetensors")
    else:
        schema, _ = learn_schema(frame)
        TableModel(layer, schema, Target("kind", "classification", ("a", "b"))).save("m.safetensors")
    pd.concat([frame.head(1)] * copies).to_csv("t.csv", index=False)
    assert main(["explain", "m.safetensors", "t.csv"]) == 2
    assert "two different" in capsys.readouterr().err


def test_an_exact_formula_is_measured_on_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    classifier().save("m.safetensors")
    flowers().head(1).to_csv("t.csv", index=False)
    assert main(["explain", "m.safetensors", "t.csv"]) == 0
    assert "length" in capsys.readouterr().out


def test_a_layer_whose_outputs_vanish_has_a_formula() -> None:
    """Targets that are met to the bit: the logarithm of the residual used to be that of 0."""
    layer = mlayer.MLayer(2, 1, output_bias=False).double()
    with torch.no_grad():
        layer.readout.zero_()
    points = np.random.default_rng(0).normal(size=(20, 2))
    assert explain(layer, points).formulas[0] == 0


@pytest.mark.parametrize("command", ["predict", "certify"])
def test_no_formula_reaches_a_spreadsheet(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain, schema = classifier(), classifier().schema
    TableModel(plain.layer, schema, Target("kind", "classification", ("=1+1", "-1"))).save("m.safetensors")
    cells = ["=cmd()", "+1 x", "-x", "@a", "\tx", "\rx", " =a", "-1.5", "a=b", "\uff1d1"]
    frame = flowers(10).drop(columns="kind").assign(**{"=note": cells})
    frame.to_csv("t.csv", index=False)
    keep = ["--keep"] if command == "predict" else []
    for name, option in (("plain.csv", []), ("safe.csv", ["--spreadsheet"])):
        assert main([command, "m.safetensors", "t.csv", "-o", name, *keep, *option]) == 0
    faithful, safe = (pd.read_csv(name, dtype=str) for name in ("plain.csv", "safe.csv"))
    assert set(faithful["prediction"]) == {"=1+1", "-1"}
    assert set(safe["prediction"]) == {"'=1+1", "-1"}
    for name in safe.columns:
        for cell in [name, *safe[name].dropna()]:
            assert cell.lstrip()[0] not in "=+@\uff1d", cell
            assert cell[0] != "-" or float(cell) < 0, cell
    assert safe["prediction"].str.lstrip("'").tolist() == faithful["prediction"].tolist()
    capsys.readouterr()
    if command == "predict":
        assert "'=note" in safe.columns
        assert main(["predict", "m.safetensors", "t.csv", "-o", "p.parquet", "--spreadsheet"]) == 2
        assert "--spreadsheet is for csv" in capsys.readouterr().err


def test_explain_names_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    frame = flowers()[["length", "width"]].rename(columns={"length": "length (cm)"})
    schema, _ = learn_schema(frame)
    layer = from_polynomial(["2 * x0 * x1 - 3"], "x0 x1").double()
    TableModel(layer, schema, Target("y", "regression", ())).save("m.safetensors")
    frame["y"] = 2 * frame["length (cm)"] * frame["width"] - 3
    frame.to_csv("t.csv", index=False)
    assert main(["explain", "m.safetensors", "t.csv", "--json", "--plot", "p.png"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["formulas"] == ["2*length_cm*width - 3"]
    assert facts["exact"]
    assert facts["data_error"] < 1e-9
    assert Path("p.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["explain", "m.safetensors", "--latex"]) == 0
    assert r"2 length_{cm} width - 3" in capsys.readouterr().out


def test_explain_of_a_plain_layer_and_of_one_that_needs_points(capsys: pytest.CaptureFixture[str]) -> None:
    mlayer.save(from_polynomial(["x*y + 1"], "x y"), "p.safetensors")
    assert main(["explain", "p.safetensors"]) == 0
    assert "p = x0*x1 + 1" in capsys.readouterr().out
    generator = torch.Generator().manual_seed(0)
    mlayer.save(mlayer.MLayer(2, 1, 4, generator=generator), "full.safetensors")
    assert main(["explain", "full.safetensors"]) == 2
    assert "full.safetensors has no exact formula; name a table" in capsys.readouterr().err
    flowers()[["color", "width"]].to_csv("t.csv", index=False)
    assert main(["explain", "full.safetensors", "t.csv"]) == 2
    assert "2 columns of numbers, the inputs of full.safetensors; got 1." in capsys.readouterr().err
    assert main(["explain", "p.safetensors", "--plot", "p.gif"]) == 2
    assert ".png, .svg or .pdf" in capsys.readouterr().err


def test_reproduce_writes_results_picture_and_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "determinant", "--smoke", "-o", "r", "--json", "-q"]) == 0
    headline = json.loads(capsys.readouterr().out)["determinant"]
    assert headline["determinant3.best_mse"] > 0
    assert {p.name for p in Path("r").iterdir()} == {
        "determinant.smoke.json",
        "determinant.smoke.png",
        "report.smoke.html",
    }
    page = Path("r/report.smoke.html").read_text()
    assert "data:image/webp;base64," in page
    assert "mlayer reproduce determinant --smoke" in page
    assert "0.0002" in page  # the paper's figure, beside ours


@pytest.mark.slow
def test_a_smoke_run_is_not_held_against_the_paper(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "robustness", "--smoke", "-o", "r", "-q"]) == 0
    out = capsys.readouterr().out
    assert "robustness.median_ratio" in out
    assert "missed" not in out
    assert "about 1e-5" not in out
    assert "say nothing about the paper" in out


def test_a_default_run_beside_a_full_one_says_where_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spiral, "run", lambda config, context: {"seeds": config.seeds})
    monkeypatch.setattr(spiral, "headline", lambda results: {"spiral.seeds": float(results["seeds"])})
    monkeypatch.setattr(spiral, "plot", lambda results: Figure(figsize=(1, 1)))
    monkeypatch.setattr(runner, "write_page", lambda folder, smoke: None)
    assert main(["reproduce", "spiral", "-o", "r", "-q"]) == 0
    assert main(["reproduce", "spiral", "--full", "-o", "r", "-q"]) == 0
    assert "stays" not in capsys.readouterr().out
    assert main(["reproduce", "spiral", "-o", "r", "-q"]) == 0
    said = "".join(capsys.readouterr().out.split())
    assert "fullscalestays;thisoneisinr/spiral.default.json" in said
    assert json.loads((folder / "r" / "spiral.default.json").read_text())["scale"] == "default"


def test_mistakes_of_reproduce(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "determinan"]) == 2
    assert "must be one of 'spiral'" in capsys.readouterr().err
    Path("file").write_text("")
    assert main(["reproduce", "spiral", "-o", "file"]) == 2
    assert "-o names a folder" in capsys.readouterr().err
    assert main(["reproduce", "images", "--data", "nowhere", "-o", "r"]) == 2
    assert "nowhere" in capsys.readouterr().err


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "source", "br", "link"):
            self.open.append(tag)
        self.sources += [v or "" for k, v in attrs if k in ("src", "srcset", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_demo_replaces_its_own_page_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "run", lambda *_, **__: pytest.fail("the work began"))
    Path("thesis.html").write_text("<!doctype html><title>My thesis</title>")
    assert main(["demo", "-q", "-o", "thesis.html"]) == 2
    assert "thesis.html exists; use --force to replace it" in capsys.readouterr().err
    assert "My thesis" in Path("thesis.html").read_text()


def test_the_demo_writes_one_page_that_needs_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    determinant = demo._determinant

    def watched(context: RunContext) -> dict[str, Any]:
        threads.append(torch.get_num_threads())
        return determinant(context)

    monkeypatch.setattr(demo, "_determinant", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert main(["demo", "--smoke", "--json", "-q", "-o", "d.html"]) == 0
        assert (threads, torch.get_num_threads()) == ([1], 3)  # it computes in one
    finally:
        torch.set_num_threads(before)
    facts = json.loads(capsys.readouterr().out)
    assert facts["determinant.largest_error"] < 1e-9
    reader = _Reader()
    text = Path("d.html").read_text()
    assert _is_page(Path("d.html"))
    reader.feed(text)
    assert reader.open == []
    assert len(reader.sources) == 8  # four pictures, light and dark
    assert all(source.startswith("data:image/svg+xml;base64,") for source in reader.sources)
    assert "<script" not in text
    assert [p.name for p in folder.iterdir()] == ["d.html"]


def test_certify_offers_every_method_without_torch() -> None:
    """The choices derive from the table of bounds, which loads nothing heavy."""
    code = (
        "import sys; from mlayer.cli.commands import certify; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; print(*certify.METHODS)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    from mlayer.certificates.bounds.methods import names

    assert tuple(found.split()) == names()[::-1]


def test_defaults_of_fit_are_those_of_the_library() -> None:
    """The same table gives the same model from Python and from the command line."""
    given = fit_command.make_context("fit", ["table.csv", "--target", "y"]).params
    for of in (Plan("y"), Training()):
        for name in (field.name for field in fields(of) if field.name != "training"):
            assert given[name] == getattr(of, name), name
