"""A figure of the paper and ours, as one row of a table. Every experiment names its own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One figure.

    Attributes:
        what: description of the figure.
        paper: what the paper says, quoted.
        name: of our figure in the summary; a name with .mean, .sd and .seeds below it gives all three.
        form: how to write it.
        at_most: our goal, if it is an error.
        at_least: our goal, if it is an accuracy.
        epochs: the name of the figure that says for how many epochs it was trained, if that needs saying.
        examples: the same for the number of examples.
        full_epochs: how many epochs a full training has; after fewer there is no row.
    """

    what: str
    paper: str
    name: str
    form: str
    at_most: float | None = None
    at_least: float | None = None
    epochs: str = ""
    examples: str = ""
    full_epochs: int | None = None

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
        text = written(value, self.form)
        if f"{self.name}.sd" in figures:
            text += f" ± {written(figures[f'{self.name}.sd'], self.form)}"
        said = []
        if f"{self.name}.seeds" in figures:
            seeds = round(figures[f"{self.name}.seeds"])
            said.append(f"{seeds} seed{'s' if seeds > 1 else ''}")
        counts = ((figures.get(self.examples), "examples"), (figures.get(self.epochs), "epochs"))
        said += [f"{round(count):,} {unit}" for count, unit in counts if count is not None]
        return f"{text} ({', '.join(said)})" if said else text

    def goal(self, figures: Mapping[str, float]) -> str:
        """The goal, and whether it is met."""
        value = self.value(figures)
        if value is None or (self.at_most is None and self.at_least is None):
            return ""
        if self.at_most is not None:
            return f"≤ {_short(self.at_most, self.form)}: {'met' if value <= self.at_most else 'missed'}"
        assert self.at_least is not None
        return f"≥ {_short(self.at_least, self.form)}: {'met' if value >= self.at_least else 'missed'}"


_MOST_DIGITS = 6  # of a percentage


def written(value: float, form: str) -> str:
    """A figure as tables and pictures write it: as a decimal where that is as short, or as the paper's 2e-4.

    >>> written(0.0027, ".1e"), written(2.6e-9, ".1e"), written(0.984, ".1%")
    ('0.0027', '2.6e-9', '98.4%')
    >>> written(0.9996, ".1%"), written(31776.5, ".0f")  # what is not all of it is not called all
    ('99.96%', '31,776')
    """
    if form.endswith("%") and value < 1:
        digits = int(form[1:-1])
        while digits < _MOST_DIGITS and format(value, f".{digits}%").startswith("100"):
            digits += 1
        return format(value, f".{digits}%")
    if form.endswith("f"):
        return format(value, f",{form}")
    if not form.endswith("e"):
        return format(value, form)
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:#.{int(form[1:-1]) + 1}g}".rstrip(".")
    mantissa, exponent = format(value, form).split("e")
    return f"{mantissa}e{int(exponent)}"


def _short(goal: float, form: str) -> str:
    if form.endswith("%"):
        return f"{goal:.0%}"
    return f"{goal:,g}".replace("e-0", "e-")
