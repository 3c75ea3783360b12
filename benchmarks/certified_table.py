"""The tables of certified training, for `write_tables.py`."""

from __future__ import annotations

from typing import Any

from mlayer.experiments.certified_networks import ROWS
from mlayer.experiments.shared.accuracy_bars import KINDS
from mlayer.experiments.shared.over_seeds import grouped
from mlayer.experiments.shared.pictures import SET_TITLES


def certified_table(content: dict[str, Any], made_by: str) -> str:
    """Every head's accuracies, means over the seeds, and which goals the M-layer's meet."""
    figures = content["headline"]
    goals = {row.name: row.goal(figures) for row in ROWS}
    lines = [
        "| | eps | head | parameters | clean | attacked | certified | goals | images | epochs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (task, head), rows in grouped(content["results"]["rows"], "task", "model").items():
        first = rows[0]
        means = [f"{sum(row[kind] for row in rows) / len(rows):.2f}" for kind in KINDS]
        goal_texts = [goals.get(f"certified_networks.{task}.{kind}", "") for kind in ("clean", "certified")]
        goal = "; ".join(goal_texts) if head == "M-layer" else ""
        title = SET_TITLES.get(first["set"], first["set"])
        lines.append(
            f"| {title} | {first['radius']} | {head} | {first['parameters']:,} | "
            + " | ".join(means)
            + f" | {goal} | {first['test_images']:,} | {first['epochs']} |"
        )
    false = sum(row["false_certificates"] for row in content["results"]["rows"])
    seeds = len({row["seed"] for row in content["results"]["rows"]})
    said = f"Certified images that the attack broke: {false}. Seeds: {seeds}."
    return "\n".join([*lines, "", f"{said} `{content['command']}`, {made_by}, {content['date']}."])


def layers_table(content: dict[str, Any], made_by: str) -> str:
    """One M-layer and a linear layer for each task: accuracies in percent, means over the seeds."""
    lines = [
        "| | eps | parameters | epochs | clean | attacked | certified | linear: clean | certified | images |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups = grouped(content["results"]["rows"], "task", "model")
    for (task, model), rows in groups.items():
        if model == "linear":
            continue
        first, linear = rows[0], groups[task, "linear"]
        title = SET_TITLES.get(first["set"], first["set"])
        figures = [_mean(rows, kind) for kind in KINDS] + [_mean(linear, kind) for kind in KINDS[::2]]
        lines.append(
            f"| {title} | {first['radius']} | {first['parameters']:,} | {first['epochs']} | "
            + " | ".join(figures)
            + f" | {first['test_images']:,} |"
        )
    seeds = len({row["seed"] for row in content["results"]["rows"]})
    return "\n".join([*lines, "", f"Seeds: {seeds}. `{content['command']}`, {made_by}, {content['date']}."])


def _mean(rows: list[dict[str, Any]], kind: str) -> str:
    return f"{sum(row[kind] for row in rows) / len(rows):.2f}"


def optimizers_table(content: dict[str, Any], made_by: str) -> str:
    """Each optimizer with its best rate: most images that withstand the attack; the invariant layer last."""
    lines = [
        "| layer | optimizer | learning rates tried | best | training loss | clean | under attack |",
        "|---|---|---|---|---|---|---|",
    ]
    for (invariant, name), rows in grouped(content["rows"], "flip_invariant", "optimizer").items():
        best = max(rows, key=lambda row: row["attacked"])
        tried = ", ".join(f"{row['learning_rate']:g}" for row in rows)
        lines.append(
            f"| {'flip-invariant' if invariant else 'ordinary'} | {name} | {tried} | "
            f"{best['learning_rate']:g} | {best['loss']:.2f} | {best['clean']:.1f} | "
            f"{best['attacked']:.1f} |"
        )
    return "\n".join([*lines, "", made_by])


def recipes_table(content: dict[str, Any], made_by: str) -> str:
    """Changes of the recipe, in percent of the images set aside."""
    lines = ["| change | epochs | training loss | clean | under attack |", "|---|---|---|---|---|"]
    for row in content["rows"]:
        figures = f"{row['loss']:.2f} | {row['clean']:.1f} | {row['attacked']:.1f}"
        lines.append(f"| {row['change']} | {row['epochs']} | {figures} |")
    return "\n".join([*lines, "", made_by])
