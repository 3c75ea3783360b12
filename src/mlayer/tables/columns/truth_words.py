"""Words for true and false in several languages; a column of both words of a pair holds truth values."""

from __future__ import annotations

from collections.abc import Collection

# (true, false), in lower case. No word stands for true in one pair and for false in another.
PAIRS = (
    ("true", "false"),
    ("yes", "no"),
    ("y", "n"),
    ("t", "f"),
    ("on", "off"),
    ("ja", "nein"),
    ("ja", "nee"),
    ("ja", "nej"),
    ("ja", "nei"),
    ("j", "n"),
    ("wahr", "falsch"),
    ("oui", "non"),
    ("o", "n"),
    ("vrai", "faux"),
    ("v", "f"),
    ("si", "no"),
    ("sí", "no"),
    ("sì", "no"),
    ("s", "n"),
    ("vero", "falso"),
    ("verdadero", "falso"),
    ("sim", "não"),
    ("sim", "nao"),
    ("verdadeiro", "falso"),
    ("tak", "nie"),
    ("ano", "ne"),
    ("áno", "nie"),
    ("da", "ne"),
    ("da", "nu"),
    ("igen", "nem"),
    ("kyllä", "ei"),
    ("evet", "hay\u0131r"),
    ("evet", "hayir"),
    ("да", "нет"),
    ("так", "ні"),
    ("\u03bd\u03b1\u03b9", "\u03cc\u03c7\u03b9"),  # Greek
    ("はい", "いいえ"),
    ("是", "否"),
    ("예", "아니요"),
)
TRUE_WORDS = {word: value for pair in PAIRS for word, value in zip(pair, (1.0, 0.0), strict=True)}
# Marks of a cell that is otherwise left empty.
MARKS = frozenset({"x", "✓", "✔", "*", "•"})


def ordered_pair(words: Collection[str]) -> tuple[str, str] | None:
    """The two words, false first, if they are a pair in one language; case does not count.

    >>> ordered_pair({"Ja", "Nein"}), ordered_pair({"ja", "no"})
    (('Nein', 'Ja'), None)
    """
    found = {word.strip().lower(): word for word in words}
    for true, false in PAIRS:
        if found.keys() == {true, false} and len(words) == 2:
            return found[false], found[true]
    return None
