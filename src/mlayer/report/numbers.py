"""Figures as text, the same in tables, pictures and cards."""

from __future__ import annotations

_MOST_DIGITS = 6  # of a percentage


def formatted(value: float, form: str) -> str:
    """A figure as tables and pictures write it: as a decimal where that is as short, or as the paper's 2e-4.

    >>> formatted(0.0027, ".1e"), formatted(2.6e-9, ".1e"), formatted(0.984, ".1%")
    ('0.0027', '2.6e-9', '98.4%')
    >>> formatted(0.9996, ".1%"), formatted(31776.5, ".0f")  # what is not all of it is not called all
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
