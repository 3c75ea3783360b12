"""Claim: over ordinary tables mlayer is first or second in mean rank with its defaults; first on its own two.

    python benchmarks/tables.py            all sets; writes results/tables.json
    python benchmarks/tables.py --sets digits,iris    these again, the others as the file has them
    python benchmarks/tables.py --quick    two small sets, two folds; no file, no claims

Every method has its library defaults. But mlayer's defaults (optimizer, penalties, sizes, range of alpha)
were chosen on these same bundled tables and synthetic generators, with other seeds of folds and data; the
competitors got no such choice. Products and seasonal were designed to suit the M-layer. So a rank here is not
a measurement of how the defaults do on new tables.

In a StandardScaler pipeline, as is customary: MLPClassifier/MLPRegressor, SVC/SVR and the polynomials
(PolynomialFeatures, then LogisticRegression or LinearRegression). Gradient boosting needs no scaling and
mlayer scales inside. The polynomials have degree 2, while products has degree 3. Targets of regression are
handed over as they are: MLP and SVR fit them unscaled, mlayer scales its own inside. Five folds, shuffled
(stratified for classes); the seasonal series is split by time (TimeSeriesSplit), so that every test lies
beyond the end of its training rows. Score: accuracy, or R^2 on the test rows; the mean over
folds is ranked, equal means share a rank.
"""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
import torch
from measure import RESULTS, Target, argument_parser, circumstances, save, verdict
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit, cross_validate
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

from mlayer.estimators import MLayerClassifier, MLayerRegressor

Array = NDArray[np.float64]
OURS = "mlayer"
SEED = 0
FILE = RESULTS / "tables.json"


@dataclass(frozen=True)
class Table:
    """A data set: its rows, and how it is split ("classes", "rows" or "time")."""

    X: Array
    y: Array
    split: str


def products() -> tuple[Array, Array]:
    """A polynomial of degree 3 made of products, noise of deviation 0.05."""
    generator = np.random.default_rng(SEED)
    X = generator.uniform(-1, 1, (500, 6))
    y = X[:, 0] * X[:, 1] + 2 * X[:, 1] * X[:, 2] * X[:, 3] - X[:, 4] * X[:, 5] * X[:, 0]
    return X, y + 0.05 * generator.standard_normal(500)


def seasonal() -> tuple[Array, Array]:
    """Twenty years by month: a trend, a year with its half, a slow cycle of 5.3 years, noise of 0.3."""
    generator = np.random.default_rng(SEED)
    t = np.arange(240) / 12
    year = 3 * np.sin(2 * np.pi * t) + np.cos(4 * np.pi * t + 1)
    y = 10 + 0.5 * t + year + 2 * np.sin(2 * np.pi * t / 5.3) + 0.3 * generator.standard_normal(240)
    return t[:, None], y


def _table(rows: tuple[Array, Array], split: str) -> Table:
    return Table(*rows, split)


def tables() -> dict[str, Table]:
    """All sets; the quick ones first."""
    result = {
        "iris": _table(datasets.load_iris(return_X_y=True), "classes"),
        "wine": _table(datasets.load_wine(return_X_y=True), "classes"),
        "breast cancer": _table(datasets.load_breast_cancer(return_X_y=True), "classes"),
        "digits": _table(datasets.load_digits(return_X_y=True), "classes"),
        "diabetes": _table(datasets.load_diabetes(return_X_y=True), "rows"),
    }
    for name, make, noise in (
        ("Friedman 1", datasets.make_friedman1, 1.0),
        ("Friedman 2", datasets.make_friedman2, 10.0),
        ("Friedman 3", datasets.make_friedman3, 0.1),
    ):
        result[name] = _table(make(500, noise=noise, random_state=SEED), "rows")
    return result | {"products": _table(products(), "rows"), "seasonal": _table(seasonal(), "time")}


def _scaled(*steps: Any) -> Any:
    return make_pipeline(StandardScaler(), *steps)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    OURS: lambda: MLayerClassifier(random_state=SEED),
    "MLP": lambda: _scaled(MLPClassifier(random_state=SEED)),
    "gradient boosting": lambda: GradientBoostingClassifier(random_state=SEED),
    "SVM": lambda: _scaled(SVC(random_state=SEED)),
    "polynomial": lambda: _scaled(PolynomialFeatures(), LogisticRegression()),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    OURS: lambda: MLayerRegressor(random_state=SEED),
    "MLP": lambda: _scaled(MLPRegressor(random_state=SEED)),
    "gradient boosting": lambda: GradientBoostingRegressor(random_state=SEED),
    "SVM": lambda: _scaled(SVR()),
    "polynomial": lambda: _scaled(PolynomialFeatures(), LinearRegression()),
}


def folds(table: Table, count: int) -> Any:
    if table.split == "time":
        return TimeSeriesSplit(count)
    kind = StratifiedKFold if table.split == "classes" else KFold
    return kind(count, shuffle=True, random_state=SEED)


def ranks(means: dict[str, float]) -> dict[str, float]:
    """1 is best; equal means share the mean of their places."""
    places = {}
    for name, value in means.items():
        better = sum(other > value + 1e-12 for other in means.values())
        equal = sum(abs(other - value) <= 1e-12 for other in means.values())
        places[name] = better + (equal + 1) / 2
    return places


def mean_ranks(record: dict[str, Any]) -> dict[str, float]:
    """Mean ranks over all sets of the record."""
    return {
        name: statistics.mean(entry["methods"][name]["rank"] for entry in record.values())
        for name in CLASSIFIERS
    }


def _save(record: dict[str, Any]) -> None:
    """Write the record after every set, so that a stopped run is not lost."""
    setting = circumstances() | {"scikit-learn": sklearn.__version__, "numpy": np.__version__}
    complete = set(tables()) <= set(record)
    overall = mean_ranks(record) if complete else None
    save(FILE.stem, {"setting": setting, "mean_rank": overall, "tables": record})


def main() -> int:
    """Fit, print, write, judge."""
    parser = argument_parser("Estimators on ordinary tables.", "a smoke run: no file, no claims")
    parser.add_argument("--sets", default="", help="names, with commas between; all if left out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    chosen = tables()
    if arguments.quick:
        chosen = {name: chosen[name] for name in ("iris", "seasonal")}
    record: dict[str, Any] = {}
    if arguments.sets:
        record = json.loads(FILE.read_text())["tables"] if FILE.exists() else {}
        chosen = {name: chosen[name] for name in arguments.sets.split(",")}
    for set_name, table in chosen.items():
        methods = CLASSIFIERS if table.split == "classes" else REGRESSORS
        record[set_name] = {"rows": len(table.X), "inputs": table.X.shape[1], "methods": {}}
        means = {}
        for name, make in methods.items():
            with warnings.catch_warnings():
                # The defaults of some methods stop before convergence, and say so.
                warnings.simplefilter("ignore", ConvergenceWarning)
                splits = folds(table, 2 if arguments.quick else 5)
                scores = cross_validate(make(), table.X, table.y, cv=splits)["test_score"]
            means[name] = float(scores.mean())
            record[set_name]["methods"][name] = {
                "mean": means[name],
                "deviation": float(scores.std()),
                "scores": scores.tolist(),
            }
        for name, rank in ranks(means).items():
            entry = record[set_name]["methods"][name]
            entry["rank"] = rank
            print(
                f"{set_name:14} {name:18} {entry['mean']:8.4f} +- {entry['deviation']:.4f}  rank {rank:g}",
                flush=True,
            )
        if not arguments.quick:
            _save(record)
    if arguments.quick:
        print("quick: a smoke run, nothing is judged")
        return 0
    missing = [name for name in tables() if name not in record]
    if missing:
        print(f"not judged: {', '.join(missing)} not run yet")
        return 1
    overall = mean_ranks(record)
    print("\nmean rank: " + ", ".join(f"{name} {rank:.2f}" for name, rank in overall.items()))
    targets = [
        Target("place of mlayer in mean rank", 2, ranks({k: -v for k, v in overall.items()})[OURS], True),
        Target("rank of mlayer on products", 1, record["products"]["methods"][OURS]["rank"], True),
        Target("rank of mlayer on the seasonal series", 1, record["seasonal"]["methods"][OURS]["rank"], True),
    ]
    return verdict(targets)


if __name__ == "__main__":
    sys.exit(main())
