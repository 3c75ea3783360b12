"""The table of networks with certified training, for `write_tables.py`."""

from __future__ import annotations

from typing import Any

from mlayer.experiments.certified_networks import ROWS
from mlayer.experiments.shared.accuracy_bars import KINDS
from mlayer.experiments.shared.over_seeds import grouped

SETS = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "digits"}


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
        told = [goals.get(f"certified_networks.{task}.{kind}", "") for kind in ("clean", "certified")]
        goal = "; ".join(told) if head == "M-layer" else ""
        lines.append(
            f"| {SETS[first['set']]} | {first['radius']} | {head} | {first['parameters']:,} | "
            + " | ".join(means)
            + f" | {goal} | {first['test_images']:,} | {first['epochs']} |"
        )
    false = sum(row["false_certificates"] for row in content["results"]["rows"])
    seeds = len({row["seed"] for row in content["results"]["rows"]})
    said = f"Certified images that the attack broke: {false}. Seeds: {seeds}."
    return "\n".join([*lines, "", f"{said} `{content['command']}`, {made_by}, {content['date']}."])
