"""`certify --proof` and `check-proof`: a proof is accepted for what it is about, and for nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import mlayer
from mlayer.cli import main, show
from mlayer.tables import TableModel, Target, learn_schema

pytest.importorskip("flint")

ROWS = 5
WRONG = 3  # the row whose true class the model gets wrong
Captured = pytest.CaptureFixture[str]


def table() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {"age": draw.uniform(1, 7, ROWS).round(3), "weight": draw.uniform(0, 2, ROWS).round(3)}
    )


def classifier(seed: int = 0) -> TableModel:
    torch.manual_seed(seed)
    schema, _ = learn_schema(table())
    layer = mlayer.MLayer(2, 3, matrix_size=3, embedding_size=None).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return TableModel(layer, schema, Target("kind", "classification", ("low", "middle", "high")))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, a table with one row that is misclassified, and nothing else."""
    monkeypatch.chdir(tmp_path)
    model, frame = classifier(), table()
    classes = list(model.target.classes)
    found = model.predict(frame).outputs.argmax(axis=1)
    found[WRONG] = (found[WRONG] + 1) % len(classes)
    frame["kind"] = [classes[k] for k in found]
    model.save("m.safetensors")
    frame.to_csv("t.csv", index=False)
    return tmp_path


def certify(capsys: Captured, *options: str) -> dict[str, Any]:
    command = ["certify", "m.safetensors", "t.csv", "--proof", "p.safetensors", "--method", "second_order"]
    assert main([*command, "--json", "-q", *options]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def check(capsys: Captured, *options: str, model: str = "m.safetensors") -> tuple[int, dict[str, Any]]:
    code = main(["check-proof", model, "t.csv", "p.safetensors", "--json", "-q", *options])
    return code, json.loads(capsys.readouterr().out)


def answers(facts: dict[str, Any]) -> list[str]:
    return [verdict["answer"] for verdict in facts["verdicts"]]


def test_a_proof_is_accepted_with_the_radii_that_were_certified(capsys: Captured) -> None:
    facts = certify(capsys, "-o", "c.csv", "--unit", "age=1")
    assert facts["proof"] == "p.safetensors"
    code, checked = check(capsys, "--unit", "age=1")
    assert code == 0
    expected = ["accepted"] * ROWS
    expected[WRONG] = "no claim"
    assert answers(checked) == expected
    assert (checked["rows"], checked["accepted"], checked["refused"], checked["no_claim"]) == (5, 4, 0, 1)
    radii = [verdict["radius"] for verdict in checked["verdicts"]]
    np.testing.assert_allclose(radii, pd.read_csv("c.csv")["radius"], rtol=1e-12)
    assert np.count_nonzero(radii) == ROWS - 1

    # In other units the same numbers would be another claim.
    code, checked = check(capsys)
    assert code == 1
    assert checked["accepted"] == 0
    assert checked["refused"] == ROWS - 1


def test_the_printed_table(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    certify(capsys, "--rows", "4")
    monkeypatch.setattr(show, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(["check-proof", "m.safetensors", "t.csv", "p.safetensors", "--rows", "4"]) == 0
    printed, said = capsys.readouterr()
    assert "no claim" in printed
    assert "3 rows accepted, 0 refused, 1 without a claim" in printed
    assert " 75%  3 of 4 rows" in said


def test_only_the_row_that_changed_is_refused(capsys: Captured) -> None:
    certify(capsys)
    frame = pd.read_csv("t.csv")
    frame.loc[1, "weight"] += 1e-3
    frame.to_csv("t.csv", index=False)
    code, checked = check(capsys)
    assert code == 1
    assert answers(checked) == ["accepted", "refused", "accepted", "no claim", "accepted"]
    assert "another row" in checked["verdicts"][1]["reason"]


def test_a_changed_label_is_refused(capsys: Captured) -> None:
    certify(capsys)
    frame = pd.read_csv("t.csv")
    frame.loc[0, "kind"] = "low" if frame.loc[0, "kind"] != "low" else "high"
    frame.to_csv("t.csv", index=False)
    code, checked = check(capsys)
    assert code == 1
    assert answers(checked)[0] == "refused"
    assert "another label" in checked["verdicts"][0]["reason"]


def test_a_proof_is_refused_for_another_model_norm_or_number_of_rows(capsys: Captured) -> None:
    certify(capsys)
    other = classifier()
    with torch.no_grad():
        next(other.layer.parameters()).view(-1)[0] += 2.0**-40
    other.save("other.safetensors")
    for options, model, refused, reason in (
        ((), "other.safetensors", ROWS - 1, "other weights"),
        (("--norm", "l2"), "m.safetensors", ROWS - 1, ""),
        (("--rows", "3"), "m.safetensors", 3, "the proof has 5 rows, the table 3"),
    ):
        code, checked = check(capsys, *options, model=model)
        assert code == 1
        assert (checked["accepted"], checked["refused"]) == (0, refused)
        assert reason in checked["verdicts"][0]["reason"]


def test_a_damaged_file_is_a_sentence(capsys: Captured) -> None:
    certify(capsys, "--rows", "1")
    whole = Path("p.safetensors").read_bytes()
    changed = bytearray(whole)
    changed[-1] ^= 1
    model = Path("m.safetensors").read_bytes()  # safetensors too, but no proof
    for damaged in (b"", whole[:-1], bytes(changed), model):
        Path("p.safetensors").write_bytes(damaged)
        assert main(["check-proof", "m.safetensors", "t.csv", "p.safetensors"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert "p.safetensors must be a complete proof of certificates" in said.err
        assert "Traceback" not in said.err
    assert main(["check-proof", "m.safetensors", "t.csv", "none.safetensors"]) == 2
    assert "no file none.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--proof", "p.txt"], "--proof must be a file ending in .safetensors"),
        (["--proof", "m.safetensors", "--force"], "is the model itself"),
        (["--proof", "nowhere/p.safetensors"], "there is no folder nowhere"),
        (["--proof", "old.safetensors"], "exists; use --force"),
    ],
)
def test_where_a_proof_cannot_be_written(options: list[str], said: str, capsys: Captured) -> None:
    Path("old.safetensors").write_bytes(b"old")
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert main(["certify", "m.safetensors", "t.csv", *options]) == 2
    assert said in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_without_python_flint(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    certify(capsys, "--rows", "1")
    monkeypatch.setitem(sys.modules, "flint", None)
    assert main(["check-proof", "m.safetensors", "t.csv", "p.safetensors"]) == 2
    assert "pip install 'mlayer[rigorous]'" in capsys.readouterr().err
    command = ["certify", "m.safetensors", "t.csv", "--rows", "1", "--proof", "q.safetensors"]
    assert main(command) == 2
    assert "python-flint" in capsys.readouterr().err
    assert not Path("q.safetensors").exists()
