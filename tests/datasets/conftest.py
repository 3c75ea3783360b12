"""A folder with the real data, for tests that may skip without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def real_data() -> Path:
    """`$MLAYER_DATA`, if it is set."""
    folder = os.environ.get("MLAYER_DATA")
    if not folder:
        pytest.skip("needs the real data sets: $MLAYER_DATA is not set")
    return Path(folder)
