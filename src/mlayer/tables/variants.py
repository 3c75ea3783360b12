"""Texts that differ in case or spaces only are one category: "Rome", " rome" and "ROME"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mlayer.tables.remarks import Remark


def folded(text: str) -> str:
    """What is left of a text if case and the number of spaces do not count.

    >>> folded(" New   YORK ")
    'new york'
    """
    return " ".join(text.casefold().split())


def merged_variants(texts: Iterable[str]) -> tuple[dict[str, str], int]:
    """For each text the most frequent one that differs from it in case or spaces only; rows that change.

    >>> merged_variants(["Rome", "rome", "Rome", "Oslo"])
    ({'Rome': 'Rome', 'rome': 'Rome', 'Oslo': 'Oslo'}, 1)
    """
    counts = Counter(texts)
    best: dict[str, str] = {}
    for text in sorted(counts, key=lambda text: (-counts[text], text)):
        best.setdefault(folded(text), text)
    names = {text: best[folded(text)] for text in counts}
    return names, sum(count for text, count in counts.items() if names[text] != text)


def merged_remark(column: str, texts: Iterable[str], rows: int) -> list[Remark]:
    """What is said of merged variants."""
    if not rows:
        return []
    names, _ = merged_variants(texts)
    odd = min(text for text, name in names.items() if name != text)
    said = f"cells differ from a category in case or spaces only and count as it: {odd!r} as {names[odd]!r}"
    return [Remark("merged", column, rows, said, strict=True)]
