"""The counts of the long tests, in the JSON file that $MLAYER_FIGURES names, for docs/reliability.md."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from mlayer.experiments.running.provenance import circumstances

# Absolute: tests change the folder they are in.
_PLACE = Path(os.environ["MLAYER_FIGURES"]).absolute() if os.environ.get("MLAYER_FIGURES") else None


def note(row: str, **counts: int) -> None:
    """Replace the figures of a row of the table; each names the commit that it was run at."""
    if _PLACE is not None:
        known: dict[str, Any] = json.loads(_PLACE.read_text()) if _PLACE.exists() else {}
        here = circumstances() | {"command": _command()}
        added = {row: counts | {"commit": here["commit"]}, "circumstances": here}
        _PLACE.write_text(json.dumps(known | added, indent=1, sort_keys=True) + "\n")


def _command() -> str:
    """The command line of the tests, without the path of the user."""
    words = [word.rpartition("/")[2] if word.startswith("/") else word for word in sys.argv[1:]]
    count = os.environ.get("MLAYER_FUZZ")
    named = [f"MLAYER_FUZZ={count}"] if count else []
    return " ".join([*named, "MLAYER_FIGURES=results/reliability.json", "python -m pytest", *words])
