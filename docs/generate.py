"""Writes the pages that the site makes from examples/: python docs/generate.py.

A script becomes its docstring, its picture and its source; a notebook its cells and their outputs. The
pages go to docs/generated, which is not kept in git.
"""

from __future__ import annotations

import ast
import base64
import json
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs/generated"


def script_page(script: Path) -> str:
    source = script.read_text()
    tree = ast.parse(source)
    title, _, rest = (ast.get_docstring(tree) or script.stem).partition("\n")
    picture = f"![{title}](../pictures/{script.stem}.png)\n\n" if picture_of(script).exists() else ""
    # The docstring stands above as text; the code begins at the first statement after it.
    code = "\n".join(source.splitlines()[tree.body[1].lineno - 1 :])
    heading = f"# {title.rstrip('.')}\n\n{rest.strip()}\n\n{picture}`examples/{script.name}`"
    return f"{heading}\n\n```python\n{code}\n```\n"


def picture_of(script: Path) -> Path:
    return ROOT / "docs/pictures" / f"{script.stem}.png"


def notebook_page(notebook: Path) -> str:
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for place, output in enumerate(cell["outputs"]):
            parts += shown(output, OUT / f"{notebook.stem}-{number}-{place}.png")
    heading, _, rest = "\n\n".join(parts).partition("\n")
    return f"{heading}\n\n`examples/{notebook.name}`\n{rest}\n"


def shown(output: dict[str, Any], picture: Path) -> list[str]:
    data = output.get("data", {})
    if "image/png" in data:
        picture.write_bytes(base64.b64decode("".join(data["image/png"])))
        return [f"![Output of the cell above]({picture.name})"]
    text = "".join(output.get("text", data.get("text/plain", "")))
    return [f"```text\n{text.rstrip()}\n```"]


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    for script in (ROOT / "examples").glob("*.py"):
        (OUT / f"{script.stem}.md").write_text(script_page(script))
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        (OUT / f"{notebook.stem}.md").write_text(notebook_page(notebook))


if __name__ == "__main__":
    main()
