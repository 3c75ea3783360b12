"""Words that are nearly right, and files in the wrong order: a sentence, exit code 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlayer.cli import main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ft", "t.csv"], "no command 'ft'. Did you mean 'fit'?"),
        (["fit", "t.csv", "-t", "y", "--task", "clasification"], "Did you mean 'classification'?"),
        (["fit", "t.csv", "-t", "y", "--task", "quantum"], "'quantum' is not one of 'auto'"),
        (["certify", "m.safetensors", "t.csv", "--method", "secnd_order"], "Did you mean 'second_order'?"),
        (["certify", "m.safetensors", "t.csv", "--norm", "l_inf"], "Did you mean 'linf'?"),
        (["bench", "--device", "meta"], "device must be one that computes; got 'meta'"),
        (["completion", "bsh"], "Did you mean 'bash'?"),
        (["fit", "t.csv", "-t", "y", "--epoch", "3"], "'--epochs'"),
        (
            ["predict", "t.csv", "m.safetensors"],
            "the model comes first, then the table; got t.csv and m.safe",
        ),
        (["certify", "t.csv", "m.safetensors"], "the model comes first"),
        (["explain", "t.csv", "m.safetensors"], "the model comes first"),
        (["reproduce", "spiral", "--smoke", "--full"], "--smoke and --full exclude each other"),
        (["reproduce", "images", "--data", "nowhere"], "there is no folder nowhere; --data names the one"),
    ],
)
def test_mistakes(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_formula_needs_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import mlayer

    mlayer.save(mlayer.MLayer(3, 1, matrix_size=3), tmp_path / "m.safetensors")
    assert main(["explain", str(tmp_path / "m.safetensors")]) == 2
    assert "has no exact formula; name a table where one should hold" in capsys.readouterr().err
