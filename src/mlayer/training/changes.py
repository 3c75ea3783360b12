"""Comparing fingerprints of runs: what changes during a run is distinguished from what differs between two.

A counter or a cache, in a callable or a data set, has another value when the same run is called again. What
was seen to change is therefore marked in the checkpoint: a number or text that changed, and a container that
grew, are not compared from then on. Of a digest (of a tensor, an array, a large object) the first and the
last value are kept, and it must be one of them: otherwise a large part of a run would count no longer because
of one counter in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

CHANGING = "(changes during the run)"
NOT_COMPARED = "(not compared)"  # before the class of an object whose content is not in the fingerprint
_PARTS = {"structure": "model", "around": "hooks and modes of torch"}
_DIGEST = re.compile(r"[^\n]*[0-9a-f]{64}")


def same(old: Any, new: Any) -> bool:
    """Whether two fingerprints agree, except for what changes during a run.

    >>> same([1, CHANGING], [1, "x"]), same([1, 2], [1, 2.0])
    (True, False)
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(value, new[key]) for key, value in old.items())
    if _is_one_of(old):
        return any(json.dumps(one) == json.dumps(new) for one in old[1:])
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    return old == CHANGING or json.dumps(old) == json.dumps(new)


def merged(old: Any, new: Any) -> Any:
    """One fingerprint of two moments of a run: counters and caches, which fill on the way, are marked.

    >>> merged([1, 5], [1, 6])
    [1, '(changes during the run)']
    """
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return {key: merged(value, new[key]) for key, value in old.items()}
    if _is_one_of(old):
        return old if same(old, new) else [*old[:2], new] if _is_digest(new) else CHANGING
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [merged(*pair) for pair in zip(old, new, strict=True)]
    if same(old, new):
        return old
    return [CHANGING, old, new] if _is_digest(old) and _is_digest(new) else CHANGING


def differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The names of attributes that differ, as far as a fingerprint has names.

    >>> list(differing([3, {"a": 1, "b": {"c": 2}}], [3, {"a": 1, "b": {"c": 3}}]))
    ['b.c']
    """
    if same(old, new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and "dict" not in old and "set" not in old:
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                yield inner
            else:
                yield from differing(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and not _is_one_of(old):
        inside = [name for pair in zip(old, new, strict=True) for name in differing(*pair, path)]
        yield from dict.fromkeys(inside)
    elif path:
        yield path


def marks_in(found: Any) -> list[str]:
    """The marks of objects that stand in a fingerprint without their whole content.

    >>> marks_in(["function", {"dict": [["a", [1, f"{NOT_COMPARED} mmap.mmap"]]]}])
    ['(not compared) mmap.mmap']
    """
    if isinstance(found, str):
        return [found[found.index(NOT_COMPARED) :]] if NOT_COMPARED in found else []
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return list(dict.fromkeys(mark for one in inside for mark in marks_in(one)))


def not_compared(about: dict[str, Any]) -> str:
    """The objects in each part of a run's fingerprint that stand there without their whole content.

    >>> not_compared({"data": [f"{NOT_COMPARED} h5py.File"], "augment": None})
    'h5py.File (data)'
    """
    parts = about["settings"] | about if "settings" in about else about
    found = {name: marks_in(value) for name, value in parts.items() if name != "settings"}
    return ", ".join(
        f"{mark.removeprefix(NOT_COMPARED).strip()} ({_PARTS.get(name, name)})"
        for name, marks in found.items()
        for mark in marks
    )


def difference(name: str, old: Any, new: Any) -> str:
    """The difference of a setting in words."""
    if name == "augment" and (old is None or new is None):
        return f"augment was {'none' if old is None else 'given'} and is {'none' if new is None else 'given'}"
    if any(isinstance(value, list | dict) for value in (old, new)):
        return f"{name} has other code or holds other values"
    return f"{name} was {old!r} and is {new!r}"


def agree(old: Any, new: Any) -> bool:
    """Whether two settings are the same; numbers by their values, as 1 and 1.0 are one learning rate."""
    return same(old, new) if isinstance(new, list | dict) else bool(old == new)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_one_of(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and value[0] == CHANGING
