"""Certified training at 2/255 on CIFAR-10, changes of the recipe: accuracy on images set aside.

    python benchmarks/robust_recipes.py DATA                  writes results/robust_recipes.json
    python benchmarks/robust_recipes.py DATA --resume         the rows that the file lacks
    python benchmarks/robust_recipes.py DATA --only NAME ...  these rows again, the others are kept
    python benchmarks/robust_recipes.py DATA --quick          one epoch of 2,000 images; no file

The flip-invariant layer of `mlayer reproduce certified` is trained on the first 45,000 training images, each
time with one change more, and judged as in `robust_optimizers.py` on the other 5,000.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import torch
from measure import RESULTS, argument_parser, circumstances, save
from robust_optimizers import SHIFTED, parts_of, trained

from mlayer.experiments.shared.image_augmentation import Augmentation

_COARSE: dict[str, Any] = {"frequencies": 16, "batch_size": 256, "learning_rate": 1.5e-4}
_DISTORTED = _COARSE | {"augmentation": Augmentation(shift=3, distortion=0.15, recoloring=0.2)}
# By name: the epochs and what is changed.
CHANGES: dict[str, tuple[int, dict[str, Any]]] = {
    "none": (12, {}),
    "16 frequencies": (12, _COARSE),
    "16 frequencies, distorted images": (12, _DISTORTED),
    "16 frequencies, distorted images, twice as long": (24, _DISTORTED),
    "16 frequencies, distorted images, n = 48": (12, _DISTORTED | {"matrix_size": 48}),
}


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("data", help="folder of the data sets")
    parser.add_argument("--quick", action="store_true", help="one epoch of 2,000 images; no file")
    parser.add_argument("--resume", action="store_true", help="keep the rows of the present file")
    parser.add_argument("--only", nargs="+", default=[], choices=list(CHANGES), help="rows to train again")
    options = parser.parse_args()
    torch.set_num_threads(1)
    training, aside = parts_of(options.data, quick=options.quick)
    facts = circumstances() | {"command": "python benchmarks/robust_recipes.py DATA"}
    file = RESULTS / "robust_recipes.json"
    kept = json.loads(file.read_text())["rows"] if (options.resume or options.only) and file.exists() else []
    rows = {row["change"]: row for row in kept}
    for name in options.only or [name for name in CHANGES if name not in rows]:
        epochs, changes = CHANGES[name]
        recipe = replace(SHIFTED, epochs=1 if options.quick else epochs, **changes)
        rows[name] = {"change": name} | trained(recipe, training, aside) | {"commit": facts["commit"]}
        print(rows[name], flush=True)
        if not options.quick:
            in_order = [rows[known] for known in CHANGES if known in rows]
            save("robust_recipes", {"circumstances": facts, "rows": in_order})
    return 0


if __name__ == "__main__":
    sys.exit(main())
