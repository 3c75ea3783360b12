"""A line end in a name or a cell of others makes no second line: neither on a terminal nor for the shell."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest

import mlayer
from mlayer.cli import options, show
from mlayer.cli.run import run

ENDS = ["\n", "\r\n", "\t", "\v", "\f", "\x85", "\u2028", "\u2029"]
FORGED = "9 rows forged"


def lines_of(text: str) -> list[str]:
    return text.splitlines()  # at every character that Python, or a terminal, takes for a line end


@pytest.mark.parametrize("end", ENDS)
def test_what_is_printed_is_one_line(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"a{end}{FORGED}"
    assert lines_of(show.line(text)) == [show.line(text)]
    assert "\t" not in show.line(text)
    show.out(text)
    show.say(text)
    show.remarks([text])
    show.table([text], [[text]])
    printed = capsys.readouterr()
    assert not any(part.startswith(FORGED) for part in lines_of(printed.out + printed.err))
    assert len(lines_of(printed.err)) == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with line ends in the names of its columns, categories and classes; a model of it."""
    there = tmp_path_factory.mktemp("ends")
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            f"x\n{FORGED}": drawn.normal(size=60),
            f"z\r{FORGED}": drawn.choice(["a", f"b\n{FORGED}"], 60),
            f"y\n{FORGED}": drawn.choice([f"p\n{FORGED}", "q"], 60),
        }
    )
    frame.to_csv(there / "t.csv", index=False)
    frame.to_parquet(there / "t.parquet")
    target = f"y\n{FORGED}"
    command = ["fit", "t.parquet", "--target", target, "-o", "m.safetensors", "--epochs", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(there)
        assert run(command) == 0
    return there


COMMANDS = [
    ["fit", "t.parquet", "--target", f"y\n{FORGED}", "--force", "--epochs", "1", "-o", "$(a).safetensors"],
    ["fit", "t.parquet", "--target", f"nothing\n{FORGED}"],
    ["info", "m.safetensors"],
    ["info", f"none\n{FORGED}.safetensors"],
    ["certify", "m.safetensors", "t.parquet", "--eps", "0.01", "--method", "first_order"],
    ["certify", "m.safetensors", "t.parquet", "--unit", f"no\n{FORGED}=1", "--eps", "0.01"],
    ["explain", "m.safetensors", "t.parquet", "--degree", "1"],
    ["predict", "m.safetensors", "t.parquet", "-o", "p.csv", "--force"],
    ["certify", "m.safetensors", "t.parquet", f"more\n{FORGED}"],
    [f"no command\n{FORGED}"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words)[:30].replace("\n", " "))
def test_no_command_prints_a_forged_line(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert run(command) in (0, 2)
    printed = capfd.readouterr()
    assert not any(part.startswith(FORGED) for part in lines_of(printed.out + printed.err))
    assert "predict $(a)" not in printed.err  # the next command, to be copied into a shell


def test_rows_on_a_terminal_are_one_line_each(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets the cells as they are, in quotes, as csv has it."""
    monkeypatch.chdir(folder)
    command = ["predict", "m.safetensors", "t.parquet", "--keep", "-q"]
    capsys.readouterr()
    assert run(command) == 0
    piped = capsys.readouterr().out
    assert len(lines_of(piped)) > 61
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert len(lines_of(shown)) == 61
    assert not any(part.startswith(FORGED) for part in lines_of(shown))


def test_the_shell_completes_with_clean_names_only(folder: Path) -> None:
    pd.DataFrame({"clean": [1], "two\nlines": [2], "red\x1b[31m": [3]}).to_csv(folder / "c.csv", index=False)
    context = click.Context(click.Command("fit"))
    context.params["table"] = folder / "c.csv"
    found = options.complete_columns(context, click.Argument(["target"]), "")
    assert found == ["clean"]


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def described(path: Path) -> object:
        warnings.warn(f"odd\n{FORGED}\x1b[31m", stacklevel=1)
        raise mlayer.errors.MLayerError(f"no\n{FORGED}")

    monkeypatch.setattr("mlayer.tables.model.describe_model", described)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(["info", "m.safetensors"]) == 2
    assert capfd.readouterr().err == (
        f"mlayer: UserWarning: odd\\n{FORGED}\\x1b[31m\nmlayer: no\\n{FORGED}\n"
    )


def test_json_keeps_line_ends(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(folder / "m.safetensors"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["table"]["target"]["name"] == f"y\n{FORGED}"


def test_what_libraries_say_in_many_lines_is_a_part_of_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line end of theirs is no name of others, and is not written out as one."""
    import torch

    def wrong(*_: object, **__: object) -> None:
        raise RuntimeError("Error(s) in loading state_dict for MLayer:\n\tsize mismatch for bias.\n")

    monkeypatch.setattr(torch.nn.Module, "load_state_dict", wrong)
    assert run(["explain", str(folder / "m.safetensors"), str(folder / "t.parquet")]) == 2
    said = capfd.readouterr().err
    assert "Error(s) in loading state_dict for MLayer: size mismatch for bias." in said
    assert "\\n" not in said
    monkeypatch.setattr("mlayer.tables.model.describe_model", wrong)
    assert run(["info", str(folder / "m.safetensors")]) == 1
    said = capfd.readouterr().err
    assert "a bug in mlayer: RuntimeError: Error(s) in loading state_dict for MLayer: size mismatch" in said
    assert "\\n" not in said


def test_errors_of_libraries_are_quoted_in_one_line() -> None:
    """The source: what another error says goes through `in_one_line` on its way into a message of ours."""
    source = Path(mlayer.__file__).parent
    quoted = re.compile(r"\{(error|reason|exception)\}|\{str\((error|reason|exception)\)")
    # Words of ours and numbers.
    own = {"cli/commands/fit.py", "cli/group.py", "certificates/checker/check.py"}
    own |= {"experiments/determinant5.py", "experiments/temperatures.py"}
    found = {
        str(file.relative_to(source)): line.strip()
        for file in source.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if quoted.search(line) and "exponential" not in file.parts  # which shows what compilers say
    }
    assert set(found) - own == set()
