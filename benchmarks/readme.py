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


# What the paper says, ours by the name of the summary, and how to write it.
PAPER = [
    ("Spirals: points of a further turn, right", "a picture", "spiral.extra_turn_accuracy", ".1%"),
    ("Spirals, ReLU net", "a picture", "spiral.relu_extra_turn_accuracy", ".1%"),
    ("Periodic: error on [2, 6], worst of the figure's", "a picture", "periodic.figure_rmse_max", ".1e"),
    ("Periodic: random functions within 0.05", "", "periodic.random_success_rate", ".0%"),
    ("Temperatures: error of the last year's forecast", "a notebook", "temperatures.rmse", ".2f"),
    ("Temperatures, seasonal naive", "", "temperatures.seasonal_naive_rmse", ".2f"),
    ("3 x 3 determinant, 811 parameters, their recipe", "2e-4", "determinant3.paper_recipe_mse", ".1e"),
    ("3 x 3, their recipe, 8,192 examples", "", "determinant3.paper_recipe_mse_8192_examples", ".1e"),
    ("3 x 3 determinant, 811 parameters, our recipe", "2e-4", "determinant3.best_mse", ".1e"),
    ("5 x 5 determinant, 14,977 parameters, their recipe", "0.0012", "determinant5.paper_recipe_mse", ".1e"),
    ("5 x 5 determinant, 14,977 parameters, our recipe", "0.0012", "determinant5.best_mse", ".1e"),
    ("3 x 3 permanent, our recipe", '"equivalent"', "permanent3.best_mse", ".1e"),
    ("MNIST, text's recipe, %", "97.99 +- 0.12", "images.mnist.paper_recipe", "images"),
    ("MNIST, our recipe, %", "", "images.mnist.our_recipe", "images"),
    ("CIFAR-10, text's recipe, %", "54.17 +- 0.36", "images.cifar10.paper_recipe", "images"),
    ("CIFAR-10, notebook's recipe, %", "", "images.cifar10.notebook_recipe", "images"),
    ("CIFAR-10, our recipe, %", "", "images.cifar10.our_recipe", "images"),
    ("SVHN, text's recipe, %", "81.19 +- 0.23", "images.svhn.paper_recipe", "images"),
    ("SVHN, our recipe, %", "", "images.svhn.our_recipe", "images"),
    ("Epoch time, M-layer / ReLU net", "2.1 (V100)", "timing.ratio", ".2f"),
    ("Their certified radius, their model, median", "about 1e-5", "robustness.paper_median_radius", ".2e"),
]


def paper() -> str:
    """The paper's figures beside ours; what was not measured has no row."""
    summary = read("summary")
    lines = ["| | paper | here | command |", "|---|---|---|---|"]
    for what, quoted, name, form in PAPER:
        entry = summary.get(f"{name}.mean" if form == "images" else name)
        if entry is None:
            continue
        value = format(entry["value"], form) if form != "images" else _images(summary, name)
        lines.append(f"| {what} | {quoted} | {value} | `{entry['command']}` |")
    return "\n".join(lines)


def _images(summary: dict[str, Any], name: str) -> str:
    seeds = round(summary[f"{name}.seeds"]["value"])
    spread = summary.get(f"{name}.sd")
    sd = f" +- {spread['value']:.2f}" if spread else ""
    return f"{summary[f'{name}.mean']['value']:.2f}{sd} ({seeds} seed{'s' if seeds > 1 else ''})"


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
