"""The start of the command line: quick, light, and clear about what is missing."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from mlayer.cli import main
from mlayer.cli.group import COMMANDS, mlayer

HEAVY = (
    "torch",
    "numpy",
    "pandas",
    "pyarrow",
    "sklearn",
    "scipy",
    "matplotlib",
    "sympy",
    "rich",
    "safetensors",
)


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=900, check=False
    )


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["fit", "--help"], ["nonsense"]], ids=" ".join
)
def test_nothing_heavy_is_imported(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "from mlayer.cli import main\n"
        f"code = main({arguments!r})\n"
        "open('modules.json', 'w').write(json.dumps([code, sorted(sys.modules)]))\n"
    )
    python(code, tmp_path)
    exit_code, modules = json.loads((tmp_path / "modules.json").read_text())
    assert exit_code == (2 if arguments == ["nonsense"] else 0)
    assert not {name.split(".")[0] for name in modules} & set(HEAVY)


@pytest.mark.slow  # it measures time; that nothing heavy is imported, the cause, is tested above
def test_help_is_quick(tmp_path: Path) -> None:
    """A ratio to Python's own start, because machines differ: torch alone would be a factor of 50."""

    def seconds(*arguments: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], capture_output=True, check=True, cwd=tmp_path, timeout=900
            )
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    assert seconds("-m", "mlayer", "--help") < 15 * seconds("-c", "pass")


def test_python_dash_m(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlayer", "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith("mlayer ")


def test_without_click(tmp_path: Path) -> None:
    done = python(
        "import sys; sys.modules['click'] = None\nfrom mlayer.cli import main; sys.exit(main(['fit']))",
        tmp_path,
    )
    assert done.returncode == 2
    assert "pip install 'mlayer[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("package", ["pandas", "rich", "matplotlib", "sklearn"])
def test_without_the_rest(package: str, tmp_path: Path) -> None:
    """Each package of the extra may be missing; the message says what to install, and nothing is written."""
    rows = "".join(f"{k},{k % 3},{k * 0.7}\n" for k in range(30))
    (tmp_path / "t.csv").write_text("a,b,y\n" + rows)
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from mlayer.cli import main; sys.exit(main(['fit', 't.csv', '--target', 'y', '--epochs', '2']))"
    )
    done = python(code, tmp_path)
    assert done.returncode == 2, done.stderr
    assert "pip install 'mlayer[" in done.stderr
    assert "Traceback" not in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_the_list_of_commands_is_true() -> None:
    """The group's description of a command, given without importing it, is the command's."""
    help_text = CliRunner().invoke(mlayer, ["--help"]).output
    for name in COMMANDS:
        assert name in help_text
        command = mlayer.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name
        assert CliRunner().invoke(mlayer, [name, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ft"], "no command 'ft'. Did you mean 'fit'?"),
        (["zzz"], "The commands are: demo, fit, predict"),
        (["fit"], "Missing argument 'TABLE'"),
        (["fit", "t.csv"], "Missing option '-t' / '--target'"),
        (["fit", "t.csv", "--targt", "y"], "--target"),
    ],
    ids=str,
)
def test_wrong_words(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_MLAYER_COMPLETE" in capsys.readouterr().out


def test_completion_of_commands_and_columns(tmp_path: Path) -> None:
    """Completions are those that the shell requests."""
    from click.shell_completion import ShellComplete

    (tmp_path / "t.csv").write_text("price,size,place\n1,2,3\n")
    complete = ShellComplete(mlayer, {}, "mlayer", "_MLAYER_COMPLETE")
    assert [item.value for item in complete.get_completions([], "pre")] == ["predict"]
    found = complete.get_completions(["fit", str(tmp_path / "t.csv"), "--target"], "p")
    assert [item.value for item in found] == ["price", "place"]
    assert complete.get_completions(["fit", str(tmp_path / "none.csv"), "--target"], "p") == []
