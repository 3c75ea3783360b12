"""Tables of ratios for the docs, from the content of files in results/; see write_tables.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Content = dict[str, Any]


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in cells) for cells in (heads, *rows)]
    return [lines[0], "|---" * (lines[0].count("|") - 1) + "|", *lines[1:]]


def beside_scipy(content: Content) -> list[str]:
    """`expm_action` and SciPy's function for the same."""
    rows = [
        (f"{row['columns']}", f"{row['t']:g}", f"{row['scipy over mlayer']:.1f}")
        for row in content["beside_scipy"]
    ]
    return table(("columns", "t", "SciPy / mlayer"), rows)


def beside_forming(content: Content) -> list[str]:
    """`expm_action` and a product with the exponential, and the cost of a gradient."""
    rows = [
        (
            f"{row['n']}",
            "dense" if row["density"] == 1 else f"{100 * row['density']:g} % of the entries",
            f"{row['columns']}",
            f"{row['forming over mlayer']:.2g}",
        )
        for row in content["beside_forming"]
    ]
    gradient = content["gradient"]
    return [
        *table(("n", "A", "columns", "forming / mlayer"), rows),
        "",
        f"A step with the gradient with respect to every rate of a chain of {gradient['states']:,} states "
        f"takes {gradient['both over forward']:.2g} times as",
        "long as the value alone.",
    ]


def in_your_code(content: Content) -> list[str]:
    """`expm` in place of torch's: one row for each place, one cell for each size."""
    places: dict[str, list[str]] = {}
    for row in content["rows"]:
        cell = f"{row['n']}, {row['batch']}: {row['ratio']:.1f}"
        places.setdefault(row["place"], []).append(cell)
    width = max(map(len, places.values()))
    heads = ("place", "n, batch: ratio", *[""] * (width - 1))
    return table(heads, ((place, *cells) for place, cells in places.items()))


def initializers(content: Content) -> list[str]:
    """The smallest median loss of each initializer on each task; the best of a task in bold."""
    tasks = {
        "spirals": ("two spirals", "2"),
        "determinant": ("3 x 3 determinant", "9"),
        "hidden factors": ("products of hidden factors", "2000"),
    }
    names = list(next(iter(content["tasks"].values())))
    rows = []
    for task, found in content["tasks"].items():
        losses = [f"{found[name]['best']:.3f}" for name in names]
        best = min(losses, key=float)
        rows.append((*tasks[task], *(f"**{loss}**" if loss == best else loss for loss in losses)))
    return table(("task", "inputs", *(f'`"{name}"`' for name in names)), rows)


def rmsprop(content: Content) -> list[str]:
    """A step of torch's RMSprop and of ours."""
    rows = [
        (name, *(f"{entry['ratios'][kind]:.1f}" for kind in ("torch", "foreach")))
        for name, entry in content["rows"].items()
    ]
    return table(("model", "torch / ours", "torch, foreach / ours"), rows)


def radii(content: Content) -> list[str]:
    """Quantiles of the radii of the authors' model."""
    rows = {
        "paper's radius": ("paper", ".1e"),
        'our radius, `"best"`': ("radius", ".1e"),
        "attack's radius (upper bound of the truth)": ("attack", ".1e"),
        "ours / attack's": ("radius_over_attack", ".3f"),
        "ours / paper's": ("radius_over_paper", ",.0f"),
        'processor time of `"best"`, s': ("processor_seconds", ".2g"),
    }
    return table(
        ("", "5 %", "median", "95 %"),
        (
            (name, *(f"{content[key][q]:{form}}" for q in ("0.05", "0.5", "0.95")))
            for name, (key, form) in rows.items()
        ),
    )
