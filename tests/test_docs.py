"""Every Python block of README and docs runs, top to bottom, one namespace a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_pages_are_found() -> None:
    assert {"README.md", "layer.md", "expm.md"} <= {page.name for page in PAGES}


# Torch's own, when torch.compile is first used in a process.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize(
    "page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: str(p.relative_to(ROOT))
)
def test_code_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text()
    for match in BLOCK.finditer(text):
        # Blank lines in front, so that a traceback names the line of the page.
        code = "\n" * text[: match.start(1)].count("\n") + match.group(1)
        exec(compile(code, str(page), "exec"), namespace)


def test_tables_of_the_readme_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks/readme.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run python benchmarks/readme.py"


def test_examples_are_short() -> None:
    for example in (ROOT / "examples").glob("*.py"):
        assert len(example.read_text().splitlines()) < 200, example
