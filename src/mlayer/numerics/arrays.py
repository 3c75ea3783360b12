"""Array types by short names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
AnyArray = np.ndarray[Any, Any]  # of any shape and type
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
