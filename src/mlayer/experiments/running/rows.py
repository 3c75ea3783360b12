"""A figure of the paper and ours, as one row of a table. Every experiment names its own rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlayer.report.numbers import formatted


@dataclass(frozen=True)
class PaperRow:
    """One figure."""

    what: str  # description of the figure
    paper: str  # what the paper says, quoted
    name: str  # of our figure in the summary; a name with .mean, .sd and .seeds below it gives all three
    form: str  # how to write it
    at_most: float | None = None  # our goal, if it is an error
    at_least: float | None = None  # our goal, if it is an accuracy
    # the name of the figure that says for how many epochs it was trained, if that needs saying
    epochs: str = ""
    examples: str = ""  # the same for the number of examples
    seeds: str = ""  # the same for the number of seeds, where that is not ``name`` with .seeds
    full_epochs: int | None = None  # how many epochs a full training has; after fewer there is no row

    def value(self, figures: Mapping[str, float]) -> float | None:
        """Our figure, or None if it was not measured, or not of a full training."""
        if self.full_epochs is not None and figures.get(self.epochs, 0) < self.full_epochs:
            return None
        return figures.get(self.name, figures.get(f"{self.name}.mean"))

    def here(self, figures: Mapping[str, float]) -> str:
        """Our figure as text, with its spread and the number of seeds if there are any."""
        value = self.value(figures)
        if value is None:
            return ""
        text = formatted(value, self.form)
        if f"{self.name}.sd" in figures:
            text += f" ± {formatted(figures[f'{self.name}.sd'], self.form)}"
        details = []
        if (count := figures.get(self.seeds or f"{self.name}.seeds")) is not None:
            details.append(f"{round(count)} seed{'s' if count > 1 else ''}")
        counts = ((figures.get(self.examples), "examples"), (figures.get(self.epochs), "epochs"))
        details += [f"{round(count):,} {unit}" for count, unit in counts if count is not None]
        return f"{text} ({', '.join(details)})" if details else text

    def goal(self, figures: Mapping[str, float]) -> str:
        """The goal, and whether it is met."""
        value = self.value(figures)
        if value is None or (self.at_most is None and self.at_least is None):
            return ""
        if self.at_most is not None:
            return f"≤ {_short(self.at_most, self.form)}: {'met' if value <= self.at_most else 'missed'}"
        assert self.at_least is not None
        return f"≥ {_short(self.at_least, self.form)}: {'met' if value >= self.at_least else 'missed'}"


def paper_rows(
    of: str, prefix: str, rows: Iterable[tuple[str, str, str, str, dict[str, Any]]]
) -> tuple[PaperRow, ...]:
    """Rows that begin with ``of``, whose figures begin with ``prefix``: what, paper, name, form, the rest."""
    return tuple(
        PaperRow(f"{of}{what}", paper, f"{prefix}.{name}", form, **rest)
        for what, paper, name, form, rest in rows
    )


def _short(goal: float, form: str) -> str:
    if form.endswith("%"):
        return f"{goal:.0%}"
    return f"{goal:,g}".replace("e-0", "e-")
