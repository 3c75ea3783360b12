"""Names of columns, values, files and arguments of others never control the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import mlayer
from mlayer.cli import show
from mlayer.cli.run import run

ESCAPES = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\rb",
    "a\bb",
    "\u202ereversed",
    "\u200bhidden",
    "\x7f",
]
COMMANDS = Path(show.__file__).parent


def is_clean(text: str) -> bool:
    return all(c in "\n\t" or c.isprintable() for c in text)


@pytest.mark.parametrize("text", ESCAPES)
def test_escapes_are_written_out(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_clean(show.plain(text))
    show.say(text)
    show.out(text)
    show.table([text, "b"], [[text, text]])
    show.emit_json({text: text})
    out, err = capsys.readouterr()
    assert is_clean(out + err)
    assert text.replace("\r", "") not in out + err


def test_plain_text_stays() -> None:
    text = "Größe 日本 café: 3 \u00b5m\n\ttab, emoji 🙂"
    assert show.plain(text) == text


def test_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    content = {text: [text, 1.5] for text in ESCAPES}
    show.emit_json(content)
    assert json.loads(capsys.readouterr().out) == content


@pytest.mark.parametrize("text", ESCAPES)
@pytest.mark.parametrize(
    "command", ["info", "explain", "predict", "certify", "fit", "export", "reproduce", ""]
)
def test_hostile_arguments(command: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [word for word in (command, text, text) if word]
    assert run(arguments) == 2
    captured = capfd.readouterr()
    assert is_clean(captured.out + captured.err)


MORE = {"predict": ["t.csv"], "certify": ["t.csv"], "fit": ["--target", "y"]}


@pytest.mark.parametrize("command", ["info", "explain", "predict", "certify", "fit", "export"])
def test_a_nul_in_a_path_is_a_mistake(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "a\0b", *MORE.get(command, [])]) == 2
    assert "bug" not in capfd.readouterr().err


@pytest.mark.parametrize("output", ["", ".", "..", "/"])
@pytest.mark.parametrize("command", ["predict", "certify", "fit", "export"])
def test_an_output_without_a_name_is_a_mistake(
    command: str, output: str, capfd: pytest.CaptureFixture[str]
) -> None:
    option = "--onnx" if command == "export" else "-o"
    assert run([command, "m.safetensors", *MORE.get(command, []), option, output]) == 2
    assert "bug" not in capfd.readouterr().err


def test_a_model_with_hostile_notes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for k, text in enumerate(ESCAPES):
        file = tmp_path / f"{k}.safetensors"
        mlayer.save(mlayer.MLayer(1, 1, 2), file, notes={text: text, "table": {text: text}})
        assert run(["info", str(file)]) == 2
        captured = capfd.readouterr()
        assert is_clean(captured.out + captured.err)


def test_predictions_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets the values as they are in the table; a terminal gets them written out."""
    table, model = tmp_path / "t.csv", tmp_path / "m.safetensors"
    lines = [f"{k},{k * k % 7},{ESCAPES[k % 2]}" for k in range(40)]
    table.write_text("a\x1b[31m,b,c\n" + "\n".join(lines), encoding="utf-8")
    assert run(["fit", str(table), "--target", "c", "-o", str(model), "--epochs", "1", "-q"]) == 0
    command = ["predict", str(model), str(table), "--keep", "--proba", "-q"]
    capsys.readouterr()
    assert run(command) == 0
    piped = capsys.readouterr().out
    assert not is_clean(piped)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert is_clean(shown)
    # Two computations may differ in their last digits; everything else is the same.
    fractions = re.compile(r"0\.\d+(?:e-\d+)?")
    assert fractions.sub("p", shown) == fractions.sub("p", show.plain(piped))
    first, second = ([float(p) for p in fractions.findall(text)] for text in (shown, piped))
    assert first == pytest.approx(second)


def test_commands_print_through_show_alone() -> None:
    for file in (COMMANDS / "commands").glob("*.py"):
        if file.name != "completion.py":  # a script for the shell, made by click
            assert "click.echo" not in file.read_text(encoding="utf-8"), file.name
            assert "print(" not in file.read_text(encoding="utf-8"), file.name


def test_a_cell_of_a_million_characters_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as an example in a remark nor as the name of a column."""
    table, model, odd = tmp_path / "t.csv", tmp_path / "m.safetensors", tmp_path / "odd.csv"
    lines = "\n".join(f"{k},{k * k % 7},{k % 2}" for k in range(40))
    long = "x" * 1_000_000
    table.write_text(f"a,b,c\n{lines}")
    odd.write_text(f"a,b,c\n{lines}\n1,{long},0\n{long},2,1\n")
    assert run(["fit", str(table), "--target", "c", "-o", str(model), "--epochs", "1", "-q"]) == 0
    for command in (["predict", str(model), str(odd)], ["predict", str(model), str(odd), "--strict"]):
        capsys.readouterr()
        assert run(command) in (0, 2)
        captured = capsys.readouterr()
        assert "xxxxxx" in captured.err, "the remark is there"
        assert len(captured.err) < 20_000
