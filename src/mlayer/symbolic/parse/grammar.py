"""Text to a tree: the one parser that strings from outside go through. Nothing in the text is ever run.

Python's own parser would do, but its documentation warns that a long or deeply nested text can crash the
interpreter. This one is given a grammar as data, reads from left to right, and refuses what is too long or
too deep before any work is done on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlayer.errors import ArgumentError
from mlayer.symbolic.parse.formula_error import formula_error

MOST_CHARACTERS = 100_000
# Of parentheses, powers and products in sums inside each other; each takes a few frames of Python's stack.
MOST_NESTED = 200
_SHOWN = 60

_TOKEN = re.compile(
    # Possessive (*+): no text makes the search go back and forth.
    r"\s*+(?:(?P<number>(?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9]++)?)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark>\*\*|>>|[-+*/^()&|~]))"
)
_END = ""


@dataclass(frozen=True)
class Grammar:
    """Operators of a language, by how tightly they bind."""

    infix: Mapping[str, int]  # operator -> level; those of one level stand in one chain, read from the left
    prefix: Mapping[str, int]  # operator -> level of what it applies to
    power: frozenset[str]  # operators that bind tighter than all others, read from the right
    functions: Sequence[str]  # names that take one argument in parentheses
    wanted: str  # what a text in the language is made of, for errors
    example: str  # a good text


@dataclass(frozen=True)
class Node:
    """A piece of the text."""

    kind: str  # "number", "name", "call", "prefix", "power" or "chain"
    words: tuple[str, ...]  # the number or name; the function; the operators
    parts: tuple[Node, ...] = ()  # what the operators or the function apply to


def tree_of(text: str, grammar: Grammar) -> Node:
    """The tree of a text in the language of a grammar.

    >>> tree_of("a*b", Grammar({"*": 0}, {}, frozenset(), (), "products", "'a*b'")).words
    ('*',)
    """
    return _Parser(text, grammar).whole()


class _Parser:
    def __init__(self, text: str, grammar: Grammar) -> None:
        self.text, self.grammar = text, grammar
        if len(text) > MOST_CHARACTERS:
            raise formula_error(f"at most {MOST_CHARACTERS} characters long", f"{len(text)} characters")
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0

    def _tokens(self) -> list[tuple[str, str, int]]:
        """(kind, text, place) of every token, and an empty one at the end."""
        tokens, place, end = [], 0, len(self.text.rstrip())
        while place < end:
            found = _TOKEN.match(self.text, place)
            if found is None:
                raise self._refusal(len(self.text) - len(self.text[place:].lstrip()))
            tokens.append(
                (str(found.lastgroup), found[found.lastgroup or 0], found.start(found.lastgroup or 0))
            )
            place = found.end()
            if found.lastgroup == "number" and self.text[place : place + 1].isidentifier():  # 2x
                raise self._refusal(found.start("number"))
        return [*tokens, ("end", _END, end)]

    def whole(self) -> Node:
        tree = self.climb(0)
        if self._word() != _END:
            raise self._refusal(self._place())
        return tree

    def climb(self, least: int) -> Node:
        """The expression at this place, with all operators of at least this level."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise formula_error(
                f"nested at most {MOST_NESTED} deep",
                f"deeper at character {self._place() + 1}",
                "Write it with fewer parentheses.",
            )
        left = self._operand(least)
        while True:
            word = self._word()
            if word in self.grammar.power and self._kind() == "mark":
                self.at += 1
                # The exponent may have a sign: 2**-1; and it binds to the right: a**b**c.
                exponent = self.climb(max(self.grammar.prefix.values(), default=0))
                left = Node("power", (word,), (left, exponent))
                continue
            level = self._level()
            if level is None or level < least:
                break
            words, parts = [], [left]
            while self._level() == level:
                words.append(self._word())
                self.at += 1
                parts.append(self.climb(level + 1))
            left = Node("chain", tuple(words), tuple(parts))
        self.depth -= 1
        return left

    def _operand(self, least: int) -> Node:
        kind, word, place = self.tokens[self.at]
        level = self.grammar.prefix.get(word)
        if level is not None and level >= least:
            words = []
            while self.grammar.prefix.get(self._word()) == level:
                words.append(self._word())
                self.at += 1
            return Node("prefix", tuple(words), (self.climb(level),))
        self.at += 1
        if kind == "number":
            return Node("number", (word.replace("_", ""),))
        if kind == "name" and word not in self.grammar.infix and word not in self.grammar.prefix:
            if self._word() != "(":
                return Node("name", (word,))
            if word in self.grammar.functions:
                self.at += 1
                return Node("call", (word,), (self._closed(),))
        if word == "(":
            return self._closed()
        raise self._refusal(place)

    def _closed(self) -> Node:
        """The expression between parentheses, of which the first is read."""
        inside = self.climb(0)
        if self._word() != ")":
            raise self._refusal(self._place())
        self.at += 1
        return inside

    def _kind(self) -> str:
        return self.tokens[self.at][0]

    def _word(self) -> str:
        return self.tokens[self.at][1]

    def _place(self) -> int:
        return self.tokens[self.at][2]

    def _level(self) -> int | None:
        return self.grammar.infix.get(self._word())

    def _refusal(self, place: int) -> ArgumentError:
        rest = self.text[place : place + _SHOWN].rstrip()
        came = f"{rest!r} at character {place + 1}" if rest else "a formula that ends too early"
        if len(self.text) <= _SHOWN:
            came += f" of {self.text!r}" if rest else f": {self.text!r}"
        hint = f"Write for example {self.grammar.example}."
        return formula_error(f"made of {self.grammar.wanted}", came, hint)
