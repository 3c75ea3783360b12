"""Writes the tables of README.md from results/: python benchmarks/readme.py [--check].

A table stands between two comment lines, <!-- name --> and <!-- /name -->. With --check nothing is
written and the exit code says whether the README is up to date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mlayer.experiments.comparison import ROWS

ROOT = Path(__file__).resolve().parents[1]


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return content


def circumstances(facts: dict[str, Any]) -> str:
    others = "".join(f", {name} {version}" for name, version in facts.get("others", {}).items())
    return (
        f"`{facts['command']}`, {facts['threads']} threads, {facts['path']}, "
        f"torch {facts['torch']}{others}, {facts['date']}."
    )


def ratio(cell: dict[str, Any], name: str, kind: str) -> str:
    times = cell[kind] | cell[f"{kind}_others"]
    return f"{times[name]['median'] / times['mlayer']['median']:.0f} x" if name in times else ""


def expm() -> str:
    content = read("expm")
    cells = [c for c in content["cells"] if c["dtype"] == "float32"]
    kinds = [
        ("torch", "forward"),
        ("torch", "both"),
        ("jax", "both"),
        ("tensorflow", "both"),
        ("scipy", "forward"),
    ]
    heads = [f"{name}, {'forward' if kind == 'forward' else 'forward + backward'}" for name, kind in kinds]
    lines = ["| n | batch | " + " | ".join(heads) + " |", "|---" * (len(kinds) + 2) + "|"]
    lines += [
        f"| {c['n']} | {c['batch']} | " + " | ".join(ratio(c, name, kind) for name, kind in kinds) + " |"
        for c in cells
    ]
    lines += ["", errors(cells), circumstances(content["circumstances"]), "", *targets(content)]
    return "\n".join(lines)


def errors(cells: list[dict[str, Any]]) -> str:
    def worst(kind: str, name: str) -> str:
        return f"{max(c[kind][name] for c in cells):.1e}"

    parts = [
        f"{worst('forward_error', name)} and {worst('gradient_error', name)} ({name})"
        for name in ("mlayer", "torch")
    ]
    return f"Largest relative error of value and gradient on these matrices, against Arb: {', '.join(parts)}."


def targets(content: dict[str, Any]) -> list[str]:
    lines = ["| goal | wanted | measured | |", "|---|---|---|---|"]
    for t in content["targets"]:
        sign = "<=" if t["at_most"] else ">="
        reached = f"{t['reached']:.3g}"
        lines.append(
            f"| {t['claim']} | {sign} {t['wanted']:g} | {reached} | {'yes' if t['holds'] else 'missed'} |"
        )
    return lines


def layer() -> str:
    content = read("layer")
    shares = (
        f"At batch 256 the exponential and its derivative take {content['share_of_exponential']:.0%} "
        f"of a step, writing and reading M and its like {content['share_of_passes']:.0%}."
    )
    return "\n".join([*targets(content), "", f"{shares} {circumstances(content['circumstances'])}"])


def paper() -> str:
    """The paper's figures beside ours; what was not measured has no row."""
    summary = read("summary")
    figures = {name: entry["value"] for name, entry in summary.items()}
    lines = ["| | paper | here | goal | command |", "|---|---|---|---|---|"]
    for row in ROWS:
        entry = summary.get(row.name, summary.get(f"{row.name}.mean"))
        if entry is not None:
            lines.append(
                f"| {row.what} | {row.paper} | {row.here(figures)} | {row.goal(figures)} "
                f"| `{entry['command']}` |"
            )
    return "\n".join(lines)


def loop() -> str:
    content = read("loop")
    return "\n".join([*targets(content), "", circumstances(content["circumstances"])])


def tables() -> str:
    content = read("tables")
    names = list(content["mean_rank"])
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for table, entry in content["tables"].items():
        methods = entry["methods"]
        cells = [f"{methods[name]['mean']:.3f} ({methods[name]['rank']:g})" for name in names]
        lines.append(f"| {table} | " + " | ".join(cells) + " |")
    lines.append("| mean rank | " + " | ".join(f"{content['mean_rank'][name]:.2f}" for name in names) + " |")
    facts = content["setting"]
    told = f"`{facts['command']}`, scikit-learn {facts['scikit-learn']}, {facts['date']}."
    return "\n".join([*lines, "", told])


TABLES = {"expm": expm, "layer": layer, "paper": paper, "loop": loop, "tables": tables}


def written(text: str) -> str:
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, count = pattern.subn(lambda m, table=table: m[1] + table() + "\n" + m[2], text)  # type: ignore[misc]
        if count != 1:
            raise SystemExit(f"README.md has {count} places for the table {name}, not 1")
    return text


def main() -> int:
    readme = ROOT / "README.md"
    before = readme.read_text()
    after = written(before)
    if "--check" in sys.argv[1:]:
        return int(before != after)
    readme.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
