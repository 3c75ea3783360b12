"""Builds the autograd node for the torch of this Python, into the installed package; flags are in build.py.

python -m mlayer.exponential.compile
"""

from __future__ import annotations

import sys
from pathlib import Path

from mlayer.exponential.build import build_node

if __name__ == "__main__":
    try:
        print(f"built {build_node(Path(__file__).parent)}")  # noqa: T201
    except RuntimeError as problem:
        sys.exit(f"the autograd node was not built: {problem}")
