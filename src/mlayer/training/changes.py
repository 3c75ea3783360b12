"""Comparing fingerprints of runs: what changes during a run is distinguished from what differs between two.

A counter or a cache, in a callable or a data set, has another value when the same run is called again. What
was seen to change is therefore marked in the checkpoint: a number or text that changed, an attribute that
appeared, and the end of a container that grew are not compared from then on; their neighbors are. Of a
digest (of a tensor, an array, a large object) the first and the last value are kept, and it must be one of
them: otherwise a large part of a run would count no longer because of one counter in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

CHANGING = "(changes during the run)"
MORE = "(more during the run)"  # at the end of a list or dictionary that grew
NOT_COMPARED = "(not compared)"  # before the class of an object whose content is not in the fingerprint
_ONE_OF = "one of"  # the first and the last value
_FORMS = {"dict", "set", "tuple", "members", "examples"}  # of containers and objects
_PARTS = {"structure": "model", "around": "hooks and modes of torch"}
_DIGEST = re.compile(r"[^\n]*[0-9a-f]{64}")


def same(old: Any, new: Any) -> bool:
    """Whether two fingerprints agree, except for what changes during a run.

    >>> same([1, CHANGING], [1, "x"]), same([1, 2], [1, 2.0])
    (True, False)
    """
    if _is_one_of(old):
        return any(same(one, new) for one in old[_ONE_OF])
    if isinstance(old, dict) and isinstance(new, dict):
        if (pairs := _pairs(old, new)) is not None and _grew(old["dict"]):
            return _agree(*pairs, more=True)
        return _agree(old, new)
    if isinstance(old, list) and isinstance(new, list):
        if _grew(old):
            return _agree(dict(enumerate(old[:-1])), dict(enumerate(new)), more=True)
        return len(old) == len(new) and all(map(same, old, new))
    return old == CHANGING or json.dumps(old) == json.dumps(new)


def merged(old: Any, new: Any) -> Any:
    """One fingerprint of two moments of a run: counters and caches, which fill on the way, are marked.

    >>> merged([1, 5], [1, 6])
    [1, '(changes during the run)']
    """
    if _is_one_of(old):
        first, last = old[_ONE_OF]
        whole = _is_whole(first, new) or _is_whole(last, new)
        return old if same(old, new) else {_ONE_OF: [first, new]} if whole else CHANGING
    if isinstance(old, dict) and isinstance(new, dict) and (old.keys() & _FORMS == new.keys() & _FORMS):
        if (pairs := _pairs(old, new)) is not None and (
            _grew(old["dict"]) or list(pairs[0]) != list(pairs[1])
        ):
            return {"dict": [*([json.loads(key), one] for key, one in _known(*pairs).items()), MORE]}
        return _known(old, new) | {key: CHANGING for key in new if key not in old}
    if isinstance(old, list) and isinstance(new, list) and not (_is_large(old) or _is_large(new)):
        if len(old) == len(new) and not _grew(old):
            return [merged(*pair) for pair in zip(old, new, strict=True)]
        known = old[:-1] if _grew(old) else old
        return [*_known(dict(enumerate(known)), dict(enumerate(new))).values(), MORE]
    if same(old, new):
        return old
    return {_ONE_OF: [old, new]} if _is_whole(old, new) else CHANGING


def _agree(old: dict[Any, Any], new: dict[Any, Any], more: bool = False) -> bool:
    """Whether parts agree by their names; what changes may be missing, and ``more`` may have come."""
    if not more and not new.keys() <= old.keys():
        return False
    return all(same(one, new[key]) if key in new else one == CHANGING for key, one in old.items())


def _known(old: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
    """The parts of the first moment by their names; what is gone at another is marked."""
    return {key: merged(one, new[key]) if key in new else CHANGING for key, one in old.items()}


def _pairs(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The pairs of two dictionaries by their keys; None where these are no dictionaries of a run."""
    if not (old.keys() == new.keys() == {"dict"}):
        return None
    sides = [side[:-1] if _grew(side) else side for side in (old["dict"], new["dict"])]
    if not all(isinstance(side, list) for side in sides):
        return None
    if not all(isinstance(one, list) and len(one) == 2 for side in sides for one in side):
        return None
    before, now = ({json.dumps(key): one for key, one in side} for side in sides)
    return before, now


def _grew(found: Any) -> bool:
    return isinstance(found, list) and found[-1:] == [MORE]


def _is_large(value: Any) -> bool:
    """Whether this stands for an object of which only a digest was kept."""
    return isinstance(value, list) and value[:1] == ["long"] and len(value) >= 3


def _is_whole(old: Any, new: Any) -> bool:
    """Whether the first and the last value are to be kept, as one of them cannot be looked into."""
    if _is_digest(old) and _is_digest(new):
        return True
    empty = old in ([], {"dict": []}, {"set": []}, {"tuple": []})
    return not empty and (_is_large(old) or _is_large(new)) and isinstance(old, list | dict)


def differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The names of attributes that differ, as far as a fingerprint has names.

    >>> list(differing([3, {"a": 1, "b": {"c": 2}}], [3, {"a": 1, "b": {"c": 3}}]))
    ['b.c']
    """
    if same(old, new):
        return
    named = isinstance(old, dict) and isinstance(new, dict) and not old.keys() & (_FORMS - {"members"})
    if named and not _is_one_of(old):
        for key in sorted(old.keys() | new.keys()):
            inner = path if key == "members" else f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                yield inner
            else:
                yield from differing(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
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
    states = value.get(_ONE_OF) if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(states, list) and len(states) == 2
