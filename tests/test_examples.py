"""The examples, the notebooks and the benchmarks' quick modes run, and what is kept of them is of today."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# What each script must have said, so that an example which does nothing is noticed.
SAID = {
    "certify_digits": "median radius: proved",
    "convolutional_head": "M-layer  head, 1,684 parameters",
    "drop_in_layer": "M-layer   2,004 parameters",
    "exact_determinant": "read back: a*e*i - a*f*h - b*d*i + b*f*g + c*d*h - c*e*g",
    "expm_at_work": "times faster than torch",
    "extrapolate_wave": "error in the ten years after",
    "table_estimator": "R^2 on unseen people",
}


def quick_first(files: list[Path], slow: set[str]) -> list[Any]:
    """Mark the examples that take many seconds as slow."""
    assert slow < {file.stem for file in files}
    return [
        pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if file.stem in slow else [])
        for file in files
    ]


@pytest.fixture
def _quiet_pictures() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")


@pytest.mark.usefixtures("_quiet_pictures")
@pytest.mark.parametrize("script", quick_first(SCRIPTS, {"expm_at_work", "convolutional_head"}))
def test_script_runs_and_draws(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert SAID[script.stem] in capsys.readouterr().out
    assert (tmp_path / f"out/{script.stem}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_picture_of_the_script_is_kept_and_small(script: Path) -> None:
    picture = ROOT / f"docs/pictures/{script.stem}.png"
    assert 1_000 < picture.stat().st_size < 100_000
    assert len(script.read_text().splitlines()) < 200


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]


def words(text: str) -> str:
    """The text without its numbers, which may differ from machine to machine."""
    return re.sub(r"[-+]?[\d.]+(e[-+]?\d+)?", "#", text)


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream")


@pytest.mark.usefixtures("_quiet_pictures")
@pytest.mark.parametrize("notebook", quick_first(NOTEBOOKS, {"certificates"}))
def test_notebook_runs_and_prints_what_it_holds(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook)):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), f"{notebook.name}, code cell {number}", "exec"), namespace)
        assert words(out.getvalue()) == words(printed(cell)), "run make examples"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_holds_its_outputs(notebook: Path) -> None:
    found = cells(notebook)
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    assert not [o for cell in found for o in cell["outputs"] if o["output_type"] == "error"]
    assert sum("image/png" in o.get("data", {}) for cell in found for o in cell["outputs"]) >= 2
    assert notebook.stat().st_size < 200_000


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "contender"),
    [
        pytest.param("heads", "recipe", marks=pytest.mark.slow),
        pytest.param("expm", "mlayer", marks=pytest.mark.slow),
        pytest.param("expm_action", "scipy / mlayer", marks=pytest.mark.slow),
        pytest.param("expm_in_your_code", "original / mlayer", marks=pytest.mark.slow),
        pytest.param("layer", "mlayer", marks=pytest.mark.slow),
        pytest.param("rmsprop", "ours", marks=pytest.mark.slow),
        pytest.param("fit_waves", "from the true periods", marks=pytest.mark.slow),
    ],
)
def test_benchmark_runs(name: str, contender: str, tmp_path: Path) -> None:
    out = run(str(ROOT / f"benchmarks/{name}.py"), "--quick", cwd=tmp_path)
    assert contender in out
    assert not list(tmp_path.iterdir()), "a quick run writes nothing"
